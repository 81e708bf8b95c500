package access

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/operator/internal/admin"
	"rcbox.dev/rcbox/operator/internal/plugin/plain"
	"rcbox.dev/rcbox/operator/internal/plugin/tunnel"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// callTimeout bounds each call: what comes through an API server takes longer than it would directly.
const callTimeout = 10 * time.Second

// Coordinator is the one that leads, over its admin API.
type Coordinator struct {
	// Pod is its name.
	Pod string
	// Last is its last answer to Status.
	Last *adminv1.GetClusterStatusResponse

	connection *grpc.ClientConn
	admin      adminv1.AdminClient
}

// Coordinator finds the one that leads among a Store's pods, through the API server. All are asked at once: one on a node that is gone
// keeps nobody waiting.
func (c *Cluster) Coordinator(ctx context.Context, pods []corev1.Pod) (*Coordinator, error) {
	candidates := coordinators(pods)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		index       int
		coordinator *Coordinator
		err         error
	}
	answers := make(chan answer)
	for index, pod := range candidates {
		go func() {
			coordinator, err := c.askPod(ctx, pod)
			answers <- answer{index, coordinator, err}
		}()
	}
	var leader *Coordinator
	errs := make([]error, len(candidates))
	for range candidates {
		switch answer := <-answers; {
		case answer.err != nil:
			errs[answer.index] = fmt.Errorf("coordinator %s: %w", candidates[answer.index].Name, answer.err)
		case leader == nil || leader.Last.GetLeader().GetTerm() < answer.coordinator.Last.GetLeader().GetTerm():
			leader.Close()
			leader = answer.coordinator
			cancel()
		default:
			answer.coordinator.Close()
		}
	}
	switch {
	case leader != nil:
		return leader, nil
	case len(candidates) == 0:
		return nil, errors.New("no coordinator runs")
	default:
		return nil, errors.Join(errs...)
	}
}

func (c *Cluster) askPod(ctx context.Context, pod *corev1.Pod) (*Coordinator, error) {
	coordinator, err := c.dial(ctx, pod)
	if err != nil {
		return nil, err
	}
	if _, err := coordinator.Status(ctx); err != nil {
		coordinator.Close()
		return nil, err
	}
	return coordinator, nil
}

// dial connects at once, so that a missing right is told as such.
func (c *Cluster) dial(ctx context.Context, pod *corev1.Pod) (*Coordinator, error) {
	open := func(ctx context.Context) (net.Conn, error) {
		return tunnel.Dial(ctx, c.Config, pod.Namespace, pod.Name, resources.CoordinatorAdminPort)
	}
	first, err := open(ctx)
	if err != nil {
		return nil, explain(err, "forward a port (create and get on pods/portforward)")
	}
	var once sync.Once
	dialer := func(ctx context.Context, _ string) (net.Conn, error) {
		var connection net.Conn
		once.Do(func() { connection = first })
		if connection != nil {
			return connection, nil
		}
		return open(ctx)
	}
	connection, err := admin.Connect("passthrough:///"+pod.Name, grpc.WithContextDialer(dialer), grpc.WithChainUnaryInterceptor(makePlain))
	if err != nil {
		return nil, errors.Join(err, first.Close())
	}
	return &Coordinator{Pod: pod.Name, connection: connection, admin: adminv1.NewAdminClient(connection)}, nil
}

// makePlain has what a coordinator says made plain: whoever runs it chooses the texts.
func makePlain(ctx context.Context, method string, request, answer any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	if err := invoke(ctx, method, request, answer, connection, options...); err != nil {
		refusal := status.Convert(err)
		return status.Error(refusal.Code(), plain.Text(refusal.Message())) //nolint:wrapcheck // it is gRPC's own
	}
	plain.Clean(answer, plain.Text)
	return nil
}

// Close ends the connection; also of one that there is not.
func (c *Coordinator) Close() {
	if c != nil {
		_ = c.connection.Close() // nothing is lost with a connection
	}
}

// Status is the whole store in one answer.
func (c *Coordinator) Status(ctx context.Context) (*adminv1.GetClusterStatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := c.admin.GetClusterStatus(ctx, &adminv1.GetClusterStatusRequest{})
	switch {
	case err != nil:
		return nil, said("its status", err)
	case response.GetLeader().GetRefusal() != "":
		return nil, fmt.Errorf("it must not lead: %s", response.GetLeader().GetRefusal())
	}
	c.Last = response
	return response, nil
}

// Tables with their tablets, all of them.
func (c *Coordinator) Tables(ctx context.Context) ([]*adminv1.Table, error) {
	var tables []*adminv1.Table
	for after := uint64(0); ; {
		response, err := c.tablesAfter(ctx, after)
		if err != nil {
			return nil, err
		}
		tables = append(tables, response.GetTables()...)
		next := response.GetNextAfterTableId()
		if next <= after {
			return tables, nil
		}
		after = next
	}
}

func (c *Coordinator) tablesAfter(ctx context.Context, after uint64) (*adminv1.ListTablesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := c.admin.ListTables(ctx, &adminv1.ListTablesRequest{AfterTableId: after})
	if err != nil {
		return nil, said("its tables", err)
	}
	return response, nil
}

// TimeTrace is what the shards of a member have done last; without a name, those of all members.
func (c *Coordinator) TimeTrace(ctx context.Context, member string, shard *uint32, last uint32) (*adminv1.GetTimeTraceResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := c.admin.GetTimeTrace(ctx, &adminv1.GetTimeTraceRequest{Member: member, ShardIndex: shard, Last: last})
	if err != nil {
		return nil, said("the time trace of its servers", err)
	}
	return response, nil
}

// said is the coordinator's own text where it has sent one.
func said(what string, err error) error {
	answer := status.Convert(err)
	return fmt.Errorf("%s: %s: %w", what, answer.Code(), errors.New(answer.Message())) //nolint:err113 // gRPC's own text only repeats it
}
