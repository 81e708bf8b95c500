package view

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
)

// NotTold stands for what only the member's process knows, and does not tell.
const NotTold = "not told"

// Ports is what is known of the ports of a Store's members.
type Ports struct {
	Transport   v1alpha1.Transport            `json:"transport"`
	Profile     v1alpha1.NetworkProfile       `json:"profile,omitempty"`
	Condition   string                        `json:"networkReady"`
	Ports       []Port                        `json:"ports"`
	Pools       []v1alpha1.PoolStatus         `json:"pools"`
	Quarantined []v1alpha1.QuarantinedAddress `json:"quarantined"`
}

// Port of a member.
type Port struct {
	Member    string `json:"member"`
	Node      string `json:"node"`
	Interface string `json:"interface"`
	PCI       string `json:"pci"`
	MAC       string `json:"mac"`
	IP        string `json:"ip"`
	// Driver, Link and NUMA are empty where the process does not tell.
	Driver string `json:"driver"`
	Link   string `json:"link"`
	NUMA   string `json:"numa"`
	// Pings to the ports of others.
	Pings []Ping `json:"pings"`
}

// Ping is a round trip to a peer's port; 0 microseconds where there was no answer.
type Ping struct {
	Member string  `json:"member"`
	IP     string  `json:"ip"`
	Micros float64 `json:"micros"`
}

// PortsOf is what the operator has on record, and what processes tell of themselves where they do.
func (s *Snapshot) PortsOf() Ports {
	spec := &s.Store.Spec.Network
	ports := Ports{
		Transport: spec.Transport, Profile: spec.Profile, Ports: []Port{},
		Pools: []v1alpha1.PoolStatus{}, Quarantined: []v1alpha1.QuarantinedAddress{},
	}
	if condition := s.condition(v1alpha1.ConditionNetworkReady); condition != nil {
		ports.Condition = string(condition.Status) + " " + condition.Reason + ": " + condition.Message
	}
	if network := s.Store.Status.Network; network != nil {
		ports.Pools, ports.Quarantined = append(ports.Pools, network.Pools...), append(ports.Quarantined, network.Quarantined...)
	}
	from := s.sources()
	for _, member := range s.Members() {
		told := from.reported[member.Name].GetNetwork()
		recorded := from.recorded[member.Name]
		count := len(told)
		if recorded != nil {
			count = max(count, len(recorded.Addresses))
		}
		for i := range count {
			port := Port{Member: member.Name, Node: member.Node, Pings: []Ping{}}
			if recorded != nil && i < len(recorded.Addresses) {
				address := recorded.Addresses[i]
				port.Interface, port.PCI, port.MAC, port.IP = address.Interface, address.PCI, address.MAC, address.IP
			}
			if of := tellingOf(told, port.IP, i); of != nil {
				port.tell(of)
			}
			ports.Ports = append(ports.Ports, port)
		}
	}
	return ports
}

// tellingOf is what the process tells of the port with an address, or else of its nth.
func tellingOf(told []*adminv1.NetworkPort, ip string, n int) *adminv1.NetworkPort {
	for _, port := range told {
		if ip != "" && port.GetIp() == ip {
			return port
		}
	}
	if n < len(told) && (ip == "" || told[n].GetIp() == "") {
		return told[n]
	}
	return nil
}

func (p *Port) tell(told *adminv1.NetworkPort) {
	p.Interface, p.PCI = cmp.Or(told.GetInterface(), p.Interface), cmp.Or(told.GetPci(), p.PCI)
	p.MAC, p.IP, p.Driver = cmp.Or(told.GetMac(), p.MAC), cmp.Or(told.GetIp(), p.IP), told.GetDriver()
	switch {
	case told.LinkUp == nil:
	case !told.GetLinkUp():
		p.Link = "down"
	case told.GetLinkMbps() > 0:
		p.Link = fmt.Sprintf("up, %d Mb/s", told.GetLinkMbps())
	default:
		p.Link = "up"
	}
	if told.NumaNode != nil {
		p.NUMA = strconv.Itoa(int(told.GetNumaNode()))
		if told.CoresNumaNode != nil && told.GetCoresNumaNode() != told.GetNumaNode() {
			p.NUMA += fmt.Sprintf(" (cores on %d)", told.GetCoresNumaNode())
		}
	}
	const nanosPerMicro = 1000
	for _, ping := range told.GetPings() {
		p.Pings = append(p.Pings, Ping{Member: ping.GetMember(), IP: ping.GetIp(), Micros: float64(ping.GetRoundTripNs()) / nanosPerMicro})
	}
}

// Text is the ports for people.
func (p Ports) Text(style Style) string {
	out := &strings.Builder{}
	if len(p.Ports) == 0 {
		fmt.Fprintf(out, "Masters have no ports of their own (network.transport: %s).\n", cmp.Or(p.Transport, v1alpha1.TransportTCP))
		return out.String()
	}
	if p.Condition != "" {
		fmt.Fprintf(out, "NetworkReady  %s\n\n", p.Condition)
	}
	ports := table{}
	ports.add(heads("MEMBER", "NODE", "INTERFACE", "PCI", "MAC", "IP", "DRIVER", "LINK", "NUMA", "PING OF PEERS")...)
	for i := range p.Ports {
		port := &p.Ports[i]
		ports.add(plain(port.Member), plain(cmp.Or(port.Node, "-")), plain(cmp.Or(port.Interface, "-")), plain(cmp.Or(port.PCI, "-")),
			plain(cmp.Or(port.MAC, "its own")), plain(port.IP), plain(cmp.Or(port.Driver, NotTold)), linkCell(port.Link),
			plain(cmp.Or(port.NUMA, NotTold)), plain(pingText(port.Pings)))
	}
	ports.write(out, style, "")
	if len(p.Pools) > 0 {
		out.WriteString("\n")
		pools := table{}
		pools.add(heads("POOL", "ADDRESSES", "FREE")...)
		for _, pool := range p.Pools {
			pools.add(plain(pool.Range), number(strconv.Itoa(int(pool.Size))), number(strconv.Itoa(int(pool.Free))))
		}
		pools.write(out, style, "")
	}
	if len(p.Quarantined) > 0 {
		out.WriteString("\n")
		quarantined := table{}
		quarantined.add(heads("QUARANTINED", "POD", "NODE", "SINCE", "WHY")...)
		for _, entry := range p.Quarantined {
			quarantined.add(plain(entry.IP), plain(entry.Pod), plain(cmp.Or(entry.Node, "-")),
				plain(entry.Since.UTC().Format("2006-01-02 15:04:05 UTC")), plain(entry.Reason))
		}
		quarantined.write(out, style, "")
	}
	return out.String()
}

func linkCell(link string) cell {
	switch link {
	case "":
		return plain(NotTold)
	case "down":
		return cell{text: link, colour: red}
	default:
		return plain(link)
	}
}

// pingText is the fastest and the slowest, and who does not answer.
func pingText(pings []Ping) string {
	if len(pings) == 0 {
		return NotTold
	}
	var silent []string
	least, most := 0.0, 0.0
	for _, ping := range pings {
		switch {
		case ping.Micros == 0:
			silent = append(silent, ping.Member)
		case least == 0 || ping.Micros < least:
			least = ping.Micros
			most = max(most, ping.Micros)
		default:
			most = max(most, ping.Micros)
		}
	}
	text := fmt.Sprintf("%.1f to %.1f us", least, most)
	if most == 0 {
		text = "none"
	}
	if len(silent) > 0 {
		text += "; no answer from " + strings.Join(silent, ", ")
	}
	return text
}
