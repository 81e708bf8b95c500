package blade

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Settings of the machine that a store runs on, as the seeds have them: queues and interrupts of Intel's igb, huge pages, and devices that
// programs drive by themselves (vfio).
type Settings struct {
	// Queues of each port of igb (its RSS).
	Queues int `json:"queues"`
	// HugePagesPercent of the memory is set aside as pages of 2 MiB.
	HugePagesPercent int `json:"hugePagesPercent"`
	// VFIO are PCI ids, such as 8086:1520, that vfio-pci takes when it is loaded.
	VFIO []string `json:"vfio,omitempty"`
	// VirtualFunctions of ports that have some (SR-IOV).
	VirtualFunctions []VirtualFunctions `json:"virtualFunctions,omitempty"`
}

// DefaultSettings are those of the seeds: `RSS=8 InterruptThrottleRate=1`.
func DefaultSettings() Settings { return Settings{Queues: 8, HugePagesPercent: 10} }

// File is a file that a blade is to have.
type File struct {
	Path    string
	Mode    uint32
	Content string
}

// Modes of files.
const (
	readable = 0o644
	secret   = 0o600
)

var (
	pciID      = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{4}$`)
	driverForm = regexp.MustCompile(`^[a-z0-9][-_a-z0-9]{0,31}$`)
	portForm   = regexp.MustCompile(`^[a-z0-9][-_.a-z0-9]{0,14}$`)
)

// Validate says which setting is out of bounds.
func (s Settings) Validate() error {
	const mostQueues, mostPercent = 64, 90
	if s.Queues < 1 || s.Queues > mostQueues {
		return fmt.Errorf("queues is %d, not 1 to %d", s.Queues, mostQueues)
	}
	if s.HugePagesPercent < 0 || s.HugePagesPercent > mostPercent {
		return fmt.Errorf("hugePagesPercent is %d, not 0 to %d", s.HugePagesPercent, mostPercent)
	}
	for _, id := range s.VFIO {
		if !pciID.MatchString(id) {
			return fmt.Errorf("vfio has %q, which is no PCI id such as 8086:1520", id)
		}
	}
	for i, of := range s.VirtualFunctions {
		if !driverForm.MatchString(of.Driver) {
			return fmt.Errorf("virtualFunctions[%d].driver is %q, which is no name of a driver such as igb", i, of.Driver)
		}
		if of.Port != "" && !portForm.MatchString(of.Port) {
			return fmt.Errorf("virtualFunctions[%d].port is %q, which is no name of a port such as eth1", i, of.Port)
		}
		if of.Count < 1 || of.Count > mostVFs {
			return fmt.Errorf("virtualFunctions[%d].count is %d, not 1 to %d", i, of.Count, mostVFs)
		}
	}
	return nil
}

// ParseSettings reads settings; what they leave out is as in DefaultSettings.
func ParseSettings(text []byte) (Settings, error) {
	settings := DefaultSettings()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&settings); err != nil {
		return Settings{}, fmt.Errorf("read settings: %w", err)
	}
	return settings, settings.Validate()
}

// HugePages is how many pages of 2 MiB a machine of a memory gets.
func (s Settings) HugePages(memoryBytes int64) int64 {
	const percent, page = 100, 2 << 20
	return memoryBytes / percent * int64(s.HugePagesPercent) / page
}

// Files are what these settings are for modprobe, sysctl, and systemd. Without a memory, which is known on the machine only, huge pages are
// left out.
//
// The seeds' `RSS=8 InterruptThrottleRate=1` are parameters of Intel's own igb. Linux's igb has none of them. Files of links have
// systemd set the same by ethtool: 8 channels, and 1 us, by which igb means that it adapts the rate to the traffic.
func (s Settings) Files(memoryBytes int64) []File {
	files := []File{
		{"/etc/systemd/network/70-rcbox-igb.link", readable, fmt.Sprintf("[Match]\nDriver=igb\n\n[Link]\nNamePolicy=keep kernel\n"+
			"CombinedChannels=%d\nRxCoalesceSec=1us\n", s.Queues)},
		{"/etc/modules-load.d/rcbox.conf", readable, "overlay\nbr_netfilter\nvfio-pci\n"},
	}
	if len(s.VFIO) > 0 {
		files = append(files, File{"/etc/modprobe.d/rcbox.conf", readable, "options vfio-pci ids=" + strings.Join(s.VFIO, ",") +
			"\nsoftdep igb pre: vfio-pci\n"})
	}
	sysctl := "net.ipv4.ip_forward = 1\nnet.bridge.bridge-nf-call-iptables = 1\nvm.swappiness = 0\n" +
		"kernel.panic = 10\nkernel.panic_on_oops = 1\nvm.overcommit_memory = 1\n"
	if memoryBytes > 0 {
		sysctl += fmt.Sprintf("vm.nr_hugepages = %d\n", s.HugePages(memoryBytes))
	}
	return append(files, File{"/etc/sysctl.d/70-rcbox.conf", readable, sysctl})
}
