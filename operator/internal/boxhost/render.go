package boxhost

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Names of rendered files, in the folder Place.Run.
const (
	DnsmasqConf    = "dnsmasq.conf"
	DHCPHosts      = "dhcp-hosts"
	HostsFile      = "hosts"
	FirewallFile   = "firewall.nft"
	GaneshaConf    = "ganesha.conf"
	SSHDConfig     = "sshd_config"
	AuthorizedKeys = "authorized_keys"
)

// Names of what is kept, in the folder Place.State.
const (
	Leases       = "leases"
	HostKey      = "ssh_host_ed25519_key"
	Exports      = "exports"
	NFSRecovery  = "nfs-recovery"
	versionLabel = "version-"
)

// Ports that box hosts serve.
const (
	PortSSH  = 22
	PortDNS  = 53
	PortDHCP = 67
	PortTFTP = 69
	PortHTTP = 80
	PortNFS  = 2049
	// PortRPC is rpcbind's.
	PortRPC = 111
	// PortNIS is ypserv's first port. For TCP, UDP and IPv6, it takes the first that is free: connections that were open when it was
	// restarted keep a port for a minute.
	PortNIS = 834
	// LastPortNIS is its last.
	LastPortNIS = 849
)

// Place is the box host that renders.
type Place struct {
	// Interface is the only one that is served.
	Interface string
	// Address is that of the box host at the interface, with the bits of the network.
	Address netip.Prefix
	// Run is the folder of rendered files; State that of what outlives a restart; TFTP that of first programs for PXE.
	Run, State, TFTP string
	// User is who logs in by SSH, and UserID that user's number.
	User   string
	UserID uint32
}

var (
	interfaceForm = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_.@]{0,14}$`)
	folderForm    = regexp.MustCompile(`^(/[A-Za-z0-9][-A-Za-z0-9_.]{0,63})+$`)
	userForm      = regexp.MustCompile(`^[a-z][-a-z0-9_]{0,31}$`)
)

func (p *Place) validate() error {
	switch {
	case !interfaceForm.MatchString(p.Interface):
		return fmt.Errorf("the interface %.20q is no name of one", p.Interface)
	case !p.Address.IsValid() || !p.Address.Addr().Is4():
		return fmt.Errorf("interface %s has no IPv4 address", p.Interface)
	case !folderForm.MatchString(p.Run), !folderForm.MatchString(p.State), !folderForm.MatchString(p.TFTP):
		return errors.New("a folder's path must consist of letters, digits, '-', '_', '.' and '/'")
	case path.Clean(p.Run) != p.Run, path.Clean(p.State) != p.State, path.Clean(p.TFTP) != p.TFTP:
		return errors.New("a folder's path must be in its shortest form")
	case !userForm.MatchString(p.User) || p.UserID == 0:
		return fmt.Errorf("%.40q with the number %d cannot be the user who logs in by SSH", p.User, p.UserID)
	}
	return nil
}

// Rendering is what follows from Desired on one box host.
type Rendering struct {
	// Files by name, for the folder Place.Run. A service that is off has none.
	Files map[string]string
	// Scripts are those for iPXE, by MAC.
	Scripts map[string]string
	// Version tells this rendering from others; VersionName is a name by which DNS gives the address of the box host if, and only if, it
	// serves this rendering.
	Version, VersionName string
	// Network is the one that is served.
	Network netip.Prefix
	// NFS, SSH and NIS say whether these are wanted.
	NFS, SSH, NIS bool
	// IsMaintenance: it gives servers nothing.
	IsMaintenance bool
	// NISDomain is the domain of NIS.
	NISDomain string
	// Known are the MACs that DHCP answers at this network.
	Known map[string]bool
	// MACsAt has, by the address of a port in this network, the MACs of all ports of its server.
	MACsAt map[netip.Addr][]string
}

// Render renders all files for a box host.
func Render(d *Desired, p *Place) (*Rendering, error) {
	if err := errors.Join(p.validate(), d.Validate()); err != nil {
		return nil, err
	}
	served := networkOf(d.Networks, p.Address.Addr())
	if served == nil {
		return nil, fmt.Errorf("address %s of interface %s is in none of the networks of Chassis (spec.networks[].cidr): give the "+
			"interface an address in one of them, or name another interface", p.Address.Addr(), p.Interface)
	}
	if served.CIDR.Bits() != p.Address.Bits() {
		return nil, fmt.Errorf("interface %s has the address %s, and the network of the Chassis is %s: give both the same number of bits",
			p.Interface, p.Address, served.CIDR)
	}
	for i := range d.Servers {
		for at := range d.Servers[i].Ports {
			if d.Servers[i].Ports[at].Address == p.Address.Addr() {
				return nil, fmt.Errorf("address %s of interface %s is that of server %s: give one of them another",
					p.Address.Addr(), p.Interface, d.Servers[i].Name)
			}
		}
	}
	r := &Rendering{
		Files: map[string]string{}, Scripts: map[string]string{}, Known: map[string]bool{}, Network: served.CIDR,
		MACsAt: d.macsAt(served.CIDR), NFS: len(d.Exports) > 0, SSH: len(d.AuthorizedKeys) > 0,
		NIS: d.NIS != nil,
	}
	if d.roleOf(p.Address.Addr()) == RoleMaintenance {
		r.IsMaintenance, r.NFS, r.NIS = true, false, false
	}
	w := &writer{Desired: d, Place: p, network: served.CIDR, isMaintenance: r.IsMaintenance}
	r.Files[DnsmasqConf] = w.dnsmasq()
	r.Files[DHCPHosts] = ""
	if !r.IsMaintenance {
		r.Files[DHCPHosts] = w.dhcpHosts(r.Known)
		w.scripts(r.Scripts)
	}
	r.Files[FirewallFile] = w.firewall(r)
	if r.NFS {
		r.Files[GaneshaConf] = w.ganesha()
	}
	if r.SSH {
		r.Files[SSHDConfig] = w.sshd()
		r.Files[AuthorizedKeys] = strings.Join(d.AuthorizedKeys, "\n") + "\n"
	}
	if r.NIS {
		r.NISDomain = d.NIS.Domain
		w.nis(r.Files)
	}
	hosts := w.hosts()
	r.Version = versionOf(r, hosts)
	r.VersionName = versionLabel + r.Version
	if r.NIS {
		r.Files[NISFile(NISHosts)] += fmt.Sprintf("%s %s\n", r.VersionName, p.Address.Addr())
	}
	r.Files[HostsFile] = hosts + fmt.Sprintf("%s %s\n", p.Address.Addr(), r.VersionName)
	return r, nil
}

func (d *Desired) macsAt(network netip.Prefix) map[netip.Addr][]string {
	at := map[netip.Addr][]string{}
	for i := range d.Servers {
		var macs []string
		for _, port := range d.Servers[i].Ports {
			if port.MAC != "" {
				macs = append(macs, port.MAC)
			}
		}
		for _, port := range d.Servers[i].Ports {
			if network.Contains(port.Address) {
				at[port.Address] = macs
			}
		}
	}
	return at
}

// versionOf is a name for all that was rendered.
func versionOf(r *Rendering, hosts string) string {
	hash := sha256.New()
	for _, texts := range []map[string]string{r.Files, r.Scripts, {HostsFile: hosts}} {
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			_, _ = fmt.Fprintf(hash, "%d %s %d %s", len(name), name, len(texts[name]), texts[name]) // a hash never fails
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:6])
}

// writer writes files of one box host.
type writer struct {
	*Desired
	*Place

	network       netip.Prefix
	isMaintenance bool
}

// lines puts lines together.
type lines struct{ strings.Builder }

func (l *lines) add(format string, arguments ...any) {
	_, _ = fmt.Fprintf(l, format+"\n", arguments...) // a Builder never fails
}

// header says who has written a file, in the comments of all formats but one.
const header = "# Written by rcbox; it is overwritten when Chassis, Servers or the values of the chart change."

// hostsHere are the addresses of box hosts that serve the network, its own first.
func (w *writer) hostsHere() []string {
	own := w.Address.Addr()
	all := []string{own.String()}
	for _, host := range w.Hosts {
		if host.Address != own && host.Role != RoleMaintenance && w.network.Contains(host.Address) {
			all = append(all, host.Address.String())
		}
	}
	return all
}
