package plan_test

import (
	"testing"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/layout"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// frozen is a node that Kubernetes calls Ready still, and from which nobody hears any more.
func frozen(s *scene) {
	s.Nodes[2].Ready, s.Nodes[2].SilentFrom, s.Requests[0].ProvedDead = true, s.now, true
}

func TestFencing(t *testing.T) {
	request := plan.FenceRequest{Namespace: "default", Store: "db", Node: "atom003"}
	for name, test := range map[string]struct {
		change func(s *scene)
		state  plan.FenceState
		says   string
		steps  string
	}{
		"lost": {nil, plan.FenceRunning, "atom003 is being switched off: the server is on", "Off atom003"},
		"forbidden": {
			func(s *scene) { s.Chassis.Spec.Fencing.Namespaces = []string{"other"} },
			plan.FenceRefused,
			"spec.fencing.namespaces of Chassis mercury1 does not list namespace default",
			"",
		},
		"ready": {
			func(s *scene) { s.Nodes[2].Ready, s.Nodes[2].SilentFrom = true, s.now },
			plan.FenceWaiting, "node atom003 is Ready, and the status of Store db does not say that its member there is proved dead", "",
		},
		"dead": {frozen, plan.FenceRunning, "switched off", "Off atom003"},
		"heard": {
			func(s *scene) { frozen(s); s.Nodes[2].SilentFrom = s.now.Add(time.Second) },
			plan.FenceWaiting, "node atom003 is Ready, and its kubelet renews its Lease", "",
		},
		"cordoned": {
			func(s *scene) { frozen(s); s.Nodes[2].Cordoned = true },
			plan.FenceWaiting, "node atom003 is Ready, and cordoned: somebody may be working on it", "",
		},
		"never heard": {
			func(s *scene) { frozen(s); s.Nodes[2].SilentFrom = time.Time{} },
			plan.FenceWaiting, "node atom003 is Ready, and its kubelet renews its Lease", "",
		},
		"others": {
			func(s *scene) { frozen(s); s.Nodes[2].Alive = []string{"other-1 of Store default/other"} },
			plan.FenceWaiting, "node atom003 is Ready, and other-1 of Store default/other there is not declared dead", "",
		},
		"another Store serves": {
			func(s *scene) { s.Nodes[2].Serving = []plan.Process{{Store: "default/other", Name: "other-master-1"}} },
			plan.FenceWaiting, "node atom003 is not Ready, and other-master-1 of Store default/other there serves", "",
		},
		"the Store itself serves": {
			func(s *scene) { s.Nodes[2].Serving = []plan.Process{{Store: "default/db", Name: "db-master-1"}} },
			plan.FenceRunning, "switched off", "Off atom003",
		},
		"another Store serves, and asks": {
			func(s *scene) {
				s.Nodes[2].Serving = []plan.Process{{Store: "default/other", Name: "other-master-1"}}
				s.asks("default", "other", 2)
			},
			plan.FenceRunning, "switched off", "Off atom003",
		},
		"another Store serves, and asks for another node": {
			func(s *scene) {
				s.Nodes[2].Serving = []plan.Process{{Store: "default/other", Name: "other-master-1"}}
				s.asks("default", "other", 3)
			},
			plan.FenceWaiting, "other-master-1 of Store default/other there serves", "",
		},
		"a stranger serves, and asks": {
			func(s *scene) {
				s.Nodes[2].Serving = []plan.Process{{Store: "stranger/other", Name: "other-master-1"}}
				s.asks("stranger", "other", 2)
			},
			plan.FenceWaiting, "other-master-1 of Store stranger/other there serves", "",
		},
		"silent kubelets": {
			func(s *scene) { frozen(s); s.Nodes[0].SilentFrom, s.Nodes[1].SilentFrom = s.now, s.now },
			plan.FenceWaiting, "other Ready nodes are not heard either (2), which points to a fault of the network", "",
		},
		"kubelets not heard yet": {
			func(s *scene) { frozen(s); s.Nodes[0].SilentFrom, s.Nodes[1].SilentFrom = time.Time{}, time.Time{} },
			plan.FenceWaiting, "other Ready nodes are not heard either (2), which points to a fault of the network", "",
		},
		"one more silent kubelet": {
			func(s *scene) { frozen(s); s.Nodes[0].SilentFrom = s.now },
			plan.FenceRunning, "switched off", "Off atom003",
		},
		"no GUID": {
			func(s *scene) { s.Servers[2].Identity.SystemGUID = "" },
			plan.FenceWaiting,
			"no BMC of Chassis mercury1 reports the system GUID of node atom003",
			"",
		},
		"unset GUID": {func(s *scene) { s.setGUID(2, "00000000-0000-0000-0000-000000000000") }, plan.FenceWaiting, "no BMC", ""},
		"GUID twice": {
			func(s *scene) {
				s.Servers[3].Identity.SystemGUID = s.Servers[2].Identity.SystemGUID
				s.Requests[0].SystemUUID = s.Nodes[2].SystemUUID
			},
			plan.FenceWaiting, "the BMCs of atom003 and atom004 report the same system GUID", "",
		},
		"GUID twice on record": {
			func(s *scene) {
				s.Servers[3].Identity = nil
				s.Servers[3].Object.Status.MMC.SystemGUID = s.Servers[2].Identity.SystemGUID
			},
			plan.FenceWaiting, "the BMCs of atom003 and atom004 report the same system GUID", "",
		},
		"GUID elsewhere": {
			func(s *scene) {
				s.ElsewhereGUIDs = []plan.GUIDOf{{Server: "atom077", SystemGUID: s.Nodes[2].SystemUUID}}
			},
			plan.FenceWaiting,
			"the BMCs of atom003 and atom077 report the same system GUID 00000003-1111-2222-3333-444444444444, so which of them " +
				"node atom003 runs on is not known", "",
		},
		"another GUID elsewhere": {
			func(s *scene) {
				s.ElsewhereGUIDs = []plan.GUIDOf{{Server: "atom077", SystemGUID: s.Nodes[1].SystemUUID}}
			},
			plan.FenceRunning, "atom003 is being switched off", "Off atom003",
		},
		"swapped bytes": {func(s *scene) {
			s.Servers[2].Identity.SystemGUID = "33221100-5544-7766-8899-aabbccddeeff"
			s.Nodes[2].SystemUUID = "00112233-4455-6677-8899-AABBCCDDEEFF"
		}, plan.FenceRunning, "switched off", "Off atom003"},
		"slot not named": {
			func(s *scene) { s.Servers[2].Identity.Slot = 0 }, plan.FenceWaiting,
			"atom003 has no second witness: the server's hardware does not report its slot", "",
		},
		"another slot": {func(s *scene) { s.Servers[2].Identity.Slot = 4 }, plan.FenceWaiting, "reports slot 4, not slot 3", ""},
		"another name": {
			func(s *scene) { s.Nodes[2].Name, s.Nodes[3].Name, s.Nodes[3].Ready = "atom004", "atom003", false },
			plan.FenceRunning,
			"atom004 is being switched off",
			"Off atom004",
		},
		"silent BMC": {silent, plan.FenceRunning, "the server is on", ""},
		"silent network": {func(s *scene) {
			silent(s)
			s.Servers[0].MMC.AnsweredAt = s.now.Add(-time.Hour)
		}, plan.FenceWaiting, "2 of 5 BMCs of Chassis mercury1 do not answer", ""},
		"another machine": {
			func(s *scene) { s.Requests[0].SystemUUID = "99999999-1111-2222-3333-444444444444" }, plan.FenceRefused,
			"node atom003 was machine 99999999-1111-2222-3333-444444444444 when Store db asked", "",
		},
		"two nodes": {func(s *scene) { s.Nodes[3].SystemUUID = s.Nodes[2].SystemUUID }, plan.FenceWaiting, "no BMC", ""},
		"old identity": {
			func(s *scene) { s.Servers[2].IdentityAt = s.now.Add(-time.Minute) }, plan.FenceWaiting,
			"the BMC of atom003 is asked for the system GUID once more", "",
		},
		"no witness": {func(s *scene) { s.Managers = nil }, plan.FenceWaiting, "atom003 has no second witness", ""},
		"refused":    {func(s *scene) { s.Layout.Problems = []layout.Problem{{Text: "wrong"}} }, plan.FenceRefused, "is not accepted", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(bmc.PowerOn)
			s.Nodes[2].Ready = false
			s.Requests = []plan.FenceRequest{request}
			s.Requests[0].Since = s.now
			if test.change != nil {
				test.change(s)
			}
			expect(t, steps(s.plan()), test.steps)
			verdict := s.made.Fences[0]
			if expect(t, verdict.Message, test.says); verdict.State != test.state {
				t.Errorf("%s: %s", verdict.State, verdict.Message)
			}
		})
	}
}

// A fenced server is done once that is proved and on record, stays off while somebody asks for that, and comes back by spec.power after it.
func TestFencingEnds(t *testing.T) {
	s := newScene(bmc.PowerOn)
	s.Nodes[2].Ready = false
	s.Servers[2].Object.Spec.Power = v1alpha1.WantOn
	s.Requests = []plan.FenceRequest{{Namespace: "default", Store: "db", Node: "atom003", Since: s.now}}
	expect(t, steps(s.plan()), "Off atom003")
	s.pass(time.Second)
	s.see(2, bmc.PowerOff, bmc.PowerOn)
	s.pass(time.Second)
	if s.made.Fences[0].State != plan.FenceRunning {
		t.Error(s.made.Fences)
	}
	s.see(2, bmc.PowerOff, bmc.PowerOff)
	s.plan()
	if s.made.Fences[0].State != plan.FenceRunning { // it is not on record yet
		t.Error(s.made.Fences)
	}
	s.pass(time.Minute)
	if s.made.Fences[0].State != plan.FenceDone {
		t.Error(s.made.Fences)
	}
	expect(t, steps(s.made), "")
	s.order(2, v1alpha1.ActionOn)
	s.plan()
	expect(t, s.orderOf(2), "Refused: Store default/db keeps the server off, because its node is lost")
	s.Requests = nil
	expect(t, steps(s.plan()), "On atom003")
}

// A server comes back once nobody asks for it to be off any more, unless the Chassis, its spec or the slot says otherwise; one that was off
// before stays off.
func TestReturnAfterFencing(t *testing.T) {
	for name, test := range map[string]struct {
		before, after func(s *scene)
		steps         string
	}{
		"by default":        {nil, nil, "On atom003"},
		"the Chassis":       {func(s *scene) { s.Chassis.Spec.Fencing.Afterwards = v1alpha1.FencedStaysOff }, nil, ""},
		"spec.power":        {func(s *scene) { s.Servers[2].Object.Spec.Power = v1alpha1.WantOff }, nil, ""},
		"it was off before": {func(s *scene) { s.see(2, bmc.PowerOff, bmc.PowerOff) }, nil, ""},
		"another blade":     {nil, func(s *scene) { s.Servers[2].Identity.SystemGUID = "99999999-1111-2222-3333-444444444444" }, ""},
		"another Store": {nil, func(s *scene) {
			s.Requests = []plan.FenceRequest{{Namespace: "default", Store: "other", Node: "atom003", Since: s.now}}
		}, ""},
		"not looked yet": {nil, func(s *scene) { s.Servers[2].Identity = nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(bmc.PowerOn)
			s.Nodes[2].Ready = false
			if test.before != nil {
				test.before(s)
			}
			s.Requests = []plan.FenceRequest{{Namespace: "default", Store: "db", Node: "atom003", Since: s.now}}
			s.plan()
			s.pass(time.Second)
			s.see(2, bmc.PowerOff, bmc.PowerOff)
			s.plan()
			s.pass(time.Second)
			if verdict := s.made.Fences[0]; verdict.State != plan.FenceDone || verdict.Proof == nil || verdict.SystemGUID == "" {
				t.Fatalf("%+v", verdict)
			}
			s.Requests = nil
			if test.after != nil {
				test.after(s)
			}
			expect(t, steps(s.plan()), test.steps)
			if test.steps == "" {
				return
			}
			s.pass(time.Second)
			s.see(2, bmc.PowerOn, bmc.PowerOn)
			if s.plan(); s.Servers[2].Object.Status.Change != nil {
				t.Errorf("%+v", s.Servers[2].Object.Status.Change)
			}
		})
	}
}
