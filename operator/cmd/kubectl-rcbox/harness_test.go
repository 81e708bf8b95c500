package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin/standin"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

// harness is a cluster with a Store of two masters, whose coordinator is a stand-in behind a forwarded port.
type harness struct {
	t           *testing.T
	client      client.Client
	coordinator *standin.Coordinator
	api         *httptest.Server
	// mayForward: the user has the right to forward ports.
	mayForward bool
}

func newHarness(t *testing.T, objects ...client.Object) *harness {
	t.Helper()
	h := &harness{t: t, coordinator: standin.Start(), mayForward: true}
	t.Cleanup(h.coordinator.Stop)
	h.api = httptest.NewServer(http.HandlerFunc(h.forward))
	t.Cleanup(h.api.Close)
	scheme, err := access.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	objects = append(objects, store("box"), pod("box-coordinator", v1alpha1.ComponentCoordinator),
		pod("box-master-0", v1alpha1.ComponentMaster), pod("box-master-1", v1alpha1.ComponentMaster))
	h.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.Store{}).Build()
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		standin.Enlist(r, "box-master-0", "uid-box-master-0", 2)
		standin.Enlist(r, "box-master-1", "uid-box-master-1", 1)
		for _, member := range r.GetMembers() {
			member.Shards[0].Serving = true
		}
	})
	return h
}

// forward is the API server's part: logs, and the coordinator's admin port over a WebSocket.
func (h *harness) forward(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/log") {
		_, _ = io.WriteString(w, "a line\nAuthorization: Bearer hunter2\n")
		return
	}
	if r.URL.Query().Get("ports") != "11300" {
		http.NotFound(w, r)
		return
	}
	if !h.mayForward {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","status":"Failure","reason":"Forbidden","message":"pods/portforward: no","code":403}`)
		return
	}
	upgrader := websocket.Upgrader{Subprotocols: []string{"v4.channel.k8s.io"}}
	socket, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer socket.Close()
	port := []byte{0x24, 0x2c}
	for channel := range byte(2) {
		_ = socket.WriteMessage(websocket.BinaryMessage, append([]byte{channel}, port...))
	}
	upstream, err := h.coordinator.Connect(r.Context())
	if err != nil {
		_ = socket.WriteMessage(websocket.BinaryMessage, append([]byte{1}, err.Error()...))
		return
	}
	defer upstream.Close()
	go func() {
		for {
			_, message, err := socket.ReadMessage()
			if err != nil || len(message) == 0 {
				_ = upstream.Close()
				return
			}
			_, _ = upstream.Write(message[1:])
		}
	}()
	buffer := make([]byte, 1<<15)
	for {
		n, err := upstream.Read(buffer)
		if err != nil || socket.WriteMessage(websocket.BinaryMessage, append([]byte{0}, buffer[:n]...)) != nil {
			return
		}
	}
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
