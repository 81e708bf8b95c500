package controller

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"rcbox.dev/rcbox/operator/internal/blade/hardware"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// reports are what the systems of blades have found, by node, read once for each report.
type reports struct {
	mu   sync.Mutex
	read map[string]report
}

type report struct {
	text  string
	found *plan.Found
}

// found is nil for a node without a report.
func (r *reports) found(node *corev1.Node) *plan.Found {
	text := node.Annotations[hardware.Annotation]
	r.mu.Lock()
	defer r.mu.Unlock()
	if text == "" {
		delete(r.read, node.Name)
		return nil
	}
	if of, isRead := r.read[node.Name]; isRead && of.text == text {
		return of.found
	}
	if r.read == nil {
		r.read = map[string]report{}
	}
	of := report{text: text, found: plan.FoundIn(text)}
	r.read[node.Name] = of
	return of.found
}

// keep forgets the reports of all other nodes.
func (r *reports) keep(nodes []corev1.Node) {
	names := make(map[string]bool, len(nodes))
	for i := range nodes {
		names[nodes[i].Name] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.read {
		if !names[name] {
			delete(r.read, name)
		}
	}
}
