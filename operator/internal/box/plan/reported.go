package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"rcbox.dev/rcbox/operator/internal/blade/hardware"
)

// Found is what the system of a blade reports that it has found. It is as true as that blade's system: only conditions depend on it, and
// whether that blade is isolated.
type Found struct {
	// Unusable is why the report cannot be read; empty if it can.
	Unusable string
	// Boot is the start of the system that has reported.
	Boot   string
	Serial string
	CPU    hardware.Processor
	Ports  []hardware.Port
	Disks  []hardware.Disk
	// BackupBytes is the size of the partition for backups; 0: there is none.
	BackupBytes int64
	// Measured is how fast the blade was when its system has started; nil: that was not measured.
	Measured *hardware.Measured
}

// FoundIn reads a node's report, and keeps what is compared.
func FoundIn(annotation string) *Found {
	inventory, err := hardware.Parse(annotation)
	if err != nil {
		return &Found{Unusable: fmt.Sprintf("annotation %s: %v", hardware.Annotation, err)}
	}
	found := &Found{
		Boot: inventory.Boot, Serial: inventory.Serial, CPU: inventory.CPU, Ports: inventory.Ports, Disks: inventory.Disks,
		Measured: inventory.Measured,
	}
	if inventory.Backups != nil {
		found.BackupBytes = inventory.Backups.Bytes
	}
	return found
}

// indexFound enters what all blades of the cluster have found.
func (p *planning) indexFound() {
	p.found = hardware.Index{}
	for i := range p.Nodes {
		if found := p.Nodes[i].Found; found != nil {
			p.found.Add(p.Nodes[i].Name, found.Ports)
		}
	}
}

// asReported compares what the blade's system has found with what its BMC reports; false if there is no report.
func (m *machine) asReported() (v verdict, isThere bool) {
	if m.node == nil || m.node.Found == nil {
		return verdict{}, false
	}
	found, recorded := m.node.Found, m.recordedPorts()
	if found.Unusable != "" {
		return no("NotUsable", found.Unusable), true
	}
	if doubled := m.found.Doubled(m.node.Name, found.Ports, recorded); len(doubled) > 0 {
		return no("MACInTwoBlades", strings.Join(doubled, "; ")), true
	}
	inventory := hardware.Inventory{Serial: found.Serial, Ports: found.Ports}
	if differs := inventory.Differences(m.next.Hardware.Serial, recorded); len(differs) > 0 {
		return no("Differs", strings.Join(differs, "; ")), true
	}
	return yes("AsTheBMC", "the blade's system has found what its BMC reports"), true
}

// recordedPorts are those of which the BMC reports the MAC address.
func (m *machine) recordedPorts() (ports []hardware.RecordedPort) {
	names := map[int]string{}
	for _, port := range m.layout.Ports {
		names[int(port.NIC)] = port.Name
	}
	for _, nic := range slices.Sorted(maps.Keys(m.Identity.MACs)) {
		name := names[nic]
		if name == "" {
			name = fmt.Sprintf("NIC %d", nic)
		}
		ports = append(ports, hardware.RecordedPort{Name: name, MAC: m.Identity.MACs[nic]})
	}
	return ports
}
