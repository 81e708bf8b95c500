// Package supervisor runs the services of a box host: it renders what is to be served, has the real programs check it, reloads or restarts
// only what has changed, and is ready once each service has answered a real query. It does not decide what is served (package boxhost), nor
// who may join the cluster.
package supervisor

import (
	"context"
	"path/filepath"
	"strconv"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// Names of services.
const (
	unitFirewall = "firewall"
	unitDnsmasq  = "dnsmasq"
	unitSSH      = "sshd"
	unitNFS      = "nfs"
	unitRPC      = "rpcbind"
	unitNIS      = "ypserv"
)

// unit is a service that programs of others provide.
type unit struct {
	name string
	// restart are the files whose change takes a restart, and reload those that the program reads again at SIGHUP.
	restart, reload []string
	isWanted        func(*boxhost.Rendering) bool
	// command is what runs; nil: nothing does, and the unit is only applied.
	command func(*boxhost.Place) []string
	// before is done each time before it is started; nil: nothing is.
	before func(context.Context, *boxhost.Place)
}

func always(*boxhost.Rendering) bool { return true }

// units are all of them, in the order in which they are started.
func units() []unit {
	in := func(p *boxhost.Place, name string) string { return filepath.Join(p.Run, name) }
	return []unit{
		{name: unitFirewall, restart: []string{boxhost.FirewallFile}, isWanted: always},
		{
			name: unitDnsmasq, isWanted: always,
			restart: []string{boxhost.DnsmasqConf}, reload: []string{boxhost.DHCPHosts, boxhost.HostsFile},
			command: func(p *boxhost.Place) []string {
				return []string{"dnsmasq", "--keep-in-foreground", "--log-facility=-", "--conf-file=" + in(p, boxhost.DnsmasqConf)}
			},
		},
		{
			// Keys are read at each login.
			name: unitSSH, restart: []string{boxhost.SSHDConfig}, isWanted: func(r *boxhost.Rendering) bool { return r.SSH },
			command: func(p *boxhost.Place) []string {
				return []string{"/usr/sbin/sshd", "-D", "-e", "-f", in(p, boxhost.SSHDConfig)}
			},
		},
		{
			name: unitNFS, restart: []string{boxhost.GaneshaConf}, isWanted: func(r *boxhost.Rendering) bool { return r.NFS },
			command: func(p *boxhost.Place) []string {
				return []string{
					"ganesha.nfsd", "-F", "-L", "STDERR", "-N", "NIV_WARN", "-f", in(p, boxhost.GaneshaConf), "-p", in(p, "ganesha.pid"),
				}
			},
		},
		{
			name: unitRPC, isWanted: wantsNIS,
			command: func(p *boxhost.Place) []string { return []string{"rpcbind", "-f", "-h", p.Address.Addr().String()} },
		},
		{
			// It goes on with the maps that it has opened, even after SIGHUP.
			name: unitNIS, isWanted: wantsNIS, restart: nisFiles(),
			before:  func(ctx context.Context, p *boxhost.Place) { waitForRPC(ctx, p.Address.Addr()) },
			command: func(*boxhost.Place) []string { return []string{"ypserv", "-f", "-p", strconv.Itoa(boxhost.PortNIS)} },
		},
	}
}

func wantsNIS(r *boxhost.Rendering) bool { return r.NIS }

// action is what is done about a unit.
type action string

const (
	nothing action = "nothing"
	start   action = "start"
	stop    action = "stop"
	restart action = "restart"
	reload  action = "reload"
)

// actionFor says what a new rendering takes; old is nil at first. Another address of the host takes a restart of everything.
func actionFor(u *unit, old, next *boxhost.Rendering, isElsewhere bool) action {
	was, is := old != nil && u.isWanted(old), u.isWanted(next)
	differs := func(names []string) bool {
		for _, name := range names {
			if old.Files[name] != next.Files[name] {
				return true
			}
		}
		return false
	}
	switch {
	case !was && is:
		return start
	case was && !is:
		return stop
	case !is:
		return nothing
	case isElsewhere || differs(u.restart):
		return restart
	case differs(u.reload):
		return reload
	}
	return nothing
}
