// Package controller carries out the reconciles of Stores: it observes, lets the planner decide, applies the plan, and writes the
// status once.
package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin"
	"rcbox.dev/rcbox/operator/internal/ownership"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/record"
	"rcbox.dev/rcbox/operator/internal/status"
)

const (
	// FieldManager owns the fields that the operator applies.
	FieldManager = client.FieldOwner("rcbox-operator")

	// concurrency is how many Stores are reconciled at a time. A reconcile waits for its coordinator, not for a CPU.
	concurrency = 8
	// retryLeast and retryMost bound the pause after a failed reconcile.
	retryLeast = 500 * time.Millisecond
	retryMost  = 30 * time.Second
	// staleRetry is the pause after a reconcile that turned out to have seen an old state.
	staleRetry = 200 * time.Millisecond
)

// Reconciler reconciles Stores.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Nodes are those of the cluster.
	Nodes NodeSource
	// Recorder tells users what was done and why.
	Recorder events.EventRecorder
	// Dial reaches a coordinator.
	Dial admin.Dialer
	// Listen hears of changes of a coordinator's status.
	Listen admin.Watcher
	// Statuses has what was last heard of coordinators; nil: each reconcile asks.
	Statuses StatusSource
	// Now is the clock.
	Now func() time.Time
	// DefaultImage is what a Store gets that names none.
	DefaultImage string
	// Allowed is what Stores may have beyond an ordinary pod.
	Allowed facts.Allowed
	// Namespace is the operator's own, from which it may reach the coordinators' admin ports.
	Namespace string
	// Ownership says whose the Stores of a namespace are; nil: all are this operator's.
	Ownership *ownership.Leases

	// NoteLooks is how often it is written down that a Store was looked at; 0: never. Holder is who has.
	NoteLooks time.Duration
	Holder    string

	// looks that were written down.
	looks lookBook
	// memberWriters is how many StoreMembers are written at a time; 0: one, by whoever reconciles.
	memberWriters int
	// trials of pods.
	trials trialBook
	// plan, if it is set, is asked in place of planner.Make: the simulation has time pass there, and plants bugs.
	plan func(facts.Observed) planner.Plan
}

// +kubebuilder:rbac:groups=rcbox.dev,resources=stores,verbs=get;list;watch;patch;drill;drain;isolate
// +kubebuilder:rbac:groups=rcbox.dev,resources=storeoperations,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=rcbox.dev,resources=storeoperations/status,verbs=update
// +kubebuilder:rbac:groups=rcbox.dev,resources=stores/status,verbs=update
// +kubebuilder:rbac:groups=rcbox.dev,resources=stores/finalizers,verbs=update
// +kubebuilder:rbac:groups=rcbox.dev,resources=storemembers,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;list;watch;create;patch;update
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch;create;patch;update
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager makes the manager call the Reconciler.
func (r *Reconciler) SetupWithManager(ctx context.Context, manager ctrl.Manager) error {
	nodes, err := nodesOf(manager)
	if err != nil {
		return err
	}
	statuses := NewStatusWatch(r.Dial, r.Listen)
	if err := metrics.Registry.Register(statuses); err != nil {
		return fmt.Errorf("register the metrics of coordinators' streams: %w", err)
	}
	r.Nodes, r.Statuses, r.memberWriters = nodes, statuses, memberWriters
	if err := indexByNode(ctx, manager.GetFieldIndexer()); err != nil {
		return err
	}
	if err := manager.GetFieldIndexer().IndexField(ctx, &v1alpha1.StoreMember{}, indexStore, storeOfMember); err != nil {
		return fmt.Errorf("index StoreMembers by Store: %w", err)
	}
	err = ctrl.NewControllerManagedBy(manager).
		Named("store").
		// The operator's own writes of the status are no reason for a reconcile.
		For(&v1alpha1.Store{}, builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Owns(&corev1.Pod{}).
		Owns(&corev1.Service{}).
		Owns(&networkingv1.NetworkPolicy{}).
		Owns(&policyv1.PodDisruptionBudget{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&corev1.ServiceAccount{}).
		Owns(&rbacv1.Role{}).
		Owns(&rbacv1.RoleBinding{}).
		Owns(&discoveryv1.EndpointSlice{}).
		// Only the operator writes them: a reason for a reconcile is one that somebody has deleted.
		Owns(&v1alpha1.StoreMember{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
			GenericFunc: func(event.GenericEvent) bool { return false },
		})).
		// Renewed all the time, which is nobody's business here: only that it is there.
		Owns(&coordinationv1.Lease{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// The operator's own writes of their status are no reason for a reconcile either.
		Watches(&v1alpha1.StoreOperation{}, handler.EnqueueRequestsFromMapFunc(storeOfOperation),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// Not owned: they outlive Stores.
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(storeOfClaim),
			builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		WatchesRawSource(nodes.Source(r.storesOnNode)).
		WatchesRawSource(statuses.Source()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: concurrency,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryLeast, retryMost),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("make the controller: %w", err)
	}
	return nil
}

// nodesOf is the watch of the nodes of the manager's cluster.
func nodesOf(manager ctrl.Manager) (*NodeWatch, error) {
	config := rest.CopyConfig(manager.GetConfig())
	// Most of a node is dropped right after it is decoded, which takes less time so than from JSON.
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	clientset, err := kubernetes.NewForConfigAndClient(config, manager.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make a client to watch nodes: %w", err)
	}
	return NewNodeWatch(clientset)
}

// Reconcile reconciles one Store.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	store := &v1alpha1.Store{}
	if err := r.Client.Get(ctx, request.NamespacedName, store); err != nil {
		if apierrors.IsNotFound(err) {
			forget(request.NamespacedName)
			r.forgetStatus(request.NamespacedName)
			r.looks.forget(request.NamespacedName)
			r.trials.forget(request.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("read the Store: %w", err)
	}
	owned, err := r.Ownership.Look(ctx, store.Namespace)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("find out which operator manages the Store: %w", err)
	}
	if !owned.Mine {
		forget(request.NamespacedName) // the other operator has its metrics
		r.forgetStatus(request.NamespacedName)
		return ctrl.Result{RequeueAfter: ownership.Renewal}, nil
	}
	if record.IsFormer(&store.Status) {
		if err := r.carryOver(ctx, store); err != nil && !errors.Is(err, errStale) {
			return ctrl.Result{}, err
		}
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	}
	v, err := r.observe(ctx, store)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer v.close()
	if v.isUnknown {
		return ctrl.Result{RequeueAfter: planner.UnsettledInterval}, nil // or at once, when it is known
	}
	v.observed.OtherOperator = owned.Waiting

	plan := r.confirm(ctx, v, r.makePlan(v.observed))
	outcome, applyErr := r.apply(ctx, v, plan.Steps)
	if v.namespaceEnds {
		_, err := r.apply(ctx, v, planner.MakeForEnd(v.observed))
		applyErr = errors.Join(applyErr, err)
	}
	outcome.Splits = v.splits
	next := status.Compute(v.observed, plan, outcome)
	err = r.writeStatus(ctx, v, next)
	if err == nil {
		err = r.writeOperations(ctx, v, plan, outcome, &next)
	}
	if err != nil {
		if apierrors.IsConflict(err) || errors.Is(err, errStale) || errors.Is(applyErr, errStale) {
			return ctrl.Result{RequeueAfter: staleRetry}, nil
		}
		return ctrl.Result{}, errors.Join(applyErr, err)
	}
	if errors.Is(applyErr, errStale) {
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	}
	if err := r.noteLook(ctx, store, v.observed.Now); err != nil {
		return ctrl.Result{}, errors.Join(applyErr, err)
	}
	if applyErr != nil {
		return ctrl.Result{}, applyErr // again after a pause that grows
	}
	return ctrl.Result{RequeueAfter: plan.Next}, nil
}

func (r *Reconciler) makePlan(observed facts.Observed) planner.Plan {
	if r.plan != nil {
		return r.plan(observed)
	}
	return planner.Make(observed)
}

// writeStatus writes what changed of the status: the Store, and then its members.
func (r *Reconciler) writeStatus(ctx context.Context, v *reconcileState, next v1alpha1.StoreStatus) error {
	store := v.observed.Store
	if v.gone {
		forget(client.ObjectKeyFromObject(store))
		return nil
	}
	observeMetrics(store, &next)
	parts := record.Split(store.Name, &next)
	if err := r.writeStoreStatus(ctx, v, parts.Store, &next); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	if store.DeletionTimestamp != nil {
		return nil // StoreMembers go with the Store
	}
	return r.writeMembers(ctx, v, parts.Members)
}

// writeStoreStatus writes the Store's own part of a status that was computed, and tells of what is new in the whole. The status was
// computed from what StoreMembers say, so that they must be the present ones, like the Store.
func (r *Reconciler) writeStoreStatus(ctx context.Context, v *reconcileState, own v1alpha1.StoreStatus, next *v1alpha1.StoreStatus) error {
	store := v.observed.Store
	if equality.Semantic.DeepEqual(record.Split(store.Name, v.recorded).Store, own) {
		return nil
	}
	if err := r.checkMembers(ctx, v); err != nil {
		return err
	}
	changed := store.DeepCopy()
	changed.Status = own
	// The resource version is that of what was observed: were it an old one, the status would be computed from it in vain.
	if err := r.Client.Status().Update(ctx, changed); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	for _, event := range status.Events(&store.Status, next) {
		r.Recorder.Eventf(store, nil, event.Type, event.Reason, event.Action, "%s", event.Note)
		log.FromContext(ctx).Info(event.Note, "reason", event.Reason)
	}
	return nil
}
