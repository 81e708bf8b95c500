package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"rcbox.dev/rcbox/operator/internal/blade"
)

// Found is what the system of a blade reports that it has found. It is as true as that blade's system, and decides about no other blade.
type Found struct {
	// Unusable is why the report cannot be read; empty if it can.
	Unusable string
	// Inventory has the serial number and the ports; the rest is left out.
	Inventory blade.Inventory
}

// FoundIn reads a node's report, and keeps what is compared.
func FoundIn(annotation string) *Found {
	inventory, err := blade.ParseInventory(annotation)
	if err != nil {
		return &Found{Unusable: fmt.Sprintf("annotation %s: %v", blade.AnnotationInventory, err)}
	}
	return &Found{Inventory: blade.Inventory{Serial: inventory.Serial, Ports: inventory.Ports}}
}

// asReported compares what the blade's system has found with what its BMC reports; there is nothing to say without both.
func (m *machine) asReported() (v verdict, isThere bool) {
	if m.node == nil || m.node.Found == nil || m.Identity == nil {
		return verdict{}, false
	}
	found := m.node.Found
	if found.Unusable != "" {
		return no("NotUsable", found.Unusable), true
	}
	if of, mac := m.foundTwin(); of != "" {
		return no("MACInTwoBlades", fmt.Sprintf("the systems of %s and %s have both found a port with the MAC address %s",
			m.name(), of, mac)), true
	}
	if differs := found.Inventory.Differences(m.next.Hardware.Serial, m.recordedPorts()); len(differs) > 0 {
		return no("Differs", strings.Join(differs, "; ")), true
	}
	return yes("AsTheBMC", "the blade's system has found what its BMC reports"), true
}

// recordedPorts are those of which the BMC reports the MAC address.
func (m *machine) recordedPorts() (ports []blade.RecordedPort) {
	names := map[int]string{}
	for _, port := range m.layout.Ports {
		names[int(port.NIC)] = port.Name
	}
	for _, nic := range slices.Sorted(maps.Keys(m.Identity.MACs)) {
		name := names[nic]
		if name == "" {
			name = fmt.Sprintf("NIC %d", nic)
		}
		ports = append(ports, blade.RecordedPort{Name: name, MAC: m.Identity.MACs[nic]})
	}
	return ports
}

// foundTwin is another server whose system has found a port with one of this one's MAC addresses.
func (m *machine) foundTwin() (server, mac string) {
	for _, port := range m.node.Found.Inventory.Ports {
		for _, other := range m.machines {
			if other != m && port.MAC != "" && other.node != nil && other.node != m.node && other.node.hasFound(port.MAC) {
				return other.name(), port.MAC
			}
		}
	}
	return "", ""
}

func (n *Node) hasFound(mac string) bool {
	if n.Found == nil {
		return false
	}
	for _, port := range n.Found.Inventory.Ports {
		if strings.EqualFold(port.MAC, mac) {
			return true
		}
	}
	return false
}
