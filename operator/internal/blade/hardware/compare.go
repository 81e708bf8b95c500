package hardware

import (
	"fmt"
	"slices"
	"strings"
)

// RecordedPort is a port as the BMC reports it.
type RecordedPort struct{ Name, MAC string }

// Differences compares the inventory with what the BMC of the blade reports: its serial number and its ports. A port that the BMC does not
// report is no difference, since BMCs know the ports of the board only.
func (i Inventory) Differences(serial string, ports []RecordedPort) []string {
	var all []string
	if serial != "" && i.Serial != "" && serial != i.Serial {
		all = append(all, fmt.Sprintf("the BMC reports the serial number %s, and the blade's firmware reports %s", serial, i.Serial))
	}
	if len(i.Ports) == 0 {
		return all
	}
	for _, port := range ports {
		hasMAC := func(found Port) bool { return strings.EqualFold(found.MAC, port.MAC) }
		if port.MAC != "" && !slices.ContainsFunc(i.Ports, hasMAC) {
			all = append(all, fmt.Sprintf("the BMC reports port %s with the MAC address %s, and the blade's system found no such port",
				port.Name, port.MAC))
		}
	}
	return all
}

// Index says which blades have found a port with a MAC address: the names of two of them at most, since one other is enough to be named.
type Index map[string][]string

// Add enters what a blade has found.
func (x Index) Add(name string, ports []Port) {
	for _, port := range ports {
		mac := strings.ToLower(port.MAC)
		if names := x[mac]; mac != "" && len(names) < 2 && !slices.Contains(names, name) {
			x[mac] = append(names, name)
		}
	}
}

// Doubled says which ports of a blade have MAC addresses that another blade has found, too. An address that the BMC reports for this blade
// is the blade's own: then that is said of the other one.
func (x Index) Doubled(name string, found []Port, recorded []RecordedPort) []string {
	own := make(map[string]bool, len(recorded))
	for _, port := range recorded {
		own[strings.ToLower(port.MAC)] = true
	}
	var all []string
	for _, port := range found {
		mac := strings.ToLower(port.MAC)
		at := slices.IndexFunc(x[mac], func(other string) bool { return other != name })
		if at >= 0 && !own[mac] {
			all = append(all, fmt.Sprintf("the MAC address %s of its port %s is one of %s, too", mac, port.Name, x[mac][at]))
		}
	}
	return all
}
