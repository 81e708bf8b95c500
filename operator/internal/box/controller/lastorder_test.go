package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
	"rcbox.dev/rcbox/operator/internal/box/poll"
)

// A user's order takes no power from a member of a Store that the cache does not have yet.
func TestLastLookBeforeAnOrder(t *testing.T) {
	for name, test := range map[string]struct {
		action   bmc.Action
		change   func(l *lost)
		isForced bool
		err      error
		dropped  string
	}{
		"nothing has changed": {bmc.ActionOff, func(*lost) {}, false, nil, ""},
		"a member has come":   {bmc.ActionOff, memberComes, false, nil, "atom003: other-master-0 of Store default/other runs on it"},
		"it is restarted":     {bmc.ActionReset, memberComes, false, nil, "atom003: other-master-0 of Store default/other runs on it"},
		"it is switched on":   {bmc.ActionOn, memberComes, false, nil, ""},
		"its BMC does not say which machine it is": {
			bmc.ActionOff, memberComes, false, bmc.ErrSilent, "ask the BMC of atom003 for its system GUID",
		},
		"and it is forced": {bmc.ActionOff, memberComes, true, bmc.ErrSilent, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cached, live := newLost(), newLost()
			test.change(live)
			at := noon.Truncate(time.Second)
			for _, of := range []*lost{cached, live} {
				of.servers[2].Spec.Order = &v1alpha1.PowerOrder{ID: "x", Force: test.isForced}
				of.servers[2].Status.Order = &v1alpha1.OrderStatus{ID: "x"}
				of.servers[2].Status.Change = &v1alpha1.PowerChange{For: v1alpha1.ForOrder, Tries: 1, TriedAt: &metav1.Time{Time: at}}
			}
			b := &told{identity: bmc.Identity{SystemGUID: lostUUID(2), Slot: 3}, err: test.err}
			err := given(t, cached, live, b, plan.Step{
				Action: test.action, For: v1alpha1.ForOrder, Servers: []string{"atom003"}, TriedAt: at, Until: noon.Add(time.Second),
			})
			_, isNotGiven := errors.AsType[*plan.NotGivenError](err)
			switch {
			case test.dropped == "" && (err != nil || len(b.orders) != 1):
				t.Errorf("it was told %v: %v", b.orders, err)
			case test.dropped != "" && (!isNotGiven || len(b.orders) > 0 || !strings.Contains(err.Error(), test.dropped)):
				t.Errorf("it was told %v: %v, which does not say %q", b.orders, err, test.dropped)
			}
		})
	}
}

// An isolation takes the power only of a machine that says again who it is, whose node gets no pods, and that is still isolated.
func TestLastLookBeforeIsolation(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(l *lost, b *told)
		dropped string
	}{
		"nothing has changed":   {func(*lost, *told) {}, ""},
		"it was taken back":     {func(l *lost, _ *told) { l.servers[2].Spec.Isolated = nil }, "the server is not isolated any more"},
		"its node was released": {func(l *lost, _ *told) { l.node.Spec.Unschedulable = false }, "node n3 is being cordoned"},
		"a member has come":     {func(l *lost, _ *told) { memberComes(l) }, "other-master-0 of Store default/other runs on it"},
		"another blade is there": {func(l *lost, b *told) {
			l.node.Spec.Unschedulable, l.node.Status.NodeInfo.SystemUUID = false, "99999999-1111-4222-8333-444444444444"
			b.identity.SystemGUID = l.node.Status.NodeInfo.SystemUUID
		}, "node n3 is being cordoned"},
		"its BMC is silent": {func(_ *lost, b *told) { b.err = bmc.ErrSilent }, "ask the BMC of atom003 for its system GUID"},
	} {
		t.Run(name, func(t *testing.T) {
			cached, live := newLost(), newLost()
			b := &told{identity: bmc.Identity{SystemGUID: lostUUID(2), Slot: 3}}
			at := noon.Truncate(time.Second)
			for _, of := range []*lost{cached, live} {
				of.node.Spec.Unschedulable = true
				of.servers[2].Spec.Isolated = &v1alpha1.ServerIsolationSpec{Reason: "ECC errors"}
				of.servers[2].Status.Change = &v1alpha1.PowerChange{For: v1alpha1.ForIsolation, Tries: 1, TriedAt: &metav1.Time{Time: at}}
			}
			test.change(live, b)
			err := given(t, cached, live, b, plan.Step{
				Action: bmc.ActionSoft, For: v1alpha1.ForIsolation, Servers: []string{"atom003"}, TriedAt: at, Until: noon.Add(time.Second),
			})
			switch {
			case test.dropped == "" && (err != nil || len(b.orders) != 1):
				t.Errorf("it was told %v: %v", b.orders, err)
			case test.dropped != "" && (err == nil || len(b.orders) > 0 || !strings.Contains(err.Error(), test.dropped)):
				t.Errorf("it was told %v: %v, which does not say %q", b.orders, err, test.dropped)
			}
		})
	}
}

func memberComes(l *lost) {
	l.store.Status.Masters.Members = []v1alpha1.MemberStatus{
		{
			Name:          "other-master-0",
			MemberFigures: v1alpha1.MemberFigures{Pod: "p", Node: "n3", State: v1alpha1.MemberUp},
		},
	}
}

// After a command to a chassis manager, only the answer of that manager to that command counts.
func TestAnswerAbout(t *testing.T) {
	const manager, other = "192.168.5.201", "192.168.5.202"
	own, whole := &plan.Answer{TriedAt: noon}, &plan.Answer{TriedAt: noon.Add(time.Second)}
	seen := map[string]poll.Seen{"atom003": {}, manager: {}, other: {}}
	for key, answer := range map[string]*plan.Answer{"atom003": own, other: whole} {
		one := seen[key]
		one.Answers[plan.KindPower] = answer
		seen[key] = one
	}
	for name, test := range map[string]struct {
		change *v1alpha1.PowerChange
		want   *plan.Answer
	}{
		"nothing is changed": {nil, own},
		"its own BMC":        {&v1alpha1.PowerChange{By: v1alpha1.WitnessMMC, TriedAt: &metav1.Time{Time: noon}}, own},
		"the manager":        {&v1alpha1.PowerChange{By: v1alpha1.WitnessCMM, TriedAt: &metav1.Time{Time: whole.TriedAt}}, whole},
		"an older command":   {&v1alpha1.PowerChange{By: v1alpha1.WitnessCMM, TriedAt: &metav1.Time{Time: noon}}, nil},
	} {
		server := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: "atom003"}}
		server.Status.Change = test.change
		if got := answerAbout(server, seen, []string{manager, other}); got != test.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
