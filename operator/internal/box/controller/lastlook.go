package controller

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/layout"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// droppedError means that a command was not given, because its reasons no longer hold.
type droppedError struct{ why string }

func (e *droppedError) Error() string { return "the server is not switched off: " + e.why }

// lookAgain checks the reasons for a command once more right before power is taken away. It reads from the API server itself, because the
// cache may lag behind, and asks the BMC that gets the command which machine it is. The command may have waited long for its session.
func (r *Reconciler) lookAgain(ctx context.Context, session bmc.BMC, chassis string, step *plan.Step) error {
	look := r.observeTogether
	if step.IsCut() {
		look = r.observeWithFences
	}
	observed, err := look(ctx, chassis)
	if err != nil {
		return err
	}
	isDoubtful := len(observed.Members) > 0 && !step.IsForced(observed) || step.For == v1alpha1.ForIsolation
	if step.Manager == "" && (step.IsCut() || isDoubtful) {
		if observed, err = r.identify(ctx, session, observed, step.Servers[0]); err != nil {
			return err
		}
	}
	if why := plan.WhyNotGiven(r.Clock.Now(), observed, step); why != "" {
		log.FromContext(ctx).Info("command dropped", "servers", step.Servers, "why", why)
		return &droppedError{why}
	}
	return nil
}

// observeTogether observes a Chassis as the API server has it. Commands that are given at the same time share one observation.
func (r *Reconciler) observeTogether(ctx context.Context, chassis string) (*plan.Observed, error) {
	observed, err, _ := r.looks.Do(chassis, func() (any, error) {
		_, observed, err := r.observeLive(ctx, chassis)
		return observed, err
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // observeLive wraps it
	}
	return observed.(*plan.Observed), nil //nolint:forcetypeassert // as above
}

// observeWithFences observes a Chassis and the requests of Stores as the API server has them.
func (r *Reconciler) observeWithFences(ctx context.Context, chassis string) (*plan.Observed, error) {
	seen, observed, err := r.observeLive(ctx, chassis)
	if err == nil {
		_, err = r.observeFences(ctx, r.Live, seen, observed)
	}
	return observed, err
}

// identify asks the BMC of a server once more which machine it is.
func (r *Reconciler) identify(ctx context.Context, session bmc.BMC, observed *plan.Observed, name string) (*plan.Observed, error) {
	known := *observed
	known.Servers = slices.Clone(observed.Servers)
	for i := range known.Servers {
		server := &known.Servers[i]
		if server.Object.Name != name {
			continue
		}
		at := r.Clock.Now()
		identity, err := session.Identity(ctx)
		if err != nil {
			return nil, fmt.Errorf("ask the BMC of %s for its system GUID before its power is taken away: %w", name, err)
		}
		server.Identity, server.IdentityAt = &identity, at
	}
	return &known, nil
}

// observeLive observes a Chassis as the API server has it. It makes no Servers.
func (r *Reconciler) observeLive(ctx context.Context, name string) (*round, *plan.Observed, error) {
	cached := &v1alpha1.ChassisList{}
	if err := r.Client.List(ctx, cached); err != nil {
		return nil, nil, fmt.Errorf("list Chassis: %w", err)
	}
	seen, err := look(ctx, r.Live, fencingNamespaces(cached.Items)...)
	if err != nil {
		return nil, nil, err
	}
	chassis := find(seen.chassis, name)
	if chassis == nil || chassis.DeletionTimestamp != nil {
		return nil, nil, &droppedError{"Chassis " + name + " is being deleted"}
	}
	laid := layout.Of(seen.chassis)[name]
	laid.CheckCluster(chassis, seen.cluster(r.APIServer))
	there := map[string]*v1alpha1.Server{}
	for i := range seen.servers {
		if metav1.IsControlledBy(&seen.servers[i], chassis) {
			there[seen.servers[i].Name] = &seen.servers[i]
		}
	}
	var servers []*v1alpha1.Server
	var taken []string
	slots := laid.Servers[:0]
	for _, slot := range laid.Servers {
		if there[slot.Name] == nil {
			taken = append(taken, slot.Name)
			continue
		}
		slots, servers = append(slots, slot), append(servers, there[slot.Name])
	}
	laid.Servers = slots
	observed, err := r.observe(ctx, r.Live, seen, chassis, laid, servers)
	if err != nil {
		return nil, nil, err
	}
	observed.Taken = taken
	return seen, observed, nil
}
