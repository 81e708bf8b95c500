package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/brief"
	"rcbox.dev/rcbox/operator/internal/ownership"
	"rcbox.dev/rcbox/operator/internal/perf"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// PerfReader asks the first client of a run.
type PerfReader interface {
	// Report is how far the run is.
	Report(ctx context.Context, ip string) (*perf.Report, error)
	// Documents are what a run is kept by.
	Documents(ctx context.Context, ip string) (map[string]string, error)
}

// PerfReconciler reconciles ClusterPerfs.
type PerfReconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Recorder tells users how runs begin and end.
	Recorder events.EventRecorder
	// Clients asks the runs' pods.
	Clients PerfReader
	// Now is the clock.
	Now func() time.Time
	// Namespace is the operator's own, from which it may reach the first clients.
	Namespace string
	// Ownership says whose the ClusterPerfs of a namespace are, with its Stores; nil: all are this operator's.
	Ownership *ownership.Leases

	// turn is held from the look at who has begun until it is on record that this run has.
	turn sync.Mutex
}

// +kubebuilder:rbac:groups=rcbox.dev,resources=clusterperfs,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=rcbox.dev,resources=clusterperfs/status,verbs=update
// +kubebuilder:rbac:groups=rcbox.dev,resources=clusterperfs/finalizers,verbs=update

// SetupWithManager makes the manager call the PerfReconciler.
func (r *PerfReconciler) SetupWithManager(manager ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(manager).
		Named("clusterperf").
		For(&v1alpha1.ClusterPerf{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&corev1.Pod{}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: concurrency,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryLeast, retryMost),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("make the controller of ClusterPerfs: %w", err)
	}
	return nil
}

// Reconcile reconciles one run.
func (r *PerfReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	run := &v1alpha1.ClusterPerf{}
	if err := r.Client.Get(ctx, request.NamespacedName, run); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("read the ClusterPerf: %w", err)
	}
	owned, err := r.Ownership.Look(ctx, run.Namespace)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("find out which operator manages the ClusterPerf: %w", err)
	}
	if !owned.Mine {
		return ctrl.Result{RequeueAfter: ownership.Renewal}, nil
	}
	observed, err := r.observe(ctx, run)
	if err != nil {
		return ctrl.Result{}, err
	}
	plan := perf.Make(observed)
	if slices.Contains(plan.Steps, perf.Step(perf.CheckTurn{})) {
		r.turn.Lock()
		defer r.turn.Unlock()
	}
	gone, applyErr := r.apply(ctx, observed, plan.Steps)
	if gone || errors.Is(applyErr, errStale) {
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	}
	next := plan.Status
	if applyErr != nil {
		// What was planned has not come to be; only why is told.
		next = *run.Status.DeepCopy()
		meta.SetStatusCondition(&next.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonApplyFailed,
			Message: brief.Head(applyErr.Error(), maxMessage), ObservedGeneration: run.Generation,
		})
	}
	if err := r.writeStatus(ctx, run, next); err != nil {
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: staleRetry}, nil
		}
		return ctrl.Result{}, errors.Join(applyErr, err)
	}
	return ctrl.Result{RequeueAfter: plan.Next}, applyErr
}

func (r *PerfReconciler) observe(ctx context.Context, run *v1alpha1.ClusterPerf) (perf.Observed, error) {
	o := perf.Observed{Now: r.Now(), Run: run}
	store := &v1alpha1.Store{}
	switch err := r.Client.Get(ctx, client.ObjectKey{Namespace: run.Namespace, Name: run.Spec.StoreRef.Name}, store); {
	case err == nil:
		o.Store = store
		if _, err := listMembers(ctx, r.Client, store); err != nil {
			return o, err
		}
	case !apierrors.IsNotFound(err):
		return o, fmt.Errorf("read the Store: %w", err)
	}
	runs := &v1alpha1.ClusterPerfList{}
	if err := r.Client.List(ctx, runs, client.InNamespace(run.Namespace)); err != nil {
		return o, fmt.Errorf("list the other runs: %w", err)
	}
	there := map[types.UID]bool{}
	for i := range runs.Items {
		there[runs.Items[i].UID] = true
		if runs.Items[i].UID != run.UID {
			o.Others = append(o.Others, runs.Items[i])
		}
	}
	pods := &corev1.PodList{}
	if err := r.Client.List(ctx, pods, client.InNamespace(run.Namespace),
		client.MatchingLabels{v1alpha1.LabelClusterPerfStore: run.Spec.StoreRef.Name}); err != nil {
		return o, fmt.Errorf("list the runs' pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		owner := metav1.GetControllerOf(pod)
		switch {
		case metav1.IsControlledBy(pod, run):
			o.Pods = append(o.Pods, perfPodOf(pod))
		case owner == nil || !there[owner.UID]:
			// One on a dead node ends for nobody.
			if left := pod.DeletionTimestamp; left == nil || r.Now().Before(left.Add(perf.StuckAfter)) {
				o.Strays = append(o.Strays, pod.Name)
			}
		}
	}
	r.askFirstClient(ctx, &o)
	return o, nil
}

// askFirstClient leaves Report empty when there is no answer: that is a state of the run, not a failure of the reconcile.
func (r *PerfReconciler) askFirstClient(ctx context.Context, o *perf.Observed) {
	if o.Run.Status.StartTime == nil || o.Run.Ended() {
		return
	}
	for i := range o.Pods {
		pod := &o.Pods[i]
		if pod.Cleanup || pod.Index != 0 || pod.State != perf.PodRunning || pod.IP == "" {
			continue
		}
		report, err := r.Clients.Report(ctx, pod.IP)
		if err != nil {
			o.ReportError = err.Error()
			return
		}
		o.Report = report
	}
}

func perfPodOf(pod *corev1.Pod) perf.Pod {
	// An annotation that is missing or wrong makes it no client that the run knows of.
	index, err := strconv.Atoi(pod.Annotations[v1alpha1.AnnotationPodNumber])
	if err != nil {
		index = -1
	}
	seen := perf.Pod{
		Name:    pod.Name,
		UID:     string(pod.UID),
		Cleanup: pod.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentPerfCleanup,
		Index:   index,
		IP:      pod.Status.PodIP,
		Node:    pod.Spec.NodeName,
	}
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		seen.State = perf.PodSucceeded
	case corev1.PodFailed:
		seen.State, seen.Trouble = perf.PodFailed, lastWords(pod)
	case corev1.PodRunning:
		seen.State = perf.PodRunning
	default:
		seen.State, seen.Trouble = perf.PodPending, troubleOf(pod)
	}
	if pod.DeletionTimestamp != nil {
		seen.EndsAt = pod.DeletionTimestamp.Time
	}
	return seen
}

// lastWords of a pod that has failed: its process's, or Kubernetes' where it was not the process.
func lastWords(pod *corev1.Pod) string {
	if pod.Status.Reason == "" {
		if container := resources.ProcessStatus(pod); container != nil && container.State.Terminated != nil {
			ended := container.State.Terminated
			return reasonAndMessage(fmt.Sprintf("exit code %d (%s)", ended.ExitCode, ended.Reason), lastLine(ended.Message))
		}
	}
	return troubleOf(pod)
}

// apply carries out steps in order, and says whether the run itself is gone.
func (r *PerfReconciler) apply(ctx context.Context, o perf.Observed, steps []perf.Step) (gone bool, err error) {
	for _, step := range steps {
		log.FromContext(ctx).Info(step.Describe())
		switch step := step.(type) {
		case perf.CheckTurn:
			err = r.checkLock(ctx, o.Run)
		case perf.CreateClient:
			err = r.createClient(ctx, o, step.Index)
		case perf.CreateCleanup:
			pod := resources.PerfCleanup(o.Run, o.Store)
			err = r.Client.Apply(ctx, pod, FieldManager, client.ForceOwnership)
		case perf.DeletePod:
			err = r.deletePod(ctx, o.Run, step)
		case perf.SaveResults:
			err = r.saveResults(ctx, o.Run, step.IP)
		case perf.DeleteRun:
			uid := o.Run.UID
			err = client.IgnoreNotFound(r.Client.Delete(ctx, o.Run, &client.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &uid},
			}))
			gone = err == nil
		}
		if err != nil {
			return false, fmt.Errorf("%s: %w", step.Describe(), err)
		}
	}
	return gone, nil
}

func (r *PerfReconciler) checkLock(ctx context.Context, run *v1alpha1.ClusterPerf) error {
	runs := &v1alpha1.ClusterPerfList{}
	if err := r.Live.List(ctx, runs, client.InNamespace(run.Namespace)); err != nil {
		return fmt.Errorf("list the other runs: %w", err)
	}
	if other := perf.Blocker(run, runs.Items); other != nil {
		return fmt.Errorf("%s has begun: %w", other.Name, errStale)
	}
	return nil
}

// createClient opens the first client's port before there is one.
func (r *PerfReconciler) createClient(ctx context.Context, o perf.Observed, index int) error {
	if index == 0 {
		policy := resources.PerfPolicy(o.Run, r.Namespace)
		if err := r.refuseOthers(ctx, o.Run, "NetworkPolicy", *policy.Name, &networkingv1.NetworkPolicy{}); err != nil {
			return err
		}
		if err := r.Client.Apply(ctx, policy, FieldManager, client.ForceOwnership); err != nil {
			return fmt.Errorf("apply NetworkPolicy %s: %w", *policy.Name, err)
		}
	}
	pod, err := resources.PerfClient(o.Run, o.Store, index)
	if err != nil {
		return err
	}
	if err := r.Client.Apply(ctx, pod, FieldManager, client.ForceOwnership); err != nil {
		return fmt.Errorf("apply Pod %s: %w", *pod.Name, err)
	}
	return nil
}

// refuseOthers fails if there is an object of that name that is not the run's. The API server itself is asked: the cache holds only the
// operator's own.
func (r *PerfReconciler) refuseOthers(ctx context.Context, run *v1alpha1.ClusterPerf, kind, name string, object client.Object) error {
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: run.Namespace, Name: name}, object)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("look for a %s %s: %w", kind, name, err)
	case !metav1.IsControlledBy(object, run):
		return fmt.Errorf("%s %s/%s is there already and is not this run's: delete it, or make the run under another name",
			kind, run.Namespace, name)
	}
	return nil
}

func (r *PerfReconciler) deletePod(ctx context.Context, run *v1alpha1.ClusterPerf, step perf.DeletePod) error {
	uid := types.UID(step.UID)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: run.Namespace, Name: step.Name}}
	err := r.Client.Delete(ctx, pod, &client.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	return stale(client.IgnoreNotFound(err), "delete it")
}

func (r *PerfReconciler) saveResults(ctx context.Context, run *v1alpha1.ClusterPerf, ip string) error {
	name := perf.ResultsName(run)
	if err := r.refuseOthers(ctx, run, "ConfigMap", name, &corev1.ConfigMap{}); err != nil {
		return err
	}
	documents, err := r.Clients.Documents(ctx, ip)
	if err != nil {
		return err
	}
	if err := r.Client.Apply(ctx, resources.PerfResults(run, name, documents), FieldManager, client.ForceOwnership); err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", name, err)
	}
	return nil
}

// writeStatus writes the status if it changed, and tells how a run begins and ends.
func (r *PerfReconciler) writeStatus(ctx context.Context, run *v1alpha1.ClusterPerf, next v1alpha1.ClusterPerfStatus) error {
	if equality.Semantic.DeepEqual(run.Status, next) {
		return nil
	}
	changed := run.DeepCopy()
	changed.Status = next
	if err := r.Client.Status().Update(ctx, changed); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("write the status: %w", err)
	}
	if kind, said := news(&run.Status, &next); said != nil {
		r.Recorder.Eventf(run, nil, kind, said.Reason, "Run", "%s", said.Message)
	}
	return nil
}

// news is what is told of a change: what a run waits for, how it begins, and how it ends.
func news(before, next *v1alpha1.ClusterPerfStatus) (kind string, said *metav1.Condition) {
	kind, name := corev1.EventTypeNormal, v1alpha1.ConditionComplete
	if meta.IsStatusConditionTrue(next.Conditions, v1alpha1.ConditionFailed) {
		kind, name = corev1.EventTypeWarning, v1alpha1.ConditionFailed
	}
	was, is := meta.FindStatusCondition(before.Conditions, name), meta.FindStatusCondition(next.Conditions, name)
	if is == nil || was != nil && was.Reason == is.Reason {
		return "", nil
	}
	return kind, is
}
