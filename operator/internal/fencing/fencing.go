// Package fencing keeps a node that is lost from doing anything more, or has somebody do it: so that what is attached to it can be attached
// elsewhere. Which nodes, and when, the planner decides.
package fencing

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// State is how far the fencing of a node is.
type State struct {
	// Requested: this Store has asked for it, and has to take that back.
	Requested bool
	// Done: the node is fenced.
	Done bool
	// Message is what whoever does it says; may be empty.
	Message string
}

// Fencer fences nodes in one way. Every method may be called again, whatever became of the call before.
type Fencer interface {
	// Fence asks for it; it may be done later.
	Fence(ctx context.Context, node string) error
	// Observe says how far it is.
	Observe(ctx context.Context, node string) (State, error)
	// Release takes back what Fence has asked for, and nothing else.
	Release(ctx context.Context, node string) error
}

// ErrTaken means that somebody else has fenced the node, or is at it: that is left alone.
var ErrTaken = errors.New("somebody else fences it")

// ErrReady means that the node is not one to be fenced any more.
var ErrReady = errors.New("it is ready again")

// Clients are what fencers work with.
type Clients struct {
	Writer client.Client
	// Live reads from the API server: no watch is worth its while.
	Live client.Reader
	// Owner tells apart who has asked for it: each Store takes back only what is its own. UID is the Store's.
	Owner types.NamespacedName
	UID   types.UID
	// Since is when the node was lost, as it is on record: it tells one loss from another.
	Since metav1.Time
}

// For is the fencer of a policy.
func For(spec v1alpha1.FencingSpec, clients Clients) (Fencer, error) {
	switch spec.Type {
	case v1alpha1.FencingNone, "":
		return None{}, nil
	case v1alpha1.FencingOutOfServiceTaint:
		return &OutOfServiceTaint{clients: clients}, nil
	case v1alpha1.FencingRemediation:
		if spec.RemediationTemplate == nil {
			return nil, errors.New("recovery.fencing.remediationTemplate is missing: name the template of the remediation")
		}
		return &Remediation{clients: clients, template: *spec.RemediationTemplate}, nil
	case v1alpha1.FencingBMC:
		return &BMC{clients: clients}, nil
	default:
		return nil, fmt.Errorf("recovery.fencing.type: no way to fence by %q", spec.Type)
	}
}

// None fences nothing: a fresh local volume needs nobody to be kept off.
type None struct{}

// Fence implements Fencer.
func (None) Fence(context.Context, string) error { return nil }

// Observe implements Fencer.
func (None) Observe(context.Context, string) (State, error) { return State{}, nil }

// Release implements Fencer.
func (None) Release(context.Context, string) error { return nil }

func (c *Clients) owner() string { return c.Owner.String() }
