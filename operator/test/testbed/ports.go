package testbed

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// The ports that a control plane listens on. The kernel gives outgoing connections ports from 32768 on. envtest asks it for one of these,
// and frees it before etcd takes it: on a busy machine a connection had it by then, and etcd ended. Ports below go only to those who name
// them.
const (
	firstPort = 20000
	lastPort  = 29999
)

var (
	portsMutex sync.Mutex
	portsTaken = map[int]bool{} // by this process, for good
)

// freePort gives a TCP port of 127.0.0.1 that nobody listens on, and gives it once.
func freePort(t *testing.T) string {
	t.Helper()
	portsMutex.Lock()
	defer portsMutex.Unlock()
	config := net.ListenConfig{}
	for range lastPort - firstPort {
		port := firstPort + rand.IntN(lastPort-firstPort+1) //nolint:gosec // not a secret
		if portsTaken[port] {
			continue
		}
		listener, err := config.Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err == nil {
			err = listener.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		portsTaken[port] = true
		return strconv.Itoa(port)
	}
	t.Fatalf("no port of %d to %d is free", firstPort, lastPort)
	return ""
}
