package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin/standin"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
	forwarding "rcbox.dev/rcbox/operator/internal/plugin/tunnel/standin"
)

// harness is a cluster with a Store of two masters, whose coordinator is a stand-in behind a forwarded port.
type harness struct {
	t           *testing.T
	client      client.Client
	coordinator *standin.Coordinator
	api         *httptest.Server
	// mayForward: the user has the right to forward ports.
	mayForward bool
	// mayNotIPMI: the user lacks the right to use ipmitool.
	mayNotIPMI bool
	forwarder  forwarding.Forwarder
	// ports of pods, as POD:PORT, beside the coordinator's for administrators.
	mu    sync.Mutex
	ports map[string]net.Listener
}

func newHarness(t *testing.T, objects ...client.Object) *harness {
	t.Helper()
	h := &harness{t: t, coordinator: standin.Start(), mayForward: true}
	t.Cleanup(h.coordinator.Stop)
	h.forwarder.Dial = h.dialPod
	h.api = httptest.NewServer(http.HandlerFunc(h.forward))
	t.Cleanup(h.api.Close)
	scheme, err := access.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	objects = append(objects, store("box"), pod("box-coordinator", v1alpha1.ComponentCoordinator),
		pod("box-master-0", v1alpha1.ComponentMaster), pod("box-master-1", v1alpha1.ComponentMaster))
	h.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.Store{}, &v1alpha1.StoreOperation{}).
		WithInterceptorFuncs(interceptor.Funcs{Create: h.create}).Build()
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		standin.Enlist(r, "box-master-0", "uid-box-master-0", 2)
		standin.Enlist(r, "box-master-1", "uid-box-master-1", 1)
		for _, member := range r.GetMembers() {
			member.Shards[0].Serving = true
		}
	})
	return h
}

// create is the API server's part of reviews, which are answered and not kept.
func (h *harness) create(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
	review, isReview := object.(*authorizationv1.SelfSubjectAccessReview)
	if !isReview {
		return c.Create(ctx, object, options...)
	}
	asked := review.Spec.ResourceAttributes
	isIPMI := asked.Group == "subresources.rcbox.dev" && asked.Resource == "servers" && asked.Subresource == "ipmi" &&
		asked.Verb == "create"
	review.Status.Allowed = isIPMI && !h.mayNotIPMI
	return nil
}

// forward is the API server's part: logs, and ports of pods.
func (h *harness) forward(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/log") {
		_, _ = io.WriteString(w, "a line\nAuthorization: Bearer hunter2\n")
		return
	}
	if !h.mayForward {
		forwarding.Forbid(w, "pods/portforward: no")
		return
	}
	h.forwarder.ServeHTTP(w, r)
}

// dialPod is kubelet's part: the coordinator's admin port, and what a test has put elsewhere.
func (h *harness) dialPod(pod, port string) (net.Conn, error) {
	if port == "11300" {
		return h.coordinator.Connect(h.t.Context())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if listener := h.ports[pod+":"+port]; listener != nil {
		return net.Dial("tcp", listener.Addr().String())
	}
	return nil, fmt.Errorf("nothing listens at port %s of pod %s", port, pod)
}

// run runs the plugin and says how it ended.
func (h *harness) run(arguments ...string) (code int, out, errs string) {
	h.t.Helper()
	root := rootCommand(func(*access.Flags) (*access.Cluster, error) {
		return &access.Cluster{Client: h.client, Config: &rest.Config{Host: h.api.URL}, Namespace: "team", Now: time.Now}, nil
	})
	var outBuffer, errBuffer bytes.Buffer
	code = run(root, arguments, &outBuffer, &errBuffer)
	return code, outBuffer.String(), errBuffer.String()
}

// must runs the plugin and expects that it ends well.
func (h *harness) must(arguments ...string) string {
	h.t.Helper()
	code, out, errs := h.run(arguments...)
	if code != 0 || errs != "" {
		h.t.Fatalf("%v: exit code %d, %s", arguments, code, errs)
	}
	return out
}

func store(name string) *v1alpha1.Store {
	s := &v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name)}}
	s.Spec.Masters.Replicas = 2
	s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: "Serving"}}
	return s
}

func pod(member, component string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: member + "-bcdfg", UID: types.UID("uid-" + member),
			Labels: map[string]string{v1alpha1.LabelStore: "box", v1alpha1.LabelMember: member, v1alpha1.LabelComponent: component},
		},
		Spec: corev1.PodSpec{NodeName: "node-of-" + member},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

func (h *harness) storeNow() *v1alpha1.Store {
	h.t.Helper()
	s := &v1alpha1.Store{}
	if err := h.client.Get(h.t.Context(), client.ObjectKey{Namespace: "team", Name: "box"}, s); err != nil {
		h.t.Fatal(err)
	}
	return s
}
