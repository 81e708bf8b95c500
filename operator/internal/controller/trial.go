package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/quota"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// maxTrials is how many results are kept of a Store. There is one for each pod that is to be replaced, and few are at a time.
const maxTrials = 64

// trialBook has what the API server said of pods that were made for trial. It is in memory only: an operator that begins anew asks again.
type trialBook struct {
	mu     sync.Mutex
	stores map[client.ObjectKey]*storeTrials
}

type storeTrials struct {
	store  types.UID
	trials map[string]facts.Trial
}

// of are the results for a Store, which the caller may keep.
func (b *trialBook) of(store *v1alpha1.Store) map[string]facts.Trial {
	b.mu.Lock()
	defer b.mu.Unlock()
	entry := b.stores[client.ObjectKeyFromObject(store)]
	if entry == nil || entry.store != store.UID {
		return nil
	}
	return maps.Clone(entry.trials)
}

// note keeps a result.
func (b *trialBook) note(store *v1alpha1.Store, key string, trial facts.Trial) {
	b.change(store, key, func(facts.Trial) facts.Trial { return trial })
}

// noteInVain keeps that no answer came.
func (b *trialBook) noteInVain(store *v1alpha1.Store, key string, at time.Time) {
	b.change(store, key, func(before facts.Trial) facts.Trial { return before.InVain(at) })
}

// change replaces a result, and drops the oldest one if there are too many.
func (b *trialBook) change(store *v1alpha1.Store, key string, by func(facts.Trial) facts.Trial) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := client.ObjectKeyFromObject(store)
	if b.stores == nil {
		b.stores = map[client.ObjectKey]*storeTrials{}
	}
	entry := b.stores[at]
	if entry == nil || entry.store != store.UID {
		entry = &storeTrials{store: store.UID, trials: map[string]facts.Trial{}}
		b.stores[at] = entry
	}
	entry.trials[key] = by(entry.trials[key])
	if len(entry.trials) > maxTrials {
		delete(entry.trials, slices.MinFunc(slices.Sorted(maps.Keys(entry.trials)), func(a, b string) int {
			return entry.trials[a].LastAsked().Compare(entry.trials[b].LastAsked())
		}))
	}
}

func (b *trialBook) forget(store client.ObjectKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.stores, store)
}

// tryPod asks the API server whether it would admit a pod, and notes what it says. Only a refusal is one: no answer is a failed step, and
// is noted as such.
func (r *Reconciler) tryPod(ctx context.Context, v *reconcileState, step steps.TryPod) error {
	store := v.observed.Store
	pod, err := resources.Pod(store, resources.PodSpec{
		Component: step.Component, Member: step.Member, Number: step.Number, Inputs: step.Inputs, Claim: step.Claim,
		Addresses: step.Addresses, Isolated: v.observed.IsolatedNodes(),
	})
	if err != nil {
		return err
	}
	err = r.Client.Apply(ctx, pod, FieldManager, client.ForceOwnership, client.DryRunAll)
	trial := facts.Trial{At: r.Now()}
	switch {
	case err == nil:
	case cannotBeTried(err):
		// A webhook with side effects: that it might refuse the pod is found out when there is one.
		log.FromContext(ctx).Info("the API server tries no pods", "pod", *pod.Name, "error", err.Error())
	case isRefusal(err):
		if trial.Refused, err = r.refusalWithout(ctx, store, step.InPlaceOf, err); err != nil {
			r.trials.noteInVain(store, step.Key, trial.At)
			return err
		}
	default:
		r.trials.noteInVain(store, step.Key, trial.At)
		return fmt.Errorf("try pod %s: %w", *pod.Name, err)
	}
	r.trials.note(store, step.Key, trial)
	return nil
}

// drainMember drains a member, unless this reconcile has found out that the member's next pod is refused: then the member stays and serves.
func (r *Reconciler) drainMember(ctx context.Context, v *reconcileState, step steps.DrainMember) error {
	if step.Trial != "" && r.trials.of(v.observed.Store)[step.Trial].Refused != "" {
		return fmt.Errorf("drain %s: its next pod is refused: %w", step.Member, errStale)
	}
	return v.coordinator.DrainMember(ctx, step.Member)
}

// refusalWithout is what the API server says; empty where a quota is exceeded only because the pod is still there whose place the tried one
// is to take.
func (r *Reconciler) refusalWithout(ctx context.Context, store *v1alpha1.Store, leaving facts.PodRef, refusal error) (string, error) {
	pod := &corev1.Pod{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: store.Namespace, Name: leaving.Name}, pod)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("read pod %s: %w", leaving.Name, err)
	}
	if err == nil && string(pod.UID) == leaving.UID && apierrors.IsForbidden(refusal) && quota.IsEnoughWithout(refusal.Error(), pod) {
		return "", nil
	}
	return refusal.Error(), nil
}

// cannotBeTried: that is a bad request, of which there is no other with what the operator applies.
func cannotBeTried(err error) bool {
	return apierrors.ReasonForError(err) == metav1.StatusReasonBadRequest
}

// isRefusal says whether the API server has judged the pod: its validation, a quota, a policy, or a webhook, which may choose the code.
func isRefusal(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	switch code := answer.Status().Code; code {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusRequestTimeout, http.StatusConflict,
		http.StatusTooManyRequests:
		return false
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError
	}
}
