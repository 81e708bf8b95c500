package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const cniConfigFile = "/etc/cni/net.d/10-kindnet.conflist"

// routeProtocol marks the routes that are ours, so that those of nodes that
// left can be told from everybody else's. A number that rt_protos does not name.
const routeProtocol = 84

// writeCNIConfig puts the CNI configuration in place if it differs; the kubelet
// reports the node Ready when it appears.
func writeCNIConfig(subnet string) error {
	type object = map[string]any
	want, err := json.MarshalIndent(object{
		"cniVersion": "0.3.1",
		"name":       "kindnet",
		"plugins": []object{
			{
				"type":   "ptp",
				"ipMasq": false,
				"mtu":    uplinkMTU(),
				"ipam": object{
					"type":    "host-local",
					"dataDir": "/run/cni-ipam-state",
					"routes":  []object{{"dst": "0.0.0.0/0"}},
					"ranges":  [][]object{{{"subnet": subnet}}},
				},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}, "", "  ")
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(cniConfigFile); err == nil && string(have) == string(want) {
		return nil
	}
	// By rename, so that the container runtime never reads half a file.
	next := filepath.Join(filepath.Dir(cniConfigFile), ".10-kindnet.next")
	if err := os.WriteFile(next, want, 0o644); err != nil {
		return err
	}
	return os.Rename(next, cniConfigFile)
}

// uplinkMTU is the MTU of the node's uplink, which pods must not exceed.
func uplinkMTU() int {
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return 1500
	}
	return link.Attrs().MTU
}

// applyRoutes sets the wanted routes and deletes those of ours that are not wanted.
func applyRoutes(want map[string]string) error {
	var errs []error
	for subnet, gateway := range want {
		_, destination, err := net.ParseCIDR(subnet)
		if err != nil {
			errs = append(errs, fmt.Errorf("pod subnet %q: %w", subnet, err))
			continue
		}
		route := netlink.Route{Dst: destination, Gw: net.ParseIP(gateway), Protocol: routeProtocol}
		if err := netlink.RouteReplace(&route); err != nil {
			errs = append(errs, fmt.Errorf("route to %s via %s: %w", subnet, gateway, err))
		}
	}
	ours, err := netlink.RouteListFiltered(unix.AF_INET,
		&netlink.Route{Protocol: routeProtocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, route := range ours {
		if route.Dst == nil || want[route.Dst.String()] != "" {
			continue
		}
		if err := netlink.RouteDel(&route); err != nil {
			errs = append(errs, fmt.Errorf("stale route to %s: %w", route.Dst, err))
		}
	}
	return errors.Join(errs...)
}

// applyMasquerade makes traffic that leaves the pod subnet carry the node's address.
func applyMasquerade(podSubnet string) error {
	rule := []string{
		"POSTROUTING", "-s", podSubnet, "!", "-d", podSubnet,
		"-m", "addrtype", "!", "--dst-type", "LOCAL",
		"-m", "comment", "--comment", "kindnetd stand-in", "-j", "MASQUERADE",
	}
	if iptables(append([]string{"-C"}, rule...)) == nil {
		return nil
	}
	return iptables(append([]string{"-A"}, rule...))
}

func iptables(args []string) error {
	out, err := exec.Command("iptables", append([]string{"--wait", "-t", "nat"}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("iptables %v: %w: %s", args, err, out)
	}
	return nil
}
