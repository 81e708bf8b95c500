package admin_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"rcbox.dev/rcbox/faults/contain"
	"rcbox.dev/rcbox/operator/internal/admin"
	"rcbox.dev/rcbox/operator/internal/admin/standin"
)

// askEnvironment has the addresses of coordinators for whom this program is an operator: hostile ones, and a good one at the end.
const askEnvironment = "RCBOX_TEST_COORDINATORS"

// askedAll is what such a program says in the end.
const askedAll = "all coordinators were asked"

// TestOperatorInItsContainer: an operator in a cgroup of its container's default size asks coordinators that answer with as much as they
// can. It lives on, and hears the one that answers as it should.
func TestOperatorInItsContainer(t *testing.T) {
	if addresses := os.Getenv(askEnvironment); addresses != "" {
		if err := askAll(t.Context(), strings.Fields(addresses)); err != nil {
			t.Fatal(err)
		}
		t.Log(askedAll)
		return
	}
	limit := defaultMemory(t)
	group := contain.New(t, "operator", limit.Value())
	var addresses []string
	for range 8 {
		addresses = append(addresses, serveAnswer(t, emptyMembers()))
	}
	listener := listen(t)
	good := standin.Start()
	t.Cleanup(good.Stop)
	good.Serve(listener)
	addresses = append(addresses, listener.Addr().String())

	words := group.Words([]string{os.Args[0], "-test.run=^TestOperatorInItsContainer$", "-test.v"})
	operator := exec.CommandContext(t.Context(), words[0], words[1:]...)
	operator.Env = append(os.Environ(), askEnvironment+"="+strings.Join(addresses, " "))
	output, err := operator.CombinedOutput()
	t.Logf("at most %d of %d MiB", group.PeakMiB(), limit.Value()>>20)
	if kills := group.Kills(); err != nil || kills > 0 || !strings.Contains(string(output), askedAll) {
		t.Errorf("%v, and the kernel killed %d for want of memory: %.2000s", err, kills, output)
	}
}

// defaultMemory is the limit of the operator's container in the chart.
func defaultMemory(t *testing.T) resource.Quantity {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "charts", "rcbox", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Resources struct {
			Limits struct{ Memory resource.Quantity }
		}
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	if values.Resources.Limits.Memory.IsZero() {
		t.Fatal("the chart limits the operator's memory no longer")
	}
	return values.Resources.Limits.Memory
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// serveAnswer is the address of a coordinator that answers every question with these bytes.
func serveAnswer(t *testing.T, answer []byte) string {
	t.Helper()
	listener := listen(t)
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		return stream.SendMsg(answer)
	}))
	go func() { _ = server.Serve(listener) }() // ends with Stop
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// askAll asks all coordinators at the same time; all but the last are to be refused.
func askAll(ctx context.Context, addresses []string) error {
	problems := make([]error, len(addresses))
	var all sync.WaitGroup
	for i, text := range addresses {
		all.Go(func() {
			_, err := statusFrom(ctx, func(string, int) (admin.Client, error) { return admin.DialTarget("passthrough:///" + text) })
			if isLast := i == len(addresses)-1; isLast && err != nil || !isLast && status.Code(err) != codes.ResourceExhausted {
				problems[i] = fmt.Errorf("coordinator %d of %d: %w", i, len(addresses), err)
			}
		})
	}
	all.Wait()
	return errors.Join(problems...)
}
