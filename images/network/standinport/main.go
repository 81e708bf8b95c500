// Command standinport is a CNI plugin that gives a pod one of the ports that standinplugin has handed out: what the SR-IOV CNI does with virtual
// functions, it does with one end of a veth pair. It sets the hardware address that is asked for, and the addresses that the IPAM plugin gives.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/containernetworking/plugins/pkg/ipam"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"rcbox.dev/rcbox/images/network/ports"
)

// config is the plugin's part of a NetworkAttachmentDefinition, with what Multus adds: the device, and what the pod asks for.
type config struct {
	types.NetConf
	DeviceID      string `json:"deviceID"`
	RuntimeConfig struct {
		MAC string `json:"mac"`
	} `json:"runtimeConfig"`
}

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: remove, Check: check}, version.All,
		"standinport: gives a pod a port that stands in for a NIC's")
}

func parse(stdin []byte) (*config, int, error) {
	c := &config{}
	if err := json.Unmarshal(stdin, c); err != nil {
		return nil, 0, fmt.Errorf("standinport: the configuration is not to be read: %w", err)
	}
	if c.DeviceID == "" {
		return nil, 0, errors.New("standinport: Multus has named no device: has the definition the annotation k8s.v1.cni.cncf.io/resourceName?")
	}
	port, err := ports.OfDevice(c.DeviceID)
	return c, port, err
}

func add(args *skel.CmdArgs) (err error) {
	c, port, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	pod, err := ns.GetNS(args.Netns)
	if err != nil {
		return fmt.Errorf("standinport: open the pod's network namespace: %w", err)
	}
	defer pod.Close()
	if err := give(port, pod); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, take(port, pod, args.IfName))
		}
	}()
	result := &current.Result{CNIVersion: current.ImplementedSpecVersion}
	if c.IPAM.Type != "" {
		if result, err = addressesOf(c, args.StdinData); err != nil {
			return err
		}
	}
	if err := pod.Do(func(ns.NetNS) error { return setUp(port, args, c.RuntimeConfig.MAC, result) }); err != nil {
		return err
	}
	return types.PrintResult(result, c.CNIVersion)
}

func addressesOf(c *config, stdin []byte) (*current.Result, error) {
	answer, err := ipam.ExecAdd(c.IPAM.Type, stdin)
	if err != nil {
		return nil, fmt.Errorf("standinport: ask %s for addresses: %w", c.IPAM.Type, err)
	}
	result, err := current.NewResultFromResult(answer)
	if err != nil {
		return nil, fmt.Errorf("standinport: read the answer of %s: %w", c.IPAM.Type, err)
	}
	return result, nil
}

// give moves a port from the node to a pod.
func give(port int, pod ns.NetNS) error {
	link, err := netlink.LinkByName(ports.Interface(port))
	if err != nil {
		return fmt.Errorf("standinport: %s is not on this node; who has it? %w", ports.Interface(port), err)
	}
	if err := netlink.LinkSetNsFd(link, int(pod.Fd())); err != nil {
		return fmt.Errorf("standinport: move %s to the pod: %w", ports.Interface(port), err)
	}
	return nil
}

// setUp is run in the pod.
func setUp(port int, args *skel.CmdArgs, mac string, result *current.Result) error {
	link, err := netlink.LinkByName(ports.Interface(port))
	if err != nil {
		return fmt.Errorf("standinport: find %s in the pod: %w", ports.Interface(port), err)
	}
	if err := netlink.LinkSetName(link, args.IfName); err != nil {
		return fmt.Errorf("standinport: name it %s: %w", args.IfName, err)
	}
	if mac != "" {
		address, err := net.ParseMAC(mac)
		if err != nil {
			return fmt.Errorf("standinport: hardware address %q: %w", mac, err)
		}
		if err := netlink.LinkSetHardwareAddr(link, address); err != nil {
			return fmt.Errorf("standinport: set the hardware address %s: %w", mac, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("standinport: set %s up: %w", args.IfName, err)
	}
	if link, err = netlink.LinkByName(args.IfName); err != nil {
		return fmt.Errorf("standinport: find %s: %w", args.IfName, err)
	}
	result.Interfaces = []*current.Interface{{Name: args.IfName, Mac: link.Attrs().HardwareAddr.String(), Sandbox: args.Netns}}
	for _, address := range result.IPs {
		address.Interface = current.Int(0)
	}
	if len(result.IPs) == 0 {
		return nil
	}
	if err := ipam.ConfigureIface(args.IfName, result); err != nil {
		return fmt.Errorf("standinport: give %s its addresses: %w", args.IfName, err)
	}
	return nil
}

func remove(args *skel.CmdArgs) error {
	c, port, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	if c.IPAM.Type != "" {
		if err := ipam.ExecDel(c.IPAM.Type, args.StdinData); err != nil {
			return fmt.Errorf("standinport: give addresses back to %s: %w", c.IPAM.Type, err)
		}
	}
	if args.Netns == "" {
		return nil
	}
	pod, err := ns.GetNS(args.Netns)
	if _, isGone := errors.AsType[ns.NSPathNotExistErr](err); isGone {
		return nil // and its end of the pair with it: standinplugin makes another pair
	}
	if err != nil {
		return fmt.Errorf("standinport: open the pod's network namespace: %w", err)
	}
	defer pod.Close()
	return take(port, pod, args.IfName)
}

// take moves a port back to the node, if the pod has it, under its own name again.
func take(port int, pod ns.NetNS, name string) error {
	node, err := ns.GetCurrentNS()
	if err != nil {
		return fmt.Errorf("standinport: open the node's network namespace: %w", err)
	}
	defer node.Close()
	return pod.Do(func(ns.NetNS) error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			// An addition that failed may have left it under its first name.
			if link, err = netlink.LinkByName(ports.Interface(port)); err != nil {
				return nil //nolint:nilerr // taken back before: deletions may come twice
			}
		}
		if err := netlink.LinkSetDown(link); err != nil {
			return fmt.Errorf("standinport: set %s down: %w", name, err)
		}
		if err := netlink.LinkSetName(link, ports.Interface(port)); err != nil {
			return fmt.Errorf("standinport: name it %s again: %w", ports.Interface(port), err)
		}
		if err := netlink.LinkSetNsFd(link, int(node.Fd())); err != nil {
			return fmt.Errorf("standinport: move %s back to the node: %w", ports.Interface(port), err)
		}
		return nil
	})
}

func check(args *skel.CmdArgs) error {
	if _, _, err := parse(args.StdinData); err != nil {
		return err
	}
	pod, err := ns.GetNS(args.Netns)
	if err != nil {
		return fmt.Errorf("standinport: open the pod's network namespace: %w", err)
	}
	defer pod.Close()
	return pod.Do(func(ns.NetNS) error {
		if _, err := netlink.LinkByName(args.IfName); err != nil {
			return fmt.Errorf("standinport: the pod has no %s: %w", args.IfName, err)
		}
		return nil
	})
}
