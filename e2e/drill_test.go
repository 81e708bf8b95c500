package e2e

import (
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// drills is what one step leaves for the next.
type drills struct{ clients *clients }

// storeIsDrilled: a master's process is ended by order while clients use it, what the recovery took is on record, and a Store that must
// not be drilled is not.
func storeIsDrilled(t *testing.T) {
	namespacesAreThere(t)
	d := &drills{}
	inOrder(t, []step{
		{"StoreWithAStandbyBecomesSafe", storeWithAStandbyBecomesSafe},
		{"ClientsRun", func(step *testing.T) { d.clients = startClients(step, t) }},
		{"PausedStoreIsNotDrilled", d.pausedStoreIsNotDrilled},
		{"OrderedDrillIsMeasured", d.orderedDrillIsMeasured},
		{"ScheduledDrillIsMeasured", d.scheduledDrillIsMeasured},
		{"ClientsSawNothingWrong", func(t *testing.T) { d.clients.end(t) }},
		{"NothingOfTheStoreIsLeft", nothingOfTheStoreIsLeft},
	})
}

// orderDrill makes a StoreOperation of this name; without a member the operator chooses one.
func orderDrill(t *testing.T, name, member string) {
	t.Helper()
	drill := ""
	if member != "" {
		drill = ", drill: {member: " + member + "}"
	}
	apply(t, fmt.Sprintf(`
apiVersion: rcbox.dev/v1alpha1
kind: StoreOperation
metadata: {name: %s, namespace: %s}
spec: {storeRef: {name: %s}, type: Drill%s}
`, name, namespaceOf(t), storeName, drill))
}

// waitForOperation waits until a StoreOperation has ended so.
func waitForOperation(t *testing.T, name string, phase v1alpha1.OperationPhase) {
	t.Helper()
	kubectl(t, "wait", "storeoperation", name, "-n", namespaceOf(t), "--for=jsonpath={.status.phase}="+string(phase), "--timeout=60s")
}

// holdsSomething is a master whose end would be noticed.
func holdsSomething(t *testing.T) string {
	t.Helper()
	name := ""
	waitForStore(t, "a master holds something", startDeadline, func(store v1alpha1.Store) error {
		for _, member := range store.Status.Masters.Members {
			if member.Tablets > 0 {
				name = member.Name
				return nil
			}
		}
		return fmt.Errorf("members %+v", store.Status.Masters.Members)
	})
	return name
}

// waitForDrill waits until the drill of this order has ended, and gives it.
func waitForDrill(t *testing.T, what string, isIt func(v1alpha1.Drill) bool) v1alpha1.Drill {
	t.Helper()
	var found v1alpha1.Drill
	waitForStore(t, what, startDeadline, func(store v1alpha1.Store) error {
		for _, drill := range store.Status.Drills {
			if isIt(drill) && drill.HasEnded() {
				found = drill
				return nil
			}
		}
		return fmt.Errorf("drills %+v", store.Status.Drills)
	})
	return found
}

func (d *drills) pausedStoreIsNotDrilled(t *testing.T) {
	drilled := holdsSomething(t)
	before := storePods(t, storeName)[drilled].Metadata.UID
	kubectl(t, "patch", "store", storeName, "-n", namespaceOf(t), "--type=merge", "-p", `{"spec":{"paused":true}}`)
	orderDrill(t, "paused", "")
	drill := waitForDrill(t, "the drill is refused", func(drill v1alpha1.Drill) bool { return drill.Order == "paused" })
	waitForOperation(t, "paused", v1alpha1.OperationFailed)
	if drill.State != v1alpha1.DrillRefused || drill.Message != "spec.paused is set" {
		t.Errorf("the drill is %+v", drill)
	}
	if now := storePods(t, storeName)[drilled].Metadata.UID; now != before {
		t.Errorf("%s was ended", drilled)
	}
	kubectl(t, "patch", "store", storeName, "-n", namespaceOf(t), "--type=merge", "-p", `{"spec":{"paused":false}}`)
}

func (d *drills) orderedDrillIsMeasured(t *testing.T) {
	waitUntilSafeWithStandby(t)
	drilled, before := holdsSomething(t), storePods(t, storeName)
	orderDrill(t, "now", drilled)
	drill := waitForDrill(t, "the drill has ended", func(drill v1alpha1.Drill) bool { return drill.Order == "now" })
	isRecovered(t, drill)
	ended := v1alpha1.OperationSucceeded
	if drill.State != v1alpha1.DrillSucceeded {
		ended = v1alpha1.OperationFailed
	}
	waitForOperation(t, "now", ended)
	if drill.Member != drilled {
		t.Errorf("the drill is %+v", drill)
	}
	after := storePods(t, storeName)
	for member, pod := range before {
		if isOther := after[member].Metadata.UID != pod.Metadata.UID; isOther != (member == drilled) {
			t.Errorf("%s has another pod: %v", member, isOther)
		}
	}
	d.clients.goOn(t, "clients go on", 5)
}

func (d *drills) scheduledDrillIsMeasured(t *testing.T) {
	waitUntilSafeWithStandby(t)
	kubectl(t, "patch", "store", storeName, "-n", namespaceOf(t), "--type=merge", "-p",
		`{"spec":{"recovery":{"drill":{"schedule":"* * * * *"}}}}`)
	drill := waitForDrill(t, "a drill was due and has ended", func(drill v1alpha1.Drill) bool { return drill.Order == "" })
	kubectl(t, "patch", "store", storeName, "-n", namespaceOf(t), "--type=merge", "-p", `{"spec":{"recovery":{"drill":null}}}`)
	isRecovered(t, drill)
	waitForStore(t, "no drill is left", startDeadline, func(store v1alpha1.Store) error {
		for _, drill := range store.Status.Drills {
			if !drill.HasEnded() {
				return fmt.Errorf("drill %+v", drill)
			}
		}
		return errors.Join(
			conditionIs(store, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified),
			conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated))
	})
	if losses := readStore(t).Status.LossCount; losses != 0 {
		t.Errorf("%d losses", losses)
	}
}

// isRecovered: within the target or not, which is this machine's business.
func isRecovered(t *testing.T, drill v1alpha1.Drill) {
	t.Helper()
	isMeasured := drill.State == v1alpha1.DrillSucceeded || drill.State == v1alpha1.DrillTooSlow
	if !isMeasured || drill.MeasuredMs == 0 || len(drill.ServerIDs) == 0 {
		t.Errorf("the drill is %+v", drill)
	}
	t.Logf("%s: %d bytes of log in %d ms, %d ms were expected", drill.Member, drill.Bytes, drill.MeasuredMs, drill.PromisedMs)
}
