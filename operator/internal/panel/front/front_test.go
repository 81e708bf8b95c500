package front_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/panel/front"
)

var now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(-d))) }

func mercury(number int32) v1alpha1.Chassis {
	chassis := v1alpha1.Chassis{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("mercury%d", number)},
		Spec: v1alpha1.ChassisSpec{
			Model: "MicroModularServer", NamePrefix: "atom", FirstServer: 44*(number-1) + 1, Slots: "1-44", StorageSlots: "45",
			Position: v1alpha1.ChassisPosition{Rack: "r1", Unit: 2 * number},
		},
	}
	return chassis
}

// on is a server that is as it should be.
func on(name string) v1alpha1.Server {
	server := v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: name}}
	server.Status.Power = v1alpha1.ServerPower{State: v1alpha1.PowerOn, Since: ago(time.Hour), Source: v1alpha1.WitnessMMC}
	server.Status.Node = name
	server.Status.Sensors = []v1alpha1.SensorStatus{{Name: "Fan", Value: "4000 RPM"}, {Name: "CPU", Value: "41 C"}}
	condition(&server, v1alpha1.ConditionNodeReady, metav1.ConditionTrue, "")
	return server
}

func condition(server *v1alpha1.Server, kind string, status metav1.ConditionStatus, message string) {
	server.Status.Conditions = append(server.Status.Conditions, metav1.Condition{Type: kind, Status: status, Message: message})
}

func slotOf(t *testing.T, objects front.Objects, name string) front.Slot {
	t.Helper()
	slot, isSlot := front.Look(objects, now)[name].(front.Slot)
	if !isSlot {
		t.Fatalf("there is no %s", name)
	}
	return slot
}

func TestStates(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*v1alpha1.Server)
		state  front.State
		text   string
	}{
		"on": {func(*v1alpha1.Server) {}, front.Up, "is on since 2026-11-24T11:00:00Z"},
		"on, without a node": {func(s *v1alpha1.Server) {
			s.Status.Node, s.Status.Conditions = "", nil
		}, front.Up, "no node runs on it"},
		"off, proved": {func(s *v1alpha1.Server) {
			s.Status.Power.State = v1alpha1.PowerOff
			s.Status.LastOff = &v1alpha1.OffProof{At: *ago(time.Minute), By: []v1alpha1.Witness{"MMC", "PowerReading"}}
		}, front.Off, "proved at 2026-11-24T11:59:00Z by MMC and PowerReading"},
		"off, said by one": {func(s *v1alpha1.Server) { s.Status.Power.State = v1alpha1.PowerOff }, front.Off, "that is no proof"},
		"silent": {func(s *v1alpha1.Server) {
			s.Status.Power.State, s.Status.MMC.SilentSince = v1alpha1.PowerUnknown, ago(time.Minute)
		}, front.Unknown, "silent since 2026-11-24T11:59:00Z"},
		"being started": {func(s *v1alpha1.Server) {
			s.Status.Power.State = v1alpha1.PowerOff
			s.Status.Change = &v1alpha1.PowerChange{Stage: v1alpha1.StageSwitchingOn, Since: *ago(time.Second)}
		}, front.Starting, "is being started"},
		"isolated": {func(s *v1alpha1.Server) {
			s.Status.Power.State = v1alpha1.PowerOff
			s.Status.Isolation = &v1alpha1.ServerIsolationStatus{
				Since: *ago(time.Minute), Reason: "ECC errors", Stage: v1alpha1.StageIsolated,
			}
		}, front.Isolated, "is isolated since 2026-11-24T11:59:00Z: ECC errors"},
		"being isolated": {func(s *v1alpha1.Server) {
			s.Status.Change = &v1alpha1.PowerChange{Stage: v1alpha1.StageShuttingDown, Since: *ago(time.Second)}
			s.Status.Isolation = &v1alpha1.ServerIsolationStatus{
				Since: *ago(time.Minute), Reason: "ECC errors", Stage: v1alpha1.StageIsolationOff,
			}
			condition(s, v1alpha1.ConditionIsolated, metav1.ConditionFalse, "ECC errors; it is asked to shut down")
		}, front.Isolated, "is isolated since 2026-11-24T11:59:00Z: ECC errors; it is asked to shut down"},
		"coming back": {func(s *v1alpha1.Server) {
			s.Status.Change = &v1alpha1.PowerChange{Stage: v1alpha1.StageSwitchingOn, Since: *ago(time.Second)}
			s.Status.Isolation = &v1alpha1.ServerIsolationStatus{Since: *ago(time.Minute), Stage: v1alpha1.StageReturning}
		}, front.Starting, "is being started"},
		"being stopped": {func(s *v1alpha1.Server) {
			s.Status.Change = &v1alpha1.PowerChange{Stage: v1alpha1.StageShuttingDown, Since: *ago(time.Second)}
		}, front.Stopping, "is being switched off"},
		"its node is not ready yet": {func(s *v1alpha1.Server) {
			s.Status.Power.Since, s.Status.Conditions = ago(time.Minute), nil
			condition(s, v1alpha1.ConditionNodeReady, metav1.ConditionFalse, "the kubelet does not answer")
		}, front.Starting, "its node is not ready yet"},
		"its node is not ready": {func(s *v1alpha1.Server) {
			s.Status.Conditions = nil
			condition(s, v1alpha1.ConditionNodeReady, metav1.ConditionFalse, "the kubelet does not answer")
		}, front.Failed, "the kubelet does not answer"},
		"too hot": {func(s *v1alpha1.Server) {
			condition(s, v1alpha1.ConditionHealthy, metav1.ConditionFalse, "CPU is beyond a limit")
		}, front.Failed, "CPU is beyond a limit"},
		"another blade": {func(s *v1alpha1.Server) {
			condition(s, v1alpha1.ConditionAsRecorded, metav1.ConditionFalse, "serial number 7, accepted is 6")
		}, front.Isolated, "accepted is 6"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := on("atom007")
			test.change(&server)
			objects := front.Objects{Chassis: []v1alpha1.Chassis{mercury(1)}, Servers: []v1alpha1.Server{server}}
			slot := slotOf(t, objects, "slot/mercury1/7")
			if slot.State != test.state || !strings.Contains(slot.Text, test.text) {
				t.Fatalf("%s: %q; wanted %s with %q", slot.State, slot.Text, test.state, test.text)
			}
		})
	}
}

func TestSlots(t *testing.T) {
	t.Parallel()
	objects := front.Objects{Chassis: []v1alpha1.Chassis{mercury(1), mercury(2)}, Servers: []v1alpha1.Server{on("atom045")}}
	parts := front.Look(objects, now)
	chassis, isChassis := parts["chassis/mercury1"].(front.Chassis)
	if !isChassis || len(chassis.Rows) != 2 || len(chassis.Rows[1]) != 23 || chassis.Rows[1][0] != 24 ||
		chassis.Place != "rack r1, unit 2" {
		t.Errorf("mercury1 is %+v", parts["chassis/mercury1"])
	}
	for name, state := range map[string]front.State{
		"slot/mercury1/1": front.Unknown, "slot/mercury1/45": front.Storage, "slot/mercury1/46": front.Empty, "slot/mercury2/1": front.Up,
	} {
		if slot := slotOf(t, objects, name); slot.State != state {
			t.Errorf("%s is %s, not %s", name, slot.State, state)
		}
	}
	if slot := slotOf(t, objects, "slot/mercury2/1"); slot.Temperature != "41 C" || slot.Server != "atom045" {
		t.Errorf("slot 1 of mercury2 has %+v", slot)
	}
}

func TestMembersAreOnTheirSlots(t *testing.T) {
	t.Parallel()
	store := v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "box"}}
	store.Status.Masters.Members = []v1alpha1.MemberStatus{
		{
			Name: "box-master-0",
			MemberFigures: v1alpha1.MemberFigures{
				Node: "atom007", State: v1alpha1.MemberUp, Tablets: 3, UsedPercent: 40, Backup: &v1alpha1.BackupStatus{UsedPercent: 7},
			},
		},
		{Name: "box-master-1", MemberFigures: v1alpha1.MemberFigures{State: v1alpha1.MemberStarting}},
	}
	store.Status.Coordinator = v1alpha1.CoordinatorStatus{Node: "atom007", Pod: "box-coordinator-1"}
	store.Status.Recoveries = []v1alpha1.RecoveryStatus{
		{ServerID: "2.0", Member: "box-master-0", TabletsLeft: 2, WaitsFor: "a copy"}, {ServerID: "1.0"},
	}
	store.Status.Isolations = []v1alpha1.IsolationStatus{{Node: "atom007", Cause: "Ordered"}}
	nodeless := on("atom008")
	nodeless.Status.Node = ""
	objects := front.Objects{
		Chassis: []v1alpha1.Chassis{mercury(1)}, Servers: []v1alpha1.Server{on("atom007"), nodeless}, Stores: []v1alpha1.Store{store},
	}
	slot := slotOf(t, objects, "slot/mercury1/7")
	if len(slot.Members) != 2 || slot.Members[0].Tablets != 3 || *slot.Members[0].CopiesPercent != 7 || !slot.Members[0].Recovers ||
		slot.Members[1].State != "Coordinator" {
		t.Errorf("members are %+v", slot.Members)
	}
	if slot.State != front.Isolated || !strings.Contains(slot.Text, "Store a/box keeps away") {
		t.Errorf("it is %s: %s", slot.State, slot.Text)
	}
	if other := slotOf(t, objects, "slot/mercury1/8"); len(other.Members) > 0 {
		t.Errorf("a member without a node is on a server without a node: %+v", other.Members)
	}
	drawn, isStore := front.Look(objects, now)["store/a/box"].(front.Store)
	if !isStore || len(drawn.Recoveries) != 1 || !strings.Contains(drawn.Recoveries[0], "2 of its tablets are left; it waits for a copy") {
		t.Errorf("the Store is %+v", drawn)
	}
}

func TestCables(t *testing.T) {
	t.Parallel()
	chassis := mercury(1)
	chassis.Spec.Chain = &v1alpha1.ChassisChain{
		Uplinks: []v1alpha1.ChassisUplink{{QSFP: 1, Peer: "mercury2"}, {QSFP: 2, Peer: "nowhere"}, {QSFP: 3}},
	}
	objects := front.Objects{Chassis: []v1alpha1.Chassis{chassis, mercury(2)}}
	drawn, isChassis := front.Look(objects, now)["chassis/mercury1"].(front.Chassis)
	if !isChassis || len(drawn.Cables) != 2 || !drawn.Cables[0].IsKnown || drawn.Cables[1].IsKnown {
		t.Errorf("cables are %+v", drawn.Cables)
	}
}

// TestEndsOfCables: of two cables between the same chassis, each end finds the other, whatever the order in which they are written.
func TestEndsOfCables(t *testing.T) {
	t.Parallel()
	chained := func(number int32, uplinks ...v1alpha1.ChassisUplink) v1alpha1.Chassis {
		chassis := mercury(number)
		chassis.Spec.Chain = &v1alpha1.ChassisChain{Uplinks: uplinks}
		return chassis
	}
	one, four := v1alpha1.Uplink1x40G, v1alpha1.Uplink4x10G
	objects := front.Objects{Chassis: []v1alpha1.Chassis{
		chained(1,
			v1alpha1.ChassisUplink{QSFP: 5, Mode: one, Peer: "mercury2"}, v1alpha1.ChassisUplink{QSFP: 2, Mode: one, Peer: "mercury2"},
			v1alpha1.ChassisUplink{QSFP: 3, Mode: four, Peer: "mercury2"}, v1alpha1.ChassisUplink{QSFP: 4, Mode: four, Peer: "mercury2"},
			v1alpha1.ChassisUplink{QSFP: 6, Mode: one, Peer: "mercury1"}),
		chained(2,
			v1alpha1.ChassisUplink{QSFP: 1, Mode: four, Peer: "mercury1"}, v1alpha1.ChassisUplink{QSFP: 7, Mode: one, Peer: "mercury1"},
			v1alpha1.ChassisUplink{QSFP: 4, Mode: one, Peer: "mercury1"}),
	}}
	ends := func(name string) map[int32]int32 {
		drawn, isChassis := front.Look(objects, now)["chassis/"+name].(front.Chassis)
		if !isChassis {
			t.Fatalf("there is no %s", name)
		}
		ends := map[int32]int32{}
		for _, cable := range drawn.Cables {
			ends[cable.QSFP] = cable.PeerQSFP
		}
		return ends
	}
	if got, want := ends("mercury1"), (map[int32]int32{2: 4, 5: 7, 3: 1, 4: 0, 6: 0}); !maps.Equal(got, want) {
		t.Errorf("from mercury1: %v, not %v", got, want)
	}
	if got, want := ends("mercury2"), (map[int32]int32{4: 2, 7: 5, 1: 3}); !maps.Equal(got, want) {
		t.Errorf("from mercury2: %v, not %v", got, want)
	}
}

// TestLongTexts: a condition's text can have 32 KiB, and there are 736 slots.
// TestTroubles: the panel lists box hosts that do not serve, and says nothing where there are none.
func TestTroubles(t *testing.T) {
	t.Parallel()
	chassis := mercury(1)
	for status, want := range map[metav1.ConditionStatus][]string{
		metav1.ConditionTrue: nil, metav1.ConditionUnknown: nil,
		metav1.ConditionFalse: {"ServicesReady=False: box hosts do not report: boxhost2"},
	} {
		chassis.Status.Conditions = []metav1.Condition{
			{Type: v1alpha1.ConditionServicesReady, Status: status, Message: "box hosts do not report: boxhost2"},
		}
		seen := front.Look(front.Objects{Chassis: []v1alpha1.Chassis{chassis}}, now)["chassis/mercury1"]
		if made, isChassis := seen.(front.Chassis); !isChassis || !slices.Equal(made.Troubles, want) {
			t.Errorf("%s: %+v", status, seen)
		}
	}
}

func TestLongTexts(t *testing.T) {
	t.Parallel()
	server := on("atom001")
	condition(&server, v1alpha1.ConditionHealthy, metav1.ConditionFalse, strings.Repeat("ä", 20_000))
	slot := slotOf(t, front.Objects{Chassis: []v1alpha1.Chassis{mercury(1)}, Servers: []v1alpha1.Server{server}}, "slot/mercury1/1")
	text, err := json.Marshal(slot)
	if err != nil || len(text) > 4096 || strings.Contains(slot.Text, "\uFFFD") {
		t.Errorf("%d bytes, error %v", len(text), err)
	}
}

// TestChangesLeadToThePicture: whatever viewers have missed, the change from what they show leads to what is there.
func TestChangesLeadToThePicture(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		before, after := randomPicture(random), randomPicture(random)
		change := after.Since(before)
		got := before.With(change)
		if len(got) != len(after) {
			t.Fatalf("seed %d: %d parts, not %d", seed, len(got), len(after))
		}
		for name, text := range after {
			if string(got[name]) != string(text) {
				t.Fatalf("seed %d: %s is %s, not %s", seed, name, got[name], text)
			}
			if string(before[name]) == string(text) && change.Set[name] != nil {
				t.Fatalf("seed %d: %s has not changed, and is sent", seed, name)
			}
		}
		if isSame := after.Since(after).IsNothing(); !isSame {
			t.Fatalf("seed %d: a picture differs from itself", seed)
		}
	}
}

func randomPicture(random *rand.Rand) front.Picture {
	picture := front.Picture{}
	for i := range 8 {
		if random.IntN(2) == 0 {
			picture[fmt.Sprintf("slot/%d", i)] = json.RawMessage(strconv.Itoa(random.IntN(3)))
		}
	}
	return picture
}
