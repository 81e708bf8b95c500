package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const leaving = "box-master-3"

// scaledIn is what one step leaves for the next.
type scaledIn struct{ clients *clients }

// storeScalesIn: a master is drained while clients use it, removed, and its volume deleted; nothing is lost.
func storeScalesIn(t *testing.T) {
	namespacesAreThere(t)
	s := &scaledIn{}
	inOrder(t, []step{
		{"StoreWithAStandbyBecomesSafe", storeWithAStandbyBecomesSafe},
		{"ClientsRun", func(step *testing.T) { s.clients = startClients(step, t) }},
		{"MasterIsDrainedAndRemoved", s.masterIsDrainedAndRemoved},
		{"ItsVolumeIsNotNeeded", s.volumeIsNotNeeded},
		{"ScaleInBeyondTheCopiesIsRefused", s.scaleInBeyondTheCopiesIsRefused},
		{"ScaledOutAgain", s.scaledOutAgain},
		{"SettingsChangeWhileTheStoreRuns", s.settingsChange},
		{"ChangedSpecRollsOverAllMasters", s.changedSpecRolls},
		{"ClientsSawNothingWrong", func(t *testing.T) { s.clients.end(t) }},
		{"NothingOfTheStoreIsLeft", nothingOfTheStoreIsLeft},
	})
}

func (s *scaledIn) masterIsDrainedAndRemoved(t *testing.T) {
	kubectl(t, "scale", "store/box", "-n", namespaceOf(t), "--replicas=3")
	store := waitForStore(t, leaving+" is gone", startDeadline, func(store v1alpha1.Store) error {
		if _, there := storePods(t, storeName)[leaving]; there || len(store.Status.Masters.Members) != 3 {
			return fmt.Errorf("members %+v", store.Status.Masters.Members)
		}
		return errors.Join(
			conditionIs(store, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified),
			conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated))
	})
	if store.Status.LossCount != 0 || len(store.Status.Recoveries) > 0 {
		t.Errorf("losses %+v, recoveries %+v", store.Status.Losses, store.Status.Recoveries)
	}
	events := kubectl(t, "get", "events", "-n", namespaceOf(t), "-o", "jsonpath={range .items[*]}{.reason} {.note}{.message}{\"\\n\"}{end}")
	for _, want := range []string{"MemberDraining drain " + leaving, "MemberRetired retire " + leaving} {
		if !strings.Contains(events, want) {
			t.Errorf("no event %q among\n%s", want, events)
		}
	}
	s.clients.goOn(t, "clients go on without "+leaving, 5)
}

func (s *scaledIn) volumeIsNotNeeded(t *testing.T) {
	kubectl(t, "delete", "persistentvolumeclaim", leaving+"-copies", "-n", namespaceOf(t), "--timeout=120s")
	crash(t, storePods(t, storeName)["box-master-0"])
	s.clients.goOn(t, "clients go on although a master has died", 5)
	waitForStore(t, "all is recovered from the copies that are left", startDeadline, func(store v1alpha1.Store) error {
		if store.Status.LossCount != 0 {
			return fmt.Errorf("losses %+v", store.Status.Losses)
		}
		return conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated)
	})
}

func (s *scaledIn) scaleInBeyondTheCopiesIsRefused(t *testing.T) {
	got, err := run(settings.kubectl, "", "scale", "store/box", "-n", namespaceOf(t), "--replicas=2")
	if err == nil && got.exitCode == 0 {
		t.Errorf("a Store with two copies has two masters: %s", got.stdout)
	}
}

func (s *scaledIn) scaledOutAgain(t *testing.T) {
	kubectl(t, "scale", "store/box", "-n", namespaceOf(t), "--replicas=4")
	waitForStore(t, leaving+" is there again", startDeadline, func(store v1alpha1.Store) error {
		if up := store.Status.Masters.Ready; up != 4 {
			return fmt.Errorf("%d masters are up", up)
		}
		return conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated)
	})
	s.clients.goOn(t, "clients go on", 5)
}

// settingsChange: one copy less of everything, and then one more again, and no process is touched.
func (s *scaledIn) settingsChange(t *testing.T) {
	before := fingerprints(storePods(t, storeName))
	for _, factor := range []int32{1, 2} {
		started := time.Now()
		kubectl(t, "patch", "store", storeName, "-n", namespaceOf(t), "--type=merge", "-p",
			fmt.Sprintf(`{"spec":{"replication":{"factor":%d},"masters":{"pollMicros":0},"logLevel":"Debug"}}`, factor))
		waitForStore(t, "everything has another number of copies", startDeadline, func(store v1alpha1.Store) error {
			if store.Status.Replication.Factor != factor {
				return fmt.Errorf("%d copies are in force", store.Status.Replication.Factor)
			}
			return errors.Join(
				conditionIs(store, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified),
				conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated))
		})
		t.Logf("%d copies of everything after %.1f s", factor, time.Since(started).Seconds())
		s.clients.goOn(t, "clients go on", 5)
	}
	var shown struct {
		Settings     struct{ LogLevel string }
		NotInForceAt []string
	}
	text, err := inCoordinator(t, "settings", "show", "--json")
	if err = errors.Join(err, json.Unmarshal([]byte(text), &shown)); err != nil {
		t.Fatal(err)
	}
	if shown.Settings.LogLevel != "debug" || len(shown.NotInForceAt) > 0 {
		t.Errorf("settings %s", text)
	}
	if after := fingerprints(storePods(t, storeName)); !maps.Equal(before, after) {
		t.Errorf("before %v, after %v", before, after)
	}
}

// changedSpecRolls: each master restarts, one after the other, and clients see no more of it than a moment.
func (s *scaledIn) changedSpecRolls(t *testing.T) {
	before, since, started := storePods(t, storeName), now(t), time.Now()
	kubectl(t, "patch", "store", storeName, "-n", namespaceOf(t), "--type=merge", "-p",
		`{"spec":{"masters":{"resources":{"requests":{"cpu":"90m"}}}}}`)
	waitForStore(t, "all masters are made from the new spec", startDeadline, func(store v1alpha1.Store) error {
		now := storePods(t, storeName)
		for member, pod := range before {
			if strings.Contains(member, "-master-") && now[member].Metadata.UID == pod.Metadata.UID {
				progressing := meta.FindStatusCondition(store.Status.Conditions, v1alpha1.ConditionProgressing)
				return fmt.Errorf("%s is still the same: %s", member, progressing.Message)
			}
		}
		return errors.Join(
			conditionIs(store, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified),
			conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated))
	})
	took := time.Since(started)
	s.clients.goOn(t, "clients go on", 5)
	longest := s.clients.slowest(since, "")
	t.Logf("four masters restarted in %.1f s; the longest that a client waited: %.2f s", took.Seconds(), longest.Seconds())
	if losses := readStore(t).Status.LossCount; losses != 0 {
		t.Errorf("%d losses", losses)
	}
	events := kubectl(t, "get", "events", "-n", namespaceOf(t), "-o", "jsonpath={range .items[*]}{.reason} {.note}{.message}{\"\\n\"}{end}")
	for _, want := range []string{"MemberRestarted restart box-master-", "resources.requests: cpu=100m -> cpu=90m"} {
		if !strings.Contains(events, want) {
			t.Errorf("no event %q among\n%s", want, events)
		}
	}
}
