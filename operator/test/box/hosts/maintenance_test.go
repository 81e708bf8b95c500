package hosts

import (
	"fmt"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// maintenance: a host that people log in to gives servers nothing, and reaches BMCs; the other host serves them alone. Back in its former
// role, it does what it did.
func (l *lab) maintenance() {
	first := l.hosts[0]
	// Whether this user is connected with 192.168.5.1:443, as the kernel says; nc has said its last word then.
	const connect = "busybox nc 192.168.5.1 443 </dev/null >/dev/null 2>&1 & i=0; " +
		"until grep -Eq \"0105A8C0:01BB 0[145] [0-9A-F:]+ [0-9A-F:]+ [0-9A-F]+ +$(id -u) \" /proc/net/tcp; do " +
		"i=$((i + 1)); [ $i -lt 30 ] || break; busybox usleep 100000; done; kill $!; [ $i -lt 30 ]"
	toBMC := func() error {
		output, err := l.ssh1("box", "-i", l.key, "-n", connect)
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	}
	if err := toBMC(); err == nil {
		l.Error("who logs in to a host that serves reaches a BMC")
	}
	l.desired.Hosts[0].Role = boxhost.RoleMaintenance
	l.serveDesired()
	l.waitServed(l.hosts[:]...)
	for port, isOpen := range map[string]bool{"22": true, "53": true, "80": false, "2049": false} {
		connection, err := l.blade.dial(l.Context(), "tcp", first.address+":"+port)
		if (err == nil) != isOpen {
			l.Errorf("port %s: %v", port, err)
		}
		if err == nil {
			_ = connection.Close()
		}
	}
	if err := toBMC(); err != nil {
		l.Errorf("who logs in for maintenance reaches no BMC: %v", err)
	}
	if found := first.programs("ganesha.nfsd"); len(found) > 0 {
		l.Errorf("NFS runs: %v", found)
	}
	l.desired.Hosts[0].Role = ""
	l.serveDesired()
	l.waitServed(l.hosts[:]...)
	if connection, err := l.blade.dial(l.Context(), "tcp", first.address+":80"); err != nil {
		l.Error(err)
	} else {
		_ = connection.Close()
	}
}
