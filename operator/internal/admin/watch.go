package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
)

const (
	// changeBytes is more than a message of a stream has, unknown fields of newer builds included.
	changeBytes = 1 << 10
	// silentIntervals is how many intervals a stream may be silent for: one message may be late.
	silentIntervals = 3
	// leastInterval and mostInterval bound what a coordinator says of its own silence.
	leastInterval, mostInterval = 100 * time.Millisecond, 10 * time.Second
)

// errSilent means that a coordinator's stream was silent for too long.
var errSilent = errors.New("the coordinator does not answer")

// Watcher hears of changes of the status of the coordinator at an IP address and port, until ctx or the stream ends, and says why it ended.
// heard gets the number of changes so far with each message, the first one at once. Whoever needs the status asks for it: the stream has
// none, so that no status is older than its reader's question, and no more of them are in memory than are being asked for.
type Watcher func(ctx context.Context, ip string, port int, heard func(changes uint64) error) error

// Watch is the Watcher for real coordinators.
func Watch(ctx context.Context, ip string, port int, heard func(changes uint64) error) error {
	return WatchTarget(ctx, "passthrough:///"+net.JoinHostPort(ip, strconv.Itoa(port)), heard)
}

// WatchTarget watches the coordinator at a gRPC target.
func WatchTarget(ctx context.Context, target string, heard func(changes uint64) error, options ...grpc.DialOption) error {
	connection, err := Connect(target, options...)
	if err != nil {
		return err
	}
	defer connection.Close() //nolint:errcheck // nothing is lost with a connection
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(callTimeout, func() { cancel(errSilent) })
	defer silence.Stop()
	stream, err := adminv1.NewAdminClient(connection).WatchClusterStatus(ctx, &adminv1.WatchClusterStatusRequest{},
		grpc.MaxCallRecvMsgSize(changeBytes))
	for err == nil {
		var message *adminv1.WatchClusterStatusResponse
		if message, err = stream.Recv(); err != nil {
			break
		}
		silence.Stop()
		if err := heard(message.GetChange()); err != nil {
			return err
		}
		interval := time.Duration(message.GetIntervalMs()) * time.Millisecond
		silence.Reset(silentIntervals * min(max(interval, leastInterval), mostInterval))
	}
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		err = cause
	}
	return fmt.Errorf("ask the coordinator for its status: %w", err)
}
