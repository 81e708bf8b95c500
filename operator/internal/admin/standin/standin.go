// Package standin is a stand-in for a store's coordinator: it serves the real admin.proto over an in-memory connection, and a
// test says what members there are. It decides nothing that a real coordinator decides, but for the refusal to remove a member
// that owns tablets, and to drain one while nobody else is there.
package standin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/operator/internal/admin"
)

const (
	bufferBytes = 1 << 16
	// intervalMs is how long a stream is silent at most.
	intervalMs = 2000
)

// Coordinator is the stand-in.
type Coordinator struct {
	adminv1.UnimplementedAdminServer

	listener *bufconn.Listener
	server   *grpc.Server

	mu       sync.Mutex
	response *adminv1.GetClusterStatusResponse
	down     bool
	removed  []string
	keptOut  []string
	asked    int
	tables   []*adminv1.Table
	// split are tables that can be split, by name.
	split map[string]splitTable

	changes uint64
	// changed is closed at the next change.
	changed chan struct{}
	// watched is how many streams are open.
	watched int
	// isOld: it answers as a build that has no streams.
	isOld bool
}

// Start serves until Stop.
func Start() *Coordinator {
	c := &Coordinator{
		listener: bufconn.Listen(bufferBytes),
		server:   grpc.NewServer(),
		changed:  make(chan struct{}),
		response: &adminv1.GetClusterStatusResponse{
			ClusterId:    1,
			BuildVersion: "stand-in",
			Durability:   &adminv1.Durability{Mode: adminv1.DurabilityMode_DURABILITY_MODE_UNREPLICATED},
		},
	}
	adminv1.RegisterAdminServer(c.server, c)
	go func() { _ = c.server.Serve(c.listener) }() // ends with Stop
	return c
}

// Serve answers at another listener as well, until that is closed or Stop.
func (c *Coordinator) Serve(listener net.Listener) {
	go func() { _ = c.server.Serve(listener) }() // ends with the listener
}

// Stop ends it.
func (c *Coordinator) Stop() { c.server.Stop() }

// Dial is an admin.Dialer that reaches the stand-in whatever the address.
func (c *Coordinator) Dial(string, int) (admin.Client, error) {
	return admin.DialTarget("passthrough:///stand-in", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return c.Connect(ctx)
	}))
}

// Connect is a connection to it, for whoever has a way of his own.
func (c *Coordinator) Connect(ctx context.Context) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return nil, errors.New("the stand-in is down")
	}
	connection, err := c.listener.DialContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to the stand-in: %w", err)
	}
	return connection, nil
}

// SetTables are what it lists, two to a page.
func (c *Coordinator) SetTables(tables ...*adminv1.Table) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tables = tables
}

// ListTables implements adminv1.AdminServer.
func (c *Coordinator) ListTables(_ context.Context, request *adminv1.ListTablesRequest) (*adminv1.ListTablesResponse, error) {
	const page = 2
	c.mu.Lock()
	defer c.mu.Unlock()
	response := &adminv1.ListTablesResponse{}
	for _, table := range c.tables {
		switch {
		case table.GetTableId() <= request.GetAfterTableId():
		case len(response.Tables) == page:
			response.NextAfterTableId = response.Tables[page-1].GetTableId()
			return response, nil
		default:
			response.Tables = append(response.Tables, proto.CloneOf(table))
		}
	}
	return response, nil
}

// GetTimeTrace implements adminv1.AdminServer: three events for each member, and none of the last one, which is silent.
func (c *Coordinator) GetTimeTrace(_ context.Context, request *adminv1.GetTimeTraceRequest) (*adminv1.GetTimeTraceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	response := &adminv1.GetTimeTraceResponse{}
	for i, member := range c.response.GetMembers() {
		if name := request.GetMember(); name != "" && name != member.GetName() {
			continue
		}
		response.Asked++
		if i > 0 && i == len(c.response.GetMembers())-1 {
			continue
		}
		response.Shards = append(response.Shards, &adminv1.ShardTrace{
			Member: member.GetName(), ShardIndex: request.GetShardIndex(), ServerId: 1,
			Events: []*adminv1.TraceEvent{
				{TimeNs: 5_000_000, Name: "Received", Description: "received, 130 B, connection 3", Place: 3, Argument: 130},
				{TimeNs: 5_000_170, Name: "FrameIn", Description: "message handed over, key 17, connection 3", Place: 3, Argument: 17},
				{TimeNs: 5_030_170, Name: "Flushed", Description: "output given to the driver, 147 B", Place: 3, Argument: 147},
			},
		})
	}
	if response.Asked == 0 {
		return nil, status.Errorf(codes.NotFound, "no member %q in this store", request.GetMember())
	}
	return response, nil
}

// Change lets a test change the answer.
func (c *Coordinator) Change(change func(*adminv1.GetClusterStatusResponse)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c.response)
	c.tell()
}

// tell has streams report a change; the lock is held.
func (c *Coordinator) tell() {
	c.changes++
	close(c.changed)
	c.changed = make(chan struct{})
}

// SetOld makes it answer as builds do that have no streams, or not.
func (c *Coordinator) SetOld(isOld bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isOld = isOld
	c.tell()
}

// Watched is how many streams are open.
func (c *Coordinator) Watched() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watched
}

// Watch is an admin.Watcher that reaches the stand-in whatever the address.
func (c *Coordinator) Watch(ctx context.Context, _ string, _ int, heard func(uint64) error) error {
	return admin.WatchTarget(ctx, "passthrough:///stand-in", heard, grpc.WithContextDialer(
		func(ctx context.Context, _ string) (net.Conn, error) { return c.Connect(ctx) }))
}

// WatchClusterStatus implements adminv1.AdminServer.
func (c *Coordinator) WatchClusterStatus(_ *adminv1.WatchClusterStatusRequest, stream adminv1.Admin_WatchClusterStatusServer) error {
	count := func(by int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.watched += by
	}
	count(1)
	defer count(-1)
	for {
		c.mu.Lock()
		changes, changed, isDown, isOld := c.changes, c.changed, c.down, c.isOld
		c.mu.Unlock()
		switch {
		case isDown:
			return status.Errorf(codes.Unavailable, "the stand-in is down")
		case isOld:
			return status.Errorf(codes.Unimplemented, "this build has no streams")
		}
		message := &adminv1.WatchClusterStatusResponse{Change: changes + 1, IntervalMs: intervalMs}
		if err := stream.Send(message); err != nil {
			return err //nolint:wrapcheck // the reader has gone
		}
		select {
		case <-changed:
		case <-time.After(intervalMs * time.Millisecond):
		case <-stream.Context().Done():
			return nil
		}
	}
}

// SetDown makes it refuse connections, or not.
func (c *Coordinator) SetDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
	c.tell()
}

// Removed are the names of the members that it let go.
func (c *Coordinator) Removed() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.removed)
}

// KeptOut are the instances that it was told never to let in.
func (c *Coordinator) KeptOut() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.keptOut)
}

// Asked is how many times it was asked for its status.
func (c *Coordinator) Asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// GetClusterStatus implements adminv1.AdminServer.
func (c *Coordinator) GetClusterStatus(
	context.Context, *adminv1.GetClusterStatusRequest,
) (*adminv1.GetClusterStatusResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return proto.CloneOf(c.response), nil
}

// RemoveMember implements adminv1.AdminServer.
func (c *Coordinator) RemoveMember(
	_ context.Context, request *adminv1.RemoveMemberRequest,
) (*adminv1.RemoveMemberResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id := request.GetExpectedClusterId(); id != 0 && id != c.response.GetClusterId() {
		return nil, status.Errorf(codes.Aborted, "this is store %x, not %x", c.response.GetClusterId(), id)
	}
	if instance := request.GetInstance(); instance != "" {
		c.keptOut = append(c.keptOut, instance)
	}
	members := c.response.GetMembers()
	i := slices.IndexFunc(members, func(m *adminv1.Member) bool { return m.GetName() == request.GetName() })
	if i < 0 {
		return nil, status.Errorf(codes.NotFound, "no member %s", request.GetName())
	}
	for _, shard := range members[i].GetShards() {
		if shard.GetTabletCount() > 0 {
			return nil, status.Errorf(codes.FailedPrecondition, "member %s owns %d tablets of table t",
				request.GetName(), shard.GetTabletCount())
		}
	}
	c.response.Members = slices.Delete(members, i, i+1)
	c.removed = append(c.removed, request.GetName())
	c.tell()
	return &adminv1.RemoveMemberResponse{}, nil
}

// SetSettings implements adminv1.AdminServer: the answer has them from then on.
func (c *Coordinator) SetSettings(_ context.Context, request *adminv1.SetSettingsRequest) (*adminv1.SetSettingsResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	settings := proto.CloneOf(request.GetSettings())
	settings.Number = c.response.GetSettings().GetNumber() + 1
	c.response.Settings = settings
	c.tell()
	return &adminv1.SetSettingsResponse{Settings: settings}, nil
}

// DrainMember implements adminv1.AdminServer. The member is drained once a test says so, with SetDrained.
func (c *Coordinator) DrainMember(
	_ context.Context, request *adminv1.DrainMemberRequest,
) (*adminv1.DrainMemberResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	member, err := c.member(request.GetName(), request.GetExpectedClusterId())
	if err != nil {
		return nil, err
	}
	staying := func(m *adminv1.Member) bool { return m != member && m.GetDraining() == nil }
	if !slices.ContainsFunc(c.response.GetMembers(), staying) {
		return nil, status.Errorf(codes.FailedPrecondition, "member %s cannot be drained now: nobody else stays", request.GetName())
	}
	if member.Draining == nil {
		member.Draining = &adminv1.Draining{Copies: 1, WaitsFor: []string{"1 segments have copies here"}}
		for _, shard := range member.GetShards() {
			member.Draining.Tablets += shard.GetTabletCount()
		}
	}
	c.tell()
	return &adminv1.DrainMemberResponse{Draining: proto.CloneOf(member.GetDraining())}, nil
}

// UndrainMember implements adminv1.AdminServer.
func (c *Coordinator) UndrainMember(
	_ context.Context, request *adminv1.UndrainMemberRequest,
) (*adminv1.UndrainMemberResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	member, err := c.member(request.GetName(), request.GetExpectedClusterId())
	if err != nil {
		return nil, err
	}
	member.Draining = nil
	c.tell()
	return &adminv1.UndrainMemberResponse{}, nil
}

// FinalizeUpgrade implements adminv1.AdminServer.
func (c *Coordinator) FinalizeUpgrade(
	_ context.Context, request *adminv1.FinalizeUpgradeRequest,
) (*adminv1.FinalizeUpgradeResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	upgrade := c.response.GetUpgrade()
	if request.GetFormat() > upgrade.GetNewestFormat() || len(upgrade.GetHindrances()) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "format %d is not read by everybody", request.GetFormat())
	}
	c.response.FormatVersion = max(c.response.GetFormatVersion(), request.GetFormat())
	return &adminv1.FinalizeUpgradeResponse{FormatVersion: c.response.GetFormatVersion()}, nil
}

// SplitTable implements adminv1.AdminServer. Tables are those that a test has made with SetSplit.
func (c *Coordinator) SplitTable(_ context.Context, request *adminv1.SplitTableRequest) (*adminv1.SplitTableResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	table, there := c.split[request.GetTableName()]
	switch {
	case request.GetExpectedClusterId() != 0 && request.GetExpectedClusterId() != c.response.GetClusterId():
		return nil, status.Errorf(codes.Aborted, "this is store %x, not %x", c.response.GetClusterId(), request.GetExpectedClusterId())
	case !there:
		return nil, status.Errorf(codes.NotFound, "there is no table %q", request.GetTableName())
	case table.refusal != nil:
		return nil, table.refusal
	}
	made := max(request.GetParts(), table.tablets) - table.tablets
	table.tablets += made
	c.split[request.GetTableName()] = table
	return &adminv1.SplitTableResponse{TableId: 1, Tablets: table.tablets, BoundariesMade: made}, nil
}

// SetSplit makes a table of that many tablets, or changes it. It is not split while there is a refusal.
func (c *Coordinator) SetSplit(name string, tablets uint32, refusal error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.split == nil {
		c.split = map[string]splitTable{}
	}
	c.split[name] = splitTable{tablets: tablets, refusal: refusal}
}

// splitTable is one that can be split.
type splitTable struct {
	tablets uint32
	refusal error
}

func (c *Coordinator) member(name string, expectedClusterID uint64) (*adminv1.Member, error) {
	if expectedClusterID != 0 && expectedClusterID != c.response.GetClusterId() {
		return nil, status.Errorf(codes.Aborted, "this is store %x, not %x", c.response.GetClusterId(), expectedClusterID)
	}
	for _, member := range c.response.GetMembers() {
		if member.GetName() == name {
			return member, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "no member %s", name)
}

// SetDrained has everything that a member had be elsewhere.
func SetDrained(response *adminv1.GetClusterStatusResponse, name string) {
	for _, member := range response.GetMembers() {
		if member.GetName() == name {
			member.Draining = &adminv1.Draining{Drained: true}
			for _, shard := range member.GetShards() {
				shard.TabletCount = 0
			}
		}
	}
}

// Enlist adds a member of one shard that is up, or replaces its process.
func Enlist(response *adminv1.GetClusterStatusResponse, name, instance string, tablets uint64) {
	const capacity, live = 1 << 30, 1 << 28
	for _, member := range response.GetMembers() {
		if member.GetName() == name {
			member.Instance, member.State = instance, adminv1.MemberState_MEMBER_STATE_UP
			member.Shards[0].ServerId += 1 << 32
			member.Shards[0].TabletCount, member.Shards[0].Connected = tablets, true
			return
		}
	}
	index := uint64(len(response.GetMembers()) + 1)
	response.Members = append(response.Members, &adminv1.Member{
		Name: name, State: adminv1.MemberState_MEMBER_STATE_UP, Instance: instance,
		Shards: []*adminv1.Shard{{
			ServerId: index, Locator: fmt.Sprintf("tcp:host=10.0.0.%d,port=12100", index), Connected: true,
			TabletCount: tablets, LogCapacityBytes: capacity, LogLiveBytes: live,
		}},
	})
}
