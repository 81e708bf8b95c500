package supervisor

import (
	"cmp"
	"encoding/binary"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// forgetAfter is for how long a stranger is reported who does not ask any more.
const forgetAfter = 30 * time.Minute

// strangers are machines that asked for addresses and are known by no Server. There are at most boxhost.MaxStrangers: whoever forges MACs
// fills the list, and nothing else.
type strangers struct {
	seen map[string]*sight
}

type sight struct{ first, last time.Time }

// see takes down that somebody asked, and says whether that is to be reported.
func (s *strangers) see(now time.Time, mac string) bool {
	if s.seen == nil {
		s.seen = map[string]*sight{}
	}
	if of := s.seen[mac]; of != nil {
		of.last = now
		return false
	}
	s.forget(now)
	if len(s.seen) >= boxhost.MaxStrangers {
		return false
	}
	s.seen[mac] = &sight{first: now, last: now}
	return true
}

func (s *strangers) forget(now time.Time) {
	maps.DeleteFunc(s.seen, func(_ string, of *sight) bool { return now.Sub(of.last) > forgetAfter })
}

// list gives those that are still strangers.
func (s *strangers) list(now time.Time, isKnown func(mac string) bool) []boxhost.Stranger {
	s.forget(now)
	maps.DeleteFunc(s.seen, func(mac string, _ *sight) bool { return isKnown(mac) })
	all := make([]boxhost.Stranger, 0, len(s.seen))
	for mac, of := range s.seen {
		all = append(all, boxhost.Stranger{MAC: mac, Since: of.first.UTC().Truncate(time.Second)})
	}
	slices.SortFunc(all, func(a, b boxhost.Stranger) int {
		return cmp.Or(strings.Compare(a.MAC, b.MAC), a.Since.Compare(b.Since))
	})
	return all
}

// Offsets and sizes of IPv4, UDP and BOOTP (RFC 791, 768, 951).
const (
	sizeIPv4, sizeUDP, sizeBOOTP      = 20, 8, 236
	protocolUDP                       = 17
	offsetHardware                    = 28
	bootRequest, ethernet, sizeOfMAC  = 1, 1, 6
	offsetProtocol, offsetDestination = 9, 2
)

// askerOf is the MAC of who asks for an address in an IPv4 packet; false for another packet.
func askerOf(packet []byte) (string, bool) {
	if len(packet) < sizeIPv4 || packet[0]>>4 != 4 || packet[offsetProtocol] != protocolUDP {
		return "", false
	}
	header := int(packet[0]&0xf) * 4
	if header < sizeIPv4 || len(packet) < header+sizeUDP+sizeBOOTP {
		return "", false
	}
	datagram := packet[header:]
	if binary.BigEndian.Uint16(datagram[offsetDestination:]) != boxhost.PortDHCP {
		return "", false
	}
	message := datagram[sizeUDP:]
	if message[0] != bootRequest || message[1] != ethernet || message[2] != sizeOfMAC {
		return "", false
	}
	mac := net.HardwareAddr(message[offsetHardware : offsetHardware+sizeOfMAC]).String()
	return mac, boxhost.IsMAC(mac)
}
