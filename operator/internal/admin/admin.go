// Package admin talks to a store's coordinator over its admin API.
package admin

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
)

// callTimeout bounds each call, the dial included.
const callTimeout = 3 * time.Second

// maxMembers of a store; a coordinator lets no more in.
const maxMembers = 1024

// largeTimeout bounds the wait for a turn to read a large answer.
const largeTimeout = 10 * callTimeout

// oneLarge is held while a large answer is in memory: of all Stores together, one has it.
var oneLarge = make(chan struct{}, 1)

// Client asks one coordinator.
type Client interface {
	// Status is the whole store in one answer.
	Status(ctx context.Context) (*adminv1.GetClusterStatusResponse, error)
	// RemoveMember takes a member out of the store for good, and keeps the named instance of it out even if that has yet to
	// enlist (empty: none). nil when it is out or was never in; a *RefusedError when it holds data. A store other than the
	// one that Status reported removes nothing.
	RemoveMember(ctx context.Context, name, instance string) error
	// SetSettings changes what can be changed while the store runs, in the place of what was set before.
	SetSettings(ctx context.Context, request *adminv1.SetSettingsRequest) error
	// DrainMember has everything that a member has go to others; Status tells how far that is. A *RefusedError where it could not
	// end. A store other than the one that Status reported drains nothing.
	DrainMember(ctx context.Context, name string) error
	// UndrainMember takes that back; nil for a member that is gone.
	UndrainMember(ctx context.Context, name string) error
	// FinalizeUpgrade puts a format in force for ever. A *RefusedError where some process does not read it. A store other than the one
	// that Status reported changes nothing.
	FinalizeUpgrade(ctx context.Context, format int32) error
	// SplitTable sees to it that a table has boundaries at even distances. A *SplitRefusedError where something stands against it. A store
	// other than the one that Status reported splits nothing.
	SplitTable(ctx context.Context, table string, parts int32) (*adminv1.SplitTableResponse, error)
	// Close ends the connection.
	Close() error
}

// Dialer makes a Client for the coordinator at an IP address and port. It does not wait for a connection.
type Dialer func(ip string, port int) (Client, error)

// RefusedError is the coordinator's refusal to remove a member that holds data, to drain one where that could not end, or to put a format
// in force that some process does not read. The last one is about no member.
type RefusedError struct {
	Member  string
	Message string
}

func (e *RefusedError) Error() string { return e.Message }

// SplitRefusedError is the coordinator's refusal to split a table.
type SplitRefusedError struct {
	Message string
	// NoTable: there is none of that name.
	NoTable bool
	// ForGood: it would be refused again, whoever waits.
	ForGood bool
}

func (e *SplitRefusedError) Error() string { return e.Message }

// Dial is the Dialer for real coordinators. Whoever asks dials anew: there is then no connection to keep in step with pods that
// come and go, and an answer is surely from the pod that was observed.
func Dial(ip string, port int) (Client, error) {
	return DialTarget("passthrough:///" + net.JoinHostPort(ip, strconv.Itoa(port)))
}

// DialTarget makes a Client for a gRPC target.
func DialTarget(target string, options ...grpc.DialOption) (Client, error) {
	connection, err := Connect(target, options...)
	if err != nil {
		return nil, err
	}
	return &client{connection: connection, admin: adminv1.NewAdminClient(connection)}, nil
}

// Connect makes a connection for the admin API to a gRPC target. It does not wait for it.
func Connect(target string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	options = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(boundAnswers),
		grpc.WithNoProxy(),
	}, options...)
	connection, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", target, err)
	}
	return connection, nil
}

type client struct {
	connection *grpc.ClientConn
	admin      adminv1.AdminClient
	// clusterID of the store that Status reported; 0 before that.
	clusterID uint64
	// hasLarge says that this one holds oneLarge, until it is closed.
	hasLarge bool
}

func (c *client) Status(ctx context.Context) (*adminv1.GetClusterStatusResponse, error) {
	response, err := c.statusWithin(ctx, smallAnswer)
	if status.Code(err) == codes.ResourceExhausted {
		if err := c.waitForLarge(ctx); err != nil {
			return nil, err
		}
		response, err = c.statusWithin(ctx, largeAnswer)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the coordinator for its status: %w", err)
	}
	if members := len(response.GetMembers()); members > maxMembers {
		return nil, fmt.Errorf("ask the coordinator for its status: it has %d members: %w", members, errTooLarge)
	}
	c.clusterID = response.GetClusterId()
	return response, nil
}

func (c *client) statusWithin(ctx context.Context, b bounds) (*adminv1.GetClusterStatusResponse, error) {
	ctx, cancel := context.WithTimeout(within(ctx, b), callTimeout)
	defer cancel()
	return c.admin.GetClusterStatus(ctx, &adminv1.GetClusterStatusRequest{})
}

// waitForLarge waits until no other Store's large answer is in memory.
func (c *client) waitForLarge(ctx context.Context) error {
	if c.hasLarge {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, largeTimeout)
	defer cancel()
	select {
	case oneLarge <- struct{}{}:
		c.hasLarge = true
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait to read a large status of the coordinator: %w", ctx.Err())
	}
}

func (c *client) RemoveMember(ctx context.Context, name, instance string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.admin.RemoveMember(ctx, &adminv1.RemoveMemberRequest{
		Name: name, Instance: instance, ExpectedClusterId: c.clusterID,
	})
	switch status.Code(err) {
	case codes.OK, codes.NotFound:
		return nil
	case codes.FailedPrecondition:
		return &RefusedError{Member: name, Message: status.Convert(err).Message()}
	default:
		return fmt.Errorf("remove member %s from the store: %w", name, err)
	}
}

func (c *client) SetSettings(ctx context.Context, request *adminv1.SetSettingsRequest) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request.ExpectedClusterId = c.clusterID
	if _, err := c.admin.SetSettings(ctx, request); err != nil {
		return fmt.Errorf("change settings of the store: %w", err)
	}
	return nil
}

func (c *client) DrainMember(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.admin.DrainMember(ctx, &adminv1.DrainMemberRequest{Name: name, ExpectedClusterId: c.clusterID})
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.FailedPrecondition:
		return &RefusedError{Member: name, Message: status.Convert(err).Message()}
	case codes.Unimplemented:
		return &RefusedError{Member: name, Message: "its build is older and drains no members; set the Store's image to a newer one"}
	default:
		return fmt.Errorf("drain member %s: %w", name, err)
	}
}

func (c *client) UndrainMember(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.admin.UndrainMember(ctx, &adminv1.UndrainMemberRequest{Name: name, ExpectedClusterId: c.clusterID})
	switch status.Code(err) {
	case codes.OK, codes.NotFound:
		return nil
	default:
		return fmt.Errorf("undrain member %s: %w", name, err)
	}
}

func (c *client) FinalizeUpgrade(ctx context.Context, format int32) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.admin.FinalizeUpgrade(ctx, &adminv1.FinalizeUpgradeRequest{
		Format: uint32(max(format, 0)), ExpectedClusterId: c.clusterID,
	})
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.FailedPrecondition, codes.InvalidArgument:
		return &RefusedError{Message: status.Convert(err).Message()}
	default:
		return fmt.Errorf("put format %d in force: %w", format, err)
	}
}

func (c *client) SplitTable(ctx context.Context, table string, parts int32) (*adminv1.SplitTableResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := c.admin.SplitTable(ctx, &adminv1.SplitTableRequest{
		Table: &adminv1.SplitTableRequest_TableName{TableName: table}, Parts: uint32(max(parts, 0)), ExpectedClusterId: c.clusterID,
	})
	message := status.Convert(err).Message()
	switch status.Code(err) {
	case codes.OK:
		return response, nil
	case codes.FailedPrecondition:
		return nil, &SplitRefusedError{Message: message}
	case codes.NotFound:
		return nil, &SplitRefusedError{Message: message, NoTable: true, ForGood: true}
	case codes.InvalidArgument, codes.OutOfRange:
		return nil, &SplitRefusedError{Message: message, ForGood: true}
	case codes.Unimplemented:
		return nil, &SplitRefusedError{
			Message: "the coordinator's build is older and splits no tables by order: set spec.image of the Store to a newer version",
		}
	default:
		return nil, fmt.Errorf("split table %q: %w", table, err)
	}
}

func (c *client) Close() error {
	if c.hasLarge {
		c.hasLarge = false
		<-oneLarge
	}
	if err := c.connection.Close(); err != nil {
		return fmt.Errorf("close the connection to the coordinator: %w", err)
	}
	return nil
}
