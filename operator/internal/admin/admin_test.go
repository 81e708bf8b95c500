package admin_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/operator/internal/admin"
	"rcbox.dev/rcbox/operator/internal/admin/standin"
)

func TestRemoveMember(t *testing.T) {
	coordinator := standin.Start()
	t.Cleanup(coordinator.Stop)
	coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		standin.Enlist(r, "box-master-0", "a", 2)
		standin.Enlist(r, "box-master-1", "b", 0)
	})
	client, err := coordinator.Dial("", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })

	err = client.RemoveMember(t.Context(), "box-master-0", "")
	var refused *admin.RefusedError
	if !errors.As(err, &refused) || refused.Member != "box-master-0" || !strings.Contains(refused.Message, "owns 2 tablets") {
		t.Errorf("a member with data: %v", err)
	}
	if err := client.RemoveMember(t.Context(), "box-master-1", ""); err != nil {
		t.Errorf("a member without data: %v", err)
	}
	if err := client.RemoveMember(t.Context(), "box-master-1", ""); err != nil {
		t.Errorf("a member that is out already: %v", err)
	}
	if err := client.RemoveMember(t.Context(), "box-master-2", "uid"); err != nil {
		t.Errorf("a member that has yet to enlist: %v", err)
	}
	if kept := coordinator.KeptOut(); !slices.Equal(kept, []string{"uid"}) {
		t.Errorf("kept out: %v", kept)
	}
	cluster, err := client.Status(t.Context())
	if err != nil || len(cluster.GetMembers()) != 1 {
		t.Errorf("status: %v, %v", cluster, err)
	}

	// Another store meanwhile: what was decided about the former one does not concern it.
	coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { r.ClusterId++ })
	err = client.RemoveMember(t.Context(), "box-master-0", "")
	if code := status.Code(errors.Unwrap(err)); code != codes.Aborted {
		t.Errorf("another store: %v", err)
	}
}

func TestDrainMember(t *testing.T) {
	coordinator := standin.Start()
	t.Cleanup(coordinator.Stop)
	coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		standin.Enlist(r, "box-master-0", "a", 2)
		standin.Enlist(r, "box-master-1", "b", 3)
	})
	client, err := coordinator.Dial("", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	draining := func() *adminv1.Draining {
		cluster, err := client.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return cluster.GetMembers()[1].GetDraining()
	}

	for range 2 {
		if err := client.DrainMember(t.Context(), "box-master-1"); err != nil {
			t.Errorf("drain: %v", err)
		}
	}
	if got := draining(); got.GetTablets() != 3 || got.GetDrained() {
		t.Errorf("draining: %v", got)
	}
	err = client.DrainMember(t.Context(), "box-master-0")
	var refused *admin.RefusedError
	if !errors.As(err, &refused) || refused.Member != "box-master-0" || !strings.Contains(refused.Message, "nobody else stays") {
		t.Errorf("the last that stays: %v", err)
	}
	if err := client.DrainMember(t.Context(), "box-master-7"); err == nil {
		t.Error("a member that is not there is drained")
	}
	for _, name := range []string{"box-master-1", "box-master-1", "box-master-7"} {
		if err := client.UndrainMember(t.Context(), name); err != nil {
			t.Errorf("undrain %s: %v", name, err)
		}
	}
	if got := draining(); got != nil {
		t.Errorf("undrained: %v", got)
	}

	coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { r.ClusterId++ })
	err = client.DrainMember(t.Context(), "box-master-1")
	if code := status.Code(errors.Unwrap(err)); code != codes.Aborted {
		t.Errorf("another store: %v", err)
	}
}

// A refusal says whether to wait is of use.
func TestSplitTable(t *testing.T) {
	coordinator := standin.Start()
	t.Cleanup(coordinator.Stop)
	client, err := coordinator.Dial("", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if _, err := client.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	coordinator.SetSplit("fruit", 2, nil)
	for _, made := range []uint32{6, 0} {
		response, err := client.SplitTable(t.Context(), "fruit", 8)
		if err != nil || response.GetTablets() != 8 || response.GetBoundariesMade() != made {
			t.Errorf("split: %v, %v", response, err)
		}
	}
	for _, test := range []struct {
		code codes.Code
		want admin.SplitRefusedError
	}{
		{codes.FailedPrecondition, admin.SplitRefusedError{Message: "no"}},
		{codes.OutOfRange, admin.SplitRefusedError{Message: "no", ForGood: true}},
		{codes.InvalidArgument, admin.SplitRefusedError{Message: "no", ForGood: true}},
		{codes.NotFound, admin.SplitRefusedError{Message: "no", ForGood: true, NoTable: true}},
	} {
		coordinator.SetSplit("fruit", 2, status.Error(test.code, "no"))
		_, err := client.SplitTable(t.Context(), "fruit", 8)
		var refused *admin.SplitRefusedError
		if !errors.As(err, &refused) || *refused != test.want {
			t.Errorf("%s: %v", test.code, err)
		}
	}
	coordinator.SetSplit("fruit", 2, status.Error(codes.Unimplemented, "unknown method"))
	if _, err := client.SplitTable(t.Context(), "fruit", 8); err == nil || !strings.Contains(err.Error(), "build is older") {
		t.Errorf("an older build: %v", err)
	}
	coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { r.ClusterId++ })
	if _, err := client.SplitTable(t.Context(), "fruit", 8); status.Code(errors.Unwrap(err)) != codes.Aborted {
		t.Errorf("another store: %v", err)
	}
}

// Nobody there, and somebody who does not answer, are errors within the time limit, never a success.
func TestNoAnswer(t *testing.T) {
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	address, ok := silent.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("address %v", silent.Addr())
	}
	for name, port := range map[string]int{"silent": address.Port, "nobody": 1} {
		client, err := admin.Dial("127.0.0.1", port)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Status(t.Context())
		if code := status.Code(errors.Unwrap(err)); code != codes.DeadlineExceeded && code != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	client, err := admin.Dial("127.0.0.1", address.Port)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.RemoveMember(ctx, "x", ""); err == nil {
		t.Error("a call that was called off succeeded")
	}
}

func TestIDs(t *testing.T) {
	if got := admin.ServerID(3<<32 | 7); got != "7.3" {
		t.Errorf("server id %s", got)
	}
	if got := admin.ClusterID(0xabc); got != "0000000000000abc" {
		t.Errorf("cluster id %s", got)
	}
}
