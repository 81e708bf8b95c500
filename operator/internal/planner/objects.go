package planner

import (
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// The Store's finalizer and objects of fixed name, which pods need.
var (
	finalizer = rule{name: "finalizer", gives: func(p *planning) {
		if !hasFinalizer(p.observed.Store) {
			p.add(steps.AddFinalizer{Why: "so that the Store outlives its pods"})
		}
	}}

	objects = rule{name: "objects", gives: (*planning).applyObjects}
)

func (p *planning) applyObjects() {
	for _, object := range p.observed.Objects {
		switch object.State {
		case facts.ObjectMissing:
			p.add(steps.ApplyObject{Kind: object.Kind, Name: object.Name, Create: true, Why: "it is missing"})
		case facts.ObjectDifferent:
			p.add(steps.ApplyObject{Kind: object.Kind, Name: object.Name, Why: "it differs from what the Store needs"})
		case facts.ObjectCurrent:
		}
	}
}

func hasFinalizer(store *v1alpha1.Store) bool {
	return slices.Contains(store.Finalizers, v1alpha1.Finalizer)
}
