package machine

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"rcbox.dev/rcbox/operator/internal/blade"
)

// ErrNoLease is wrapped by the error of a port that DHCP has not given an address yet.
var ErrNoLease = errors.New("the port has no address yet")

// LeaseOf is what the port with a MAC has from DHCP.
func LeaseOf(mac string) (blade.Lease, error) {
	wanted, err := net.ParseMAC(mac)
	if err != nil {
		return blade.Lease{}, fmt.Errorf("the port that this blade was started from: %w", err)
	}
	ports, err := net.Interfaces()
	if err != nil {
		return blade.Lease{}, fmt.Errorf("list network ports: %w", err)
	}
	for _, port := range ports {
		if !bytes.Equal(port.HardwareAddr, wanted) {
			continue
		}
		addresses, err := port.Addrs()
		if err != nil {
			return blade.Lease{}, fmt.Errorf("list the addresses of %s: %w", port.Name, err)
		}
		for _, address := range addresses {
			prefix, err := netip.ParsePrefix(address.String())
			if err != nil || !prefix.Addr().Is4() || !prefix.Addr().IsGlobalUnicast() {
				continue
			}
			lease := blade.Lease{MAC: mac, Address: prefix}
			lease.Router = router(read("/proc/net/route"), port.Name)
			lease.Resolvers = resolvers(read("/run/systemd/resolve/resolv.conf"))
			return lease, nil
		}
		return blade.Lease{}, fmt.Errorf("%w: %s (%s); does a box host know its MAC?", ErrNoLease, port.Name, mac)
	}
	return blade.Lease{}, fmt.Errorf("there is no network port with MAC %s, from which this blade was installed", mac)
}

// read is the text of a file; empty if there is none, as on a machine without resolver or routes.
func read(path string) string {
	text, err := os.ReadFile(path) //nolint:gosec // of this package
	if err != nil {
		return ""
	}
	return string(text)
}

// router is the default router in the kernel's table of routes.
func router(table, port string) netip.Addr {
	const destination, gateway, columns = 1, 2, 8
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < columns || fields[0] != port || fields[destination] != "00000000" {
			continue
		}
		raw, err := hex.DecodeString(fields[gateway])
		if err == nil && len(raw) == net.IPv4len {
			return netip.AddrFrom4([4]byte{raw[3], raw[2], raw[1], raw[0]})
		}
	}
	return netip.Addr{}
}

func resolvers(configuration string) []netip.Addr {
	var all []netip.Addr
	for line := range strings.Lines(configuration) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if address, err := netip.ParseAddr(fields[1]); err == nil && address.Zone() == "" {
			all = append(all, address)
		}
	}
	return all
}
