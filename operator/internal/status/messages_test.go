package status_test

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/capacity"
	"rcbox.dev/rcbox/operator/internal/network"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/addressbook"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/status"
)

// longest is what a condition's message may have, in bytes.
const longest = 300

// spoken is a state of a Store.
type spoken struct {
	name   string
	change func(*scene)
	// condition whose message keeps these parts, however long the names and other texts in it are.
	condition string
	keeps     []string
}

// states of Stores: those of the tables of this package, and others, so that each message of a condition is in some.
func states() []spoken {
	list := grownStates()
	for _, state := range toldStates() {
		list = append(list, spoken{name: state.name, change: state.change})
	}
	for _, state := range replicatedStates() {
		list = append(list, spoken{name: state.name, change: func(s *scene) {
			*s = *replicatedScene()
			state.change(s)
		}})
	}
	for _, state := range summarizedStates() {
		list = append(list, spoken{name: state.name, change: state.change})
	}
	return list
}

// safe has a scene start as one in which all is well with copies.
func safe(change func(*scene)) func(*scene) {
	return func(s *scene) {
		*s = *safeScene()
		change(s)
	}
}

// grownStates are those in which much is named.
func grownStates() []spoken {
	const (
		progressing = v1alpha1.ConditionProgressing
		degraded    = v1alpha1.ConditionDegraded
	)
	lost := func(s *scene) {
		for i := range s.plan.Masters {
			s.down(i, 3)
			s.plan.Masters[i].Lost = &planner.Lost{Node: "node-of-box", Cause: v1alpha1.NodeNotReady, Since: start, WaitsFor: "proof"}
		}
		s.plan.Fences = []v1alpha1.FenceStatus{{Node: "node-of-box", Type: v1alpha1.FencingOutOfServiceTaint, Message: "a pause"}}
	}
	noClass := func(claim facts.Claim) func(*scene) {
		return func(s *scene) {
			withCopies(s)
			waitsForNode(s, 1)
			claim.Name, s.plan.Masters[1].Claim = "box-master-1-copies", "box-master-1-copies"
			s.observed.Claims = map[string]facts.Claim{claim.Name: claim}
		}
	}
	return append(capacityStates(),
		spoken{"no StorageClass", noClass(facts.Claim{HasNoClass: true}), progressing, []string{
			"has no StorageClass", "Make one the default", "backups.storage.storageClassName",
		}},
		spoken{"a StorageClass that does not exist", noClass(facts.Claim{Class: "fsat", ClassMissing: true}), progressing, []string{
			"waits for StorageClass fsat", "does not exist", "Make one of that name",
		}},
		spoken{"nodes are lost", safe(lost), degraded, []string{"node ", "has been lost"}},
		spoken{
			"a node is lost, and a long text says why it is not fenced", safe(lostUnfenced), degraded, []string{"node ", "has been lost"},
		},
		spoken{"members are drained", safe(func(s *scene) {
			for i := range s.plan.Masters {
				s.plan.Masters[i].Evacuation = &planner.Evacuation{Node: "node-of-box", Cause: v1alpha1.DrainCordoned, WaitsFor: "a node"}
			}
			s.plan.Masters[0].Evacuation.MovedAt = start
		}), progressing, []string{"node ", "drained"}},
		spoken{"a member cannot leave", safe(func(s *scene) {
			s.plan.Masters[0].Evacuation = &planner.Evacuation{Node: "node-of-box", Cause: v1alpha1.DrainCordoned}
			s.outcome.Refused, s.outcome.RefusedMember = "no room", "box-master-0"
		}), progressing, []string{"stays on node", "until then its pod is not evicted"}},
		spoken{"the spec keeps members on drained nodes", safe(func(s *scene) {
			for i := range s.plan.Masters {
				s.plan.Masters[i].Evacuation = &planner.Evacuation{Node: "node-of-box", Cause: v1alpha1.DrainCordoned}
			}
			s.observed.Store.Spec.Recovery.DryRun = true
		}), progressing, []string{"node ", "is drained", "Set spec.recovery.dryRun: false, or uncordon"}},
		spoken{"a lost member is moved by hand", safe(func(s *scene) {
			s.down(1, 0)
			s.plan.Masters[1].Lost = &planner.Lost{
				Node: "node-of-box", Cause: v1alpha1.NodeNotReady, Since: start, WaitsFor: "a command",
				ByHand: "kubectl delete --force --wait=false -n default pvc/box-master-1-copies pod/box-master-1-2",
			}
		}), degraded, []string{"node ", "has been lost", "recovery.rescheduleAfter is 0s, so run"}},
		spoken{"a node was isolated", func(s *scene) {
			s.observed.Operations = []facts.Operation{{Spec: v1alpha1.StoreOperationSpec{
				Type:    v1alpha1.OperationIsolate,
				Isolate: &v1alpha1.IsolateOperation{Node: "node-of-box", Cause: v1alpha1.IsolatedFailures, Reason: "it failed"},
			}}}
			s.observed.Store.Status.Isolations = []v1alpha1.IsolationStatus{
				{Node: "node-of-box", Cause: v1alpha1.IsolatedFailures, Message: "it failed"},
			}
		}, degraded, []string{"node "}},
		spoken{"a volume's node is gone", safe(func(s *scene) {
			s.down(1, 0)
			s.plan.Masters[1].Claim = "box-master-1-copies"
			s.plan.Masters[1].Pod = &facts.Pod{Name: "box-master-1-2", Trouble: "Unschedulable"}
			s.observed.Claims = map[string]facts.Claim{"box-master-1-copies": {Name: "box-master-1-copies", Node: "node-of-box"}}
		}), degraded, []string{"has no node"}},
		spoken{"everything is full", func(s *scene) {
			for i := range s.plan.Masters {
				s.plan.Masters[i].Reported.IsFull = true
			}
		}, degraded, []string{"raise masters.replicas or masters.memory"}},
		spoken{"a storage has failed", safe(func(s *scene) {
			s.plan.Masters[0].Reported.Backup = &facts.Backup{Frames: 1, Retired: "an error"}
		}), degraded, []string{"takes no more copies"}},
		spoken{"something was lost", func(s *scene) {
			s.observed.Cluster.Losses = []facts.Loss{
				{Member: "box-master-0", Tablets: 3},
				{Member: "box-master-1", Tables: slices.Repeat([]string{"table-of-box"}, 10), TableCount: 99},
			}
		}, v1alpha1.ConditionDataSafe, []string{"loss 2, seen", "kubectl annotate"}},
		spoken{"a loss was accepted", func(s *scene) {
			s.observed.Cluster.Losses = []facts.Loss{
				{Member: "box-master-0", Missing: "segments", TableCount: 1, Tables: []string{"box"}},
			}
		}, v1alpha1.ConditionDataSafe, []string{"loss 1, seen", "kubectl annotate"}},
		spoken{"recoveries wait", safe(func(s *scene) {
			for range 5 {
				s.observed.Cluster.Recoveries = append(s.observed.Cluster.Recoveries,
					facts.Recovery{ServerID: "2.0", Member: "box-master-1", TabletsLeft: 3, WaitsFor: "a copy", CanBeGivenUp: true})
			}
			s.plan.Shortfall = planner.FindShortfall(&s.observed, s.plan.Masters)
		}), v1alpha1.ConditionRecovering, []string{"recoveries of ", "accept-loss"}},
		spoken{"much is outdated, and the user's to restart", func(s *scene) {
			for i := range s.plan.Masters {
				s.plan.Masters[i].Pending, s.plan.Masters[i].Reported.Tablets = "memory: 1Gi -> 2Gi, cores: 1 -> 2", 1
			}
		}, progressing, []string{"outdated pods", "kubectl delete pod"}},
		spoken{"much rolls", safe(func(s *scene) {
			for i := range s.plan.Masters {
				s.plan.Masters[i].Pending, s.plan.Masters[i].Rolls = "memory: 1Gi -> 2Gi, cores: 1 -> 2", true
			}
			s.plan.Steps = []steps.Step{steps.RestartMember{Member: "box-master-0", Why: "memory: 1Gi -> 2Gi"}}
		}), progressing, []string{"restart "}},
		spoken{"much is to do", func(s *scene) {
			for range 9 {
				s.plan.Steps = append(s.plan.Steps, steps.CreatePod{Member: "box-master-2", Number: 1, Why: "it is new"})
			}
		}, progressing, []string{"create pod"}},
		spoken{"drained members leave", func(s *scene) {
			for i := range s.plan.Masters {
				s.plan.Masters[i].Wanted = false
				s.plan.Masters[i].Reported.Draining = &facts.Draining{Tablets: 1, Copies: 14, WaitsFor: []string{"a", "b", "c", "d"}}
			}
		}, progressing, []string{"draining "}},
		spoken{"a change is held back", func(s *scene) { s.plan.HeldBack = "it waits" }, progressing, nil},
		spoken{"a privilege is missing", func(s *scene) { s.plan.NotAllowed = "not allowed" }, progressing, nil},
		spoken{"it cannot sleep yet", func(s *scene) { s.plan.Hibernation = &planner.Hibernation{WaitsFor: "copies"} }, progressing, nil},
		spoken{"a drill runs", func(s *scene) {
			s.plan.Drills.List = []v1alpha1.Drill{{Number: 1, State: v1alpha1.DrillRunning, Member: "box-master-0", Message: "it runs"}}
		}, progressing, []string{"drill 1"}},
		spoken{"two operators", func(s *scene) { s.observed.OtherOperator = "namespace default" }, degraded, []string{
			"a second rcbox operator", "narrow watchNamespaces",
		}},
		spoken{"ports without a link", func(s *scene) {
			*s = *withPorts()
			for i := range s.plan.Masters {
				s.plan.Masters[i].Reported.Ports[0].LinkDown = true
			}
		}, v1alpha1.ConditionNetworkReady, []string{"ports without a link"}},
		spoken{"no addresses", func(s *scene) {
			*s = *withPorts()
			for i := range s.plan.Masters {
				s.plan.Masters[i].AddressWait = "a free address of 10.0.0.0/24"
			}
			s.plan.Addresses.Quarantined = []addressbook.Quarantined{
				{IP: netip.MustParseAddr("10.0.0.9"), Pod: "box-master-9-1", Reason: "its node does not answer"},
			}
		}, v1alpha1.ConditionNetworkReady, []string{"make addresses.range larger"}},
		spoken{"a port was refused", func(s *scene) {
			*s = *withPorts()
			s.plan.Masters[0].Refusals = &v1alpha1.RefusalStatus{Node: "node-of-box", Count: 2, Message: "no device"}
		}, v1alpha1.ConditionNetworkReady, []string{"rejected the last", "kubectl rcbox why"}},
		spoken{"few addresses are left", func(s *scene) {
			*s = *withPorts()
			for range 8 {
				s.plan.Addresses.Pools = append(s.plan.Addresses.Pools, network.Pool{})
				s.plan.Addresses.Sizes, s.plan.Addresses.Free = append(s.plan.Addresses.Sizes, 9), append(s.plan.Addresses.Free, 0)
			}
		}, v1alpha1.ConditionNetworkReady, []string{"make addresses.range larger"}},
	)
}

// capacityStates are those of each verdict on what the loss of a failure domain would cost.
func capacityStates() []spoken {
	var list []spoken
	for verdict := capacity.OnTarget; verdict <= capacity.NoRoomForData; verdict++ {
		for _, isMeasured := range []bool{false, true} {
			list = append(list, spoken{"what a loss would cost", safe(func(s *scene) {
				loss := capacity.Loss{Domain: "domain-of-box", MiB: 1 << 30, Cores: 1 << 10, Ms: 1 << 40}
				check := capacity.Check{
					Verdict: verdict, Now: loss, Full: loss, TargetMs: 1 << 40, MiBPerSecond: 150, CopiesWanted: 2, Cores: 1,
				}
				check.Data = capacity.Room{Domain: "domain-of-box", NeededMiB: 1 << 40, ThereMiB: 1 << 40}
				check.Copies = check.Data
				if isMeasured {
					check.Measured = &capacity.Measured{Member: "box-master-0", Bytes: 1 << 50, Ms: 1 << 30, Cores: 1 << 10}
				}
				s.plan.Capacity = &check
			}), v1alpha1.ConditionRecoveryOnTarget, nil})
		}
	}
	return list
}

// foreign are the fields whose text somebody else has written, or that name many things.
var foreign = []string{
	"ClusterError", "Refusal", "StateWait", "Failed", "Refused", "NameTaken", "Trouble", "Unschedulable", "WaitsFor", "Message", "HeldBack",
	"NotAllowed", "Pending", "Why", "Retired", "Error", "Reason", "Missing", "OtherOperator",
}

// stretched has names as long as Kubernetes allows, and more in the texts of others.
type stretched struct {
	names *strings.Replacer
	more  string
}

func (x *stretched) text(field, text string) string {
	if text = x.names.Replace(text); text != "" && slices.Contains(foreign, field) {
		text += x.more
	}
	return text
}

// value stretches what it can set of a value.
func (x *stretched) value(field string, v reflect.Value) {
	switch v.Type() {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[metav1.Time](), reflect.TypeFor[resource.Quantity]():
		return
	}
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(x.text(field, v.String()))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			x.value(field, v.Elem())
		}
	case reflect.Interface:
		if !v.IsNil() && v.CanSet() {
			copied := reflect.New(v.Elem().Type()).Elem()
			copied.Set(v.Elem())
			x.value(field, copied)
			v.Set(copied)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				x.value(v.Type().Field(i).Name, v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			x.value(field, v.Index(i))
		}
	case reflect.Map:
		x.entries(field, v)
	default:
	}
}

func (x *stretched) entries(field string, v reflect.Value) {
	if v.IsNil() || v.Type().Key().Kind() != reflect.String || !v.CanSet() {
		return
	}
	next := reflect.MakeMap(v.Type())
	for _, key := range v.MapKeys() {
		copied := reflect.New(v.Type().Elem()).Elem()
		copied.Set(v.MapIndex(key))
		x.value(field, copied)
		next.SetMapIndex(reflect.ValueOf(x.names.Replace(key.String())), copied)
	}
	v.Set(next)
}

// No message or event has a phrase that the project's page on style gives as a bad example, or one like it: each names what it is about.
func TestMessagesNameTheirSubjects(t *testing.T) {
	bad := []string{
		"set hibernated to", "it sleeps", "it goes to sleep", "it is yours", "what needs the coordinator waits", "did not admit",
		"what masters held comes back",
	}
	for _, state := range states() {
		s := newScene()
		state.change(s)
		got := status.Compute(s.observed, s.plan, s.outcome)
		var texts []string
		for i := range got.Conditions {
			texts = append(texts, got.Conditions[i].Message)
		}
		for _, event := range status.Events(&s.observed.Store.Status, &got) {
			texts = append(texts, event.Note)
		}
		for _, text := range texts {
			for _, phrase := range bad {
				if strings.Contains(text, phrase) {
					t.Errorf("%s: %q is in: %s", state.name, phrase, text)
				}
			}
		}
	}
}

// lostUnfenced is a scene in which a node is lost whose machine no BMC knows.
func lostUnfenced(s *scene) {
	s.down(1, 3)
	s.plan.Masters[1].Lost = &planner.Lost{
		Node: "atom007", Cause: v1alpha1.NodeNotReady, Since: start,
		WaitsFor: "the node to come back, until 12:10:00 UTC",
	}
	requested := metav1.NewTime(start)
	s.plan.Fences = []v1alpha1.FenceStatus{{
		Node: "atom007", Type: v1alpha1.FencingBMC, RequestedAt: &requested,
		Message: "no Server's BMC reports 99999999-1111-4222-8333-444444444444, the systemUUID of node atom007. " +
			"If a Chassis has this machine, see why its BMC does not answer: kubectl get servers. If not, switch the machine off " +
			"yourself, and give the node the taint node.kubernetes.io/out-of-service",
	}}
}

// A long text about the fencing of a lost node is shortened, and where all of it is to be read is said.
func TestWhyALostNodeIsNotFenced(t *testing.T) {
	s := safeScene()
	lostUnfenced(s)
	got := status.Compute(s.observed, s.plan, s.outcome)
	message := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionDegraded).Message
	for _, part := range []string{
		"node atom007 has been lost", "no Server's BMC reports 99999999-1111-4222-8333-444444444444", "status.fences says more",
		"its move to another node waits for the node to come back, until 12:10:00 UTC",
	} {
		if !strings.Contains(message, part) {
			t.Errorf("Degraded does not say %q: %s", part, message)
		}
	}
	if len(got.Fences) != 1 || !strings.Contains(got.Fences[0].Message, "give the node the taint node.kubernetes.io/out-of-service") {
		t.Errorf("status.fences does not say what to do: %+v", got.Fences)
	}
}

// Whatever the state, the names (a node's of 63 letters at most) and what others say: each message fits, is not cut off with dots, and
// still says what to do.
func TestMessagesFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sentence := rapid.SampledFrom([]string{
			": because of something", "; something else as well", ". Another sentence", ", and more", " (in parentheses)", " word",
			"ä", "\n",
		})
		x := &stretched{
			names: strings.NewReplacer("rcbox", "rcbox",
				"box", strings.Repeat("b", rapid.IntRange(1, 40).Draw(t, "name")),
				"default", strings.Repeat("n", rapid.IntRange(1, 63).Draw(t, "namespace")),
				"node-of-", strings.Repeat("o", rapid.IntRange(1, 23).Draw(t, "node"))),
			more: strings.Join(rapid.SliceOfN(sentence, 0, 60).Draw(t, "more"), ""),
		}
		for _, state := range states() {
			s := newScene()
			state.change(s)
			for _, part := range []any{&s.observed, &s.plan, &s.outcome} {
				x.value("", reflect.ValueOf(part))
			}
			got := status.Compute(s.observed, s.plan, s.outcome)
			for i := range got.Conditions {
				condition := &got.Conditions[i]
				if message := condition.Message; len(message) > longest || message == "" || strings.HasSuffix(message, "...") {
					t.Fatalf("%s: %s has a message of %d bytes: %s", state.name, condition.Type, len(message), message)
				}
			}
			for _, event := range status.Events(&s.observed.Store.Status, &got) {
				if len(event.Note) > longest || event.Note == "" || strings.HasSuffix(event.Note, "...") {
					t.Fatalf("%s: event %s has a note of %d bytes: %s", state.name, event.Reason, len(event.Note), event.Note)
				}
			}
			for _, part := range state.keeps {
				if message := meta.FindStatusCondition(got.Conditions, state.condition).Message; !strings.Contains(message, part) {
					t.Fatalf("%s: %s does not say %q: %s", state.name, state.condition, part, message)
				}
			}
		}
	})
}
