package network_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/network"
)

func pool(t *testing.T, spec v1alpha1.AddressPool) network.Pool {
	t.Helper()
	parsed, err := network.ParsePool(spec)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func all(p network.Pool) []string {
	taken, list := map[netip.Addr]bool{}, []string(nil)
	for {
		ip, found := p.First(func(ip netip.Addr) bool { return taken[ip] })
		if !found {
			return list
		}
		taken[ip] = true
		list = append(list, ip.String())
	}
}

func TestPools(t *testing.T) {
	for _, test := range []struct {
		spec          v1alpha1.AddressPool
		want, clients string
	}{
		{v1alpha1.AddressPool{CIDR: "10.0.0.0/29"}, "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6", ""},
		{v1alpha1.AddressPool{CIDR: "10.0.0.0/24", Range: "10.0.0.4/30"}, "10.0.0.4 10.0.0.5 10.0.0.6 10.0.0.7", ""},
		{v1alpha1.AddressPool{CIDR: "10.0.0.0/29", Exclude: []string{"10.0.0.2", "10.0.0.4/30"}}, "10.0.0.1 10.0.0.3", ""},
		{
			v1alpha1.AddressPool{CIDR: "10.0.0.0/29", Exclude: []string{"10.0.0.5"}, Clients: 2},
			"10.0.0.1 10.0.0.2 10.0.0.3", "10.0.0.4 10.0.0.6",
		},
		{v1alpha1.AddressPool{CIDR: "10.0.0.0/30", Clients: 9}, "", "10.0.0.1 10.0.0.2"},
		{v1alpha1.AddressPool{CIDR: "255.255.255.248/29", Clients: 1}, "255.255.255.249 255.255.255.250 255.255.255.251 " +
			"255.255.255.252 255.255.255.253", "255.255.255.254"},
	} {
		p := pool(t, test.spec)
		if got := strings.Join(all(p), " "); got != test.want {
			t.Errorf("%+v gives masters %s", test.spec, got)
		}
		var clients []string
		for i := range 300 {
			if ip, found := p.Client(i); found {
				clients = append(clients, ip.String())
			}
		}
		if got := strings.Join(clients, " "); got != test.clients {
			t.Errorf("%+v gives clients %s", test.spec, got)
		}
	}
	for _, spec := range []v1alpha1.AddressPool{
		{},
		{CIDR: "10.0.0.1/24"},
		{CIDR: "10.0.0.0/31"},
		{CIDR: "10.0.0.0/8"},
		{CIDR: "fd00::/64"},
		{CIDR: "10.0.0.0/24", Range: "10.0.1.0/25"},
		{CIDR: "10.0.0.0/24", Range: "10.0.0.0/16"},
		{CIDR: "10.0.0.0/24", Exclude: []string{"a"}},
	} {
		if _, err := network.ParsePool(spec); err == nil {
			t.Errorf("%+v is a pool", spec)
		}
	}
}

// Whatever the pool: what it gives is in it, nobody gets two, masters and clients never get the same, and the sizes are right.
func TestPoolProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.IntRange(22, 30).Draw(t, "bits")
		rangeBits := rapid.IntRange(bits, 30).Draw(t, "rangeBits")
		spec := v1alpha1.AddressPool{
			CIDR: fmt.Sprintf("10.20.0.0/%d", bits), Range: fmt.Sprintf("10.20.0.0/%d", rangeBits),
			Clients: rapid.Int32Range(0, 40).Draw(t, "clients"),
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "exclusions") {
			spec.Exclude = append(spec.Exclude, fmt.Sprintf("10.20.0.%d/%d", rapid.IntRange(0, 255).Draw(t, "from"), 29+i))
		}
		p, err := network.ParsePool(spec)
		if err != nil {
			t.Fatal(err)
		}
		masters := all(p)
		size, free := p.Size(func(ip netip.Addr) bool { return ip.As4()[3]%2 == 0 })
		odd, macs := 0, map[string]bool{}
		for _, text := range masters {
			ip := netip.MustParseAddr(text)
			if !p.Contains(ip) || !p.Network.Contains(ip) || macs[network.MAC(ip)] {
				t.Fatalf("%+v gives %s", spec, text)
			}
			macs[network.MAC(ip)] = true
			odd += int(ip.As4()[3] % 2)
		}
		if int(size) != len(masters) || int(free) != odd {
			t.Fatalf("%+v: %d of %d free, not %d of %d", spec, free, size, odd, len(masters))
		}
		for i := range int(spec.Clients) {
			if ip, found := p.Client(i); found && (p.Contains(ip) || macs[network.MAC(ip)]) {
				t.Fatalf("%+v: client %d has the master's %s", spec, i, ip)
			}
		}
	})
}

func TestMAC(t *testing.T) {
	if got := network.MAC(netip.MustParseAddr("192.168.101.29")); got != "02:52:c0:a8:65:1d" {
		t.Errorf("the hardware address is %s", got)
	}
}

// A whole port keeps the hardware address that it was made with: nobody asks for another one, and whichever Multus reports is right.
func TestWholePortsKeepTheirHardwareAddress(t *testing.T) {
	spec := v1alpha1.StoreSpec{Network: v1alpha1.NetworkSpec{
		Transport: v1alpha1.TransportDPDK, Provider: v1alpha1.NetworkDevicePlugin, Profile: v1alpha1.NetworkWholePort,
		Attachments: []v1alpha1.NetworkAttachment{{
			NetworkAttachmentDefinition: "a", ResourceName: "intel.com/rcbox", Addresses: v1alpha1.AddressPool{CIDR: "10.0.0.0/24"},
		}},
	}}
	got, err := network.Request("shop", network.Attachments(&spec), network.Split("10.0.0.1"))
	if want := `[{"name":"a","namespace":"shop","interface":"net1","ips":["10.0.0.1/24"]}]`; err != nil || got != want {
		t.Errorf("asks for %s: %v", got, err)
	}
	have, _ := network.ParseStatus(written)
	have[0].MAC = "00:08:a2:0b:11:22"
	asked := netip.MustParseAddr("10.0.0.1")
	request := network.Asked{Definition: "shop/a", IP: asked, MAC: network.MACOf(v1alpha1.NetworkWholePort, asked)}
	if got := network.Differs(have, 0, request); got != "" {
		t.Errorf("differs: %s", got)
	}
}

func TestSplitIsTheInverse(t *testing.T) {
	for _, text := range []string{"10.0.0.1", "10.0.0.1,10.1.0.1"} {
		if got := network.Join(network.Split(text)); got != text {
			t.Errorf("%s becomes %s", text, got)
		}
	}
	for _, text := range []string{"", "a", "10.0.0.1,", "::1"} {
		if got := network.Split(text); got != nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestRequest(t *testing.T) {
	got, err := network.Request("shop", []network.Attachment{{Definition: "a", Bits: 24}, {Definition: "nets/b", Bits: 16}},
		network.Split("10.0.0.1,10.1.0.1"))
	const want = `[{"name":"a","namespace":"shop","interface":"net1","mac":"02:52:0a:00:00:01","ips":["10.0.0.1/24"]},` +
		`{"name":"b","namespace":"nets","interface":"net2","mac":"02:52:0a:01:00:01","ips":["10.1.0.1/16"]}]`
	if err != nil || got != want {
		t.Errorf("asks for %s: %v", got, err)
	}
}

// As Multus 4.2 writes it for a pod with a virtual function on vfio-pci.
const written = `[{"name":"kindnet","interface":"eth0","ips":["10.244.1.7"],"mac":"d2:4e:84:8a:0d:c1","default":true,"dns":{}},
	{"name":"shop/a","interface":"net1","ips":["10.0.0.1"],"mac":"02:52:0A:00:00:01","dns":{},
	"device-info":{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:3b:02.1"}}}]`

func TestStatus(t *testing.T) {
	attached, known := network.ParseStatus(written)
	if !known || len(attached) != 1 || attached[0].PCI != "0000:3b:02.1" || attached[0].MAC != "02:52:0a:00:00:01" {
		t.Fatalf("read as %+v", attached)
	}
	asked := netip.MustParseAddr("10.0.0.1")
	for _, test := range []struct {
		change func(*network.Attached)
		port   int
		want   string
	}{
		{func(*network.Attached) {}, 0, ""},
		{func(a *network.Attached) { a.IPs, a.MAC = nil, "" }, 0, ""},
		{func(*network.Attached) {}, 1, "net2 is not in the pod's network-status, which Multus has written"},
		{func(a *network.Attached) { a.Definition = "shop/b" }, 0, "net1 is attached by shop/b, not by shop/a"},
		{func(a *network.Attached) { a.MAC = "aa:bb" }, 0, "net1 has the hardware address aa:bb, not 02:52:0a:00:00:01: does shop/a"},
		{func(a *network.Attached) { a.IPs = network.Split("10.0.0.9") }, 0, "net1 has the address 10.0.0.9, not 10.0.0.1: shop/a must"},
	} {
		have, _ := network.ParseStatus(written)
		test.change(&have[0])
		request := network.Asked{Definition: "shop/a", IP: asked, MAC: network.MACOf(v1alpha1.NetworkVF, asked)}
		got := network.Differs(have, test.port, request)
		if !strings.HasPrefix(got, test.want) || (test.want == "") != (got == "") {
			t.Errorf("differs by %q, not by %q", got, test.want)
		}
	}
	for _, text := range []string{"", "{", "null]"} {
		if _, known := network.ParseStatus(text); known {
			t.Errorf("%q is taken for a status", text)
		}
	}
}
