package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin"
	"rcbox.dev/rcbox/operator/internal/brief"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
	"rcbox.dev/rcbox/operator/internal/status"
)

// errStale means that the world has moved on since it was observed: look again.
var errStale = errors.New("the observed state is out of date")

// maxFailures is how many pod steps of one reconcile may fail before the rest is left for the next one.
const maxFailures = 3

// nameTakenError is an object of somebody else with a name that the Store needs.
type nameTakenError struct{ text string }

func (e *nameTakenError) Error() string { return e.text }

// apply carries out steps in order. What pods depend on comes first and stops everything if it fails; steps about different members do not
// depend on each other, so that one that fails does not keep the others waiting.
func (r *Reconciler) apply(ctx context.Context, v *reconcileState, planned []steps.Step) (status.Outcome, error) {
	var outcome status.Outcome
	var failures []error
	for _, step := range planned {
		err := r.applyStep(ctx, v, step)
		if err == nil {
			outcome.Done = append(outcome.Done, step)
			r.report(ctx, v, step)
			continue
		}
		var refused *admin.RefusedError
		var notSplit *admin.SplitRefusedError
		var taken *nameTakenError
		switch {
		case errors.As(err, &notSplit): // its StoreOperation says so
			continue
		case errors.As(err, &refused) && isOrdered(step):
			if outcome.RefusedOrders == nil {
				outcome.RefusedOrders = map[string]string{}
			}
			outcome.RefusedOrders[refused.Member] = refused.Message
			continue
		case errors.As(err, &refused):
			outcome.Refused, outcome.RefusedMember = refused.Message, refused.Member
			continue
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			// Nothing more is made there; what there is still has to be let go.
			outcome.Failed, v.namespaceEnds = orElse(outcome.Failed, err.Error()), true
			continue
		case errors.Is(err, errStale):
			return outcome, errors.Join(append(failures, err)...)
		case errors.As(err, &taken):
			outcome.NameTaken = taken.text
			return outcome, err
		}
		failures = append(failures, err)
		if outcome.Failed == "" {
			outcome.Failed, outcome.FailedForGood = err.Error(), apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
		}
		if steps.RowOf(step).StopsRest || len(failures) == maxFailures {
			break
		}
	}
	return outcome, errors.Join(failures...)
}

// isOrdered: what becomes of the step is for its StoreOperation to say, and nothing of the Store's own changes.
func isOrdered(step steps.Step) bool {
	drain, isDrain := step.(steps.DrainMember)
	_, isFinalize := step.(steps.FinalizeUpgrade)
	return isDrain && drain.Ordered || isFinalize
}

func (r *Reconciler) report(ctx context.Context, v *reconcileState, step steps.Step) {
	row := steps.RowOf(step)
	log.FromContext(ctx).Info(row.Text)
	if row.Event == "" {
		return
	}
	store := v.observed.Store
	r.Recorder.Eventf(store, related(store, row.Object), corev1.EventTypeNormal, row.Event, "Apply", "%s", brief.Fit(row.Text, maxMessage))
	stepsCounter.WithLabelValues(row.Event).Inc()
}

// related tells events about different objects apart: those that are alike but for their notes are taken for one that happened again.
func related(store *v1alpha1.Store, object steps.Object) runtime.Object {
	if object.Kind == "" {
		return nil
	}
	return &corev1.ObjectReference{Kind: object.Kind, Namespace: store.Namespace, Name: object.Name}
}

// applyStep has one step carried out, after the look that its row asks for.
func (r *Reconciler) applyStep(ctx context.Context, v *reconcileState, step steps.Step) error {
	if err := r.lookAgain(ctx, v, step); err != nil {
		return err
	}
	return step.Do(ctx, executor{r, v})
}

// lookAgain reads once more what a step's row asks for, and says whether the step is still right.
func (r *Reconciler) lookAgain(ctx context.Context, v *reconcileState, step steps.Step) error {
	switch steps.RowOf(step).Look {
	case steps.Coordinator:
		if v.coordinator == nil {
			return fmt.Errorf("%s: the coordinator was not reached", steps.Describe(step))
		}
	case steps.StoreOnce:
		return r.checkStoreIsFresh(ctx, v)
	case steps.Store:
		return r.checkStoreIsPresent(ctx, v)
	case steps.Everything:
		return r.stillPlanned(ctx, v, step)
	case steps.Nothing:
	}
	return nil
}

func (r *Reconciler) patchFinalizers(ctx context.Context, v *reconcileState, change func(client.Object, string) bool) error {
	store := v.observed.Store
	changed := store.DeepCopy()
	if !change(changed, v1alpha1.Finalizer) {
		return nil
	}
	// Not server-side apply: that would make the Store anew if it had just been deleted.
	patch := client.MergeFromWithOptions(store.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, changed, patch, FieldManager); err != nil {
		return stale(err, "change the Store's finalizers")
	}
	// The status is written to what there is now.
	store.Finalizers, store.ResourceVersion = changed.Finalizers, changed.ResourceVersion
	return nil
}

func (r *Reconciler) applyObject(ctx context.Context, v *reconcileState, step steps.ApplyObject) error {
	for _, fixed := range v.fixed {
		if fixed.kind != step.Kind || fixed.name != step.Name {
			continue
		}
		if step.Create {
			if err := r.refuseTaken(ctx, v.observed.Store, fixed); err != nil {
				return err
			}
		}
		err := r.Client.Apply(ctx, fixed.desired, FieldManager, client.ForceOwnership)
		if apierrors.IsInvalid(err) && !step.Create {
			err = r.replaceSpec(ctx, v, fixed)
		}
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", fixed.kind, fixed.name, err)
		}
		return nil
	}
	return fmt.Errorf("apply %s %s: the Store needs no such object", step.Kind, step.Name)
}

// replaceSpec is for what server-side apply cannot put right: somebody has changed the key of a list's entry, such as a port's number. To
// the API server that is an entry of his beside the operator's, and the two together are not valid. A merge patch replaces whole lists.
func (r *Reconciler) replaceSpec(ctx context.Context, v *reconcileState, fixed fixedObject) error {
	fields, err := fieldsOf(fixed.desired)
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{"spec": fields["spec"]})
	if err != nil {
		return fmt.Errorf("encode the spec: %w", err)
	}
	fixed.object.SetNamespace(v.observed.Store.Namespace)
	fixed.object.SetName(fixed.name)
	if err := r.Client.Patch(ctx, fixed.object, client.RawPatch(types.MergePatchType, text), FieldManager); err != nil {
		return fmt.Errorf("replace its spec: %w", err)
	}
	return r.Client.Apply(ctx, fixed.desired, FieldManager, client.ForceOwnership) //nolint:wrapcheck // the caller does
}

// refuseTaken asks the API server itself, because the cache holds only the operator's own objects.
func (r *Reconciler) refuseTaken(ctx context.Context, store *v1alpha1.Store, fixed fixedObject) error {
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: store.Namespace, Name: fixed.name}, fixed.object)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("look for a %s %s: %w", fixed.kind, fixed.name, err)
	case metav1.IsControlledBy(fixed.object, store):
		return nil
	default:
		return &nameTakenError{fmt.Sprintf(
			"%s %s/%s is there already and is not this Store's: delete it, or make the Store under another name",
			fixed.kind, store.Namespace, fixed.name)}
	}
}

// createPod makes a member's pod, unless the API server knows of one that the cache did not: a second process of a member
// would serve nothing at best, and a second coordinator would be another store behind the same address.
func (r *Reconciler) createPod(ctx context.Context, v *reconcileState, step steps.CreatePod) error {
	if err := r.checkNoLivePod(ctx, v.observed.Store, step.Member); err != nil {
		return err
	}
	pod, err := resources.Pod(v.observed.Store, resources.PodSpec{
		Component: step.Component, Member: step.Member, Number: step.Number, Inputs: step.Inputs, Claim: step.Claim,
		Addresses: step.Addresses, ReturnsTo: step.ReturnsTo, Isolated: v.observed.IsolatedNodes(),
	})
	if err != nil {
		return err
	}
	if err := r.recordPodNumber(ctx, v, step); err != nil {
		return err
	}
	if err := r.Client.Apply(ctx, pod, FieldManager, client.ForceOwnership); err != nil {
		return fmt.Errorf("create pod %s: %w", *pod.Name, err)
	}
	return nil
}

// checkStoreIsFresh, once in a reconcile: an order in the cache may have been taken back, or the cache may lack one; and pods' names come
// from the numbers in the status, and in a cache that has not seen the last status yet a name that is on record is free.
func (r *Reconciler) checkStoreIsFresh(ctx context.Context, v *reconcileState) error {
	if v.fresh {
		return nil
	}
	if err := r.checkStoreIsPresent(ctx, v); err != nil {
		return err
	}
	if err := r.checkOperations(ctx, v); err != nil {
		return err
	}
	v.fresh = true
	return nil
}

// checkStoreIsPresent asks the API server whether the Store is as it was seen: spec, annotations, and what is on record.
func (r *Reconciler) checkStoreIsPresent(ctx context.Context, v *reconcileState) error {
	seen, now := v.observed.Store, &v1alpha1.Store{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(seen), now); err != nil {
		return fmt.Errorf("look at the Store once more: %w", err)
	}
	if now.UID != seen.UID || now.ResourceVersion != seen.ResourceVersion {
		return fmt.Errorf("the Store was seen at version %s, and is at %s: %w", seen.ResourceVersion, now.ResourceVersion, errStale)
	}
	return r.checkMembers(ctx, v)
}

func (r *Reconciler) checkNoLivePod(ctx context.Context, store *v1alpha1.Store, member string) error {
	pods := &corev1.PodList{}
	labels := client.MatchingLabels{v1alpha1.LabelStore: store.Name, v1alpha1.LabelMember: member}
	if err := r.Live.List(ctx, pods, client.InNamespace(store.Namespace), labels); err != nil {
		return fmt.Errorf("look for pods of %s: %w", member, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		ended := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
		if pod.DeletionTimestamp == nil && !ended && metav1.IsControlledBy(pod, store) {
			return fmt.Errorf("create a pod of %s: %s is there: %w", member, pod.Name, errStale)
		}
	}
	return nil
}

func (r *Reconciler) deletePod(ctx context.Context, v *reconcileState, ref facts.PodRef) error {
	uid := types.UID(ref.UID)
	preconditions := metav1.Preconditions{UID: &uid}
	if ref.ResourceVersion != "" {
		preconditions.ResourceVersion = &ref.ResourceVersion
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v.observed.Store.Namespace, Name: ref.Name}}
	err := r.Client.Delete(ctx, pod, &client.DeleteOptions{Preconditions: &preconditions})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return stale(err, "delete pod "+ref.Name)
}

// instanceOf is what the coordinator is to let in no more: a pod's uid is the instance of its processes.
func instanceOf(pod *facts.PodRef) string {
	if pod == nil {
		return ""
	}
	return pod.UID
}

// retireMember ends a process that runs, and the coordinator's word is what allows it, as for a member that moves away from a drained node.
func (r *Reconciler) retireMember(ctx context.Context, v *reconcileState, step steps.RetireMember) error {
	if v.coordinator == nil {
		return fmt.Errorf("retire %s: the coordinator was not reached", step.Member)
	}
	if err := v.coordinator.RemoveMember(ctx, step.Member, instanceOf(step.Pod)); err != nil {
		return err
	}
	if step.Pod == nil {
		return nil
	}
	// The pod's state may change meanwhile, and does when its process is let go: its uid is enough.
	return r.deletePod(ctx, v, facts.PodRef{Name: step.Pod.Name, UID: step.Pod.UID})
}

func stale(err error, what string) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("%s: %w", what, errors.Join(errStale, err))
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}
