package boxhost

import (
	"fmt"
	"net/netip"
	"strings"

	"rcbox.dev/rcbox/operator/internal/box/names"
)

const (
	// leaseTime is how long a server may use its address without asking again.
	leaseTime = "10m"
	// maxLeases is more than dnsmasq's own 1000.
	maxLeases = maxServers * 2
	// dnsmasqUser is who dnsmasq becomes.
	dnsmasqUser = "dnsmasq"
	// BIOSProgram is the first program for PXE of a BIOS, of Debian's package ipxe.
	BIOSProgram = "undionly.kpxe"
	// EFIProgram is that for UEFI.
	EFIProgram = "snponly.efi"
)

// dnsmasq is its configuration but for what it reads again at SIGHUP. It answers ports that are known by their MAC; for others it is as if
// it were not there, whatever they ask (dhcp-ignore). Two box hosts answer alike without knowing of each other, since each address is the
// port's own: dhcp-authoritative has one of them renew what the other has given. Client identifiers are ignored: the programs that run one
// after the other on a starting server have different ones.
func (w *writer) dnsmasq() string {
	l := &lines{}
	l.add(header)
	l.add("user=%s\ngroup=nogroup\npid-file=", dnsmasqUser)
	l.add("interface=%s\nexcept-interface=lo\nbind-interfaces", w.Interface)
	l.add("\n# DNS")
	l.add("no-hosts\naddn-hosts=%s/%s\nexpand-hosts\ndomain=%s\nlocal=/%s/", w.Run, HostsFile, w.Domain, w.Domain)
	l.add("no-resolv\ndomain-needed\nbogus-priv")
	for _, address := range w.Resolvers {
		l.add("server=%s", address)
	}
	if !w.isMaintenance {
		w.dhcp(l)
	}
	return l.String()
}

// dhcp is what servers need to start.
func (w *writer) dhcp(l *lines) {
	l.add("\n# DHCP")
	l.add("dhcp-range=%s,static,%s,%s", w.network.Addr(), mask(w.network), leaseTime)
	l.add("dhcp-hostsfile=%s/%s\ndhcp-leasefile=%s/%s", w.Run, DHCPHosts, w.State, Leases)
	l.add("dhcp-ignore=tag:!known\ndhcp-ignore-clid\ndhcp-ignore-names\ndhcp-authoritative\nno-ping\ndhcp-lease-max=%d", maxLeases)
	if w.Router.IsValid() {
		l.add("dhcp-option=option:router,%s", w.Router)
	} else {
		l.add("dhcp-option=option:router")
	}
	l.add("dhcp-option=option:dns-server,%s", strings.Join(w.hostsHere(), ","))
	w.nisOptions(l)
	l.add("\n# PXE: first a program by TFTP, then, asked by that program, a script by HTTP.")
	l.add("enable-tftp=%s\ntftp-root=%s", w.Interface, w.TFTP)
	l.add("dhcp-match=set:ipxe,175\ndhcp-match=set:efi,option:client-arch,7\ndhcp-match=set:efi,option:client-arch,9")
	l.add("dhcp-boot=tag:!ipxe,tag:!efi,%s\ndhcp-boot=tag:!ipxe,tag:efi,%s", BIOSProgram, EFIProgram)
	l.add("dhcp-boot=tag:ipxe,http://%s/boot/${netX/mac:hexhyp}.ipxe", w.Address.Addr())
}

// dhcpHosts has a line for each port with a MAC and an address in the network; SIGHUP has dnsmasq read it again.
func (w *writer) dhcpHosts(known map[string]bool) string {
	l := &lines{}
	for i := range w.Servers {
		for _, port := range w.Servers[i].Ports {
			if port.MAC != "" && w.network.Contains(port.Address) {
				l.add("%s,%s,%s,%s", port.MAC, port.Address, names.Port(w.Servers[i].Name, port.Suffix), leaseTime)
				known[port.MAC] = true
			}
		}
	}
	return l.String()
}

// hosts has all names, of all networks; dnsmasq answers from it forward and reverse, and reads it again at SIGHUP.
func (w *writer) hosts() string {
	l := &lines{}
	for _, host := range w.Hosts {
		l.add("%s %s", host.Address, host.Name)
	}
	for _, name := range w.Controllers {
		l.add("%s %s", name.Address, name.Name)
	}
	for i := range w.Servers {
		for _, port := range w.Servers[i].Ports {
			if port.Address.IsValid() {
				l.add("%s %s", port.Address, names.Port(w.Servers[i].Name, port.Suffix))
			}
		}
	}
	return l.String()
}

// PurgeLeases takes those out of dnsmasq's file of leases whose address another port has now, and says whether there are any: dnsmasq would
// let the new port wait until the old lease ends, and does not forget a lease while it runs.
func PurgeLeases(leases, dhcpHosts string) (kept string, isNeeded bool) {
	owners := map[string]string{}
	for line := range strings.Lines(dhcpHosts) {
		if fields := strings.Split(line, ","); len(fields) > 1 {
			owners[fields[1]] = fields[0]
		}
	}
	b := &strings.Builder{}
	for line := range strings.Lines(leases) {
		// The end of the lease, MAC, address, name and client identifier.
		if fields := strings.Fields(line); len(fields) >= 3 && owners[fields[2]] != "" && owners[fields[2]] != fields[1] {
			isNeeded = true
			continue
		}
		b.WriteString(line)
	}
	return b.String(), isNeeded
}

// CheckedHosts is dhcpHosts in the form of a configuration: what dnsmasq --test reads.
func CheckedHosts(dhcpHosts string) string {
	l := &lines{}
	for line := range strings.Lines(dhcpHosts) {
		l.add("dhcp-host=%s", strings.TrimSuffix(line, "\n"))
	}
	return l.String()
}

func mask(network netip.Prefix) string {
	bits := ^uint32(0) << (32 - network.Bits())
	return fmt.Sprintf("%d.%d.%d.%d", bits>>24, bits>>16&255, bits>>8&255, bits&255)
}
