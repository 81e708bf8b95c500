package ranges_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"rcbox.dev/rcbox/operator/internal/box/ranges"
)

// A list of addresses is printed in its shortest form, and reading that gives the same addresses.
func TestOfAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"192.168.5.1+44":                      "192.168.5.1+44",
		"192.168.5.1,192.168.5.2,192.168.5.4": "192.168.5.1+2,192.168.5.4",
		"192.168.5.253+2,192.168.6.1+2":       "192.168.5.253+2,192.168.6.1+2", // a range does not leave its network
		"192.168.5.9,192.168.5.8":             "192.168.5.9,192.168.5.8",
	} {
		if got := ranges.OfAddresses(parsed(t, text)).String(); got != want {
			t.Errorf("%s becomes %s, not %s", text, got, want)
		}
	}
	if got := ranges.OfAddresses(nil).String(); got != "" {
		t.Errorf("no addresses become %q", got)
	}
	hole := []netip.Addr{netip.MustParseAddr("10.1.1.0"), netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("10.1.1.2")}
	if got := ranges.OfAddresses(hole).String(); got != "10.1.1.0,10.1.1.1+2" {
		t.Errorf("got %q", got)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var addresses []netip.Addr
		for number := uint32(10)<<24 + random.Uint32N(1000); len(addresses) < 40; number += 1 + random.Uint32N(3)/2 {
			if number%256 != 0 && number%256 != 255 {
				addresses = append(addresses, netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, number))))
			}
		}
		if got := parsed(t, ranges.OfAddresses(addresses).String()); !slices.Equal(got, addresses) {
			t.Fatalf("%v becomes %v", addresses, got)
		}
	}
}

func parsed(t *testing.T, text string) []netip.Addr {
	t.Helper()
	list, err := ranges.ParseAddresses(text, netip.Prefix{})
	if err != nil {
		t.Fatal(err)
	}
	var addresses []netip.Addr
	for _, item := range list.Items() {
		addresses = append(addresses, item.Address)
	}
	return addresses
}
