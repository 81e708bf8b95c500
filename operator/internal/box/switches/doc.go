// Package switches reads and switches ports of network switches by SNMPv3 (RFC 3414) and IF-MIB (RFC 2863). It decides nothing.
package switches

import (
	"context"
	"net/netip"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// Target is a switch, and how to log in there.
type Target struct {
	Address           netip.AddrPort
	Username          string
	Password, Privacy bmc.Secret
}

// equal says whether two targets are reached in the same way.
func (t *Target) equal(other *Target) bool {
	return t.Address == other.Address && t.Username == other.Username && t.Password.Equal(other.Password) && t.Privacy.Equal(other.Privacy)
}

// Port is a port of a switch.
type Port struct {
	// Index is the port's number in tables of the switch (ifIndex).
	Index int
	// Enabled is what an administrator wants (ifAdminStatus), and Up whether it has a link (ifOperStatus).
	Enabled, Up bool
}

// Seen is what a switch has said last.
type Seen struct {
	// At is when it was asked for Ports; zero: it has not answered yet.
	At    time.Time
	Ports map[string]Port
	// Err is what became of the last attempt.
	Err error
}

// Session speaks with a switch.
type Session interface {
	// Ports are all ports by their names.
	Ports(ctx context.Context) (map[string]Port, error)
	// Enable switches a port on or off, and reads back what it is then.
	Enable(ctx context.Context, index int, enabled bool) error
	Close() error
}
