package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
	"rcbox.dev/rcbox/operator/internal/box/poll"
)

type queueOfRequests = workqueue.TypedRateLimitingInterface[reconcile.Request]

// apply writes what is on record first, each status on condition that the object is the version that was observed, and gives each command
// only once the statuses of all servers that it is meant for are written. A Server that somebody else has written meanwhile keeps nobody
// else waiting: it is looked at again.
func (r *Reconciler) apply(
	ctx context.Context, now poll.Moment, seen *round, observed *plan.Observed, found *fences, made *plan.Plan,
) error {
	var errs []error
	written := map[string]bool{}
	for i := range observed.Servers {
		server := observed.Servers[i].Object
		next := made.Servers[server.Name]
		if err := r.writeServer(ctx, server, next); err != nil {
			errs = append(errs, err)
			continue
		}
		written[server.Name] = true
	}
	for _, step := range made.Steps {
		if slices.ContainsFunc(step.Servers, func(name string) bool { return !written[name] }) {
			r.Poller.NotGiven(recipient(observed.Chassis.Name, &step), now, step)
			continue
		}
		r.give(ctx, now, observed.Chassis.Name, step)
	}
	for _, order := range made.Ports {
		if written[order.Server] {
			r.Switches.Enable(observed.Chassis.Name, order.NIC, order.Name, order.Enabled)
		}
	}
	for i := range made.Orders {
		errs = append(errs, r.order(ctx, observed, made, &made.Orders[i]))
	}
	errs = append(errs, r.writeFences(ctx, found, made, written), r.setTaints(ctx, seen), r.labelNodes(ctx, seen, made),
		r.cordonNodes(ctx, seen, made, written), r.writeVolumes(ctx, observed.Chassis, made))
	return errors.Join(append(errs, r.writeChassis(ctx, observed.Chassis, made.Chassis))...)
}

// isStale says whether all that went wrong is that somebody else was faster.
func isStale(err error) bool {
	var all interface{ Unwrap() []error }
	if !errors.As(err, &all) {
		return apierrors.IsConflict(err)
	}
	return !slices.ContainsFunc(all.Unwrap(), func(one error) bool { return !apierrors.IsConflict(one) })
}

func (r *Reconciler) writeServer(ctx context.Context, server *v1alpha1.Server, next *v1alpha1.ServerStatus) error {
	if equality.Semantic.DeepEqual(&server.Status, next) {
		return nil
	}
	written := server.DeepCopy()
	written.Status = *next
	// With the version that was observed: the API server refuses it once somebody else has written.
	if err := r.Client.Status().Update(ctx, written, FieldManager); err != nil {
		return fmt.Errorf("write the status of Server %s: %w", server.Name, err)
	}
	r.report(written, server.Status.Conditions, next.Conditions)
	if before, now := server.Status.Order, next.Order; now != nil && (before == nil || before.ID != now.ID || before.State != now.State) {
		reason := "Order" + string(now.State)
		r.Recorder.Eventf(written, nil, corev1.EventTypeNormal, reason, string(now.Action), "%s: %s", now.Action, now.Message)
	}
	if before, now := server.Status.Boot, next.Boot; now != nil && (before == nil || before.ID != now.ID || before.State != now.State) {
		reason := "Boot" + string(now.State)
		r.Recorder.Eventf(written, nil, corev1.EventTypeNormal, reason, "Boot", "boot from %s: %s", now.Device, now.Message)
	}
	return nil
}

func (r *Reconciler) writeChassis(ctx context.Context, chassis *v1alpha1.Chassis, next *v1alpha1.ChassisStatus) error {
	observeConditions(chassis.Name, next.Conditions)
	if equality.Semantic.DeepEqual(&chassis.Status, next) {
		return nil
	}
	written := chassis.DeepCopy()
	written.Status = *next
	if err := r.Client.Status().Update(ctx, written, FieldManager); err != nil {
		return fmt.Errorf("write the status of Chassis %s: %w", chassis.Name, err)
	}
	r.report(written, chassis.Status.Conditions, next.Conditions)
	return nil
}

// report makes an event of each condition that has changed.
func (r *Reconciler) report(object client.Object, before, now []metav1.Condition) {
	for i := range now {
		condition := &now[i]
		was := meta.FindStatusCondition(before, condition.Type)
		if was != nil && was.Status == condition.Status || was == nil && condition.Status != metav1.ConditionFalse {
			continue
		}
		kind := corev1.EventTypeNormal
		if (condition.Status == metav1.ConditionTrue) == (condition.Type == v1alpha1.ConditionDegraded) {
			kind = corev1.EventTypeWarning
		}
		r.Recorder.Eventf(object, nil, kind, condition.Reason, condition.Type, "%s", condition.Message)
	}
}

// give gives a command to a controller. What the controller says is seen by a later look.
func (r *Reconciler) give(ctx context.Context, planned poll.Moment, chassis string, step plan.Step) {
	what := step.Action.String()
	do := func(ctx context.Context, session bmc.BMC, _ *plan.Answer) error {
		if step.Action != bmc.ActionOn {
			if err := r.lookAgain(ctx, session, chassis, &step); err != nil {
				return &plan.NotGivenError{Err: err}
			}
		}
		return session.Do(ctx, step.Action)
	}
	switch step.Kind {
	case plan.KindLight:
		what = "light for " + step.Light.String()
		do = func(ctx context.Context, session bmc.BMC, _ *plan.Answer) error {
			return session.Identify(ctx, step.Light)
		}
	case plan.KindBoot:
		what = "boot from " + string(step.Boot)
		do = func(ctx context.Context, session bmc.BMC, answer *plan.Answer) error {
			if err := session.BootOnce(ctx, step.Boot == v1alpha1.BootNetwork); err != nil {
				return err
			}
			next, err := session.NextBoot(ctx)
			if unsupported := (*bmc.UnsupportedError)(nil); errors.As(err, &unsupported) {
				err = nil // the answer says that nothing is known
			}
			answer.Boot = next
			return err
		}
	case plan.KindPower, plan.Kinds:
	}
	log.FromContext(ctx).Info("command", "action", what, "servers", step.Servers, "manager", step.Manager, "why", step.Why)
	// It outlives this look.
	r.Poller.Command(context.WithoutCancel(ctx), recipient(chassis, &step), planned, step, do)
}

// recipient is the controller that a command is given to.
func recipient(chassis string, step *plan.Step) poll.Key {
	if step.Manager != "" {
		return poll.Key{Chassis: chassis, Name: step.Manager}
	}
	return poll.Key{Chassis: chassis, Name: step.Servers[0]}
}

// order gives an order to a Server as a user would, unless its status has just changed: then the next look decides.
func (r *Reconciler) order(ctx context.Context, observed *plan.Observed, made *plan.Plan, order *plan.ServerOrder) error {
	at := slices.IndexFunc(observed.Servers, func(s plan.Server) bool { return s.Object.Name == order.Server })
	if at < 0 || !equality.Semantic.DeepEqual(&observed.Servers[at].Object.Status, made.Servers[order.Server]) {
		return nil
	}
	server := observed.Servers[at].Object.DeepCopy()
	reason, what, why := "Install", "boots from the network", "spec.boot.install: New"
	if order.Boot != nil {
		server.Spec.Boot = order.Boot
	}
	if order.Power != nil {
		server.Spec.Order = order.Power
		what = string(order.Power.Action)
	}
	if order.Isolate != nil {
		server.Spec.Isolated, server.Spec.Qualification = order.Isolate, v1alpha1.QualificationRequired
		reason, what, why = "Isolate", "is isolated "+order.Isolate.Reason, "spec.isolation.automatic"
	}
	// With the version that was observed: a user may have ordered something else.
	if err := r.Client.Update(ctx, server, FieldManager); err != nil {
		return fmt.Errorf("order that Server %s %s: %w", server.Name, what, err)
	}
	r.Recorder.Eventf(server, nil, corev1.EventTypeNormal, reason, reason, "%s: Chassis %s has %s", what, observed.Chassis.Name, why)
	return nil
}
