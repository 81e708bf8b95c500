package network

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// Annotations of pods that Multus reads and writes.
const (
	// AnnotationNetworks asks for attachments.
	AnnotationNetworks = "k8s.v1.cni.cncf.io/networks"
	// AnnotationStatus says what was attached.
	AnnotationStatus = "k8s.v1.cni.cncf.io/network-status"
)

// Interface is the name of a port's interface in the pod; there is one by that name only where the kernel drives the port.
func Interface(port int) string { return fmt.Sprintf("net%d", port+1) }

// selection is an element of AnnotationNetworks.
type selection struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Interface string   `json:"interface"`
	MAC       string   `json:"mac,omitempty"`
	IPs       []string `json:"ips"`
}

// Attachment says where a port is to be attached.
type Attachment struct {
	// Definition by name or namespace/name.
	Definition string
	// Bits of the network's prefix.
	Bits int
	// Profile of the port.
	Profile v1alpha1.NetworkProfile
}

// Bits of a network's prefix; 24 of one that cannot be read.
func Bits(cidr string) int {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return 24
	}
	return prefix.Bits()
}

// Attachments of a Store's ports.
func Attachments(spec *v1alpha1.StoreSpec) []Attachment {
	if !spec.HasPorts() {
		return nil
	}
	var list []Attachment
	for i := range spec.Network.Attachments {
		attachment := &spec.Network.Attachments[i]
		list = append(list, Attachment{
			Definition: attachment.NetworkAttachmentDefinition, Bits: Bits(attachment.Addresses.CIDR), Profile: spec.Network.Profile,
		})
	}
	return list
}

// Qualified is a definition's name with its namespace.
func Qualified(definition, namespace string) string {
	if strings.Contains(definition, "/") {
		return definition
	}
	return namespace + "/" + definition
}

// Request is the text of AnnotationNetworks for a pod.
func Request(namespace string, attachments []Attachment, addresses []netip.Addr) (string, error) {
	var list []selection
	for port, attachment := range attachments {
		if port == len(addresses) {
			break
		}
		in, name, _ := strings.Cut(Qualified(attachment.Definition, namespace), "/")
		list = append(list, selection{
			Name: name, Namespace: in, Interface: Interface(port), MAC: MACOf(attachment.Profile, addresses[port]),
			IPs: []string{netip.PrefixFrom(addresses[port], attachment.Bits).String()},
		})
	}
	text, err := json.Marshal(list)
	if err != nil {
		return "", fmt.Errorf("encode the networks of a pod: %w", err)
	}
	return string(text), nil
}

// Attached is what Multus says of one attachment.
type Attached struct {
	// Definition as namespace/name.
	Definition string
	Interface  string
	MAC        string
	IPs        []netip.Addr
	PCI        string
}

// status is an element of AnnotationStatus.
type status struct {
	Name       string   `json:"name"`
	Interface  string   `json:"interface"`
	IPs        []string `json:"ips"`
	MAC        string   `json:"mac"`
	Default    bool     `json:"default"`
	DeviceInfo struct {
		PCI struct {
			Address string `json:"pci-address"` //nolint:tagliatelle // the specification's
		} `json:"pci"`
	} `json:"device-info"` //nolint:tagliatelle // the specification's
}

// ParseStatus reads AnnotationStatus: all attachments but the pod network. False if there is none, or it is not to be read.
func ParseStatus(text string) ([]Attached, bool) {
	if text == "" {
		return nil, false
	}
	var entries []status
	if json.Unmarshal([]byte(text), &entries) != nil {
		return nil, false
	}
	var list []Attached
	for _, entry := range entries {
		if entry.Default {
			continue
		}
		attached := Attached{
			Definition: entry.Name, Interface: entry.Interface, MAC: strings.ToLower(entry.MAC), PCI: entry.DeviceInfo.PCI.Address,
		}
		for _, written := range entry.IPs {
			bare, _, _ := strings.Cut(written, "/")
			if ip, err := netip.ParseAddr(bare); err == nil {
				attached.IPs = append(attached.IPs, ip)
			}
		}
		list = append(list, attached)
	}
	return list, true
}

// Asked is what a pod asked for as one of its ports.
type Asked struct {
	// Definition as namespace/name.
	Definition string
	IP         netip.Addr
	// MAC is empty where any is right.
	MAC string
}

// Differs says how the attachment of a port differs from the one that was asked for; empty if it does not. Fields that Multus leaves out
// count as right: a port that the kernel does not drive need not have an address for the kernel.
func Differs(attached []Attached, port int, asked Asked) string {
	for _, have := range attached {
		if have.Interface != Interface(port) {
			continue
		}
		switch {
		case have.Definition != asked.Definition:
			return fmt.Sprintf("%s is attached by %s, not by %s", have.Interface, have.Definition, asked.Definition)
		case have.MAC != "" && asked.MAC != "" && have.MAC != asked.MAC:
			return fmt.Sprintf("%s has the hardware address %s, not %s: does %s have the capability mac?",
				have.Interface, have.MAC, asked.MAC, asked.Definition)
		case len(have.IPs) > 0 && have.IPs[0] != asked.IP:
			return fmt.Sprintf("%s has the address %s, not %s: %s must have the capability ips and the IPAM plugin static",
				have.Interface, have.IPs[0], asked.IP, asked.Definition)
		default:
			return ""
		}
	}
	return Interface(port) + " is not in the pod's network-status, which Multus has written"
}
