package controller

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
	"rcbox.dev/rcbox/operator/internal/box/poll"
)

const machineUUID = "00112233-4455-4677-8899-aabbccddeeff"

// nodeThatIsLost is a node that is not ready, and a request to switch its machine off.
func nodeThatIsLost() (*corev1.Node, *v1alpha1.NodeFence) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	node.Status.NodeInfo.SystemUUID = machineUUID
	fence := &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: "box.n1", Namespace: "default", UID: "uid-of-fence"}}
	fence.Spec = v1alpha1.NodeFenceSpec{StoreName: "box", Node: "n1", SystemUUID: machineUUID, LostSince: metav1.NewTime(noon)}
	return node, fence
}

func reconcilerOf(t *testing.T, objects ...client.Object) *Reconciler {
	t.Helper()
	api := fake.NewClientBuilder().WithScheme(newScheme(t)).WithStatusSubresource(&v1alpha1.NodeFence{}).WithObjects(objects...).Build()
	return &Reconciler{
		Client: api, Live: api, Recorder: events.NewFakeRecorder(10), Times: plan.DefaultTimes,
		Clock: &poll.Clock{Read: func() (time.Time, time.Duration) { return noon, 0 }},
	}
}

func isOutOfService(t *testing.T, r *Reconciler) bool {
	t.Helper()
	node := &corev1.Node{}
	if err := r.Client.Get(t.Context(), client.ObjectKey{Name: "n1"}, node); err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeOutOfService })
}

// The taint is set in the round that records the proof, although the cache gets the proof only later. A NodeFence that was replaced by
// another object meanwhile does not count.
func TestTaintDoesNotWaitForTheCache(t *testing.T) {
	for name, isThere := range map[string]bool{"the proof is written": true, "it was taken back meanwhile": false} {
		node, fence := nodeThatIsLost()
		accepted := metav1.NewTime(noon)
		fence.Status.AcceptedAt = &accepted
		r := reconcilerOf(t, node, fence)
		seen, err := look(t.Context(), r.Client, fence.Namespace)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.setTaints(t.Context(), seen); err != nil || isOutOfService(t, r) {
			t.Errorf("%s: nothing is written yet, and it is out of service: %v", name, err)
		}
		if !isThere {
			if err := r.Client.Delete(t.Context(), fence); err != nil {
				t.Fatal(err)
			}
		}
		found := &fences{requests: []*v1alpha1.NodeFence{&seen.fences[0]}}
		made := &plan.Plan{Fences: []plan.FenceVerdict{{State: plan.FenceDone}}}
		if err := errors.Join(r.writeFences(t.Context(), found, made, nil), r.setTaints(t.Context(), seen)); err != nil {
			t.Fatal(err)
		}
		if got := isOutOfService(t, r); got != isThere {
			t.Errorf("%s: out of service is %v", name, got)
		}
	}
}

// The BMC of a fresh request's server, and no other BMC, is asked for its identity while the request is being recorded.
func TestServersOfFreshRequestsAreAskedWhatTheyAre(t *testing.T) {
	_, fence := nodeThatIsLost()
	r := reconcilerOf(t, fence)
	observed := &plan.Observed{}
	for name, guid := range map[string]string{"atom001": "99999999-4455-4677-8899-aabbccddeeff", "atom002": machineUUID} {
		observed.Servers = append(observed.Servers, plan.Server{
			Object: &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: name}}, Identity: &bmc.Identity{SystemGUID: guid},
		})
	}
	found, err := r.observeFences(t.Context(), r.Client, &round{fences: []v1alpha1.NodeFence{*fence}}, observed)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.fresh) != 1 || !slices.Equal(found.doubted, []string{"atom002"}) {
		t.Errorf("fresh %v, asked: %v", found.fresh, found.doubted)
	}
}

// Only a new proof makes the controller reconcile again at once.
func TestNextLook(t *testing.T) {
	_, fence := nodeThatIsLost()
	asked := &fences{requests: []*v1alpha1.NodeFence{fence}}
	proof := &v1alpha1.OffProof{At: metav1.NewTime(noon), By: []v1alpha1.Witness{v1alpha1.WitnessMMC, v1alpha1.WitnessPowerReading}}
	earlier := &v1alpha1.OffProof{At: metav1.NewTime(noon.Add(-time.Hour)), By: proof.By}
	for name, test := range map[string]struct {
		found    *fences
		recorded *v1alpha1.OffProof
		next     *v1alpha1.OffProof
		want     time.Duration
	}{
		"nothing happens":            {&fences{}, nil, nil, lookEvery},
		"a server is off":            {&fences{}, nil, proof, lookEvery},
		"proof is waited for":        {asked, nil, nil, lookSoon},
		"it goes on record":          {asked, nil, proof, lookAtProof},
		"it is on record":            {asked, proof, proof, lookSoon},
		"a request was just made":    {&fences{fresh: asked.requests}, nil, nil, lookSoon},
		"it is of an earlier outage": {asked, earlier, proof, lookAtProof},
	} {
		server := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: "atom001"}}
		server.Status.LastOff = test.recorded
		observed := &plan.Observed{Servers: []plan.Server{{Object: server}}}
		made := &plan.Plan{Servers: map[string]*v1alpha1.ServerStatus{"atom001": {LastOff: test.next}}}
		if got := pauseAfter(observed, test.found, made); got != test.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
