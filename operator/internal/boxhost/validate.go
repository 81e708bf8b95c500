package boxhost

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"

	"rcbox.dev/rcbox/operator/internal/box/names"
)

// Bounds. They are above what 16 chassis of 46 slots need.
const (
	maxServers     = 2048
	maxControllers = 4096
	maxPorts       = 8
	maxNetworks    = 32
	maxHosts       = 8
	maxPrefixes    = 64
	maxResolvers   = 4
	maxArguments   = 32
	maxOpen        = 64
	maxExports     = 16
	maxKeys        = 64
	maxSlot        = 1 << 16
	maxText        = 4096
	// maxProblems is how many are named together.
	maxProblems = 8
)

// Each text that is rendered has one of these forms. None lets a line, a quote, a blank or a comment sign of any of the formats through.
var (
	nameForm     = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	domainForm   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?){0,7}$`)
	macForm      = regexp.MustCompile(`^[0-9a-f]{2}(:[0-9a-f]{2}){5}$`)
	uuidForm     = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	argumentForm = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_.,:/=+@]{0,255}$`)
	exportForm   = regexp.MustCompile(`^/[a-z0-9]([-a-z0-9_]{0,61}[a-z0-9])?$`)
	keyForm      = regexp.MustCompile(
		`^(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com) ` +
			`[A-Za-z0-9+/]{32,}={0,2}( [-A-Za-z0-9_.@+]{1,128})?$`)
)

// checker collects problems, and who has which name, address and MAC.
type checker struct {
	problems  []string
	names     map[string]string
	addresses map[netip.Addr]string
	macs      map[string]string
}

func (c *checker) refuse(format string, arguments ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, arguments...))
}

// atMost says whether a list has an allowed length; a longer one is not looked at any further.
func (c *checker) atMost(what string, have, limit int) bool {
	if have > limit {
		c.refuse("%s: has %d entries, and at most %d are allowed", what, have, limit)
	}
	return have <= limit
}

// Validate says what is wrong, in one error; nothing that is wrong is rendered.
func (d *Desired) Validate() error {
	c := &checker{names: map[string]string{}, addresses: map[netip.Addr]string{}, macs: map[string]string{}}
	if d.Version != Version {
		c.refuse("version: must be %d", Version)
	}
	c.settings(&d.Settings)
	if c.atMost("networks", len(d.Networks), maxNetworks) {
		for i := range d.Networks {
			c.prefix(fmt.Sprintf("networks[%d].cidr", i), d.Networks[i].CIDR)
			for at := range i {
				if d.Networks[at].CIDR.Overlaps(d.Networks[i].CIDR) {
					c.refuse("networks[%d].cidr: overlaps with %s", i, d.Networks[at].CIDR)
				}
			}
		}
	}
	if c.atMost("servers", len(d.Servers), maxServers) {
		for i := range d.Servers {
			c.server(fmt.Sprintf("servers[%d]", i), &d.Servers[i], d.Networks)
		}
	}
	if c.atMost("controllers", len(d.Controllers), maxControllers) {
		for i := range d.Controllers {
			c.name(fmt.Sprintf("controllers[%d]", i), &d.Controllers[i])
		}
	}
	return c.err()
}

func (c *checker) err() error {
	if len(c.problems) == 0 {
		return nil
	}
	shown := c.problems
	if len(shown) > maxProblems {
		shown = append(shown[:maxProblems:maxProblems], fmt.Sprintf("and %d more", len(c.problems)-maxProblems))
	}
	return errors.New("what box hosts are to serve is not valid: " + strings.Join(shown, "; "))
}

func (c *checker) settings(s *Settings) {
	if !domainForm.MatchString(s.Domain) || len(s.Domain) > 128 {
		c.refuse("domain: %.64q is no domain of lower case letters, digits, '-' and '.', such as box.rcbox", s.Domain)
	}
	if c.atMost("hosts", len(s.Hosts), maxHosts) {
		for i := range s.Hosts {
			host, field := &s.Hosts[i], fmt.Sprintf("hosts[%d]", i)
			c.name(field, &Name{Name: host.Name, Address: host.Address})
			switch {
			case host.Role != "" && host.Role != RoleMaintenance:
				c.refuse("%s.role: %.64q is none: leave it out, or write %s", field, host.Role, RoleMaintenance)
			case host.Role == RoleMaintenance && len(s.AuthorizedKeys) == 0:
				c.refuse("%s.role: nobody could log in: %s needs authorizedKeys", field, RoleMaintenance)
			}
		}
	}
	for _, of := range []struct {
		field string
		list  []netip.Prefix
	}{{"management", s.Management}, {"forwardTo", s.ForwardTo}} {
		if c.atMost(of.field, len(of.list), maxPrefixes) {
			for i, prefix := range of.list {
				c.prefix(fmt.Sprintf("%s[%d]", of.field, i), prefix)
			}
		}
	}
	c.ports("tcpPorts", s.OpenTCP)
	c.ports("udpPorts", s.OpenUDP)
	if s.Router.IsValid() {
		c.host("router", s.Router)
	}
	if c.atMost("resolvers", len(s.Resolvers), maxResolvers) {
		for i, address := range s.Resolvers {
			c.host(fmt.Sprintf("resolvers[%d]", i), address)
		}
	}
	c.forms("bootArguments", s.BootArguments, maxArguments, argumentForm,
		"an argument of letters, digits and any of - _ . , : / = + @, such as console=ttyS0")
	for i, argument := range s.BootArguments {
		if strings.HasPrefix(argument, reservedArguments) && !systemForm.MatchString(argument) {
			c.refuse("bootArguments[%d]: %.64q would be given to every server: arguments that begin with %s are for the boot script of "+
				"one server, except %s (kubectl rcbox pxeboot SERVERS --wipe wipes disks)", i, argument, reservedArguments, argumentSystem)
		}
	}
	c.forms("authorizedKeys", s.AuthorizedKeys, maxKeys, keyForm, "a public key of SSH without options, such as ssh-ed25519 AAAA... name")
	c.exports(s.Exports)
	c.nis(s.NIS)
}

func (c *checker) ports(field string, ports []uint16) {
	if !c.atMost(field, len(ports), maxOpen) {
		return
	}
	for i, port := range ports {
		if port == 0 {
			c.refuse("%s[%d]: must be from 1 to 65535", field, i)
		}
	}
}

func (c *checker) forms(field string, list []string, limit int, form *regexp.Regexp, what string) {
	if !c.atMost(field, len(list), limit) {
		return
	}
	for i, text := range list {
		if len(text) > maxText || !form.MatchString(text) {
			c.refuse("%s[%d]: %.64q is not %s", field, i, text, what)
		}
	}
}

func (c *checker) exports(exports []Export) {
	if !c.atMost("exports", len(exports), maxExports) {
		return
	}
	seen := map[string]bool{}
	for i, export := range exports {
		if !exportForm.MatchString(export.Name) {
			c.refuse("exports[%d].name: %.64q is not a '/' and a name of lower case letters, digits, '-' and '_', such as /home",
				i, export.Name)
		}
		if seen[export.Name] {
			c.refuse("exports[%d].name: %q is there twice", i, export.Name)
		}
		seen[export.Name] = true
	}
}

func (c *checker) server(field string, s *Server, networks []Network) {
	if parsed, isName := names.Parse(s.Name); !isName || parsed.Suffix != "" || !nameForm.MatchString(s.Name) {
		c.refuse("%s.name: %.64q is no server's name, such as atom001", field, s.Name)
	}
	if !nameForm.MatchString(s.Chassis) {
		c.refuse("%s.chassis: %.64q is no Chassis' name", field, s.Chassis)
	}
	if s.Slot < 1 || s.Slot > maxSlot {
		c.refuse("%s.slot: must be from 1 to %d", field, maxSlot)
	}
	if s.UUID != "" && !IsUUID(s.UUID) {
		c.refuse("%s.uuid: %.64q is no UUID in lower case", field, s.UUID)
	}
	if s.Boot != BootDisk && s.Boot != BootNetwork {
		c.refuse("%s.boot: %.64q is neither %s nor %s", field, s.Boot, BootDisk, BootNetwork)
	}
	if s.Wipe && s.Boot != BootNetwork {
		c.refuse("%s.wipe: only a server that boots from the network is wiped", field)
	}
	take(c, c.names, s.Name, field+".name")
	if !c.atMost(field+".ports", len(s.Ports), maxPorts) {
		return
	}
	for i := range s.Ports {
		c.port(fmt.Sprintf("%s.ports[%d]", field, i), s, &s.Ports[i], networks)
	}
}

func (c *checker) port(field string, s *Server, p *Port, networks []Network) {
	if p.NIC < 1 || p.NIC > maxPorts {
		c.refuse("%s.nic: must be from 1 to %d", field, maxPorts)
	}
	if p.Suffix != "" {
		if parsed, isName := names.Parse(names.Port(s.Name, p.Suffix)); !isName || !parsed.IsPort() {
			c.refuse("%s.suffix: %.64q is none of a to e", field, p.Suffix)
		}
		take(c, c.names, names.Port(s.Name, p.Suffix), field+".suffix")
	}
	if p.MAC != "" {
		if !IsMAC(p.MAC) {
			c.refuse("%s.mac: %.64q is no hardware address of one NIC in the form 52:54:00:03:00:01", field, p.MAC)
		}
		take(c, c.macs, p.MAC, field+".mac")
	}
	if !p.Address.IsValid() {
		return
	}
	c.host(field+".address", p.Address)
	take(c, c.addresses, p.Address, field+".address")
	if networkOf(networks, p.Address) == nil {
		c.refuse("%s.address: %s is in none of the networks", field, p.Address)
	}
}

func (c *checker) name(field string, n *Name) {
	if !nameForm.MatchString(n.Name) {
		c.refuse("%s.name: %.64q is no name of lower case letters, digits and '-'", field, n.Name)
	}
	c.host(field+".address", n.Address)
	take(c, c.names, n.Name, field+".name")
	take(c, c.addresses, n.Address, field+".address")
}

func (c *checker) host(field string, address netip.Addr) {
	if !address.Is4() || !address.IsGlobalUnicast() && !address.IsLoopback() {
		c.refuse("%s: %s is no IPv4 address of one machine", field, address)
	}
}

func (c *checker) prefix(field string, prefix netip.Prefix) {
	if !prefix.IsValid() || !prefix.Addr().Is4() || prefix != prefix.Masked() || prefix.Bits() < 8 {
		c.refuse("%s: %s is no IPv4 network in its shortest form, such as 192.168.3.0/24", field, prefix)
	}
}

// take gives a name, address or MAC to the first field that has it, and refuses the others.
func take[T comparable](c *checker, taken map[T]string, value T, field string) {
	if other, isTaken := taken[value]; isTaken {
		c.refuse("%s: %.64q is that of %s", field, fmt.Sprint(value), other)
		return
	}
	taken[value] = field
}

// networkOf is the network that an address is in; nil: none is.
func networkOf(networks []Network, address netip.Addr) *Network {
	for i := range networks {
		if networks[i].CIDR.Contains(address) {
			return &networks[i]
		}
	}
	return nil
}

// IsMAC says whether a text is the hardware address of one NIC, and not of a group, in the form of Port.MAC.
func IsMAC(text string) bool {
	hardware, err := net.ParseMAC(text)
	return err == nil && macForm.MatchString(text) && hardware[0]&1 == 0 && text != "00:00:00:00:00:00"
}

// IsUUID says whether a text is a UUID in the form of Server.UUID.
func IsUUID(text string) bool { return uuidForm.MatchString(text) }
