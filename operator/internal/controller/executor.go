package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// executor carries out the steps of one reconcile; most kinds are one line. lookAgain has read before what a step's row asks for.
type executor struct {
	r *Reconciler
	v *reconcileState
}

var _ steps.Executor = executor{}

func (e executor) AddFinalizer(ctx context.Context, _ steps.AddFinalizer) error {
	if err := e.r.guardState(ctx, e.v); err != nil {
		return err
	}
	return e.r.patchFinalizers(ctx, e.v, controllerutil.AddFinalizer)
}

func (e executor) RemoveFinalizer(ctx context.Context, _ steps.RemoveFinalizer) error {
	if err := e.r.patchFinalizers(ctx, e.v, controllerutil.RemoveFinalizer); err != nil {
		return err
	}
	e.v.gone = true
	return nil
}

func (e executor) ApplyObject(ctx context.Context, step steps.ApplyObject) error {
	return e.r.applyObject(ctx, e.v, step)
}

func (e executor) ReleaseState(ctx context.Context, step steps.ReleaseState) error {
	_, err := e.r.releaseState(ctx, e.v, step.Name)
	return err
}

func (e executor) DeleteState(ctx context.Context, step steps.DeleteState) error {
	return e.r.deleteState(ctx, e.v, step.Name)
}

func (e executor) CreateOperation(ctx context.Context, step steps.CreateOperation) error {
	return e.r.createOperation(ctx, e.v, step)
}

func (e executor) DeleteOperation(ctx context.Context, step steps.DeleteOperation) error {
	return e.r.deleteOperation(ctx, e.v, step)
}

func (e executor) DropOrders(ctx context.Context, step steps.DropOrders) error {
	return e.r.dropOrders(ctx, e.v, step)
}

func (e executor) CreateClaim(ctx context.Context, step steps.CreateClaim) error {
	return e.r.createClaim(ctx, e.v, step)
}

func (e executor) GrowClaim(ctx context.Context, step steps.GrowClaim) error {
	return e.r.growClaim(ctx, e.v, step)
}

func (e executor) TouchClaim(ctx context.Context, step steps.TouchClaim) error {
	return e.r.touchClaim(ctx, e.v, step)
}

func (e executor) DropVolume(ctx context.Context, step steps.DropVolume) error {
	return e.r.deleteClaim(ctx, e.v, step.Claim)
}

func (e executor) DeleteClaim(ctx context.Context, step steps.DeleteClaim) error {
	return e.r.deleteClaim(ctx, e.v, step.Name)
}

func (e executor) TryPod(ctx context.Context, step steps.TryPod) error {
	return e.r.tryPod(ctx, e.v, step)
}

func (e executor) CreatePod(ctx context.Context, step steps.CreatePod) error {
	return e.r.createPod(ctx, e.v, step)
}

func (e executor) UngatePod(ctx context.Context, step steps.UngatePod) error {
	return e.r.ungatePod(ctx, e.v, step)
}

func (e executor) SetDomain(ctx context.Context, step steps.SetDomain) error {
	return e.r.setDomain(ctx, e.v, step)
}

func (e executor) CancelPodEnd(ctx context.Context, step steps.CancelPodEnd) error {
	return e.r.cancelPodEnd(ctx, e.v, step.Pod, step.Mark)
}

func (e executor) DeletePod(ctx context.Context, step steps.DeletePod) error {
	return e.r.deletePod(ctx, e.v, step.Pod)
}

func (e executor) ReleasePod(ctx context.Context, step steps.ReleasePod) error {
	return e.r.releasePod(ctx, e.v, step)
}

func (e executor) RestartMember(ctx context.Context, step steps.RestartMember) error {
	return e.r.deletePod(ctx, e.v, step.Pod)
}

func (e executor) DrillMember(ctx context.Context, step steps.DrillMember) error {
	return e.r.deletePod(ctx, e.v, step.Pod)
}

func (e executor) MoveMember(ctx context.Context, step steps.MoveMember) error {
	return e.r.moveMember(ctx, e.v, step)
}

func (e executor) RetireMember(ctx context.Context, step steps.RetireMember) error {
	return e.r.retireMember(ctx, e.v, step)
}

func (e executor) CancelDisruption(ctx context.Context, step steps.CancelDisruption) error {
	return e.r.cancelDisruption(ctx, e.v, step)
}

func (e executor) SetSettings(ctx context.Context, step steps.SetSettings) error {
	return e.v.coordinator.SetSettings(ctx, settingsRequest(e.v.observed.Store, e.v.observed.Cluster, step.Settings))
}

func (e executor) DrainMember(ctx context.Context, step steps.DrainMember) error {
	return e.r.drainMember(ctx, e.v, step)
}

func (e executor) UndrainMember(ctx context.Context, step steps.UndrainMember) error {
	return e.v.coordinator.UndrainMember(ctx, step.Member)
}

func (e executor) FinalizeUpgrade(ctx context.Context, step steps.FinalizeUpgrade) error {
	return e.v.coordinator.FinalizeUpgrade(ctx, step.Format)
}

func (e executor) SplitTable(ctx context.Context, step steps.SplitTable) error {
	return e.r.splitTable(ctx, e.v, step)
}

func (e executor) IsolateNode(ctx context.Context, step steps.IsolateNode) error {
	return e.r.isolateNode(ctx, e.v, step)
}

func (e executor) FenceNode(ctx context.Context, step steps.FenceNode) error {
	return e.r.fenceNode(ctx, e.v, step)
}

func (e executor) UnfenceNode(ctx context.Context, step steps.UnfenceNode) error {
	return e.r.unfenceNode(ctx, e.v, step)
}
