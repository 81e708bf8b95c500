package plan_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/layout"
	"rcbox.dev/rcbox/operator/internal/box/names"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// editor is a user who edits the addresses of a Chassis while the cluster gets more ranges for pods.
type editor struct {
	chance  *rand.Rand
	chassis *v1alpha1.Chassis
	cluster layout.Cluster
	now     time.Time
	// inForce are the addresses of the spec that was accepted last. recorded are those of the spec whose acceptance was the last one that
	// could be written.
	inForce, recorded map[netip.Addr]bool
}

// addressBug is a controller that breaks a rule about addresses.
type addressBug struct {
	name          string
	before, after func(*editor, *layout.Layout)
	reported      string
}

const editorSteps = 60

func newEditor(seed uint64) *editor {
	e := &editor{chance: rand.New(rand.NewPCG(seed, 1)), chassis: newChassis(), now: start}
	e.chassis.Spec.Management.MMC = "192.168.5.1+9"
	return e
}

// act lets something happen: an edit of the addresses or of something else, or a new node.
func (e *editor) act() {
	spec := &e.chassis.Spec
	network := func() string { return fmt.Sprintf("192.168.%d", 5+e.chance.IntN(3)) }
	switch e.chance.IntN(6) {
	case 0, 1:
		spec.Management.MMC = fmt.Sprintf("%s.%d+%d", network(), 1+e.chance.IntN(60), 6+e.chance.IntN(4))
	case 2:
		spec.Slots = fmt.Sprintf("1-%d", 2+e.chance.IntN(5))
	case 3:
		spec.Management.CMM = []string{network() + ".201", network() + ".202"}
	case 4:
		spec.Power.StartsAtOnce++
	case 5:
		pods := netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf("%s.%d", network(), 8*e.chance.IntN(28))), 29)
		e.cluster.Pods = append(e.cluster.Pods, pods)
		return
	}
	e.chassis.Generation++
}

// reconcile is one reconciliation. Its result is a description of the rule that was broken.
func (e *editor) reconcile(bug *addressBug) string {
	e.now = e.now.Add(time.Minute)
	if bug != nil && bug.before != nil {
		bug.before(e, nil)
	}
	laid := layout.Of([]v1alpha1.Chassis{*e.chassis})[e.chassis.Name]
	laid.CheckCluster(e.chassis, e.cluster)
	observed := &plan.Observed{Times: times, Chassis: e.chassis, Layout: laid}
	for i := range laid.Servers {
		object := &v1alpha1.Server{}
		object.Name = laid.Servers[i].Name
		observed.Servers = append(observed.Servers, plan.Server{Object: object, Power: plan.Sight{Power: bmc.PowerUnknown}})
	}
	made := plan.Make(e.now, observed)
	broken := e.check(made.Chassis)
	if e.chance.IntN(5) > 0 { // otherwise somebody else has written
		e.chassis.Status = *made.Chassis
		if meta.IsStatusConditionTrue(made.Chassis.Conditions, v1alpha1.ConditionAccepted) {
			e.recorded = e.inForce
		}
	}
	if bug != nil && bug.after != nil {
		bug.after(e, laid)
	}
	return broken
}

// check: addresses that the cluster uses are asked only if they have been in force since before, and no other Chassis is refused.
func (e *editor) check(status *v1alpha1.ChassisStatus) string {
	isAccepted := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionAccepted)
	asked, wrong, isNew := map[netip.Addr]bool{}, "", false
	note := func(address netip.Addr) {
		asked[address] = true
		isUsed := slices.ContainsFunc(e.cluster.Pods, func(p netip.Prefix) bool { return p.Contains(address) })
		if isUsed && !e.inForce[address] && !e.recorded[address] {
			wrong = address.String()
		}
		isNew = isNew || isUsed && !e.recorded[address]
	}
	for _, place := range names.Places(e.chassis) {
		if place.MMC.IsValid() {
			note(place.MMC)
		}
	}
	for _, controller := range names.Controllers(e.chassis) {
		note(controller.Address)
	}
	switch {
	case isAccepted && wrong != "":
		return wrong + " is asked, and the cluster has used it since before it was accepted"
	case !isAccepted && !isNew:
		return "it is refused: " + meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAccepted).Message
	case isAccepted:
		e.inForce = asked
	}
	return ""
}

func (e *editor) run(bug *addressBug) string {
	for range editorSteps {
		if e.act(); e.chance.IntN(3) > 0 {
			if broken := e.reconcile(bug); broken != "" {
				return broken
			}
		}
	}
	return ""
}

// Whatever a user edits and whichever ranges nodes get: no address is asked that the cluster used before the address was accepted, and what
// was accepted stays accepted.
func TestAddressesOfAnEditedChassis(t *testing.T) {
	for seed := range uint64(200) {
		if broken := newEditor(seed).run(nil); broken != "" {
			t.Fatalf("seed %d: %s", seed, broken)
		}
	}
}

// TestPlantedBugsOfAddresses: the property finds controllers that break it.
func TestPlantedBugsOfAddresses(t *testing.T) {
	for _, bug := range []addressBug{
		{
			name: "OnceForEver: a Chassis that was accepted once may name any address",
			before: func(e *editor, _ *layout.Layout) {
				if meta.IsStatusConditionTrue(e.chassis.Status.Conditions, v1alpha1.ConditionAccepted) {
					e.chassis.Status.AcceptedAddresses = layout.Of([]v1alpha1.Chassis{*e.chassis})[e.chassis.Name].Addresses
				}
			},
			reported: "is asked",
		},
		{
			name:     "RecordTheRefused: addresses that were refused are on record, too",
			after:    func(e *editor, laid *layout.Layout) { e.chassis.Status.AcceptedAddresses = laid.Addresses },
			reported: "is asked",
		},
		{
			name: "RecordTheUnused: addresses without a server are on record, too",
			after: func(e *editor, laid *layout.Layout) {
				if len(laid.Problems) == 0 {
					e.chassis.Status.AcceptedAddresses = append(slices.Clone(laid.Addresses), e.chassis.Spec.Management.MMC)
				}
			},
			reported: "is asked",
		},
		{
			name:     "ForgetTheRecord: each edit has all addresses checked anew",
			before:   func(e *editor, _ *layout.Layout) { e.chassis.Status.AcceptedAddresses = nil },
			reported: "it is refused",
		},
	} {
		name, _, _ := strings.Cut(bug.name, ":")
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(200) {
				if broken := newEditor(seed).run(&bug); strings.Contains(broken, bug.reported) {
					return
				} else if broken != "" {
					t.Fatalf("seed %d: %s, which does not say %q", seed, broken, bug.reported)
				}
			}
			t.Errorf("200 seeds do not find that %s", bug.name)
		})
	}
}
