package controller

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/record"
)

// formerStatus has every field that an operator wrote which kept everything in the Store's status.
const formerStatus = "testdata/former-status.yaml"

// writeFails has a write fail, counted from 1, after which the operator goes on as one that was started anew.
func (h *harness) writeFails(number int) {
	writes := 0
	h.failWrite = func(string) error {
		if writes++; writes == number {
			return errors.New("the operator ends here")
		}
		return nil
	}
}

// Each field of an earlier operator's status is carried over, whenever the operator ends in between: StoreMembers come first, and until all
// are there the Store has everything.
func TestFormerStatusIsCarriedOver(t *testing.T) {
	text, err := os.ReadFile(formerStatus)
	if err != nil {
		t.Fatal(err)
	}
	var former v1alpha1.StoreStatus
	if err := yaml.UnmarshalStrict(text, &former); err != nil {
		t.Fatal(err)
	}
	for fails := range 6 {
		t.Run(fmt.Sprintf("write %d fails", fails), func(t *testing.T) {
			h := newHarness(t)
			h.asFormer(func(status *v1alpha1.StoreStatus) { former.DeepCopyInto(status) })
			h.writeFails(fails)
			for range 2 {
				_, _ = h.reconcile() // one of them may fail
				bare := h.bareStore()
				if record.IsFormer(&bare.Status) {
					if !equality.Semantic.DeepEqual(bare.Status, former) {
						t.Fatalf("the Store's status has changed before all was carried over: %+v", bare.Status)
					}
					continue
				}
				break
			}
			bare := h.bareStore()
			if bare.Status.DisruptionLock != nil || len(bare.Status.Masters.Members) > 0 || bare.Status.Masters.RetiredPodNumber != 0 ||
				bare.Status.Coordinator.PodNumber != 0 || bare.Status.LossesSeen != 0 {
				t.Errorf("left in the Store: %+v", bare.Status)
			}
			joined := h.store().Status
			joined.Record = nil
			if !equality.Semantic.DeepEqual(joined, former) {
				t.Errorf("the status was\n%+v\nand is\n%+v", former, joined)
			}
			for _, member := range h.members() {
				if !metav1.IsControlledBy(&member, bare) || member.Spec.StoreRef.Name != bare.Name {
					t.Errorf("StoreMember %s is not the Store's: %+v", member.Name, member.ObjectMeta)
				}
			}
			if pods := h.pods(); len(pods) > 0 {
				t.Errorf("pods were made meanwhile: %v", pods)
			}
		})
	}
}

// Somebody has gone back to an earlier operator for a while: what that wrote counts, and not StoreMembers from before.
func TestOlderMembersDoNotCount(t *testing.T) {
	h := settledWithCopies(t)
	outdated := h.members()
	h.asFormer(func(status *v1alpha1.StoreStatus) { status.Masters.Members[0].PodNumber = 7 })
	for i := range outdated {
		outdated[i].ResourceVersion = ""
		if err := h.client.Create(t.Context(), &outdated[i]); err != nil {
			t.Fatal(err)
		}
	}
	h.mustReconcile()
	if number := h.members()[0].Record.PodNumber; number != 7 {
		t.Errorf("the number of the pod is %d", number)
	}
}

// A Store of an earlier operator goes on: no pod is restarted, no number comes back, and of a restart that was on record as the next one
// comes just that one.
func TestFormerStoreGoesOn(t *testing.T) {
	const writes = 7
	for fails := range writes {
		t.Run(fmt.Sprintf("write %d fails", fails), func(t *testing.T) {
			h := settledWithCopies(t)
			h.change(func(s *v1alpha1.Store) { s.Spec.Image = "store:2" })
			for h.store().Status.DisruptionLock == nil || h.store().Status.DisruptionLock.Member == v1alpha1.CoordinatorMember("box") {
				h.mustReconcile()
				h.run()
			}
			lock, pods := *h.store().Status.DisruptionLock, h.pods()
			numbers := map[string]int64{}
			for _, member := range h.store().Status.Masters.Members {
				numbers[member.Name] = member.PodNumber
			}
			h.asFormer(func(*v1alpha1.StoreStatus) {})
			h.writeFails(fails)
			for record.IsFormer(&h.bareStore().Status) {
				_, _ = h.reconcile() // one of them may fail
				if now := h.pods(); !slices.EqualFunc(namesOf(pods), namesOf(now), func(a, b string) bool { return a == b }) {
					t.Fatalf("pods were %v and are %v", namesOf(pods), namesOf(now))
				}
			}
			if is := h.store().Status.DisruptionLock; is == nil || !equality.Semantic.DeepEqual(*is, lock) {
				t.Fatalf("the next to end was %+v, and is %+v", lock, is)
			}
			for range 4 { // the trial of its next pod may have to be repeated
				_, _ = h.reconcile() // likewise
			}
			for member, pod := range h.pods() {
				was := pods[member]
				switch {
				case member == lock.Member && was.Name == pod.Name:
					t.Errorf("%s, which was the next to end, is there still", pod.Name)
				case member != lock.Member && (was == nil || was.Name != pod.Name):
					t.Errorf("%s was restarted", member)
				}
			}
			for _, member := range h.store().Status.Masters.Members {
				if member.PodNumber < numbers[member.Name] {
					t.Errorf("%s had %d pods, and has %d on record", member.Name, numbers[member.Name], member.PodNumber)
				}
			}
		})
	}
}

func namesOf(pods map[string]*corev1.Pod) []string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	return names
}

// A StoreMember that somebody deletes is made anew, and no pod gets a name that there was.
func TestDeletedMember(t *testing.T) {
	h := settledWithCopies(t)
	h.asFormer(func(status *v1alpha1.StoreStatus) { status.Masters.Members[1].PodNumber = 9 })
	h.mustReconcile()
	h.mustReconcile()
	pod := h.pods()["box-master-1"]
	if err := h.client.Delete(t.Context(), &h.members()[1]); err != nil {
		t.Fatal(err)
	}
	h.mustReconcile()
	if member := h.members()[1]; member.Name != "box-master-1" || member.Record.PodNumber != 9 || member.Status.Pod != pod.Name {
		t.Errorf("made anew: %+v", member)
	}
	if now := h.pods()["box-master-1"]; now == nil || now.UID != pod.UID {
		t.Errorf("the pod was %v and is %v", pod.Name, now)
	}
}

// A master that has left has no StoreMember any more, once its pods' numbers are in the Store's status.
func TestMembersThatHaveLeft(t *testing.T) {
	h := settled(t)
	number := h.store().Status.Masters.Members[1].PodNumber
	h.change(func(s *v1alpha1.Store) { s.Spec.Masters.Replicas = 1 })
	for range 20 {
		h.mustReconcile()
		bare := h.bareStore()
		if len(h.members()) < 2 {
			if bare.Status.Record.RetiredPodNumber < number {
				t.Fatalf("the StoreMember is gone, and on record is %+v", bare.Status.Record)
			}
			return
		}
	}
	t.Errorf("%d StoreMembers are left", len(h.members()))
}
