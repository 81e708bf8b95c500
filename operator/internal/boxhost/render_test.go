package boxhost_test

import (
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

var update = flag.Bool("update", false, "write the files in testdata anew")

func place() *boxhost.Place {
	return &boxhost.Place{
		Interface: "eth1", Address: netip.MustParsePrefix("192.168.3.253/24"),
		Run: "/run/boxhost", State: "/var/lib/boxhost", TFTP: "/usr/lib/ipxe", User: "box", UserID: 1000,
	}
}

func render(t *testing.T, d *boxhost.Desired, p *boxhost.Place) *boxhost.Rendering {
	t.Helper()
	r, err := boxhost.Render(d, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// golden compares texts with the files of a folder in testdata.
func golden(t *testing.T, folder string, texts map[string]string) {
	t.Helper()
	folder = filepath.Join("testdata", folder)
	if *update {
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range texts {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(texts) {
		t.Errorf("%s has %d files, and %d were rendered", folder, len(files), len(texts))
	}
	for name, text := range texts {
		want, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || string(want) != text {
			t.Errorf("%s/%s differs (%v); go test ./operator/internal/boxhost -update writes it anew:\n%s", folder, name, err, text)
		}
	}
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for folder, change := range map[string]func(*boxhost.Desired){
		"usual": func(*boxhost.Desired) {},
		"least": func(d *boxhost.Desired) {
			d.Settings = boxhost.Settings{Domain: "box.rcbox"}
			d.Servers, d.Controllers = nil, nil
		},
		"maintenance": func(d *boxhost.Desired) { d.Hosts[0].Role = boxhost.RoleMaintenance },
		// It serves, and sends nobody to the other host.
		"beside maintenance": func(d *boxhost.Desired) { d.Hosts[1].Role = boxhost.RoleMaintenance },
		"most": func(d *boxhost.Desired) {
			d.Router = netip.MustParseAddr("192.168.3.250")
			d.Resolvers = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
			d.ForwardTo = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.1.0.7/32")}
			d.Servers[0].Wipe = true
			d.OpenTCP, d.OpenUDP = []uint16{6443, 10250}, []uint16{8472}
		},
	} {
		d := desired()
		change(d)
		r := render(t, d, place())
		texts := maps.Clone(r.Files)
		for mac, script := range r.Scripts {
			texts[strings.ReplaceAll(mac, ":", "-")+".ipxe"] = script
		}
		golden(t, folder, texts)
	}
}

// Both hosts give the same addresses to the same MACs.
func TestHostsAgree(t *testing.T) {
	t.Parallel()
	second := place()
	second.Address = netip.MustParsePrefix("192.168.3.254/24")
	one, other := render(t, desired(), place()), render(t, desired(), second)
	if one.Files[boxhost.DHCPHosts] != other.Files[boxhost.DHCPHosts] || !maps.Equal(one.Known, other.Known) {
		t.Error("they differ")
	}
	if want := []string{"52:54:00:03:00:01", "52:54:00:03:00:02"}; !slices.Equal(slices.Sorted(maps.Keys(one.Known)), want) {
		t.Error(one.Known) // those of another network are not known here
	}
}

func TestPlaceIsRefused(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*boxhost.Place){
		"no name of one":                    func(p *boxhost.Place) { p.Interface = "eth1\n" },
		"no name":                           func(p *boxhost.Place) { p.Interface = "" },
		"has no IPv4 address":               func(p *boxhost.Place) { p.Address = netip.Prefix{} },
		"is in none of the networks":        func(p *boxhost.Place) { p.Address = netip.MustParsePrefix("10.0.0.1/24") },
		"the same number of bits":           func(p *boxhost.Place) { p.Address = netip.MustParsePrefix("192.168.3.253/16") },
		"is that of server atom001":         func(p *boxhost.Place) { p.Address = netip.MustParsePrefix("192.168.3.1/24") },
		"a folder's path must consist":      func(p *boxhost.Place) { p.Run = "/run/a b" },
		"a folder's path":                   func(p *boxhost.Place) { p.State = "/var/../etc" },
		"cannot be the user who logs in by": func(p *boxhost.Place) { p.UserID = 0 },
	} {
		p := place()
		change(p)
		if _, err := boxhost.Render(desired(), p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestPurgeLeases(t *testing.T) {
	t.Parallel()
	const (
		one   = "1764130000 52:54:00:03:00:01 192.168.3.1 atom001 *\n"
		two   = "1764130000 52:54:00:03:00:02 192.168.3.2 atom002 01:52:54:00:03:00:02\n"
		other = "duid 00:01\n\n"
	)
	hosts := "52:54:00:03:00:77,192.168.3.1,atom001,1h\n52:54:00:03:00:02,192.168.3.2,atom002,1h\n"
	if kept, isNeeded := boxhost.PurgeLeases(one+two+other, hosts); !isNeeded || kept != two+other {
		t.Errorf("%v %q", isNeeded, kept)
	}
	// The lease of a port that was removed harms nobody: DHCP does not answer it.
	for _, leases := range []string{"", two, two + other, "1764130000 52:54:00:03:00:09 192.168.3.9 * *\n"} {
		if kept, isNeeded := boxhost.PurgeLeases(leases, hosts); isNeeded || kept != leases {
			t.Errorf("%v %q", isNeeded, kept)
		}
	}
}

// Each change of what is served has another version, and nothing else has.
func TestVersion(t *testing.T) {
	t.Parallel()
	first := render(t, desired(), place())
	if again := render(t, desired(), place()); again.Version != first.Version {
		t.Error("the same has two versions")
	}
	seen := map[string]string{first.Version: "the first"}
	for what, change := range map[string]func(*boxhost.Desired){
		"MAC":        func(d *boxhost.Desired) { d.Servers[0].Ports[0].MAC = "52:54:00:03:00:99" },
		"boot":       func(d *boxhost.Desired) { d.Servers[0].Boot = boxhost.BootDisk },
		"controller": func(d *boxhost.Desired) { d.Controllers = d.Controllers[1:] },
		"key":        func(d *boxhost.Desired) { d.AuthorizedKeys = nil },
		"removed":    func(d *boxhost.Desired) { d.Servers = d.Servers[1:] },
	} {
		d := desired()
		change(d)
		version := render(t, d, place()).Version
		if other := seen[version]; other != "" {
			t.Errorf("%s has the version of %s", what, other)
		}
		seen[version] = what
	}
}

// Whatever text is accepted, in whatever field, it adds no line to any file: what is one word stays one.
func TestNoTextAddsALine(t *testing.T) {
	t.Parallel()
	fields := []func(*boxhost.Desired, string){
		func(d *boxhost.Desired, s string) { d.Domain = s },
		func(d *boxhost.Desired, s string) { d.Hosts[1].Name = s },
		func(d *boxhost.Desired, s string) { d.Controllers[0].Name = s },
		func(d *boxhost.Desired, s string) { d.Servers[0].Name = s },
		func(d *boxhost.Desired, s string) { d.Servers[0].Chassis = s },
		func(d *boxhost.Desired, s string) { d.Servers[0].Ports[0].MAC = s },
		func(d *boxhost.Desired, s string) { d.Servers[1].Ports[1].Suffix = s },
		func(d *boxhost.Desired, s string) { d.BootArguments[0] = s },
		func(d *boxhost.Desired, s string) { d.Exports[0].Name = s },
		func(d *boxhost.Desired, s string) { d.AuthorizedKeys[0] = s },
		func(d *boxhost.Desired, s string) { d.NIS.Domain = s },
		func(d *boxhost.Desired, s string) { d.NIS.Users[0].Home = s },
		func(d *boxhost.Desired, s string) { d.NIS.Groups[0].Name = s },
	}
	all := func(d *boxhost.Desired) string {
		r := render(t, d, place())
		var shape strings.Builder
		for _, name := range slices.Sorted(maps.Keys(r.Files)) {
			fmt.Fprintf(&shape, "%s: %d words, %d lines; ", name, len(strings.Fields(r.Files[name])), strings.Count(r.Files[name], "\n"))
		}
		lines, words := 0, 0
		for _, script := range r.Scripts {
			lines, words = lines+strings.Count(script, "\n"), words+len(strings.Fields(script))
		}
		fmt.Fprintf(&shape, "%d lines and %d words of scripts", lines, words)
		return shape.String()
	}
	usual := all(desired())
	rapid.Check(t, func(t *rapid.T) {
		d := desired()
		which := rapid.IntRange(0, len(fields)-1).Draw(t, "field")
		good := []string{"box.rcbox", "atom001", "52:54:00:03:00:07", "a", "b", "/home", key, "console=ttyS0"}
		text := rapid.SampledFrom(good).Draw(t, "good")
		at := rapid.IntRange(0, len(text)).Draw(t, "at")
		text = text[:at] + rapid.OneOf(rapid.String(), rapid.StringMatching(`[ \n"'{};#,/.a-z0-9-]{0,4}`)).Draw(t, "within") + text[at:]
		fields[which](d, text)
		if d.Validate() != nil {
			return
		}
		if shape := all(d); shape != usual {
			t.Errorf("field %d: %q changes what is rendered", which, text)
		}
	})
}
