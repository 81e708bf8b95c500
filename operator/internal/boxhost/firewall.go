package boxhost

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Table is the firewall's table of nftables; everything else in the kernel is left alone.
const Table = "rcbox_boxhost"

// firewall lets nothing but the ports of services in at the interface, and these at no other address of the node; it lets nobody reach the
// services from elsewhere, such as a pod; and it forwards nothing of servers to BMCs. It is about nothing else, for a box host is a node of
// Kubernetes, whose other traffic is not its business: each chain lets pass what it does not know. Further ports that somebody has opened
// are open at each address: a virtual address of the API server may be among them. The table is replaced in one step, so that there is no
// moment without it.
//
// It also drops each DHCPNAK: dnsmasq, being authoritative, sends one to a server that has chosen the offer of the other box host, and that
// server would begin anew if it came before the other's DHCPACK. The type of message is dnsmasq's first option, 248 bytes after the start
// of UDP's header.
func (w *writer) firewall(r *Rendering) string {
	l := &lines{}
	l.add(header)
	l.add("table inet %s\ndelete table inet %s\ntable inet %s {", Table, Table, Table)
	w.set(l, "management", w.managementPrefixes())
	networks := make([]netip.Prefix, len(w.Networks))
	for i := range w.Networks {
		networks[i] = w.Networks[i].CIDR
	}
	w.set(l, "servers", networks)
	w.set(l, "forward_to", w.ForwardTo)
	tcp, udp := servedPorts(r)
	own := w.Address.Addr()
	l.add("\tchain input {\n\t\ttype filter hook input priority filter - 10; policy accept;")
	l.add("\t\tiifname %q jump from_servers", w.Interface)
	l.add("\t\tiifname != { %q, \"lo\" } ip daddr %s jump from_elsewhere", w.Interface, own)
	w.nisFirewall(l)
	l.add("\t}")
	l.add("\tchain from_elsewhere {")
	l.add("\t\tudp dport { %s } counter drop", udp)
	if w.isMaintenance { // people come from elsewhere
		l.add("\t\ttcp dport { %d } counter drop\n\t}", PortDNS)
	} else {
		l.add("\t\ttcp dport { %s } counter drop\n\t}", tcp)
	}
	l.add("\tchain from_servers {")
	l.add("\t\tmeta nfproto ipv6 counter drop")
	l.add("\t\tct state established,related accept")
	l.add("\t\tct state invalid counter drop")
	if len(w.OpenUDP) > 0 {
		l.add("\t\tudp dport { %s } accept", joinPorts(w.OpenUDP))
	}
	if len(w.OpenTCP) > 0 {
		l.add("\t\ttcp dport { %s } accept", joinPorts(w.OpenTCP))
	}
	l.add("\t\tip daddr { 255.255.255.255, %s } udp dport %d accept", broadcast(w.network), PortDHCP)
	l.add("\t\tip daddr != %s counter drop", own)
	w.nisNetwork(l)
	l.add("\t\tudp dport { %s } accept", udp)
	l.add("\t\ttcp dport { %s } accept", tcp)
	l.add("\t\ticmp type echo-request limit rate 50/second burst 100 packets accept")
	l.add("\t\tcounter drop\n\t}")
	l.add("\tchain forward {\n\t\ttype filter hook forward priority filter - 10; policy accept;")
	l.add("\t\tip saddr @servers ip daddr @management counter drop comment \"a server reaches no BMC\"")
	l.add("\t\tiifname %q jump forward_servers\n\t}", w.Interface)
	l.add("\tchain forward_servers {")
	l.add("\t\tmeta nfproto ipv6 counter drop")
	l.add("\t\tip daddr @management counter drop comment \"a server reaches no BMC\"")
	l.add("\t\tct state established,related accept")
	l.add("\t\tip daddr @forward_to accept")
	l.add("\t\tcounter drop\n\t}")
	l.add("\tchain output {\n\t\ttype filter hook output priority filter - 10; policy accept;")
	l.add("\t\toifname %q udp sport %d @th,1984,24 0x350106 counter drop comment \"no DHCPNAK\"", w.Interface, PortDHCP)
	if !w.isMaintenance {
		l.add("\t\tmeta skuid %d ip daddr @management counter drop comment \"who logs in by SSH reaches no BMC\"", w.UserID)
	}
	l.add("\t}\n}")
	return l.String()
}

// managementPrefixes are the networks and addresses of BMCs and of other controllers.
func (w *writer) managementPrefixes() []netip.Prefix {
	all := slices.Clone(w.Management)
	for _, controller := range w.Controllers {
		all = append(all, netip.PrefixFrom(controller.Address, 32))
	}
	return all
}

func (w *writer) set(l *lines, name string, prefixes []netip.Prefix) {
	l.add("\tset %s {\n\t\ttype ipv4_addr\n\t\tflags interval\n\t\tauto-merge", name)
	if len(prefixes) > 0 {
		texts := make([]string, len(prefixes))
		for i, prefix := range prefixes {
			texts[i] = prefix.String()
			if prefix.Bits() == 32 {
				texts[i] = prefix.Addr().String()
			}
		}
		l.add("\t\telements = { %s }", strings.Join(texts, ", "))
	}
	l.add("\t}")
}

// servedPorts are those of services.
func servedPorts(r *Rendering) (tcp, udp string) {
	if r.IsMaintenance {
		return joinPorts([]uint16{PortSSH, PortDNS}), joinPorts([]uint16{PortDNS})
	}
	tcps := []uint16{PortDNS, PortHTTP}
	if r.SSH {
		tcps = append(tcps, PortSSH)
	}
	if r.NFS {
		tcps = append(tcps, PortNFS)
	}
	udps := []uint16{PortDNS, PortDHCP, PortTFTP}
	tcp, udp = joinPorts(tcps), joinPorts(udps)
	if r.NIS {
		tcp, udp = tcp+", "+portsOfNIS(), udp+", "+portsOfNIS()
	}
	return tcp, udp
}

func joinPorts(ports []uint16) string {
	ports = slices.Clone(ports)
	slices.Sort(ports)
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(slices.Compact(ports))), ", "), "[]")
}

// broadcast is the address of everybody in a network.
func broadcast(network netip.Prefix) netip.Addr {
	four := network.Addr().As4()
	last := binary.BigEndian.Uint32(four[:]) | ^uint32(0)>>network.Bits()
	binary.BigEndian.PutUint32(four[:], last)
	return netip.AddrFrom4(four)
}
