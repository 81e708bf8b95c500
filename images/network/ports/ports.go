// Package ports makes and names the stand-ins for NICs: veth pairs, of which one end goes to a pod and the other is plugged into a bridge of
// the node, as a NIC is into a switch. The bridges of all nodes are connected by VXLAN over the nodes' own network: nothing but the nodes needs to
// know of it, and a node that was restarted has it again as soon as it has its ports.
package ports

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

const (
	// Count of ports that a node has: few, so that it is easy to run out of them.
	Count = 4
	// Bridge that the ports of a node are plugged into.
	Bridge = "rcbridge"
	// Cable to the other nodes' bridges.
	Cable = "rccable"
	// MTU of ports: what a frame may be for VXLAN to get it into one packet of a usual network.
	MTU = 1450
	// vxlanID and vxlanPort of the cable; the port is the one that IANA has set apart.
	vxlanID   = 103
	vxlanPort = 4789

	devicePrefix    = "port"
	interfacePrefix = "rcport"
	peerPrefix      = "rcpeer"
)

// everybody is the group that frames go to while it is not known which node they are for.
var everybody = net.IPv4(239, 1, 0, vxlanID)

// Device is what the device plugin calls a port.
func Device(port int) string { return devicePrefix + strconv.Itoa(port) }

// Interface is the name of a port while no pod has it.
func Interface(port int) string { return interfacePrefix + strconv.Itoa(port) }

// Peer is the end that stays on the node. Setting it down is what pulling the cable is.
func Peer(port int) string { return peerPrefix + strconv.Itoa(port) }

// OfDevice is the port that the device plugin calls so.
func OfDevice(device string) (int, error) {
	number, isOurs := strings.CutPrefix(device, devicePrefix)
	port, err := strconv.Atoi(number)
	if !isOurs || err != nil || port < 0 || port >= Count {
		return 0, fmt.Errorf("%q is no port of this node; there are %s to %s", device, Device(0), Device(Count-1))
	}
	return port, nil
}

// Ensure makes the bridge, the cable over an interface of the node (empty: where its default route leads), and the ports, as far as they are not there.
// A port whose pod has ended with its network namespace is gone with it, both ends.
func Ensure(over string) error {
	bridge, err := ensureBridge()
	if err == nil {
		err = ensureCable(over, bridge)
	}
	if err != nil {
		return err
	}
	for port := range Count {
		if err := ensurePort(port, bridge); err != nil {
			return fmt.Errorf("port %d: %w", port, err)
		}
	}
	return nil
}

// HasLink says whether the end that stays on the node is there and up.
func HasLink(port int) bool {
	peer, err := netlink.LinkByName(Peer(port))
	return err == nil && peer.Attrs().Flags&net.FlagUp != 0
}

func ensureBridge() (netlink.Link, error) {
	bridge, err := find(Bridge)
	if err == nil && bridge == nil {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: Bridge, MTU: MTU}}); err != nil {
			return nil, fmt.Errorf("make bridge %s: %w", Bridge, err)
		}
		bridge, err = netlink.LinkByName(Bridge)
	}
	if err != nil {
		return nil, fmt.Errorf("find bridge %s: %w", Bridge, err)
	}
	return bridge, setUp(bridge)
}

func ensureCable(over string, bridge netlink.Link) error {
	cable, err := find(Cable)
	if err != nil || cable != nil {
		return err
	}
	under, err := interfaceOf(over)
	if err != nil {
		return err
	}
	err = netlink.LinkAdd(&netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: Cable, MTU: MTU}, VxlanId: vxlanID, Port: vxlanPort, Group: everybody, VtepDevIndex: under, Learning: true,
	})
	if err != nil {
		return fmt.Errorf("make the cable %s: %w", Cable, err)
	}
	if cable, err = netlink.LinkByName(Cable); err != nil {
		return fmt.Errorf("find %s: %w", Cable, err)
	}
	return plug(cable, bridge)
}

// interfaceOf is the index of an interface, or of the one that the default route leads to.
func interfaceOf(name string) (int, error) {
	if name != "" {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return 0, fmt.Errorf("the node has no interface %s to the other nodes: %w", name, err)
		}
		return link.Attrs().Index, nil
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return 0, fmt.Errorf("look for the default route: %w", err)
	}
	for _, route := range routes {
		if ones, _ := maskOf(route.Dst); ones == 0 {
			return route.LinkIndex, nil
		}
	}
	return 0, errors.New("the node has no default route, so it is not known which interface leads to the other nodes: see -over")
}

// maskOf is 0 for a default route, which has no destination, or one of no bits.
func maskOf(destination *net.IPNet) (ones, bits int) {
	if destination == nil {
		return 0, 0
	}
	return destination.Mask.Size()
}

func plug(link, bridge netlink.Link) error {
	if err := netlink.LinkSetMaster(link, bridge); err != nil {
		return fmt.Errorf("plug %s into %s: %w", link.Attrs().Name, Bridge, err)
	}
	return setUp(link)
}

func setUp(link netlink.Link) error {
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", link.Attrs().Name, err)
	}
	return nil
}

func ensurePort(port int, bridge netlink.Link) error {
	peer, err := find(Peer(port))
	if err != nil || peer != nil {
		return err
	}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: Interface(port), MTU: MTU}, PeerName: Peer(port), PeerMTU: MTU}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("make the pair %s and %s: %w", Interface(port), Peer(port), err)
	}
	if peer, err = netlink.LinkByName(Peer(port)); err != nil {
		return fmt.Errorf("find %s: %w", Peer(port), err)
	}
	return plug(peer, bridge)
}

// find is nil if there is no interface of that name.
func find(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if _, isMissing := errors.AsType[netlink.LinkNotFoundError](err); isMissing {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for interface %s: %w", name, err)
	}
	return link, nil
}
