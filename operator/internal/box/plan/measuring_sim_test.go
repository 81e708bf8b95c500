package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/blade/hardware"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

const (
	measuringSeeds = 60
	// waiveAt is when a user waives the measurement of one server that does not qualify.
	waiveAt = releaseAt + 60
)

// measuring is what the systems of blades measure at each start and report to their nodes, some time after they are ready.
type measuring struct {
	// boots is the start of a system that its kubelet has reported last, and found what it has measured, by node.
	boots map[string]string
	found map[string]*plan.Found
	// broken are starts whose measurement fails, and reportAt is when they report.
	broken   map[string]bool
	reportAt map[string]int
	// waived are servers whose measurement a user has waived last.
	waived [blades]bool
}

// newMeasuring is a world in which users isolate servers whose systems measure them.
func newMeasuring(seed uint64, planted *bug) *sim {
	s := newIsolating(seed, planted)
	s.chassis.Spec.Boot.Image = "1" // its systems are those that measure
	s.isolating.measuring = &measuring{
		boots: map[string]string{}, found: map[string]*plan.Found{}, broken: map[string]bool{}, reportAt: map[string]int{},
	}
	return s
}

// bootOf is the start of the system that runs on a blade.
func bootOf(b *blade) string { return fmt.Sprintf("%d-%d-%d", b.number, b.onSince, b.resets) }

// passMeasuring lets systems report, and a user waive.
func (s *sim) passMeasuring(isCalm bool) {
	w := s.isolating.measuring
	if w == nil {
		return
	}
	for _, b := range s.blades {
		boot := bootOf(b)
		if s.kubelets.heardAt[b.node] == s.now {
			w.boots[b.node] = boot
		}
		if !s.isReady(b) {
			continue
		}
		if _, isKnown := w.reportAt[boot]; !isKnown {
			w.reportAt[boot] = s.now + s.isolating.chance.IntN(6)
			w.broken[boot] = s.isolating.chance.IntN(3) == 0
		}
		if s.now >= w.reportAt[boot] && (w.found[b.node] == nil || w.found[b.node].Boot != boot) {
			of := &plan.Found{Boot: boot, Measured: &hardware.Measured{ChecksumMBps: 900, CopyMBps: 5000, ReadMBps: 400}}
			if w.broken[boot] {
				of.Measured = &hardware.Measured{Failed: []string{"disk sda: input/output error"}}
			}
			w.found[b.node] = of
		}
	}
	for i, of := range s.servers {
		if s.isHeldBack(i) {
			s.counts["seconds held back"]++
		}
		switch {
		case of.object.Spec.Isolated != nil && (w.waived[i] || of.object.Spec.Qualification != ""):
			w.waived[i] = false
			s.write(i, func(object *v1alpha1.Server) { object.Spec.Qualification = "" })
		case isCalm && s.now == waiveAt && i == (s.isolating.kept+2)%blades, !isCalm && s.isolating.chance.IntN(90) == 0:
			if of.object.Spec.Isolated == nil && of.object.Status.Isolation != nil {
				w.waived[i] = true
				s.write(i, func(object *v1alpha1.Server) { object.Spec.Qualification = v1alpha1.QualificationWaived })
				s.counts["waived"]++
			}
		}
	}
}

// report enters what a node has of the system that runs on it.
func (s *sim) report(node *plan.Node) {
	if w := s.isolating.measuring; w != nil {
		node.BootID, node.Found = w.boots[node.Name], w.found[node.Name]
	}
}

// isHeldBack: a server that has returned does not qualify, and its condition says so.
func (s *sim) isHeldBack(i int) bool {
	w, b := s.isolating.measuring, s.blades[i]
	if w == nil || w.waived[i] || s.servers[i].object.Spec.Isolated != nil || !w.broken[bootOf(b)] {
		return false
	}
	found := meta.FindStatusCondition(s.servers[i].object.Status.Conditions, v1alpha1.ConditionIsolated)
	return found != nil && found.Reason == "NotQualified" && strings.Contains(found.Message, "input/output error")
}

// checkQualified: a node whose server was switched on again gets pods only once that start has measured it.
func (s *sim) checkQualified(i int, node string) {
	w, b := s.isolating.measuring, s.behind(i)
	isolation := s.servers[i].object.Status.Isolation
	if w == nil || w.waived[i] || isolation == nil || !isolation.WasOn || b.node != node || !b.on || b.isNameless ||
		s.hasTwin(b) || s.shift > 0 || s.isJustSwapped(b) || s.servers[i].object.Spec.Power != v1alpha1.WantUnmanaged {
		return
	}
	s.counts["qualified"]++
	boot := bootOf(b)
	// A start from before the isolation is that of an order.
	isStarting := s.now-b.onSince <= startSeconds && b.onSince > s.isolating.isolatedAt[i] && s.now-b.selfStartedAt > startSeconds
	if isStarting && w.boots[node] != "" {
		s.violate("%s gets pods again, and is not qualified: its start %s has just begun, and the one before was %s", name(b), boot,
			w.boots[node])
	}
	// A start of a moment ago is not known yet.
	if w.broken[boot] || s.now < w.reportAt[boot] && s.now-b.onSince > settle {
		s.violate("%s gets pods again, and its start %s is not qualified (failed: %v)", name(b), boot, w.broken[boot])
	}
}

// TestSimulationOfQualification: a server that returns gets pods once its system has measured it, whatever fails meanwhile.
func TestSimulationOfQualification(t *testing.T) {
	from, to := seedsToRun(t, measuringSeeds)
	counts := runSeeds(t, from, to, newMeasuring)
	expectMet(t, counts, 10, "qualified", "seconds held back", "waived", "returned")
}

var measuringBugs = []bug{
	{
		name: "TrustTheLastStart: what an earlier start has measured counts for this one",
		before: func(_ *sim, o *plan.Observed) {
			for i := range o.Nodes {
				if found := o.Nodes[i].Found; found != nil {
					of := *found
					of.Boot = o.Nodes[i].BootID
					o.Nodes[i].Found = &of
				}
			}
		},
		reported: "is not qualified", within: 40,
	},
	{
		name: "TrustTheLastReady: a node counts as ready because it was before its server was off",
		before: func(_ *sim, o *plan.Observed) {
			servers(o, func(of *plan.Server) {
				if isolation := of.Object.Status.Isolation; isolation != nil {
					isolation.LastBoot = ""
				}
			})
		},
		reported: "has just begun", within: 60,
	},
	{
		name: "MeasuredIsEnough: a measurement that has failed counts",
		before: func(_ *sim, o *plan.Observed) {
			for i := range o.Nodes {
				if found := o.Nodes[i].Found; found != nil {
					of := *found
					of.Measured = &hardware.Measured{}
					o.Nodes[i].Found = &of
				}
			}
		},
		reported: "is not qualified", within: 40,
	},
	{
		name: "WaivedForEver: all measurements are waived",
		before: func(_ *sim, o *plan.Observed) {
			servers(o, func(of *plan.Server) { of.Object.Spec.Qualification = v1alpha1.QualificationWaived })
		},
		reported: "is not qualified", within: 40,
	},
	{
		name: "NobodyQualifies: reports do not arrive",
		before: func(_ *sim, o *plan.Observed) {
			for i := range o.Nodes {
				if found := o.Nodes[i].Found; found != nil {
					o.Nodes[i].Found = &plan.Found{}
				}
			}
		},
		reported: "is still cordoned for it", within: 40,
	},
}

// TestPlantedBugsOfQualification: the simulation finds operators that use servers that do not qualify, or none.
func TestPlantedBugsOfQualification(t *testing.T) { findPlanted(t, measuringBugs, false, newMeasuring) }
