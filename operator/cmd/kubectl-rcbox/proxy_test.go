package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
	"rcbox.dev/rcbox/operator/proxy/wire"
)

// listen has a port of a pod answer each request with what respond says.
func (h *harness) listen(podAndPort string, respond func(payload []byte) []byte) {
	h.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = listener.Close() })
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ports == nil {
		h.ports = map[string]net.Listener{}
	}
	h.ports[podAndPort] = listener
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for {
					header, err := wire.ReadHeader(conn)
					if err != nil {
						return
					}
					payload := make([]byte, header.Length)
					if _, err := io.ReadFull(conn, payload); err != nil {
						return
					}
					answer := respond(payload)
					_, _ = conn.Write(append(wire.Header{Nonce: header.Nonce, Length: uint32(len(answer))}.Append(nil), answer...))
				}
			}()
		}
	}()
}

func exchange(t *testing.T, port int, payload []byte) []byte {
	t.Helper()
	conn, err := net.Dial("tcp4", (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Write(append(wire.Header{Nonce: 1, Length: uint32(len(payload))}.Append(nil), payload...)); err != nil {
		t.Fatal(err)
	}
	header, err := wire.ReadHeader(conn)
	if err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, header.Length)
	if _, err := io.ReadFull(conn, answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

// givePodsAddresses as the stand-in's servers say that they have.
func (h *harness) givePodsAddresses() {
	h.t.Helper()
	for name, ip := range map[string]string{"box-master-0-bcdfg": "10.0.0.1", "box-master-1-bcdfg": "10.0.0.2"} {
		pod := &corev1.Pod{}
		if err := h.client.Get(h.t.Context(), client.ObjectKey{Namespace: "team", Name: name}, pod); err != nil {
			h.t.Fatal(err)
		}
		pod.Status.PodIP = ip
		if err := h.client.Status().Update(h.t.Context(), pod); err != nil {
			h.t.Fatal(err)
		}
	}
}

// startProxy runs the command until stop is called, which gives its error.
func (h *harness) startProxy(arguments ...string) (document ProxyDocument, errs *lockedText, stop func() error) {
	h.t.Helper()
	root := rootCommand(func(*access.Flags) (*access.Cluster, error) {
		return &access.Cluster{Client: h.client, Config: &rest.Config{Host: h.api.URL}, Namespace: "team", Now: time.Now}, nil
	})
	reader, writer := io.Pipe()
	errs = &lockedText{}
	root.SetArgs(append([]string{"proxy", "--port", "0", "-o", "json"}, arguments...))
	root.SetOut(writer)
	root.SetErr(errs)
	ctx, cancel := context.WithCancel(h.t.Context())
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		_ = writer.Close()
		ended <- err
	}()
	h.t.Cleanup(cancel)
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		h.t.Fatalf("%v, %v, %s", err, <-ended, errs)
	}
	if err := json.Unmarshal([]byte(line), &document); err != nil {
		h.t.Fatalf("%s: %v", line, err)
	}
	return document, errs, func() error {
		cancel()
		return <-ended
	}
}

type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(data)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (d ProxyDocument) port(t *testing.T, member string, podPort int) int {
	t.Helper()
	for _, process := range d.Processes {
		if process.Member == member && process.PodPort == podPort {
			return process.Port
		}
	}
	t.Fatalf("no port for %s in %+v", member, d)
	return 0
}

func TestProxy(t *testing.T) {
	h := newHarness(t)
	h.givePodsAddresses()
	config, err := hex.DecodeString("000000003d0000000a3b0801100018ffffffffffffffffff012000290100000000000000" +
		"321b" + hex.EncodeToString([]byte("tcp:host=10.0.0.2,port=12100")) + "40004800")
	if err == nil {
		config[4], config[9], config[len(config)-33] = 0x3e, 0x3c, 0x1c // lengths of this locator
	}
	h.listen("box-coordinator-bcdfg:11100", func([]byte) []byte { return config })
	h.listen("box-master-1-bcdfg:12100", func(payload []byte) []byte { return append([]byte("one:"), payload...) })
	document, errs, stop := h.startProxy("box")

	if document.Namespace != "team" || document.Name != "box" || !strings.HasPrefix(document.Locator, "tcp:host=127.0.0.1,port=") {
		t.Errorf("%+v", document)
	}
	port := document.port(t, "", 11100)
	answer := exchange(t, port, []byte("\x12\x00\x02\x00\x01\x00\x00\x00\x00\x00\x00\x00"))
	want := wire.Address{Host: "127.0.0.1", Port: uint16(document.port(t, "box-master-1", 12100))}.Locator()
	if !strings.Contains(string(answer), want) || strings.Contains(string(answer), "10.0.0.2") {
		t.Errorf("%q has no %s; %s", answer, want, errs)
	}
	if answer := exchange(t, document.port(t, "box-master-1", 12100), []byte("hello")); string(answer) != "one:hello" {
		t.Errorf("%q; %s", answer, errs)
	}

	// What rcbox asks the admin API.
	connection, err := grpc.NewClient((&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: document.port(t, "", 11300)}).String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	status, err := adminv1.NewAdminClient(connection).GetClusterStatus(t.Context(), &adminv1.GetClusterStatusRequest{})
	if err != nil || len(status.GetMembers()) != 2 {
		t.Errorf("%v, %v", status, err)
	}

	// Another pod of the member, under another address.
	next := pod("box-master-1", "master")
	next.Name, next.UID, next.Status.PodIP = "box-master-1-hjklm", "uid-next", "10.0.0.7"
	before := pod("box-master-1", "master")
	if err := h.client.Delete(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	if err := h.client.Create(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	h.listen("box-master-1-hjklm:12100", func(payload []byte) []byte { return append([]byte("next:"), payload...) })
	if answer := exchange(t, document.port(t, "box-master-1", 12100), []byte("hello")); string(answer) != "next:hello" {
		t.Errorf("%q; %s", answer, errs)
	}
	if err := stop(); err != nil || errs.String() != "" {
		t.Errorf("%v; %s", err, errs)
	}
}

func TestProxyIsOpenToThisMachineOnly(t *testing.T) {
	h := newHarness(t)
	h.givePodsAddresses()
	document, errs, stop := h.startProxy("--address", "0.0.0.0")
	contains(t, errs.String(), "can read and delete the data of Store team/box")
	contains(t, document.Locator, "tcp:host=127.0.0.1,port=")
	if err := stop(); err != nil {
		t.Error(err)
	}
	for _, address := range []string{"::1", "nonsense"} {
		code, _, errs := h.run("proxy", "--address", address)
		if code != exitUsage {
			t.Errorf("%s: exit code %d", address, code)
		}
		contains(t, errs, "IPv4 address", "kubectl rcbox proxy --help")
	}
	h.mayForward = false
	code, _, problem := h.run("proxy")
	if code != exitFailed {
		t.Errorf("without the right: exit code %d", code)
	}
	contains(t, problem, "create and get on pods/portforward")
}
