package ports_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/containernetworking/plugins/pkg/testutils"
	"github.com/vishvananda/netlink"

	"rcbox.dev/rcbox/images/network/ports"
)

func TestDevices(t *testing.T) {
	for port := range ports.Count {
		if got, err := ports.OfDevice(ports.Device(port)); err != nil || got != port {
			t.Errorf("%s is port %d, %v; want %d", ports.Device(port), got, err, port)
		}
	}
	for _, bad := range []string{"", "port", "port4", "port-1", "0000:3b:02.1"} {
		if got, err := ports.OfDevice(bad); err == nil {
			t.Errorf("%q is port %d", bad, got)
		}
	}
}

// node is a network namespace with the interface to other nodes.
func node(t *testing.T) ns.NetNS {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: making network namespaces needs root")
	}
	space := namespace(t)
	in(t, space, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth1"}, PeerName: "others"})
	})
	return space
}

func namespace(t *testing.T) ns.NetNS {
	t.Helper()
	space, err := testutils.NewNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(space.Close(), testutils.UnmountNS(space)); err != nil {
			t.Error(err)
		}
	})
	return space
}

func in(t *testing.T, space ns.NetNS, do func() error) {
	t.Helper()
	if err := space.Do(func(ns.NetNS) error { return do() }); err != nil {
		t.Fatal(err)
	}
}

func TestEnsure(t *testing.T) {
	in(t, node(t), func() error {
		if err := ports.Ensure("eth7"); err == nil || !strings.Contains(err.Error(), "eth7") {
			t.Errorf("without that interface: %v", err)
		}
		for range 2 { // the second time there is nothing to do
			if err := ports.Ensure("eth1"); err != nil {
				return err
			}
		}
		for port := range ports.Count {
			if _, err := netlink.LinkByName(ports.Interface(port)); err != nil || !ports.HasLink(port) {
				t.Errorf("port %d: %v, link %v", port, err, ports.HasLink(port))
			}
		}
		peer, err := netlink.LinkByName(ports.Peer(1))
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(peer); err != nil {
			return err
		}
		if err := ports.Ensure("eth1"); err != nil {
			return err
		}
		if ports.HasLink(1) || !ports.HasLink(2) {
			t.Errorf("a pulled cable is put back, or another is pulled: %v, %v", ports.HasLink(1), ports.HasLink(2))
		}
		return nil
	})
}

// TestPlugin runs the CNI plugin as Multus does: a port goes to a pod, to no second one, comes back, and comes back once more.
func TestPlugin(t *testing.T) {
	host, pod, other := node(t), namespace(t), namespace(t)
	in(t, host, func() error { return ports.Ensure("eth1") })
	program := filepath.Join(t.TempDir(), "standinport")
	if out, err := exec.Command("go", "build", "-o", program, "../standinport").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	call := func(command string, to ns.NetNS, config string) (string, error) {
		var out []byte
		var err error
		in(t, host, func() error {
			run := exec.Command(program)
			run.Stdin = strings.NewReader(config)
			run.Env = []string{
				"CNI_COMMAND=" + command, "CNI_CONTAINERID=a", "CNI_NETNS=" + to.Path(), "CNI_IFNAME=net1", "CNI_PATH=" + filepath.Dir(program),
			}
			out, err = run.Output()
			return nil
		})
		return string(out), err
	}
	config := `{"cniVersion": "1.0.0", "name": "n", "type": "standinport", "deviceID": "port2", "runtimeConfig": {"mac": "02:52:0a:00:00:01"}}`

	out, err := call("ADD", pod, config)
	if err != nil {
		t.Fatalf("ADD: %v %s", err, out)
	}
	var result struct {
		Interfaces []struct{ Name, Mac string }
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil || len(result.Interfaces) != 1 || result.Interfaces[0].Mac != "02:52:0a:00:00:01" {
		t.Errorf("ADD says %s (%v)", out, err)
	}
	in(t, pod, func() error {
		link, err := netlink.LinkByName("net1")
		if err == nil && link.Attrs().HardwareAddr.String() != "02:52:0a:00:00:01" {
			t.Errorf("net1 has %s", link.Attrs().HardwareAddr)
		}
		return err
	})
	if out, err := call("CHECK", pod, config); err != nil {
		t.Errorf("CHECK: %v %s", err, out)
	}
	if out, err := call("ADD", other, config); err == nil || !strings.Contains(out, "rcport2 is not on this node") {
		t.Errorf("ADD of a port that another pod has: %v %s", err, out)
	}
	if out, err := call("ADD", other, strings.Replace(config, "port2", "port9", 1)); err == nil || !strings.Contains(out, "is no port of this node") {
		t.Errorf("ADD of a port that is not there: %v %s", err, out)
	}
	for range 2 {
		if out, err := call("DEL", pod, config); err != nil {
			t.Errorf("DEL: %v %s", err, out)
		}
	}
	in(t, host, func() error {
		_, err := netlink.LinkByName(ports.Interface(2))
		return err
	})
	if out, err := call("ADD", other, config); err != nil {
		t.Errorf("ADD of a port that came back: %v %s", err, out)
	}
}
