package supervisor

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"pgregory.net/rapid"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

func TestPauses(t *testing.T) {
	t.Parallel()
	pause := time.Duration(0)
	for _, of := range []struct{ lived, want time.Duration }{
		{0, 250 * time.Millisecond},
		{time.Second, 500 * time.Millisecond},
		{59 * time.Second, time.Second},
		{time.Minute, 250 * time.Millisecond},
		{0, 500 * time.Millisecond},
	} {
		if pause = pauseAfter(pause, of.lived); pause != of.want {
			t.Errorf("after %s it waits %s, not %s", of.lived, pause, of.want)
		}
	}
	for range 20 {
		pause = pauseAfter(pause, 0)
	}
	if pause != longestPause {
		t.Errorf("it waits %s", pause)
	}
}

func TestActions(t *testing.T) {
	t.Parallel()
	files := func(more ...string) *boxhost.Rendering {
		r := &boxhost.Rendering{Files: map[string]string{boxhost.DnsmasqConf: "a", boxhost.DHCPHosts: "a", boxhost.HostsFile: "a"}}
		for i := 0; i < len(more); i += 2 {
			r.Files[more[i]] = more[i+1]
		}
		return r
	}
	secure := func(text string) *boxhost.Rendering {
		r := files(boxhost.SSHDConfig, text, boxhost.AuthorizedKeys, text)
		r.SSH = true
		return r
	}
	for _, of := range []struct {
		what        string
		unit        string
		old, next   *boxhost.Rendering
		isElsewhere bool
		want        action
	}{
		{"first", unitDnsmasq, nil, files(), false, start},
		{"the same", unitDnsmasq, files(), files(), false, nothing},
		{"a MAC", unitDnsmasq, files(), files(boxhost.DHCPHosts, "b"), false, reload},
		{"a name", unitDnsmasq, files(), files(boxhost.HostsFile, "b"), false, reload},
		{"a resolver", unitDnsmasq, files(), files(boxhost.DnsmasqConf, "b", boxhost.HostsFile, "b"), false, restart},
		{"another address", unitDnsmasq, files(), files(), true, restart},
		{"no key", unitSSH, files(), files(), false, nothing},
		{"no key, another address", unitSSH, files(), files(), true, nothing},
		{"first key", unitSSH, files(), secure("a"), false, start},
		{"last key", unitSSH, secure("a"), files(), false, stop},
		{"another configuration", unitSSH, secure("a"), secure("b"), false, restart},
	} {
		for _, u := range units() {
			if u.name == of.unit {
				if got := actionFor(&u, of.old, of.next, of.isElsewhere); got != of.want {
					t.Errorf("%s: %s, not %s", of.what, got, of.want)
				}
			}
		}
	}
}

func TestStrangersAreBounded(t *testing.T) {
	t.Parallel()
	s := &strangers{}
	now := time.Unix(1000, 0)
	nobody := func(string) bool { return false }
	reports := 0
	for range 2 {
		for i := range 1000 {
			if s.see(now, fmt.Sprintf("52:54:00:00:%02x:%02x", i/256, i%256)) {
				reports++
			}
		}
	}
	if reports != boxhost.MaxStrangers {
		t.Errorf("a flood had %d reports made", reports)
	}
	all := s.list(now, nobody)
	if len(all) != boxhost.MaxStrangers || all[0].MAC != "52:54:00:00:00:00" {
		t.Errorf("%d are listed, %v is the first", len(all), all[0])
	}
	// One that has become a server is none any more, and makes room.
	all = s.list(now, func(mac string) bool { return mac == "52:54:00:00:00:00" })
	if len(all) != boxhost.MaxStrangers-1 || all[0].MAC != "52:54:00:00:00:01" {
		t.Errorf("%d are listed, %v is the first", len(all), all[0])
	}
	later := now.Add(20 * time.Minute)
	s.see(later, "52:54:00:00:00:01")
	if all = s.list(later.Add(11*time.Minute), nobody); len(all) != 1 || !all[0].Since.Equal(now) {
		t.Errorf("%v", all)
	}
	if all = s.list(later.Add(forgetAfter+time.Second), nobody); len(all) != 0 {
		t.Errorf("%v", all)
	}
}

// A report's message is whole characters, whatever a program has said: an API server refuses others, and DecodeReport longer ones.
func TestCut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "bytes")) + rapid.StringN(0, 40, 90).Draw(t, "text")
		most := rapid.IntRange(0, 60).Draw(t, "most")
		short := cut(text, most)
		if len(short) > most || !utf8.ValidString(short) {
			t.Errorf("%q", short)
		}
		if utf8.ValidString(text) && (!strings.HasPrefix(text, short) || len(text) > most && len(short) <= most-utf8.UTFMax) {
			t.Errorf("%q has become %q", text, short)
		}
	})
}

// request is a packet that asks for an address.
func request() []byte {
	packet := make([]byte, sizeIPv4+sizeUDP+sizeBOOTP)
	packet[0], packet[offsetProtocol], packet[sizeIPv4+3] = 0x45, protocolUDP, boxhost.PortDHCP
	message := packet[sizeIPv4+sizeUDP:]
	message[0], message[1], message[2] = bootRequest, ethernet, sizeOfMAC
	copy(message[offsetHardware:], []byte{0x52, 0x54, 0, 3, 0, 0x99})
	return packet
}

func TestAsker(t *testing.T) {
	t.Parallel()
	if mac, isOne := askerOf(request()); !isOne || mac != "52:54:00:03:00:99" {
		t.Error(mac, isOne)
	}
	options := append([]byte{0x46}, request()[1:sizeIPv4]...)
	options = append(append(options, 0, 0, 0, 0), request()[sizeIPv4:]...)
	if mac, isOne := askerOf(options); !isOne || mac != "52:54:00:03:00:99" {
		t.Error(mac, isOne) // with a longer header of IPv4
	}
	for what, change := range map[string]func(packet []byte) []byte{
		"nothing":         func([]byte) []byte { return nil },
		"cut":             func(packet []byte) []byte { return packet[:len(packet)-1] },
		"IPv6":            func(packet []byte) []byte { packet[0] = 0x65; return packet },
		"a short header":  func(packet []byte) []byte { packet[0] = 0x41; return packet },
		"TCP":             func(packet []byte) []byte { packet[offsetProtocol] = 6; return packet },
		"DNS":             func(packet []byte) []byte { packet[sizeIPv4+3] = boxhost.PortDNS; return packet },
		"an answer":       func(packet []byte) []byte { packet[sizeIPv4+sizeUDP] = 2; return packet },
		"InfiniBand":      func(packet []byte) []byte { packet[sizeIPv4+sizeUDP+1] = 32; return packet },
		"a group's MAC":   func(packet []byte) []byte { packet[sizeIPv4+sizeUDP+offsetHardware] = 1; return packet },
		"another MAC len": func(packet []byte) []byte { packet[sizeIPv4+sizeUDP+2] = 16; return packet },
	} {
		if mac, isOne := askerOf(change(request())); isOne {
			t.Errorf("%s: %s", what, mac)
		}
	}
}

func TestAnyPacket(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		packet := request()
		for range rapid.IntRange(0, 4).Draw(t, "changes") {
			packet[rapid.IntRange(0, len(packet)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		packet = packet[:rapid.IntRange(0, len(packet)).Draw(t, "size")]
		if mac, isOne := askerOf(packet); isOne && !boxhost.IsMAC(mac) {
			t.Error(mac)
		}
	})
}

// TestNothingToServeYet: a chart that is installed before the first Chassis comes up whole.
func TestNothingToServeYet(t *testing.T) {
	t.Parallel()
	s := New(Config{Log: logr.Discard(), Interface: "none", State: t.TempDir(), Run: t.TempDir()})
	empty := &boxhost.Desired{
		Version: boxhost.Version, Networks: []boxhost.Network{}, Servers: []boxhost.Server{}, Controllers: []boxhost.Name{},
		Settings: boxhost.Settings{
			Domain: "box.rcbox", Hosts: []boxhost.Host{{Name: "boxhost1", Address: netip.MustParseAddr("192.168.3.253")}},
		},
	}
	data, err := empty.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, isReady, _ := s.state.text(); isReady {
		t.Error("ready before anything is known")
	}
	s.take(t.Context(), data)
	if text, isReady, isRefused := s.state.text(); !isReady || isRefused || !strings.Contains(text, "no Chassis has a network") {
		t.Errorf("%q, ready: %t, refused: %t", text, isReady, isRefused)
	}
	s.take(t.Context(), []byte("{}"))
	if _, isReady, isRefused := s.state.text(); !isRefused {
		t.Errorf("ready: %t, refused: %t", isReady, isRefused)
	}
	// Once something is served, an interface in no network is a mistake.
	s.current = &served{}
	s.take(t.Context(), data)
	if text, isReady, isRefused := s.state.text(); isReady || !isRefused {
		t.Errorf("%q, ready: %t, refused: %t", text, isReady, isRefused)
	}
}

func TestImageVersion(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		`{"version":"image-1","kernel":{}}`: "image-1", "": "", "{": "", `{"version":"` + strings.Repeat("x", 64) + `"}`: "",
		strings.Repeat(" ", maxManifest) + `{"version":"image-1"}`: "",
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "manifest.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := imageVersion(folder); got != want {
			t.Errorf("%.40q: %q", content, got)
		}
	}
	if got := imageVersion(t.TempDir()); got != "" {
		t.Errorf("no image is %q", got)
	}
}
