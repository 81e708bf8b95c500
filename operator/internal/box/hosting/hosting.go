// Package hosting makes what box hosts serve (boxhost.Desired) from settings, Chassis and Servers. It is pure, and it leaves out what
// contradicts something else, so that a mistake about one server costs no other one its address. It does not know how anything is served.
package hosting

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/names"
	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// maxNotes bounds how much of what was left out is named.
const maxNotes = 16

// maker collects what box hosts serve.
type maker struct {
	desired *boxhost.Desired
	notes   []string
	left    int
	// names and addresses are taken, by the servers or controllers named here.
	names     map[string]string
	addresses map[netip.Addr]string
	// macs has the servers that report a MAC: one that two report is served to neither.
	macs map[string][]string
}

// Desired makes what box hosts serve, and says what was left out, and why. A Chassis that is refused (condition Accepted) keeps the
// addresses that it had before, for somebody is about to correct it: its Servers that are still there are served, each with what it boots
// now. before is what was served last, or nil.
func Desired(settings *boxhost.Settings, chassis []v1alpha1.Chassis, servers []v1alpha1.Server, before *boxhost.Desired) (
	desired *boxhost.Desired, notes []string,
) {
	m := &maker{
		desired: &boxhost.Desired{
			Version: boxhost.Version, Settings: *settings,
			Networks: []boxhost.Network{}, Servers: []boxhost.Server{}, Controllers: []boxhost.Name{},
		},
		names: map[string]string{}, addresses: map[netip.Addr]string{}, macs: macsOf(servers),
	}
	for _, host := range settings.Hosts {
		m.names[host.Name], m.addresses[host.Address] = "a box host", "box host "+host.Name
	}
	sorted := slices.Clone(chassis)
	slices.SortFunc(sorted, func(a, b v1alpha1.Chassis) int { return strings.Compare(a.Name, b.Name) })
	var refused []string
	for i := range sorted {
		switch {
		case sorted[i].DeletionTimestamp != nil:
		case meta.IsStatusConditionFalse(sorted[i].Status.Conditions, v1alpha1.ConditionAccepted):
			refused = append(refused, sorted[i].Name)
		default:
			m.addChassis(&sorted[i], servers)
		}
	}
	if before != nil {
		m.keep(before, refused, servers)
	}
	slices.SortFunc(m.desired.Servers, func(a, b boxhost.Server) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(m.desired.Controllers, func(a, b boxhost.Name) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(m.desired.Networks, func(a, b boxhost.Network) int { return strings.Compare(a.CIDR.String(), b.CIDR.String()) })
	if m.left > 0 {
		m.notes = append(m.notes, fmt.Sprintf("and %d more", m.left))
	}
	return m.desired, m.notes
}

func macsOf(servers []v1alpha1.Server) map[string][]string {
	macs := map[string][]string{}
	for i := range servers {
		for _, port := range servers[i].Status.Ports {
			if port.MAC != "" {
				macs[port.MAC] = append(macs[port.MAC], servers[i].Name)
			}
		}
	}
	for _, all := range macs {
		slices.Sort(all)
	}
	return macs
}

func (m *maker) note(format string, arguments ...any) {
	if len(m.notes) == maxNotes {
		m.left++
		return
	}
	m.notes = append(m.notes, fmt.Sprintf(format, arguments...))
}

func (m *maker) addChassis(chassis *v1alpha1.Chassis, servers []v1alpha1.Server) {
	for i := range chassis.Spec.Networks {
		if of := &chassis.Spec.Networks[i]; of.Range != "" {
			if network, err := netip.ParsePrefix(of.CIDR); err == nil {
				m.addNetwork(boxhost.Network{CIDR: network.Masked()}, "Chassis "+chassis.Name)
			}
		}
	}
	for _, controller := range names.Controllers(chassis) {
		m.addController(boxhost.Name{Name: controller.Name, Address: controller.Address})
	}
	for i := range servers {
		if server := &servers[i]; metav1.IsControlledBy(server, chassis) && server.DeletionTimestamp == nil {
			m.addServer(m.serverOf(chassis, server))
			if address, err := netip.ParseAddr(server.Status.MMC.Address); err == nil {
				m.addController(boxhost.Name{Name: names.MMC(server.Name), Address: address.Unmap()})
			}
		}
	}
}

func (m *maker) addNetwork(network boxhost.Network, of string) {
	for _, other := range m.desired.Networks {
		if other.CIDR == network.CIDR {
			return
		}
		if other.CIDR.Overlaps(network.CIDR) {
			m.note("network %s of %s is left out: it overlaps with %s", network.CIDR, of, other.CIDR)
			return
		}
	}
	alone := boxhost.Desired{Networks: []boxhost.Network{network}}
	if why := m.whyInvalid(&alone); why != nil {
		m.note("network %s of %s is left out: %v", network.CIDR, of, why)
		return
	}
	m.desired.Networks = append(m.desired.Networks, network)
}

// whyInvalid says what is wrong with something by itself.
func (m *maker) whyInvalid(alone *boxhost.Desired) error {
	alone.Version, alone.Domain = boxhost.Version, m.desired.Domain
	return alone.Validate()
}

// addController leaves out those with IPv6 addresses: no packet of a server with IPv6 passes a box host.
func (m *maker) addController(controller boxhost.Name) {
	if controller.Address.Is6() {
		return
	}
	if why := m.whyInvalid(&boxhost.Desired{Controllers: []boxhost.Name{controller}}); why != nil {
		m.note("controller %s is left out: %v", controller.Name, why)
		return
	}
	if other := m.addresses[controller.Address]; other != "" {
		m.note("controller %s is left out: its address %s is that of %s", controller.Name, controller.Address, other)
		return
	}
	if other := m.names[controller.Name]; other != "" {
		m.note("controller %s is left out: its name is that of %s", controller.Name, other)
		return
	}
	m.names[controller.Name], m.addresses[controller.Address] = "a controller", "controller "+controller.Name
	m.desired.Controllers = append(m.desired.Controllers, controller)
}

// serverOf is a Server as it is on record. What its BMC says wrongly is left out.
func (m *maker) serverOf(chassis *v1alpha1.Chassis, server *v1alpha1.Server) boxhost.Server {
	made := boxhost.Server{
		Name: server.Name, Chassis: chassis.Name, Slot: server.Status.Slot, UUID: strings.ToLower(server.Status.MMC.SystemGUID),
		Ports: []boxhost.Port{},
	}
	made.Boot, made.Wipe = bootOf(server)
	if made.UUID != "" && !boxhost.IsUUID(made.UUID) {
		m.note("the system GUID of %s is left out: %.40q is none", server.Name, made.UUID)
		made.UUID = ""
	}
	for _, port := range server.Status.Ports {
		next := boxhost.Port{NIC: port.NIC, Suffix: strings.TrimPrefix(port.Name, server.Name), MAC: port.MAC}
		if next.MAC != "" && !boxhost.IsMAC(next.MAC) {
			m.note("the MAC of port %s is left out: %.20q is none", port.Name, next.MAC)
			next.MAC = ""
		}
		if all := m.macs[next.MAC]; next.MAC != "" && len(all) > 1 {
			m.note("the MAC %s of port %s is left out: ports of %s have it",
				next.MAC, port.Name, strings.Join(slices.Compact(all), " and "))
			next.MAC = ""
		}
		if address, err := netip.ParseAddr(port.Address); err == nil {
			next.Address = address.Unmap()
		}
		made.Ports = append(made.Ports, next)
	}
	slices.SortFunc(made.Ports, func(a, b boxhost.Port) int { return int(a.NIC - b.NIC) })
	return made
}

func (m *maker) addServer(server boxhost.Server) {
	alone := boxhost.Desired{Networks: m.desired.Networks, Servers: []boxhost.Server{server}}
	if why := m.whyInvalid(&alone); why != nil {
		m.note("server %s is left out: %v", server.Name, why)
		return
	}
	for _, port := range server.Ports {
		name := names.Port(server.Name, port.Suffix)
		if other := m.names[name]; other != "" {
			m.note("server %s is left out: the name %s is that of %s", server.Name, name, other)
			return
		}
		if other := m.addresses[port.Address]; port.Address.IsValid() && other != "" {
			m.note("server %s is left out: the address %s is that of %s", server.Name, port.Address, other)
			return
		}
	}
	if other := m.names[server.Name]; other != "" {
		m.note("server %s is left out: its name is that of %s", server.Name, other)
		return
	}
	m.names[server.Name] = "a server"
	for _, port := range server.Ports {
		m.names[names.Port(server.Name, port.Suffix)] = "a port of " + server.Name
		if port.Address.IsValid() {
			m.addresses[port.Address] = "server " + server.Name
		}
	}
	m.desired.Servers = append(m.desired.Servers, server)
}

// keep adds what was served before of Chassis that are refused now. A Server that was deleted is not served any more.
func (m *maker) keep(before *boxhost.Desired, refused []string, servers []v1alpha1.Server) {
	there := map[string]*v1alpha1.Server{}
	for i := range servers {
		if servers[i].DeletionTimestamp == nil {
			there[servers[i].Name] = &servers[i]
		}
	}
	for i := range before.Servers {
		server := before.Servers[i]
		server.Ports = slices.Clone(server.Ports)
		object := there[server.Name]
		if object == nil || !slices.Contains(refused, server.Chassis) {
			continue
		}
		server.Boot, server.Wipe = bootOf(object)
		for at := range server.Ports {
			port := &server.Ports[at]
			for _, network := range before.Networks {
				if network.CIDR.Contains(port.Address) {
					m.addNetwork(network, "Chassis "+server.Chassis+", as before,")
				}
			}
			if len(m.macs[port.MAC]) > 1 {
				port.MAC = ""
			}
		}
		m.addServer(server)
	}
	// All of them: which Chassis a controller was of is not on record, and a firewall that covers too much harms nobody.
	if len(refused) > 0 {
		for _, controller := range before.Controllers {
			if m.names[controller.Name] == "" && m.addresses[controller.Address] == "" {
				m.addController(controller)
			}
		}
	}
}

// bootOf is what a server gets to boot, and whether that gives up what is on its disk.
func bootOf(server *v1alpha1.Server) (boot boxhost.Boot, wipe bool) {
	if FromNetwork(server) {
		return boxhost.BootNetwork, server.Spec.Boot.Wipe
	}
	return boxhost.BootDisk, false
}

// FromNetwork says whether a server that asks gets the boot image: its BMC was told to start it from the network, it has not joined by that
// order, and no node has become ready on it since.
func FromNetwork(server *v1alpha1.Server) bool {
	order, boot := server.Spec.Boot, server.Status.Boot
	if order == nil || boot == nil || order.ID != boot.ID || order.Device != v1alpha1.BootNetwork {
		return false
	}
	if boot.State != v1alpha1.OrderRunning && boot.State != v1alpha1.OrderDone {
		return false
	}
	if join := server.Status.Join; join != nil && join.Order == order.ID && join.State == v1alpha1.JoinJoined {
		return false
	}
	ready := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionNodeReady)
	return ready == nil || ready.Status != metav1.ConditionTrue || !ready.LastTransitionTime.After(boot.Since.Time)
}
