// Command standinsriov stands in for the SR-IOV CNI, as the CNI plugin "sriov": it gives a pod a virtual function that is on vfio-pci. The
// function stays where it is, for its process has it through vfio; what is set is what its port lets through: the hardware address that is
// asked for, spoofchk and trust. It reads the part of the SR-IOV CNI's configuration that config/network has, and answers as that does:
// with the hardware address, and the addresses of the IPAM plugin.
//
// The SR-IOV CNI itself: of its versions, the Go modules have 2.1.0 and older ones, which set no hardware address.
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
	"github.com/vishvananda/netlink"

	"rcbox.dev/rcbox/images/network/vf"
)

// config is the plugin's part of a NetworkAttachmentDefinition, with what Multus adds: the device, and what the pod asks for.
type config struct {
	types.NetConf
	DeviceID      string `json:"deviceID"`
	SpoofCheck    string `json:"spoofchk"`
	Trust         string `json:"trust"`
	RuntimeConfig struct {
		MAC string `json:"mac"`
	} `json:"runtimeConfig"`
}

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: remove, Check: check}, version.All,
		"standinsriov: sets what the port of a virtual function lets through")
}

func parse(stdin []byte) (*config, error) {
	c := &config{}
	if err := json.Unmarshal(stdin, c); err != nil {
		return nil, fmt.Errorf("standinsriov: the configuration is not to be read: %w", err)
	}
	if c.DeviceID == "" {
		return nil, errors.New("standinsriov: Multus has named no device: has the definition the annotation k8s.v1.cni.cncf.io/resourceName?")
	}
	return c, nil
}

func add(args *skel.CmdArgs) (err error) {
	c, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(c.RuntimeConfig.MAC)
	if err != nil {
		return fmt.Errorf("standinsriov: the pod asks for the hardware address %q: %w", c.RuntimeConfig.MAC, err)
	}
	if err := set(c, mac); err != nil {
		return err
	}
	result := &current.Result{CNIVersion: current.ImplementedSpecVersion}
	if c.IPAM.Type != "" {
		if result, err = addressesOf(c, args.StdinData); err != nil {
			return err
		}
	}
	result.Interfaces = []*current.Interface{{Name: args.IfName, Mac: mac.String(), Sandbox: args.Netns, PciID: c.DeviceID}}
	for _, address := range result.IPs {
		address.Interface = current.Int(0)
	}
	return types.PrintResult(result, c.CNIVersion)
}

// set tells the port of the function what to let through.
func set(c *config, mac net.HardwareAddr) error {
	function, err := vf.Find(vf.Devices, c.DeviceID)
	if err != nil {
		return fmt.Errorf("standinsriov: %w", err)
	}
	if function.Driver != vf.UserDriver {
		return fmt.Errorf("standinsriov: %s is on driver %q; this stand-in knows %s only", c.DeviceID, function.Driver, vf.UserDriver)
	}
	port, err := netlink.LinkByName(function.Port)
	if err != nil {
		return fmt.Errorf("standinsriov: find %s, the port of %s: %w", function.Port, c.DeviceID, err)
	}
	if err := netlink.LinkSetVfHardwareAddr(port, function.Number, mac); err != nil {
		return fmt.Errorf("standinsriov: give function %d of %s the hardware address %s: %w", function.Number, function.Port, mac, err)
	}
	for _, setting := range []struct {
		name, value string
		set         func(netlink.Link, int, bool) error
	}{
		{"spoofchk", c.SpoofCheck, netlink.LinkSetVfSpoofchk},
		{"trust", c.Trust, netlink.LinkSetVfTrust},
	} {
		switch setting.value {
		case "":
		case "on", "off":
			if err := setting.set(port, function.Number, setting.value == "on"); err != nil {
				return fmt.Errorf("standinsriov: set %s %s of function %d of %s: %w", setting.name, setting.value, function.Number, function.Port, err)
			}
		default:
			return fmt.Errorf("standinsriov: %s is %q; it must be on or off", setting.name, setting.value)
		}
	}
	return nil
}

func addressesOf(c *config, stdin []byte) (*current.Result, error) {
	answer, err := ipam.ExecAdd(c.IPAM.Type, stdin)
	if err != nil {
		return nil, fmt.Errorf("standinsriov: ask %s for addresses: %w", c.IPAM.Type, err)
	}
	result, err := current.NewResultFromResult(answer)
	if err != nil {
		return nil, fmt.Errorf("standinsriov: read the answer of %s: %w", c.IPAM.Type, err)
	}
	return result, nil
}

// remove takes the hardware address away again: the same pod's successor may ask for it on another function, and a port that has it
// twice delivers to either.
func remove(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	if c.IPAM.Type != "" {
		if err := ipam.ExecDel(c.IPAM.Type, args.StdinData); err != nil {
			return fmt.Errorf("standinsriov: give addresses back to %s: %w", c.IPAM.Type, err)
		}
	}
	function, err := vf.Find(vf.Devices, c.DeviceID)
	if err != nil {
		return nil //nolint:nilerr // the functions of this node were made anew, and have no addresses
	}
	port, err := netlink.LinkByName(function.Port)
	if err != nil {
		return fmt.Errorf("standinsriov: find %s, the port of %s: %w", function.Port, c.DeviceID, err)
	}
	return takeBack(port, function, c.RuntimeConfig.MAC)
}

// takeBack is for a function that still has the address: a deletion may come twice, and the second time somebody else has it.
func takeBack(port netlink.Link, function vf.Function, mac string) error {
	for _, known := range port.Attrs().Vfs {
		if known.ID != function.Number || known.Mac.String() != mac {
			continue
		}
		if err := netlink.LinkSetVfHardwareAddr(port, function.Number, make(net.HardwareAddr, 6)); err != nil {
			return fmt.Errorf("standinsriov: take the hardware address of function %d of %s: %w", function.Number, function.Port, err)
		}
	}
	return nil
}

func check(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	if _, err := vf.Find(vf.Devices, c.DeviceID); err != nil {
		return fmt.Errorf("standinsriov: %w", err)
	}
	return nil
}
