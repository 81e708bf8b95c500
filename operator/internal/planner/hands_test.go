package planner_test

import (
	"context"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/status"
)

// hands carry steps out, and keep the coordinator's refusal of the last one.
type hands struct {
	w       *world
	refused string
	// split is what came of a split; nil for other steps.
	split *status.Split
}

func (h *hands) AddFinalizer(context.Context, steps.AddFinalizer) error {
	h.w.store.Finalizers = append(h.w.store.Finalizers, v1alpha1.Finalizer)
	return nil
}

func (h *hands) RemoveFinalizer(context.Context, steps.RemoveFinalizer) error {
	h.w.store.Finalizers = nil
	return nil
}

func (h *hands) ApplyObject(_ context.Context, step steps.ApplyObject) error {
	h.w.objects[step.Name] = facts.ObjectCurrent
	return nil
}

func (h *hands) ReleaseState(context.Context, steps.ReleaseState) error {
	panic("these worlds have no ConfigMaps")
}

func (h *hands) DeleteState(context.Context, steps.DeleteState) error {
	panic("these worlds have no ConfigMaps")
}

func (h *hands) CreateOperation(context.Context, steps.CreateOperation) error {
	panic("these worlds have no orders by annotation")
}

func (h *hands) DeleteOperation(_ context.Context, step steps.DeleteOperation) error {
	h.w.withdraw(step.Name)
	return nil
}

func (h *hands) DropOrders(context.Context, steps.DropOrders) error {
	panic("these worlds have no orders by annotation")
}

// TryPod: pods of one image may be refused, or all, or nobody answers.
func (h *hands) TryPod(_ context.Context, step steps.TryPod) error {
	if h.w.isMute {
		h.w.trials[step.Key] = h.w.trials[step.Key].InVain(h.w.now)
		return nil
	}
	trial := facts.Trial{At: h.w.now, Refused: h.w.refusalOf(step.Inputs.Image)}
	delete(h.w.admittedAt, step.InPlaceOf.UID)
	if trial.Refused == "" {
		h.w.admittedAt[step.InPlaceOf.UID] = h.w.now
	}
	h.w.trials[step.Key] = trial
	return nil
}

func (h *hands) CreateClaim(_ context.Context, step steps.CreateClaim) error {
	h.w.createClaim(step.Name)
	return nil
}

func (h *hands) GrowClaim(_ context.Context, step steps.GrowClaim) error {
	h.w.growClaim(step)
	return nil
}

func (h *hands) TouchClaim(context.Context, steps.TouchClaim) error {
	panic("these worlds' claims do not wait for a StorageClass")
}

func (h *hands) DropVolume(_ context.Context, step steps.DropVolume) error {
	w := h.w
	if member := w.cluster.members[step.Member]; w.lacksCopies() || !w.runs(step.Member, member) ||
		w.podOf(step.Member).Claim == step.Claim {
		panic("the volume of " + step.Claim + " is given up, and may be needed")
	}
	delete(w.claims, step.Claim)
	return nil
}

func (h *hands) DeleteClaim(_ context.Context, step steps.DeleteClaim) error {
	w := h.w
	if w.store.DeletionTimestamp == nil || w.store.Spec.ReclaimPolicy != v1alpha1.ReclaimDelete || len(w.livePods()) > 0 {
		panic("the claim " + step.Name + " is deleted")
	}
	delete(w.claims, step.Name)
	return nil
}

func (h *hands) CreatePod(_ context.Context, step steps.CreatePod) error {
	h.w.createPod(step)
	return nil
}

func (h *hands) UngatePod(_ context.Context, step steps.UngatePod) error {
	if pod := h.w.pods[step.Pod.Name]; pod != nil && pod.UID == step.Pod.UID && pod.ResourceVersion == step.Pod.ResourceVersion {
		pod.Gated = false
		pod.ResourceVersion += "1"
	}
	return nil
}

func (h *hands) SetDomain(_ context.Context, step steps.SetDomain) error {
	pod := h.w.pods[step.Pod.Name]
	pod.Domain, pod.DomainKnown = step.Domain, true
	return nil
}

func (h *hands) CancelPodEnd(_ context.Context, step steps.CancelPodEnd) error {
	pod := h.w.pods[step.Pod.Name]
	pod.EndCancelled = step.Mark
	pod.ResourceVersion += "1"
	return nil
}

func (h *hands) DeletePod(_ context.Context, step steps.DeletePod) error {
	if step.UnderLock {
		h.w.checkLock(step.Pod)
		if ordinal, _ := v1alpha1.CoordinatorOrdinal("box", step.Member); ordinal < int(h.w.store.Spec.Coordinator.Replicas) {
			h.w.checkAdmitted(step.Member, step.Pod)
		}
	}
	h.w.deletePod(step.Pod)
	return nil
}

func (h *hands) ReleasePod(_ context.Context, step steps.ReleasePod) error {
	h.w.releasePod(step)
	return nil
}

func (h *hands) RestartMember(_ context.Context, step steps.RestartMember) error {
	h.w.restart(step)
	return nil
}

func (h *hands) DrillMember(_ context.Context, step steps.DrillMember) error {
	h.w.drill(step)
	return nil
}

func (h *hands) MoveMember(_ context.Context, step steps.MoveMember) error {
	h.w.move(step)
	return nil
}

func (h *hands) RetireMember(_ context.Context, step steps.RetireMember) error {
	h.refused = h.w.retire(step)
	return nil
}

func (h *hands) CancelDisruption(_ context.Context, step steps.CancelDisruption) error {
	h.w.pods[step.Lock.Pod].ResourceVersion += "1"
	return nil
}

func (h *hands) SetSettings(_ context.Context, step steps.SetSettings) error {
	h.w.cluster.settings = &step.Settings
	return nil
}

func (h *hands) DrainMember(_ context.Context, step steps.DrainMember) error {
	if h.w.trials[step.Trial].Refused == "" {
		h.refused = h.w.drain(step.Member)
	}
	return nil
}

func (h *hands) UndrainMember(_ context.Context, step steps.UndrainMember) error {
	h.w.cluster.members[step.Member].isDraining = false
	return nil
}

func (h *hands) FinalizeUpgrade(_ context.Context, step steps.FinalizeUpgrade) error {
	h.w.format.Active = int64(step.Format)
	return nil
}

func (h *hands) SplitTable(_ context.Context, step steps.SplitTable) error {
	h.split = h.w.split(step)
	return nil
}

func (h *hands) IsolateNode(_ context.Context, step steps.IsolateNode) error {
	h.w.isolateFailing(step)
	return nil
}

func (h *hands) FenceNode(_ context.Context, step steps.FenceNode) error {
	h.w.fence(step.Fence.Node)
	return nil
}

func (h *hands) UnfenceNode(_ context.Context, step steps.UnfenceNode) error {
	h.w.unfence(step.Fence.Node)
	return nil
}
