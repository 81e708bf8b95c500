package boxhost

import (
	"fmt"
	"regexp"
	"strings"
)

// Paths of what a box host serves by HTTP.
const (
	PathBoot  = "/boot/"
	PathImage = "/image/"
	PathJoin  = "/join"
)

// Arguments of the boot image's kernel: the addresses of box hosts, the one that has given the script first, and the MAC by which the
// server is known.
const (
	ArgumentHosts = "rcbox.hosts="
	ArgumentMAC   = "rcbox.mac="
)

// Arguments that begin with reservedArguments are for a boot script alone. Settings are for all servers: rcbox.wipe=1 among them would
// erase the disk of each server that boots from the network. The size of a disk's system partition may be a setting: it only counts for
// disks that are blank.
const (
	reservedArguments = "rcbox."
	argumentSystem    = "rcbox.system="
	// argumentWipe has the boot image give up everything that is on the disk.
	argumentWipe = "rcbox.wipe="
)

var systemForm = regexp.MustCompile(`^` + regexp.QuoteMeta(argumentSystem) + `[0-9]+$`)

// scripts makes a script for each port that DHCP knows.
func (w *writer) scripts(scripts map[string]string) {
	for i := range w.Servers {
		server := &w.Servers[i]
		for _, port := range server.Ports {
			if port.MAC == "" || !w.network.Contains(port.Address) {
				continue
			}
			if server.Boot == BootNetwork {
				scripts[port.MAC] = w.fromNetwork(server, port.MAC)
			} else {
				scripts[port.MAC] = fromDisk(server)
			}
		}
	}
}

// fromDisk has a BIOS start the first disk, and leaves UEFI to its own list.
func fromDisk(server *Server) string {
	l := &lines{}
	l.add("#!ipxe")
	l.add("echo rcbox: %s (%s, slot %d) boots from its disk", server.Name, server.Chassis, server.Slot)
	l.add("iseq ${platform} efi && exit ||")
	l.add("sanboot --no-describe --drive 0x80 || exit")
	return l.String()
}

// fromNetwork tries each box host, and asks for a script again once none has answered: the server was told to boot from the network this
// one time, so that a restart would have it boot something else.
func (w *writer) fromNetwork(server *Server, mac string) string {
	l := &lines{}
	hosts := w.hostsHere()
	arguments := append([]string{"initrd=initrd", ArgumentHosts + strings.Join(hosts, ","), ArgumentMAC + mac}, w.BootArguments...)
	if server.Wipe {
		arguments = append(arguments, argumentWipe+"1")
	}
	l.add("#!ipxe")
	l.add("echo rcbox: %s (%s, slot %d) boots from the network", server.Name, server.Chassis, server.Slot)
	for i, host := range hosts {
		next := "again"
		if i+1 < len(hosts) {
			next = fmt.Sprintf("host%d", i+2)
		}
		l.add(":host%d", i+1)
		l.add("imgfree")
		l.add("kernel http://%s%skernel %s || goto %s", host, PathImage, strings.Join(arguments, " "), next)
		l.add("initrd --name initrd http://%s%sinitrd || goto %s", host, PathImage, next)
		l.add("boot || goto %s", next)
	}
	l.add(":again")
	l.add("echo rcbox: no box host has answered; the next attempt is in 5 seconds")
	l.add("sleep 5")
	for _, host := range hosts {
		l.add("chain --replace http://%s%s%s.ipxe ||", host, PathBoot, strings.ReplaceAll(mac, ":", "-"))
	}
	l.add("goto again")
	return l.String()
}
