// Package controller reconciles Chassis: it makes their Servers, has their controllers asked (package poll), lets package plan decide,
// writes what is so, and gives commands. It decides nothing about power itself.
package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/layout"
	"rcbox.dev/rcbox/operator/internal/box/plan"
	"rcbox.dev/rcbox/operator/internal/box/poll"
	"rcbox.dev/rcbox/operator/internal/box/switches"
)

// FieldManager owns the fields that the box controller applies.
const FieldManager = client.FieldOwner("rcbox-box")

// reasonSecretUnusable of ManagementReady: the Secret is not there, or lacks something.
const reasonSecretUnusable = "SecretUnusable"

const (
	// lookEvery is the pause between two reconciles in which nothing happens: some is said by clocks alone, such as that a controller is
	// silent.
	lookEvery = 5 * time.Second
	// lookSoon is the same while something is under way.
	lookSoon = time.Second
	// lookAtProof is the same when a proof has just been recorded: a NodeFence is answered from the recorded proof.
	lookAtProof = 200 * time.Millisecond
	// staleRetry is the pause after a status was written by somebody else.
	staleRetry = 200 * time.Millisecond
)

// The rights of the box controller. Secrets are read by name, in its own namespace; Leases of nodes are in a namespace of theirs, and so is
// the right to read them (config/box/node_leases.yaml).
//
// +kubebuilder:rbac:groups=rcbox.dev,resources=chassis,verbs=get;list;watch
// +kubebuilder:rbac:groups=rcbox.dev,resources=chassis/status,verbs=update
// +kubebuilder:rbac:groups=rcbox.dev,resources=servers,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=subresources.rcbox.dev,resources=servers/power,verbs=update
// +kubebuilder:rbac:groups=rcbox.dev,resources=servers/status,verbs=update
// +kubebuilder:rbac:groups=rcbox.dev,resources=stores;storemembers,verbs=get;list;watch
// +kubebuilder:rbac:groups=rcbox.dev,resources=nodefences,verbs=get;list;watch
// +kubebuilder:rbac:groups=rcbox.dev,resources=nodefences/status,verbs=update
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=list;watch;create;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",namespace=rcbox-system,resources=secrets,verbs=get
// +kubebuilder:rbac:groups="",namespace=rcbox-system,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",namespace=rcbox-system,resources=configmaps,resourceNames=rcbox-boxhost,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=rcbox-system,resources=configmaps,resourceNames=rcbox-boxhost-status,verbs=get
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=rcbox-system,resources=leases,verbs=get;create;update

// Reconciler reconciles Chassis.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server: Secrets, which are not cached, and the state of a node right before its power is taken away.
	Live client.Reader
	// Recorder tells users what changed.
	Recorder events.EventRecorder
	// Poller asks the controllers.
	Poller *poll.Poller
	// Clock is the Poller's.
	Clock *poll.Clock
	// Namespace has the Secrets.
	Namespace string
	// Times are the patience of plans.
	Times plan.Times
	// Switches asks the switches that servers' NICs are plugged into.
	Switches *switches.Keeper
	// Hosts writes what box hosts serve; nil: there are none.
	Hosts *Hosts
	// APIServer is the address by which the API server is reached; not valid: it is reached by a name.
	APIServer netip.Addr

	heard   heartbeats
	reports reports
	looks   singleflight.Group
	changed chan event.TypedGenericEvent[string]
}

// maxChanges that wait to be looked at; one that finds no room is found by the next look.
const maxChanges = 1024

// SetupWithManager has the reconciler called, and the controllers asked while this process leads.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	r.changed = make(chan event.TypedGenericEvent[string], maxChanges)
	r.Poller.Changed = func(chassis string) {
		select {
		case r.changed <- event.TypedGenericEvent[string]{Object: chassis}:
		default:
		}
	}
	if err := manager.Add(leader{r.Poller}); err != nil {
		return fmt.Errorf("set up the poller: %w", err)
	}
	r.Switches.Changed = func(chassis string) { r.Poller.Changed(chassis) }
	if err := manager.Add(r.Switches); err != nil {
		return fmt.Errorf("set up the keeper of switches: %w", err)
	}
	if err := manager.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.NodeFence{}, acceptedIndex, acceptedOf); err != nil {
		return fmt.Errorf("index NodeFences: %w", err)
	}
	changes := source.TypedChannel(r.changed, handler.TypedFuncs[string, reconcile.Request]{GenericFunc: enqueueName})
	specs := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	err := ctrl.NewControllerManagedBy(manager).
		Named("chassis").
		// Two Chassis that contradict each other concern both; the controller's own writes of the status are no reason to look.
		Watches(&v1alpha1.Chassis{}, handler.EnqueueRequestsFromMapFunc(r.all), specs).
		Watches(&v1alpha1.Server{}, handler.EnqueueRequestsFromMapFunc(chassisOfServer), specs).
		Watches(&v1alpha1.NodeFence{}, handler.EnqueueRequestsFromMapFunc(r.allForFence), specs).
		Watches(&coordinationv1.Lease{}, r.heard.watch(r.Clock)).
		WatchesRawSource(changes).
		Complete(r)
	if err != nil {
		return fmt.Errorf("make the controller: %w", err)
	}
	if r.Hosts != nil {
		r.Hosts.changed = func(chassis string) { r.Poller.Changed(chassis) }
		if err := r.Hosts.setUp(manager); err != nil {
			return err
		}
	}
	return (&strangers{Client: r.Client, Recorder: r.Recorder}).setUp(manager)
}

// leader runs only where this process leads.
type leader struct{ *poll.Poller }

// NeedLeaderElection implements controller-runtime's interface of that name.
func (leader) NeedLeaderElection() bool { return true }

func enqueueName(_ context.Context, e event.TypedGenericEvent[string], queue queueOfRequests) {
	queue.Add(request(e.Object))
}

// all is every Chassis.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &v1alpha1.ChassisList{}
	if err := r.Client.List(ctx, list); err != nil {
		log.FromContext(ctx).Error(err, "list Chassis")
		return nil
	}
	return requestsOf(list.Items)
}

func requestsOf(chassis []v1alpha1.Chassis) []reconcile.Request {
	requests := make([]reconcile.Request, len(chassis))
	for i := range chassis {
		requests[i] = request(chassis[i].Name)
	}
	return requests
}

// allForFence requests every Chassis for a NodeFence that may have an effect, and none for others.
func (r *Reconciler) allForFence(ctx context.Context, object client.Object) []reconcile.Request {
	list := &v1alpha1.ChassisList{}
	if err := r.Client.List(ctx, list); err != nil {
		log.FromContext(ctx).Error(err, "list Chassis")
		return nil
	}
	if fence, is := object.(*v1alpha1.NodeFence); is && isStranger(fence, list.Items) {
		return nil
	}
	return requestsOf(list.Items)
}

func chassisOfServer(_ context.Context, object client.Object) []reconcile.Request {
	name := chassisOf(object)
	if name == "" {
		return nil
	}
	return []reconcile.Request{request(name)}
}

func request(chassis string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: chassis}}
}

// Reconcile looks at one Chassis.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	seen, err := r.lookAround(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	chassis := find(seen.chassis, request.Name)
	if chassis == nil || chassis.DeletionTimestamp != nil {
		// Its Servers go with it: it owns them.
		forgetConditions(request.Name)
		r.Poller.Set(request.Name, nil) //nolint:contextcheck // sessions are closed after this look
		r.Switches.Set(request.Name, nil)
		return ctrl.Result{}, r.setTaints(ctx, seen)
	}
	laid := layout.Of(seen.chassis)[chassis.Name]
	laid.CheckCluster(chassis, seen.cluster(r.APIServer))
	servers, taken, err := r.makeServers(ctx, seen, chassis, laid)
	if err != nil {
		return ctrl.Result{}, err
	}
	begun := r.Clock.Look()
	trouble := r.setControllers(ctx, chassis, laid, servers)
	if of := r.setSwitches(ctx, chassis, laid); trouble == nil {
		trouble = of
	}
	observed, err := r.observe(ctx, r.Client, seen, chassis, laid, servers)
	if err != nil {
		return ctrl.Result{}, err
	}
	observed.Taken = taken
	found, err := r.observeFences(ctx, r.Client, seen, observed)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := r.Clock.Look()
	if now.Jumps != begun.Jumps { // the observation was made before the jump
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	}
	made := plan.Make(now.Wall, observed)
	if unusable := (*secretError)(nil); errors.As(trouble, &unusable) {
		meta.SetStatusCondition(&made.Chassis.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionManagementReady, Status: metav1.ConditionFalse, ObservedGeneration: chassis.Generation,
			Reason: reasonSecretUnusable, Message: unusable.Error(),
		})
		trouble = nil // it is said there, and looked at again
	}
	err = r.apply(ctx, now, seen, observed, found, &made)
	switch {
	case isStale(err):
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	case err != nil:
		return ctrl.Result{}, errors.Join(err, trouble)
	}
	r.Poller.Hurry(chassis.Name, watched(&made, observed))
	r.Poller.Identify(chassis.Name, slices.Concat(made.Identify, found.doubted))
	return ctrl.Result{RequeueAfter: pauseAfter(observed, found, &made)}, trouble
}

// pauseAfter is the pause until the next reconciliation, if no change causes one earlier.
func pauseAfter(observed *plan.Observed, found *fences, made *plan.Plan) time.Duration {
	isProved := func(s plan.Server) bool {
		return !equality.Semantic.DeepEqual(s.Object.Status.LastOff, made.Servers[s.Object.Name].LastOff)
	}
	switch {
	case len(found.requests) > 0 && slices.ContainsFunc(observed.Servers, isProved):
		return lookAtProof
	case len(made.Watch) > 0 || len(made.Ports) > 0 || len(found.fresh) > 0 || len(found.requests) > 0:
		return lookSoon
	default:
		return lookEvery
	}
}

func find(all []v1alpha1.Chassis, name string) *v1alpha1.Chassis {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

// watched are the controllers to be asked soon: those of servers that wait, and the managers, which are their second witnesses.
func watched(made *plan.Plan, observed *plan.Observed) []string {
	names := made.Watch
	if len(names) > 0 {
		for i := range observed.Managers {
			names = append(names, observed.Managers[i].Address)
		}
	}
	return names
}

// recipients are those that Secrets of a type are sent to.
var recipients = map[corev1.SecretType]string{v1alpha1.SecretTypeBMC: "BMCs", v1alpha1.SecretTypeSwitch: "switches"}

// secretError is a Secret that is of no use; it names no value.
type secretError struct{ name, text string }

func (e *secretError) Error() string { return "Secret " + e.name + ": " + e.text }

// bmcKeys are the keys of a Secret for BMCs.
var bmcKeys = []string{corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey}

// credentials reads the Secret that a Chassis names, if it is one of a type: a Chassis must not have other passwords of the namespace sent
// to the addresses that it names.
func (r *Reconciler) credentials(ctx context.Context, name string, kind corev1.SecretType, keys []string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	switch err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, secret); {
	case apierrors.IsNotFound(err):
		return nil, &secretError{r.Namespace + "/" + name, fmt.Sprintf(
			"there is none: make it with --type=%s, with the keys %s", kind, strings.Join(keys, " and "))}
	case err != nil:
		return nil, fmt.Errorf("read Secret %s/%s: %w", r.Namespace, name, err)
	case secret.Type != kind:
		return nil, &secretError{r.Namespace + "/" + name, fmt.Sprintf(
			"its type is %s, and only Secrets of type %s are sent to %s: delete it, and make it anew with --type=%s",
			secret.Type, kind, recipients[kind], kind)}
	}
	for _, key := range keys {
		if len(secret.Data[key]) == 0 {
			return nil, &secretError{r.Namespace + "/" + name, "the key " + key + " is missing or empty"}
		}
	}
	return secret, nil
}
