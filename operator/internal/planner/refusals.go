package planner

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

const (
	// endedPodInterval is the least age at which a pod that has ended is replaced, so that a node that refuses every pod is not asked
	// without pause.
	endedPodInterval = 10 * time.Second
	// refusedPodMost bounds the pause between two pods that kubelets do not admit. What it takes for a node to have its devices after a
	// restart is minutes.
	refusedPodMost = 5 * time.Minute
	// maxRefusalText bounds what of Kubernetes' words is kept.
	maxRefusalText = 400
)

// refusals counts how many pods of a member, one after the other, kubelets did not admit. One that was admitted ends the count.
func (p *planning) refusals(m *facts.Member) *v1alpha1.RefusalStatus {
	recorded, pod := p.observed.Recorded(m.Name).Refusals, m.Pod()
	switch {
	case pod == nil || recorded != nil && recorded.Pod == pod.Name:
		return recorded
	case pod.Refused == "" && pod.Process == facts.ProcessAbsent:
		return recorded // it is on its way
	case pod.Refused == "":
		return nil
	}
	next := v1alpha1.RefusalStatus{Since: metav1.NewTime(pod.CreatedAt.Truncate(time.Second))}
	if recorded != nil {
		next = *recorded
	}
	next.Count++
	next.Pod, next.Node, next.Message = pod.Name, pod.Node, pod.Refused
	if len(next.Message) > maxRefusalText {
		next.Message = next.Message[:maxRefusalText]
	}
	return &next
}

// pauseAfter is the least age at which a pod that has ended is replaced: it doubles with each refusal.
func pauseAfter(refusals *v1alpha1.RefusalStatus) time.Duration {
	pause := endedPodInterval
	for i := int32(1); refusals != nil && i < refusals.Count && pause < refusedPodMost; i++ {
		pause *= 2
	}
	return min(pause, refusedPodMost)
}
