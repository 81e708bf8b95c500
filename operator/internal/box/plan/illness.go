package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const (
	// maxLosses of a port's link within a day are more than restarts of a switch.
	maxLosses = 5
	// maxServiceMillis is for how long a disk may be busy with one read or write, on average of an hour: ten times what large ones take of
	// a disk that spins.
	maxServiceMillis = 64
)

// illness is what speaks against the health of a server.
type illness struct {
	cause v1alpha1.UnhealthyReason
	// what is known, cure says how to have it forgotten after the repair, and isolation what becomes of the server.
	what, cure, isolation string
}

func (i *illness) message() string {
	text := i.what
	if i.isolation != "" {
		text += ". " + i.isolation
	}
	if i.cure != "" {
		text += "; once it is repaired: " + i.cure
	}
	return text
}

// illness is the first thing that speaks against the server; nil: nothing does, as far as is known.
func (m *machine) illness() *illness {
	ill := func(cause v1alpha1.UnhealthyReason, what, reason string) *illness {
		found := &illness{cause: cause, what: what}
		if !m.isIsolated() {
			found.isolation = fmt.Sprintf("To take it out of use: kubectl rcbox isolate-server %s --reason %q", m.name(), reason)
		}
		return found
	}
	var beyond []string
	for _, s := range m.next.Sensors {
		if s.Beyond {
			beyond = append(beyond, s.Name)
		}
	}
	if len(beyond) > 0 {
		return &illness{cause: v1alpha1.UnhealthyBeyondLimits, what: "beyond their limits: " + listed(beyond)}
	}
	if errors := m.memoryErrors(); errors != "" {
		found := ill(v1alpha1.UnhealthyMemoryErrors, "in the log of its BMC, of the last 24 hours: "+errors, "memory errors")
		found.cure = "kubectl rcbox ipmi " + m.name() + " sel clear"
		return found
	}
	if report := m.report(); report != nil {
		for _, port := range report.Ports {
			if port.LinkLosses >= maxLosses {
				return ill(v1alpha1.UnhealthyLinkLost, fmt.Sprintf("its port %s has lost its link %d times in the last 24 hours",
					label(port.Name, maxLabel), port.LinkLosses), "link lost")
			}
		}
		for _, disk := range report.Disks {
			if disk.ServiceMillis > maxServiceMillis {
				return ill(v1alpha1.UnhealthySlowDisk, fmt.Sprintf("its disk %s was busy for more than %d ms with each read or write, on "+
					"average of the last hour", label(disk.Name, maxLabel), disk.ServiceMillis/2), "slow disk")
			}
		}
		if cause, what := m.slowness(report); cause != "" {
			return ill(cause, what, "slow "+strings.ToLower(strings.TrimPrefix(string(cause), "Slow")))
		}
	}
	return nil
}

// report is what the running system of the blade reports; nil: nothing, or that is of an earlier start.
func (m *machine) report() *Found {
	if m.node == nil || m.node.Found == nil || m.power != v1alpha1.PowerOn || !m.node.Ready {
		return nil
	}
	if found := m.node.Found; found.Unusable == "" && found.Boot != "" && found.Boot == m.node.BootID {
		return found
	}
	return nil
}

// isolateTheIll orders the isolation of servers that spec.isolation names, as a user would: those first that are ill for the longest time.
func (p *planning) isolateTheIll() {
	wanted := p.Chassis.Spec.Isolation
	if len(wanted.Automatic) == 0 {
		return
	}
	var all []*machine
	isolated := 0
	for _, m := range p.machines {
		switch {
		case m.isIsolated() || m.next.Isolation != nil:
			isolated++
		case m.ill != nil && slices.Contains(wanted.Automatic, m.ill.cause):
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b *machine) int {
		return cmp.Or(a.illSince().Compare(b.illSince()), bySlot(a, b))
	})
	room := max(int(wanted.AtMost), 1) - isolated
	gate := p.whyIsolateNobody(len(all))
	for _, m := range all {
		why := gate
		switch {
		case why != "":
		case m.next.ReturnedAt != nil && !m.illSince().After(m.next.ReturnedAt.Time):
			why = "it was brought back with this"
		case m.ill.cause == v1alpha1.UnhealthyBeyondLimits && m.Sensors == nil:
			why = "its sensors were not read yet"
		case m.isOrderOpen() || m.fence != nil:
			why = "an order or a fence comes first"
		case room <= 0:
			why = fmt.Sprintf("%d servers of the chassis are isolated already (spec.isolation.atMost: %d)", isolated, wanted.AtMost)
		}
		if why == "" {
			room--
			isolated++
			m.ill.isolation = "It is isolated automatically"
			reason := label(fmt.Sprintf("automatically: %s: %s", m.ill.cause, m.ill.what), maxReason)
			p.plan.Orders = append(p.plan.Orders, ServerOrder{Server: m.name(), Isolate: &v1alpha1.ServerIsolationSpec{Reason: reason}})
		} else {
			m.ill.isolation = "It is not isolated automatically: " + why
		}
		set(&m.next.Conditions, v1alpha1.ConditionHealthy, no(string(m.ill.cause), m.ill.message()), m.next.ObservedGeneration, p.now)
	}
}

// illSince is since when the condition Healthy is False.
func (m *machine) illSince() time.Time {
	found := meta.FindStatusCondition(m.next.Conditions, v1alpha1.ConditionHealthy)
	if found != nil && found.Status == metav1.ConditionFalse {
		return found.LastTransitionTime.Time
	}
	return m.now
}

// whyIsolateNobody: something else is broken than a server.
func (p *planning) whyIsolateNobody(ill int) string {
	switch {
	case len(p.Layout.Problems) > 0:
		return "the Chassis is not accepted"
	case p.countSilent()*silentPart >= len(p.machines):
		return fmt.Sprintf("%d of %d BMCs are silent", p.countSilent(), len(p.machines))
	case ill > 1 && ill*silentPart >= len(p.machines):
		return fmt.Sprintf("%d of %d servers are not healthy", ill, len(p.machines))
	}
	return ""
}
