package boxhost_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1lCN3yYVY2GqHT0qVZb2kJH2b2kz0yP8mQkz1l8Qwz somebody@example"

// desired is three servers of a chassis: one boots from the network, one has a second port with an address, one is not known by its MAC.
func desired() *boxhost.Desired {
	at := netip.MustParseAddr
	return &boxhost.Desired{
		Version: boxhost.Version,
		Settings: boxhost.Settings{
			Domain: "box.rcbox",
			Hosts: []boxhost.Host{
				{Name: "boxhost1", Address: at("192.168.3.253")}, {Name: "boxhost2", Address: at("192.168.3.254")},
			},
			Management:     []netip.Prefix{netip.MustParsePrefix("192.168.6.0/24")},
			BootArguments:  []string{"console=ttyS0", "rcbox.system=16384"},
			Exports:        []boxhost.Export{{Name: "/home"}, {Name: "/software", ReadOnly: true}},
			AuthorizedKeys: []string{key},
			NIS: &boxhost.NIS{
				Domain: "box", Users: []boxhost.NISUser{{Name: "alice", UID: 2000}, {Name: "bob", UID: 2001, Home: "/home/lab/bob"}},
				Groups: []boxhost.NISGroup{{Name: "lab", GID: 3000, Members: []string{"alice", "bob"}}},
			},
		},
		Networks: []boxhost.Network{
			{CIDR: netip.MustParsePrefix("192.168.3.0/24")}, {CIDR: netip.MustParsePrefix("192.168.4.0/24")},
		},
		Servers: []boxhost.Server{
			{
				Name: "atom001", Chassis: "mercury1", Slot: 1, UUID: "a1234567-89ab-cdef-a123-456789abcd01", Boot: boxhost.BootNetwork,
				Ports: []boxhost.Port{{NIC: 1, MAC: "52:54:00:03:00:01", Address: at("192.168.3.1")}},
			},
			{
				Name: "atom002", Chassis: "mercury1", Slot: 2, Boot: boxhost.BootDisk,
				Ports: []boxhost.Port{
					{NIC: 1, MAC: "52:54:00:03:00:02", Address: at("192.168.3.2")},
					{NIC: 2, Suffix: "a", MAC: "52:54:00:04:00:02", Address: at("192.168.4.2")},
				},
			},
			{
				Name: "atom003", Chassis: "mercury1", Slot: 3, Boot: boxhost.BootDisk,
				Ports: []boxhost.Port{{NIC: 1, Address: at("192.168.3.3")}, {NIC: 2, Suffix: "a", MAC: "52:54:00:04:00:03"}},
			},
		},
		Controllers: []boxhost.Name{
			{Name: "atom001m", Address: at("192.168.5.1")},
			{Name: "atom002m", Address: at("192.168.5.2")},
			{Name: "mercury1cmm", Address: at("192.168.5.201")},
		},
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	data, err := desired().Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, err := boxhost.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := read.Encode()
	if err != nil || string(again) != string(data) {
		t.Errorf("%v\n%s\n%s", err, data, again)
	}
	for what, text := range map[string]string{
		"nothing":       "",
		"another text":  "[]",
		"a later one":   strings.Replace(string(data), `"version":1`, `"version":2`, 1),
		"unknown field": strings.Replace(string(data), `"version":1`, `"version":1,"surprise":true`, 1),
		"two objects":   string(data) + "{}",
		"too much":      string(data) + strings.Repeat(" ", boxhost.MaxBytes),
	} {
		if _, err := boxhost.Decode([]byte(text)); err == nil {
			t.Errorf("%s was accepted", what)
		}
	}
}

// The chart's own test has this file made from values.
func TestSettingsOfTheChart(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../charts/rcbox/testdata/boxhost-settings.json")
	if err != nil {
		t.Fatal(err)
	}
	s, err := boxhost.DecodeSettings(text)
	if err != nil {
		t.Fatal(err)
	}
	if s.Domain != "box.rcbox" || len(s.Hosts) != 1 || len(s.Management) != 1 || len(s.ForwardTo) != 1 || len(s.OpenTCP) != 1 ||
		len(s.OpenUDP) != 1 || !s.Router.IsValid() || len(s.Resolvers) != 1 || len(s.BootArguments) != 3 || len(s.Exports) != 1 ||
		len(s.AuthorizedKeys) != 1 || s.NIS == nil || len(s.NIS.Users) != 1 || len(s.NIS.Groups) != 1 {
		t.Errorf("%+v", s)
	}
}

// Texts that would be more than one word somewhere, or that leave a folder. Each is tried in each field of text.
var hostile = []string{
	"\n", "a\nb", "a b", `a"b`, "a'b", "a;b", "a#b", "a{b", "a}b", "a,b", "$(reboot)", "`reboot`", "${net0/mac}", "../a", "/", "a\x00", "ä",
	"A", "-a", "a-", strings.Repeat("a", 5000), "*", "&&", "a\\b", "\u2028", "<a>",
}

func TestHostileTextsAreRefused(t *testing.T) {
	t.Parallel()
	fields := map[string]func(*boxhost.Desired, string){
		"domain":          func(d *boxhost.Desired, s string) { d.Domain = s },
		"host":            func(d *boxhost.Desired, s string) { d.Hosts[0].Name = s },
		"controller":      func(d *boxhost.Desired, s string) { d.Controllers[0].Name = s },
		"server":          func(d *boxhost.Desired, s string) { d.Servers[0].Name = s },
		"chassis":         func(d *boxhost.Desired, s string) { d.Servers[0].Chassis = s },
		"UUID":            func(d *boxhost.Desired, s string) { d.Servers[0].UUID = s },
		"boot":            func(d *boxhost.Desired, s string) { d.Servers[0].Boot = boxhost.Boot(s) },
		"suffix":          func(d *boxhost.Desired, s string) { d.Servers[1].Ports[1].Suffix = s },
		"MAC":             func(d *boxhost.Desired, s string) { d.Servers[0].Ports[0].MAC = s },
		"export":          func(d *boxhost.Desired, s string) { d.Exports[0].Name = s },
		"export, rooted":  func(d *boxhost.Desired, s string) { d.Exports[0].Name = "/" + s },
		"key":             func(d *boxhost.Desired, s string) { d.AuthorizedKeys[0] = s },
		"NIS domain":      func(d *boxhost.Desired, s string) { d.NIS.Domain = s },
		"NIS user":        func(d *boxhost.Desired, s string) { d.NIS.Users[1].Name = s; d.NIS.Groups = nil },
		"NIS home":        func(d *boxhost.Desired, s string) { d.NIS.Users[1].Home = "/home/" + s },
		"NIS group":       func(d *boxhost.Desired, s string) { d.NIS.Groups[0].Name = s },
		"NIS member":      func(d *boxhost.Desired, s string) { d.NIS.Groups[0].Members[0] = s },
		"key's options":   func(d *boxhost.Desired, s string) { d.AuthorizedKeys[0] = s + " " + key },
		"key's next line": func(d *boxhost.Desired, s string) { d.AuthorizedKeys[0] = key + "\n" + s },
	}
	for what, set := range fields {
		for _, text := range hostile {
			d := desired()
			set(d, text)
			if _, err := d.Encode(); err == nil {
				t.Errorf("%s: %.40q was accepted", what, text)
			}
		}
	}
	// An argument may contain more, but no blank, quote or expansion.
	for _, text := range []string{"", "a b", "a\nb", `a"b`, "a'b", "$(x)", "${net0/mac}", "a\\", "a;b", "-a", strings.Repeat("a", 300)} {
		d := desired()
		d.BootArguments[0] = text
		if _, err := d.Encode(); err == nil {
			t.Errorf("argument %.40q was accepted", text)
		}
	}
}

func TestContradictionsAreRefused(t *testing.T) {
	t.Parallel()
	at, network := netip.MustParseAddr, netip.MustParsePrefix
	for want, change := range map[string]func(*boxhost.Desired){
		"nis.users[1].uid: \"2000\" is": func(d *boxhost.Desired) { d.NIS.Users[1].UID = 2000 },
		"nis.users[1].uid: must be":     func(d *boxhost.Desired) { d.NIS.Users[1].UID = 0 },
		"nis.users[0].name: \"root\"":   func(d *boxhost.Desired) { d.NIS.Users[0].Name = "root" },
		"nis.groups[0].name":            func(d *boxhost.Desired) { d.NIS.Groups[0].Name = "bob" },
		"nis.groups[0].gid: \"2001\"":   func(d *boxhost.Desired) { d.NIS.Groups[0].GID = 2001 },
		"more than 1000 bytes":          func(d *boxhost.Desired) { d.NIS.Groups[0].Members = slices.Repeat([]string{"alice"}, 200) },
		"servers[1].name":               func(d *boxhost.Desired) { d.Servers[1].Name = "atom001" },
		"servers[1].ports[0].mac":       func(d *boxhost.Desired) { d.Servers[1].Ports[0].MAC = "52:54:00:03:00:01" },
		"servers[1].ports[1].mac":       func(d *boxhost.Desired) { d.Servers[1].Ports[1].MAC = "53:54:00:03:00:01" },
		"servers[1].ports[0].address":   func(d *boxhost.Desired) { d.Servers[1].Ports[0].Address = at("192.168.3.1") },
		"is in none of the networks":    func(d *boxhost.Desired) { d.Servers[1].Ports[0].Address = at("192.168.9.1") },
		"that of hosts[1].address":      func(d *boxhost.Desired) { d.Servers[1].Ports[0].Address = at("192.168.3.254") },
		"networks[1].cidr":              func(d *boxhost.Desired) { d.Networks[1].CIDR = network("192.168.0.0/16") },
		"management[0]":                 func(d *boxhost.Desired) { d.Management[0] = netip.PrefixFrom(at("192.168.6.1"), 24) },
		"forwardTo[0]":                  func(d *boxhost.Desired) { d.ForwardTo = []netip.Prefix{network("0.0.0.0/0")} },
		"resolvers[0]":                  func(d *boxhost.Desired) { d.Resolvers = []netip.Addr{at("ff02::1")} },
		"router":                        func(d *boxhost.Desired) { d.Router = at("2001:db8::1") },
		"controllers[0].address":        func(d *boxhost.Desired) { d.Controllers[0].Address = netip.Addr{} },
		"tcpPorts[0]":                   func(d *boxhost.Desired) { d.OpenTCP = []uint16{0} },
		"slot":                          func(d *boxhost.Desired) { d.Servers[0].Slot = 0 },
		"nic":                           func(d *boxhost.Desired) { d.Servers[0].Ports[0].NIC = 9 },
		"exports[1].name":               func(d *boxhost.Desired) { d.Exports[1].Name = "/home" },
		"servers: has 2049 entries":     func(d *boxhost.Desired) { d.Servers = make([]boxhost.Server, 2049) },
		"bootArguments[0]: \"rcbox.wipe=1\" would be given to every server": func(d *boxhost.Desired) {
			d.BootArguments = []string{"rcbox.wipe=1"}
		},
		"bootArguments[1]: \"rcbox.mac\"": func(d *boxhost.Desired) { d.BootArguments = []string{"rcbox.system=4096", "rcbox.mac"} },
		"servers[1].wipe":                 func(d *boxhost.Desired) { d.Servers[1].Wipe = true },
		"authorizedKeys: has 65 entries":  func(d *boxhost.Desired) { d.AuthorizedKeys = make([]string, 65) },
	} {
		d := desired()
		change(d)
		if err := d.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// A message names a few problems, whatever is wrong.
func TestMessageIsBounded(t *testing.T) {
	t.Parallel()
	d := desired()
	d.Servers = nil
	for i := range 2000 {
		d.Servers = append(d.Servers, boxhost.Server{Name: fmt.Sprintf("%04000d", i)})
	}
	if err := d.Validate(); err == nil || len(err.Error()) > 3000 {
		t.Errorf("%.200v", err)
	}
}

func TestRackFits(t *testing.T) {
	t.Parallel()
	d := desired()
	d.Servers, d.Controllers = nil, nil
	d.Networks[0].CIDR = netip.MustParsePrefix("10.3.0.0/16")
	d.Networks[1].CIDR = netip.MustParsePrefix("10.4.0.0/16")
	for i := range 736 {
		name := fmt.Sprintf("atom%03d", i+1)
		low := []byte{byte(i / 250), byte(i%250 + 1)}
		port := func(nic int32, suffix string) boxhost.Port {
			return boxhost.Port{
				NIC: nic, Suffix: suffix, MAC: fmt.Sprintf("52:54:00:%02x:%02x:%02x", nic, low[0], low[1]),
				Address: netip.AddrFrom4([4]byte{10, byte(nic + 2), low[0], low[1]}),
			}
		}
		d.Servers = append(d.Servers, boxhost.Server{
			Name: name, Chassis: "mercury1", Slot: int32(i + 1), UUID: "a1234567-89ab-cdef-a123-456789abcd01", Boot: boxhost.BootDisk,
			Ports: []boxhost.Port{port(1, ""), port(2, "a")},
		})
		d.Controllers = append(d.Controllers, boxhost.Name{Name: name + "m", Address: netip.AddrFrom4([4]byte{10, 5, low[0], low[1]})})
	}
	if _, err := d.Encode(); err != nil {
		t.Error(err)
	}
}
