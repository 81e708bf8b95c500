package admin_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/operator/internal/admin"
)

// streamer is a coordinator whose stream is what a test says.
type streamer struct {
	adminv1.UnimplementedAdminServer

	stream func(adminv1.Admin_WatchClusterStatusServer) error
}

func (s streamer) WatchClusterStatus(_ *adminv1.WatchClusterStatusRequest, stream adminv1.Admin_WatchClusterStatusServer) error {
	return s.stream(stream)
}

func watchStreamer(t *testing.T, heard func(uint64) error, stream func(adminv1.Admin_WatchClusterStatusServer) error) error {
	t.Helper()
	listener := listen(t)
	server := grpc.NewServer()
	adminv1.RegisterAdminServer(server, streamer{stream: stream})
	go func() { _ = server.Serve(listener) }() // ends with Stop
	t.Cleanup(server.Stop)
	return admin.WatchTarget(t.Context(), "passthrough:///"+listener.Addr().String(), heard)
}

// TestWatchEndsWhenTheCoordinatorIsSilent, which is how a machine ends that nobody hears from any more.
func TestWatchEndsWhenTheCoordinatorIsSilent(t *testing.T) {
	const intervalMs, messages = 100, 5
	var heard []uint64
	begun := time.Now()
	err := watchStreamer(t, func(changes uint64) error { heard = append(heard, changes); return nil },
		func(stream adminv1.Admin_WatchClusterStatusServer) error {
			message := &adminv1.WatchClusterStatusResponse{IntervalMs: intervalMs}
			for ; message.Change < messages; message.Change++ {
				if err := stream.Send(message); err != nil {
					return err
				}
				<-time.After(intervalMs * time.Millisecond)
			}
			<-stream.Context().Done()
			return nil
		})
	if len(heard) != messages || !errors.Is(err, admin.ErrSilent) {
		t.Errorf("heard %v, and then %v", heard, err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestWatchOfACoordinatorThatNeverAnswers ends, too: here nobody accepts the connection.
func TestWatchOfACoordinatorThatNeverAnswers(t *testing.T) {
	listener := listen(t)
	defer listener.Close()
	err := admin.WatchTarget(t.Context(), "passthrough:///"+listener.Addr().String(), func(uint64) error { return nil })
	if !errors.Is(err, admin.ErrSilent) {
		t.Errorf("%v", err)
	}
}

// TestWatchPassesRefusalsOn: who watches branches on them.
func TestWatchPassesRefusalsOn(t *testing.T) {
	for _, code := range []codes.Code{codes.Unimplemented, codes.FailedPrecondition, codes.Unavailable} {
		err := watchStreamer(t, func(uint64) error { return nil },
			func(adminv1.Admin_WatchClusterStatusServer) error { return status.Error(code, "no") })
		if status.Code(err) != code {
			t.Errorf("%v is passed on as %v", code, err)
		}
	}
	reason := errors.New("enough")
	err := watchStreamer(t, func(uint64) error { return reason }, func(stream adminv1.Admin_WatchClusterStatusServer) error {
		return stream.Send(&adminv1.WatchClusterStatusResponse{})
	})
	if !errors.Is(err, reason) {
		t.Errorf("%v", err)
	}
}

// TestWatchBoundsMessages: a user chooses what runs as coordinator.
func TestWatchBoundsMessages(t *testing.T) {
	address := serveAnswer(t, make([]byte, 1<<20))
	err := admin.WatchTarget(t.Context(), "passthrough:///"+address, func(uint64) error { return nil })
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
}
