package vlan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/names"
)

// The configurations of a switch board, by the names of the scripts that set up the first three chassis.
const (
	// InitONS keeps the management VLAN apart: the ports of BMCs carry its tag besides untagged frames, and the management host is in it.
	InitONS = "initONS"
	// NoVLAN merges the management VLAN into the native one. It includes InitONS, except for that VLAN.
	NoVLAN = "noVLAN"
	// LAN40G has each QSFP port be one of 40 Gbit/s, and LAN10G four of 10 Gbit/s.
	LAN40G = "lan40G"
	LAN10G = "lan10G"
)

// Configs are all of them.
var Configs = []string{InitONS, NoVLAN, LAN40G, LAN10G}

// ManagementPort is the port of a switch board to which the machine is connected that speaks with the BMCs.
const ManagementPort = "management"

// lanes of a QSFP port in mode 4x10G.
const lanes = 4

// Port is a port of a switch board.
type Port struct {
	Name string
	// Untagged is the VLAN of frames without a tag.
	Untagged int
	// Tagged are VLANs whose frames have a tag.
	Tagged []int
	// Gigabits a second; 0: as it is.
	Gigabits int
}

// Config is the configuration of a switch board: of these ports, and of no others.
type Config struct {
	Name  string
	Ports []Port
	// Absent are ports that must not be there: those of the other mode of a QSFP port.
	Absent []string
}

// Render gives a configuration of a chassis' switch boards. Separate is the VLAN that the BMCs were in at first.
func Render(chassis *v1alpha1.Chassis, uplinks int, name string, separate int) (*Config, error) {
	config := &Config{Name: name}
	switch name {
	case InitONS, NoVLAN:
		if separate < 2 || separate > 4094 {
			return nil, fmt.Errorf("VLAN %d cannot be kept apart from the native one: name one from 2 to 4094, such as 4092", separate)
		}
		config.addVLANs(chassis, uplinks, name == NoVLAN, separate)
	case LAN40G, LAN10G:
		for qsfp := 1; qsfp <= uplinks; qsfp++ {
			config.addMode(qsfp, name == LAN40G)
		}
	default:
		return nil, fmt.Errorf("%q is no configuration of a switch board: write one of %s", name, strings.Join(Configs, ", "))
	}
	return config, nil
}

// addVLANs puts each port into its VLANs.
func (c *Config) addVLANs(chassis *v1alpha1.Chassis, uplinks int, isMerged bool, separate int) {
	var tagged []int
	management := Native
	if !isMerged {
		tagged, management = []int{separate}, separate
	}
	for _, place := range names.Places(chassis) {
		c.Ports = append(c.Ports, Port{Name: names.MMC(place.Name), Untagged: Native, Tagged: tagged})
		for _, network := range chassis.Spec.Networks {
			c.Ports = append(c.Ports, Port{Name: names.Port(place.Name, network.Suffix), Untagged: Native})
		}
	}
	for qsfp := 1; qsfp <= uplinks; qsfp++ {
		for _, port := range portsOf(qsfp, modeOf(chassis, qsfp)) {
			c.Ports = append(c.Ports, Port{Name: port, Untagged: Native, Tagged: tagged})
		}
	}
	c.Ports = append(c.Ports, Port{Name: ManagementPort, Untagged: management})
}

func (c *Config) addMode(qsfp int, is40G bool) {
	mode, other, gigabits := v1alpha1.Uplink4x10G, v1alpha1.Uplink1x40G, 10
	if is40G {
		mode, other, gigabits = other, mode, 40
	}
	for _, port := range portsOf(qsfp, mode) {
		c.Ports = append(c.Ports, Port{Name: port, Untagged: Native, Gigabits: gigabits})
	}
	c.Absent = append(c.Absent, portsOf(qsfp, other)...)
}

// modeOf is what the Chassis says about a QSFP port; four ports of 10 Gbit/s is what a switch board comes with.
func modeOf(chassis *v1alpha1.Chassis, qsfp int) v1alpha1.UplinkMode {
	if chain := chassis.Spec.Chain; chain != nil {
		for _, uplink := range chain.Uplinks {
			if int(uplink.QSFP) == qsfp && uplink.Mode != "" {
				return uplink.Mode
			}
		}
	}
	return v1alpha1.Uplink4x10G
}

func portsOf(qsfp int, mode v1alpha1.UplinkMode) []string {
	port := "qsfp" + strconv.Itoa(qsfp)
	if mode == v1alpha1.Uplink1x40G {
		return []string{port}
	}
	var all []string
	for lane := 1; lane <= lanes; lane++ {
		all = append(all, port+"-"+strconv.Itoa(lane))
	}
	return all
}

// Text is the configuration for somebody who types it into the console of a switch board: one line a port.
func (c *Config) Text() string {
	text := &strings.Builder{}
	fmt.Fprintf(text, "# %s: for each switch board of the chassis, on its serial console, in the words of its own manual\n", c.Name)
	for _, port := range c.Ports {
		fmt.Fprintf(text, "%-16s untagged %d", port.Name, port.Untagged)
		if len(port.Tagged) > 0 {
			fmt.Fprintf(text, ", tagged %s", joined(port.Tagged))
		}
		if port.Gigabits > 0 {
			fmt.Fprintf(text, ", %d Gbit/s", port.Gigabits)
		}
		text.WriteString("\n")
	}
	for _, port := range c.Absent {
		fmt.Fprintf(text, "%-16s absent\n", port)
	}
	return text.String()
}

// OpenVSwitch are the arguments of one call of ovs-vsctl that has a bridge of Open vSwitch configured in the same way, in one transaction.
// The bridge stands for a switch board. Ports that exist says are not there are left out.
func (c *Config) OpenVSwitch(bridge string, exist func(port string) bool) []string {
	var arguments []string
	for _, port := range c.Absent {
		arguments = append(arguments, "--", "--if-exists", "del-port", bridge, port)
	}
	for _, port := range c.Ports {
		if !exist(port.Name) {
			continue
		}
		arguments = append(arguments, "--", "--may-exist", "add-port", bridge, port.Name, "--", "set", "port", port.Name)
		if len(port.Tagged) == 0 {
			arguments = append(arguments, "vlan_mode=access", "tag="+strconv.Itoa(port.Untagged), "trunks=[]")
			continue
		}
		all := append([]int{port.Untagged}, port.Tagged...)
		slices.Sort(all)
		arguments = append(arguments, "vlan_mode=native-untagged", "tag="+strconv.Itoa(port.Untagged), "trunks=["+joined(all)+"]")
	}
	return arguments
}

func joined(numbers []int) string {
	texts := make([]string, len(numbers))
	for i, number := range numbers {
		texts[i] = strconv.Itoa(number)
	}
	return strings.Join(texts, ",")
}
