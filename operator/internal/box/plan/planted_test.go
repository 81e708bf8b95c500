package plan_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// bug is an operator that breaks one of its rules: what it sees, or what it plans, is changed accordingly.
type bug struct {
	name   string
	before func(*sim, *plan.Observed)
	after  func(*sim, *plan.Observed, *plan.Plan)
	// stepsFirst: commands are given before anything is on record.
	stepsFirst bool
	// keepsReadings: readings from before the clock was set are kept.
	keepsReadings bool
	// looksOnce: power is taken away without a last check.
	looksOnce bool
	// forgetsConflicts: nobody notices that a command was not given because its servers' statuses could not all be written.
	forgetsConflicts bool
	// isShifted: the bug is searched for in worlds in which the addresses of BMCs are wrong by a slot.
	isShifted bool
	// reported is a part of the violation by which it is seen, with this seed, or else with one of the first so many.
	reported string
	seed     uint64
	within   uint64
}

func servers(o *plan.Observed, change func(*plan.Server)) {
	for i := range o.Servers {
		object := o.Servers[i].Object.DeepCopy()
		o.Servers[i].Object = object
		change(&o.Servers[i])
	}
}

var plantedBugs = []bug{
	{
		name: "TrustTheOrder: yes to an order to switch off is taken for proof",
		after: func(s *sim, o *plan.Observed, made *plan.Plan) {
			for _, of := range o.Servers {
				status := made.Servers[of.Object.Name]
				change := status.Change
				isOff := change != nil && change.Stage == v1alpha1.StageSwitchingOff && change.Tries > 0
				if isOff && of.Answer != nil && of.Answer.Err == nil && of.Answer.TriedAt.Equal(change.TriedAt.Time) {
					status.LastOff = &v1alpha1.OffProof{At: change.Since, By: []v1alpha1.Witness{v1alpha1.WitnessMMC, v1alpha1.WitnessCMM}}
					status.LastOff.At.Time = s.clock()
				}
			}
		},
		reported: "status.lastOff", seed: 5, within: 60,
	},
	{
		name: "TwoReadingsOfOneBMC: a BMC is a witness beside itself",
		before: func(_ *sim, o *plan.Observed) {
			for i := range o.Servers {
				o.Servers[i].Link = o.Servers[i].Power
			}
		},
		reported: "status.lastOff", seed: 23, within: 60,
	},
	{
		name: "UnknownIsOff: who does not answer is off",
		before: func(s *sim, o *plan.Observed) {
			for i := range o.Servers {
				if o.Servers[i].MMC.Err != nil {
					o.Servers[i].Power = plan.Sight{Power: bmc.PowerOff, At: s.clock()}
				}
			}
		},
		reported: "status.lastOff", seed: 6, within: 60,
	},
	{
		name: "OrderTwice: an order that is done is begun again",
		before: func(_ *sim, o *plan.Observed) {
			servers(o, func(of *plan.Server) {
				order := of.Object.Status.Order
				if order != nil && order.State == v1alpha1.OrderDone && order.Action == v1alpha1.ActionReset {
					of.Object.Status.Order = nil
				}
			})
		},
		reported: "though it has ended", seed: 2, within: 60,
	},
	{
		name: "ForgetBudget: servers start though there is no power for them",
		before: func(_ *sim, o *plan.Observed) {
			o.Chassis = o.Chassis.DeepCopy()
			o.Chassis.Spec.Power.BudgetWatts = 100000
		},
		reported: " W of ", seed: 3, within: 60,
	},
	{
		name: "ForgetStartsAtOnce: all that want to start do so at once",
		before: func(_ *sim, o *plan.Observed) {
			o.Chassis = o.Chassis.DeepCopy()
			o.Chassis.Spec.Power.StartsAtOnce = 64
		},
		reported: "are starting", within: 60,
	},
	{
		name: "FenceWithoutGUID: a node is that of the server of the same name",
		before: func(s *sim, o *plan.Observed) {
			for i := range o.Nodes {
				for j := range o.Servers {
					if o.Servers[j].Object.Name == o.Nodes[i].Name && o.Servers[j].Identity != nil {
						o.Nodes[i].SystemUUID = o.Servers[j].Identity.SystemGUID
					}
				}
			}
		},
		reported: "for Fencing, and nobody", seed: 6, within: 60,
	},
	{
		name:      "CutWithoutALastLook: what power was to be taken away for is not looked at again",
		looksOnce: true, reported: "for Fencing, and nobody", seed: 17, within: 120,
	},
	{
		name: "ForgetTheJump: times on record from before the clock was set are taken as they are",
		before: func(_ *sim, o *plan.Observed) {
			o.JumpedAt = time.Time{}
		},
		reported: "servers are starting", seed: 1342, within: 1400,
	},
	{
		name:          "KeepReadings: what was read before the clock was set is taken for what is so",
		keepsReadings: true, reported: "status.lastOff", seed: 19, within: 60,
	},
	{
		name: "AnySlotProves: what is seen of a slot is proof though the hardware does not say that it is there",
		before: func(_ *sim, o *plan.Observed) {
			for i := range o.Servers {
				if identity := o.Servers[i].Identity; identity != nil {
					claimed := *identity
					claimed.Slot = i + 1
					o.Servers[i].Identity = &claimed
				}
			}
		},
		isShifted: true, reported: "status.lastOff", seed: 2, within: 60,
	},
	{
		name: "FenceForAnybody: whose Store asks is not looked at",
		before: func(_ *sim, o *plan.Observed) {
			o.Chassis = o.Chassis.DeepCopy()
			o.Chassis.Spec.Fencing.Namespaces = []string{"default", "stranger"}
		},
		reported: "for Fencing, and nobody", seed: 5, within: 60,
	},
	{
		name: "FenceTheLiving: nodes that are ready are fenced",
		before: func(_ *sim, o *plan.Observed) {
			for i := range o.Nodes {
				o.Nodes[i].Ready = false
			}
		},
		reported: "for Fencing, and nobody", seed: 35, within: 60,
	},
	{
		name: "FenceATwin: servers of other Chassis are not looked at",
		before: func(_ *sim, o *plan.Observed) {
			o.ElsewhereGUIDs = nil
		},
		reported: "for Fencing, and nobody", seed: 60, within: 120,
	},
	{
		name: "FenceByTheVerdict: a kubelet that renews its Lease is no hindrance",
		before: func(s *sim, o *plan.Observed) {
			for i := range o.Nodes {
				o.Nodes[i].SilentFrom = s.clock()
			}
			for i := range o.Nodes { // the silence of all would be one
				if !slices.ContainsFunc(o.Requests, func(r plan.FenceRequest) bool { return r.Node == o.Nodes[i].Name }) {
					o.Nodes[i].SilentFrom = s.clock().Add(time.Hour)
				}
			}
		},
		reported: "for Fencing, and nobody", seed: 35, within: 120,
	},
	{
		name: "FenceBySilence: a silent kubelet is enough, whatever coordinators say",
		before: func(_ *sim, o *plan.Observed) {
			for i := range o.Requests {
				o.Requests[i].ProvedDead = true
			}
		},
		reported: "for Fencing, and nobody", seed: 37, within: 60,
	},
	{
		name: "FenceUnderOthers: other Stores' members on the node are not looked at",
		before: func(s *sim, o *plan.Observed) {
			for i := range o.Nodes {
				o.Nodes[i].Alive = nil
			}
		},
		reported: "for Fencing, and nobody", seed: 27, within: 60,
	},
	{
		name: "FenceUnderServing: a node that is not ready is taken for dead, whatever another Store's coordinator says",
		before: func(_ *sim, o *plan.Observed) {
			for i := range o.Nodes {
				o.Nodes[i].Serving = nil
			}
		},
		reported: "for Fencing, and nobody", seed: 34, within: 60,
	},
	{
		name: "FenceWhereAllAreSilent: that many kubelets are silent is no hindrance",
		before: func(s *sim, o *plan.Observed) {
			for i := range o.Nodes {
				if !slices.ContainsFunc(o.Requests, func(r plan.FenceRequest) bool { return r.Node == o.Nodes[i].Name }) {
					o.Nodes[i].SilentFrom = s.clock().Add(time.Hour)
				}
			}
		},
		reported: "for Fencing, and nobody", seed: 67, within: 120,
	},
	{
		name: "FenceInTheDark: that many BMCs do not answer is no hindrance",
		before: func(s *sim, o *plan.Observed) {
			for i := range o.Servers {
				if o.Servers[i].MMC.Err != nil {
					o.Servers[i].MMC.AnsweredAt = s.clock()
				}
			}
		},
		reported: "for Fencing, and nobody", seed: 365, within: 400,
	},
	{
		name: "ForgetTheCycle: what was going on when the operator was killed is taken for done",
		after: func(_ *sim, o *plan.Observed, made *plan.Plan) {
			for _, of := range o.Servers {
				order, next := of.Object.Status.Order, made.Servers[of.Object.Name]
				if of.Identity == nil && order != nil && order.State == v1alpha1.OrderRunning && next.Order.ID == order.ID {
					next.Order.State, next.Change = v1alpha1.OrderDone, nil
				}
			}
			made.Steps = slices.DeleteFunc(made.Steps, func(step plan.Step) bool { return made.Servers[step.Servers[0]].Change == nil })
		},
		reported: "is Done, and", seed: 27, within: 120,
	},
	{
		name: "TwoReadingsOfOneManager: the chassis manager is a witness beside itself",
		before: func(s *sim, o *plan.Observed) {
			for i := range o.Managers {
				for _, sensor := range o.Managers[i].Sensors {
					var slot int
					n, _ := fmt.Sscanf(sensor.Name, "Slot %02d State", &slot)
					if n == 1 && s.clock().Sub(o.Managers[i].SensorsAt) <= times.Fresh {
						o.Servers[slot-1].Link = plan.Sight{Power: powerOf(sensor.Value == 2), At: o.Managers[i].SensorsAt}
					}
				}
			}
		},
		reported: "status.lastOff", seed: 9, within: 120,
	},
	{
		name: "ProofOutlivesTheStart: status.lastOff stays when a server is switched on",
		after: func(_ *sim, o *plan.Observed, made *plan.Plan) {
			for _, of := range o.Servers {
				if last := of.Object.Status.LastOff; last != nil && of.Power.Power != bmc.PowerOn {
					made.Servers[of.Object.Name].LastOff = last
				}
			}
		},
		reported: "status.lastOff", within: 60,
	},
	{
		name: "ForgetTheStart: what was told to start before is no hindrance to proof",
		before: func(_ *sim, o *plan.Observed) {
			servers(o, func(of *plan.Server) {
				if change := of.Object.Status.Change; change == nil || change.Stage == v1alpha1.StageSwitchingOff {
					of.Object.Status.Power.MayStartUntil = nil
				}
			})
		},
		reported: "are starting", within: 60,
	},
	{
		name: "ReadingsDoNotAge: what was seen long ago counts",
		before: func(s *sim, o *plan.Observed) {
			for i := range o.Servers {
				if o.Servers[i].Power.Power != bmc.PowerUnknown {
					o.Servers[i].Power.At = s.clock()
				}
			}
			for i := range o.Managers {
				if o.Managers[i].Sensors != nil {
					o.Managers[i].SensorsAt, o.Managers[i].AnsweredAt = s.clock(), s.clock()
				}
			}
		},
		reported: "status.lastOff", seed: 45, within: 60,
	},
	{
		name: "LeaveNobodyBehind: members of Stores are not asked about",
		before: func(_ *sim, o *plan.Observed) {
			o.Members = nil
		},
		reported: "members of Stores run on it", within: 60,
	},
	{
		name: "TellEachAlone: an order that all are being given does not wait for the others",
		before: func(_ *sim, o *plan.Observed) {
			o.Times.Gather = -time.Second
		},
		reported: "alone while others are given the same order", seed: 15, within: 60,
	},
	{
		name:             "ForgetConflicts: a command that is on record is taken for given, though another status could not be written",
		forgetsConflicts: true, reported: "after the command to all was not given", seed: 7, within: 120,
	},
	{
		name: "GoAhead: a server whose status could not be written does not wait for the others",
		before: func(s *sim, o *plan.Observed) {
			isHindered := s.trial != nil && s.trial.hinderedAt > 0
			servers(o, func(of *plan.Server) {
				if isHindered && of.Object.Spec.Order != nil {
					order := *of.Object.Spec.Order
					order.Servers = 0
					of.Object.Spec.Order = &order
				}
			})
		},
		reported: "after the command to all was not given", seed: 7, within: 120,
	},
	{
		name: "StillStarting: servers that were never told to start are waited for as if they were starting",
		before: func(_ *sim, o *plan.Observed) {
			for i := range o.Managers {
				o.Managers[i].NotGiven = nil
			}
		},
		reported: "the command to all", seed: 23, within: 240,
	},
	{
		name: "GatherForEver: an order of a user who was killed half way waits for ever",
		before: func(_ *sim, o *plan.Observed) {
			o.Times.Gather = time.Hour
		},
		reported: "has not ended", seed: 79, within: 120,
	},
	{
		name: "MastersOnly: coordinators of Stores are not asked about",
		before: func(_ *sim, o *plan.Observed) {
			for node := range o.Members {
				o.Members[node] = slices.DeleteFunc(o.Members[node], func(b plan.Blocker) bool { return b.IsCoordinator })
			}
		},
		reported: "members of Stores run on it", seed: 1, within: 60,
	},
	{
		name: "NobodyKnows: members are held back for only where the server's node is known",
		before: func(s *sim, o *plan.Observed) {
			for _, b := range s.blades {
				if b.isNameless {
					delete(o.Members, b.node)
				}
			}
		},
		reported: "members of Stores run on it", seed: 28, within: 60,
	},
	{
		name: "OldIdentity: what a BMC has said of itself counts for ever",
		before: func(s *sim, o *plan.Observed) {
			for i := range o.Servers {
				o.Servers[i].IdentityAt = s.clock()
			}
		},
		reported: "was on all the time", seed: 58, within: 60,
	},
	{
		name: "ReturnAtOnce: a fenced server is switched on though a Store still needs it to be off",
		before: func(s *sim, o *plan.Observed) {
			o.Requests = slices.DeleteFunc(o.Requests, func(r plan.FenceRequest) bool { return s.clock().Sub(r.Since) > 10*time.Second })
		},
		reported: "for Fencing, and nobody", seed: 1, within: 60,
	},
	{
		name:       "DoThenWrite: commands are given before they are on record",
		stepsFirst: true,
		reported:   "not on record", within: 60,
	},
	{
		name: "AllOrNothing: the chassis manager switches all, whoever wants it",
		after: func(s *sim, _ *plan.Observed, made *plan.Plan) {
			for i := range made.Steps {
				if made.Steps[i].Action == bmc.ActionOn && made.Steps[i].Manager == "" {
					made.Steps[i].Manager = s.chassis.Spec.Management.CMM[0]
				}
			}
		},
		reported: "nobody has asked for that of", within: 60,
	},
	{
		name: "RestartTwice: a restart is tried again as everything else",
		before: func(s *sim, o *plan.Observed) {
			servers(o, func(of *plan.Server) {
				change := of.Object.Status.Change
				if change != nil && change.Stage == v1alpha1.StageRestarting && change.TriedAt != nil &&
					s.clock().Sub(change.TriedAt.Time) > times.Grace {
					change.Tries, change.TriedAt = 0, nil
				}
			})
		},
		reported: "is told Reset", seed: 66, within: 120,
	},
	{
		name: "NeverGiveUp: an order waits for ever",
		before: func(_ *sim, o *plan.Observed) {
			o.Times.Grace = time.Hour
		},
		reported: "has not ended", seed: 1, within: 60,
	},
}

// TestPlantedBugs: the simulation finds operators that break a rule.
func TestPlantedBugs(t *testing.T) {
	findPlanted(t, plantedBugs, true, func(seed uint64, planted *bug) *sim {
		s := newSim(seed, planted)
		if planted.isShifted {
			s.shiftAddresses(seed)
		}
		return s
	})
}
