package admin_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/operator/internal/admin"
	"rcbox.dev/rcbox/operator/internal/admin/standin"
)

// rawCodec answers with bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil //nolint:forcetypeassert // the handler below gives nothing else
}
func (rawCodec) Unmarshal(mem.BufferSlice, any) error { return nil }
func (rawCodec) Name() string                         { return "proto" }

var _ encoding.CodecV2 = rawCodec{}

// hostile is a dialer of a coordinator that answers every question with these bytes.
func hostile(t *testing.T, answer []byte) admin.Dialer {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		return stream.SendMsg(answer)
	}))
	go func() { _ = server.Serve(listener) }() // ends with Stop
	t.Cleanup(server.Stop)
	return func(string, int) (admin.Client, error) {
		return admin.DialTarget("passthrough:///hostile", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}))
	}
}

// statusFrom asks one coordinator, as a reconcile of its Store does.
func statusFrom(ctx context.Context, dial admin.Dialer) (*adminv1.GetClusterStatusResponse, error) {
	client, err := dial("", 0)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Status(ctx)
}

// emptyMembers is the longest answer of members without anything.
func emptyMembers() []byte { return []byte(strings.Repeat("\x32\x00", 16<<20/2-8)) }

// TestStatusOfEmptyMembers: 16 MiB of them were 1.5 GB of memory.
func TestStatusOfEmptyMembers(t *testing.T) {
	answers := map[string][]byte{
		"members":          emptyMembers(),
		"shards":           append([]byte{0x32, 0x80, 0x80, 0x80, 0x04}, strings.Repeat("\x32\x00", 8<<20/2)...),
		"names":            append([]byte{0x4a, 0x80, 0x80, 0x80, 0x04}, strings.Repeat("\x22\x00", 8<<20/2)...),
		"longer than that": make([]byte, 20<<20),
	}
	for name, answer := range answers {
		dial := hostile(t, answer)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := statusFrom(t.Context(), dial)
		runtime.ReadMemStats(&after)
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s: %.300v", name, err)
		}
		if taken := (after.TotalAlloc - before.TotalAlloc) >> 20; taken > 64 {
			t.Errorf("%s: %d MiB were taken to refuse an answer of %d", name, taken, len(answer)>>20)
		}
	}
}

// TestStatusOfTooManyMembers: each would be a line in the Store's status and several metrics.
func TestStatusOfTooManyMembers(t *testing.T) {
	_, err := statusFrom(t.Context(), hostile(t, []byte(strings.Repeat("\x32\x00", 1025))))
	if err == nil || !strings.Contains(err.Error(), "1025 members") {
		t.Errorf("%v", err)
	}
}

// TestStatusBesideHostileOnes: the coordinators of seven Stores answer with as much as they can, and that of the eighth is heard.
func TestStatusBesideHostileOnes(t *testing.T) {
	dial := hostile(t, emptyMembers())
	good := standin.Start()
	t.Cleanup(good.Stop)
	large := standin.Start()
	t.Cleanup(large.Stop)
	large.Change(largestStore)

	var wait sync.WaitGroup
	for range 7 {
		wait.Go(func() {
			if _, err := statusFrom(t.Context(), dial); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("a hostile answer: %.300v", err)
			}
		})
	}
	if _, err := statusFrom(t.Context(), good.Dial); err != nil {
		t.Errorf("beside hostile ones: %v", err)
	}
	cluster, err := statusFrom(t.Context(), large.Dial)
	if err != nil || len(cluster.GetMembers()) != largestMembers {
		t.Errorf("the largest store beside hostile ones: %d members, %v", len(cluster.GetMembers()), err)
	}
	wait.Wait()
}

// 46 chassis of 16 servers, each with 16 shards.
const largestMembers, largestShards = 736, 16

func largestStore(r *adminv1.GetClusterStatusResponse) {
	for i := range largestMembers {
		member := &adminv1.Member{
			Name: fmt.Sprintf("box-master-%d", i), State: adminv1.MemberState_MEMBER_STATE_UP,
			Instance: "6f9619ff-8b86-d011-b42d-00c04fc964ff",
			HostId:   fmt.Sprintf("node-%d.example", i), BuildVersion: "1.0.0", Incarnations: 3, Domain: fmt.Sprintf("chassis-%d", i/16),
		}
		port := &adminv1.NetworkPort{
			Pci: "0000:3b:02.1", Mac: "02:00:00:00:00:01", Ip: "192.0.2.200", Driver: "net_iavf", LinkMbps: 40000, Mtu: 9000,
		}
		for peer := range 16 {
			name := fmt.Sprintf("box-master-%d", peer)
			port.Pings = append(port.Pings, &adminv1.PeerPing{Member: name, Ip: "192.0.2.201", RoundTripNs: 20_000, AgeMs: 500})
		}
		member.Network = append(member.Network, port)
		for shard := range largestShards {
			member.Shards = append(member.Shards, &adminv1.Shard{
				ServerId: uint64(i*largestShards + shard), Locator: fmt.Sprintf("tcp:host=10.200.%d.%d,port=%d", i/256, i%256, 11101+shard),
				Connected: true, TabletCount: 20, LogCapacityBytes: 4 << 30, LogLiveBytes: 3 << 30, ObjectCount: 30_000_000,
				Replicas: 3, Segments: 500, BackupsUsable: 700, Serving: true, Settings: 7,
				Backup: &adminv1.BackupStorage{Frames: 3000, FramesFree: 1000, SegmentBytes: 8 << 20},
			})
		}
		r.Members = append(r.Members, member)
	}
}

// TestStatusOfTheLargestStore: real stores are within the bounds, with room to spare.
func TestStatusOfTheLargestStore(t *testing.T) {
	response := &adminv1.GetClusterStatusResponse{}
	largestStore(response)
	encoded, err := proto.Marshal(response)
	if err != nil {
		t.Fatal(err)
	}
	answer, memory := admin.LargestAnswer()
	left := memory
	if err := admin.Count(response, encoded, &left); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d KiB, decoded %d KiB", len(encoded)>>10, (memory-left)>>10)
	if 2*len(encoded) > answer || 2*(memory-left) > memory {
		t.Errorf("%d of %d bytes, decoded %d of %d", len(encoded), answer, memory-left, memory)
	}
}

// TestCount: what is counted is what is taken.
func TestCount(t *testing.T) {
	response := &adminv1.GetClusterStatusResponse{}
	largestStore(response)
	encoded, err := proto.Marshal(response)
	if err != nil {
		t.Fatal(err)
	}
	_, memory := admin.LargestAnswer()
	left := memory
	if err := admin.Count(response, encoded, &left); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := proto.Unmarshal(encoded, &adminv1.GetClusterStatusResponse{}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	taken, counted := int(after.TotalAlloc-before.TotalAlloc), memory-left
	if counted < taken/2 || counted > 3*taken {
		t.Errorf("%d KiB were counted, %d KiB taken", counted>>10, taken>>10)
	}
	for _, malformed := range []string{"\x32", "\x32\x05\x00", "\x07", "\x32\x01\x32"} {
		left := memory
		if err := admin.Count(response, []byte(malformed), &left); err == nil {
			t.Errorf("%q is well-formed", malformed)
		}
	}
}
