// Package boxhost says what the hosts of a box serve (Desired), and renders it as the configuration of the programs that do so: dnsmasq,
// nftables, nfs-ganesha, sshd, and scripts for iPXE. It is pure: it reads no file, runs no program and asks nobody. The box
// controller writes Desired into a ConfigMap; the supervisor on a box host (package supervisor) reads and renders it.
package boxhost

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

const (
	// ConfigMap is the name of the ConfigMap that has Desired, in the namespace of the box controller.
	ConfigMap = "rcbox-boxhost"
	// Key is its key.
	Key = "desired.json"

	// StatusConfigMap is the name of the ConfigMap in which box hosts report: each has a key of its own, the name of its node.
	StatusConfigMap = "rcbox-boxhost-status"

	// Version of the format. A box host refuses others, and keeps what it has.
	Version = 1

	// MaxBytes bounds Desired as JSON: a ConfigMap has at most 1 MiB.
	MaxBytes = 1<<20 - 1<<14
)

// Boot is what a server gets that asks the network for something to boot.
type Boot string

const (
	// BootDisk has it boot from its own disk.
	BootDisk Boot = "Disk"
	// BootNetwork gives it the boot image, which installs itself.
	BootNetwork Boot = "Network"
)

// Desired is everything that the hosts of a box serve. All of them get the same; each serves the network that its own address is in.
type Desired struct {
	// Version is the version of this format.
	Version int `json:"version"`
	Settings
	// Networks are those of servers' ports that have addresses.
	Networks []Network `json:"networks"`
	// Servers, ordered by name.
	Servers []Server `json:"servers"`
	// Controllers are BMCs, chassis managers and controllers of switch boards: known to DNS, and out of every server's reach.
	Controllers []Name `json:"controllers"`
}

// Settings are the part of Desired that somebody has written (values box.host.* of the chart); the rest follows from Chassis and Servers.
type Settings struct {
	// Domain follows each name: atom001.box.rcbox.
	Domain string `json:"domain"`
	// Hosts are the box hosts themselves.
	Hosts []Host `json:"hosts"`
	// Management are networks that no server may reach through a box host, besides the addresses of Controllers.
	Management []netip.Prefix `json:"management,omitempty"`
	// ForwardTo are networks that servers may reach through a box host; without any, a box host forwards nothing of theirs.
	ForwardTo []netip.Prefix `json:"forwardTo,omitempty"`
	// OpenTCP and OpenUDP are further ports of a box host that servers may reach, such as that of a Kubernetes API server.
	OpenTCP []uint16 `json:"tcpPorts,omitempty"`
	OpenUDP []uint16 `json:"udpPorts,omitempty"`
	// Router is the default router that servers are given; not valid: none.
	Router netip.Addr `json:"router,omitzero"`
	// Resolvers are asked for names outside of Domain; without any, such names do not exist.
	Resolvers []netip.Addr `json:"resolvers,omitempty"`
	// BootArguments are added to the command line of the boot image's kernel.
	BootArguments []string `json:"bootArguments,omitempty"`
	// Exports are served by NFSv4; without any, there is no NFS server.
	Exports []Export `json:"exports,omitempty"`
	// AuthorizedKeys may log in by SSH, in the form of a line of authorized_keys without options; without any, there is no SSH server.
	AuthorizedKeys []string `json:"authorizedKeys,omitempty"`
	// NIS is served if it is there.
	NIS *NIS `json:"nis,omitempty"`
}

// Host is a box host.
type Host struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	Role    Role       `json:"role,omitempty"`
}

// Role is what a box host is for.
type Role string

// RoleMaintenance is a host that people log in to: from there, names are known and BMCs are reached. Servers are given nothing by it. The
// zero value is a host that serves them.
const RoleMaintenance Role = "Maintenance"

// roleOf is that of the host with an address.
func (s *Settings) roleOf(address netip.Addr) Role {
	for _, host := range s.Hosts {
		if host.Address == address {
			return host.Role
		}
	}
	return ""
}

// Network is a network of servers' ports.
type Network struct {
	CIDR netip.Prefix `json:"cidr"`
}

// Server is a server by its slot.
type Server struct {
	// Name is that of the server, such as atom001.
	Name    string `json:"name"`
	Chassis string `json:"chassis"`
	Slot    int32  `json:"slot"`
	// UUID is the system UUID that its BMC reports, in lower case; empty where it is not known.
	UUID string `json:"uuid,omitempty"`
	Boot Boot   `json:"boot"`
	// Wipe: the boot image gives up everything that is on the server's disk.
	Wipe bool `json:"wipe,omitempty"`
	// Ports are its NICs, ordered by NIC.
	Ports []Port `json:"ports"`
}

// Port is a NIC of a server.
type Port struct {
	NIC int32 `json:"nic"`
	// Suffix follows the server's name in that of the port: atom001a.
	Suffix string `json:"suffix,omitempty"`
	// MAC in the form 52:54:00:03:00:01; empty where it is not known: DHCP then does not know the port.
	MAC string `json:"mac,omitempty"`
	// Address is not valid for a port that has none.
	Address netip.Addr `json:"address,omitzero"`
}

// Name is a name with its address.
type Name struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
}

// Export is a folder that is served by NFSv4.
type Export struct {
	// Name is what it is mounted by, such as /home.
	Name string `json:"name"`
	// ReadOnly: clients may only read.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// Decode reads Desired, and refuses what is not valid or unknown to this version.
func Decode(data []byte) (*Desired, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("key %s has %d bytes, and at most %d are read: serve fewer servers", Key, len(data), MaxBytes)
	}
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, fmt.Errorf("key %s cannot be read: %w", Key, err)
	}
	if version.Version != Version {
		return nil, fmt.Errorf("key %s has format %d, and this program knows format %d: run box hosts and box controller of one release",
			Key, version.Version, Version)
	}
	desired := &Desired{}
	if err := strictly(data, desired); err != nil {
		return nil, fmt.Errorf("key %s cannot be read: %w", Key, err)
	}
	if err := desired.Validate(); err != nil {
		return nil, err
	}
	return desired, nil
}

// DecodeSettings reads Settings, and refuses what is not valid or unknown.
func DecodeSettings(data []byte) (*Settings, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("the settings have %d bytes, and at most %d are read", len(data), MaxBytes)
	}
	settings := &Settings{}
	if err := strictly(data, settings); err != nil {
		return nil, fmt.Errorf("the settings cannot be read: %w", err)
	}
	if err := (&Desired{Version: Version, Settings: *settings}).Validate(); err != nil {
		return nil, err
	}
	return settings, nil
}

func strictly(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err //nolint:wrapcheck // by both callers
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	return nil
}

// Encode writes Desired, which must be valid.
func (d *Desired) Encode() ([]byte, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("write what box hosts serve: %w", err)
	}
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("what box hosts serve takes %d bytes, and a ConfigMap has room for %d: serve fewer servers",
			len(data), MaxBytes)
	}
	return data, nil
}

// MACs are those of all servers.
func (d *Desired) MACs() map[string]bool {
	macs := map[string]bool{}
	for i := range d.Servers {
		for _, port := range d.Servers[i].Ports {
			if port.MAC != "" {
				macs[port.MAC] = true
			}
		}
	}
	return macs
}
