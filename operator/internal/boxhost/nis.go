package boxhost

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"rcbox.dev/rcbox/operator/internal/box/names"
)

// NIS is what box hosts serve of users. There are no passwords in it: NIS would give them to everybody.
type NIS struct {
	// Domain is the name of the NIS domain.
	Domain string `json:"domain"`
	// Users, each with a group of the same name and number.
	Users []NISUser `json:"users,omitempty"`
	// Groups are further ones.
	Groups []NISGroup `json:"groups,omitempty"`
}

// NISUser is a user of servers.
type NISUser struct {
	Name string `json:"name"`
	UID  uint32 `json:"uid"`
	// Home is the user's folder; empty: /home/NAME.
	Home string `json:"home,omitempty"`
}

// NISGroup is a group of users.
type NISGroup struct {
	Name    string   `json:"name"`
	GID     uint32   `json:"gid"`
	Members []string `json:"members,omitempty"`
}

const (
	maxUsers  = 512
	maxGroups = 128
	// minUserID and maxUserID are those that Debian has for users: NIS makes nobody a user of the system.
	minUserID, maxUserID = 1000, 59999
	// maxRecord bounds what a map gives for a key: the protocol has 1024 bytes.
	maxRecord = 1000
	// userShell is that of all users.
	userShell = "/bin/bash"
)

// Names of what makes up NIS, in the folder Place.Run.
const (
	// NISFolder is where ypserv finds everything.
	NISFolder = "yp"
	// Securenets has the networks that ypserv answers.
	Securenets = "securenets"
	// nisPrefix begins the names of rendered files that maps are made from.
	nisPrefix = "nis-"
	// NISHosts is the map of hosts by their names.
	NISHosts = "hosts.byname"
)

// NISMaps are the names of all maps.
func NISMaps() []string {
	return []string{"group.bygid", "group.byname", "hosts.byaddr", NISHosts, "passwd.byname", "passwd.byuid"}
}

// NISFile is the rendered file that a map is made from.
func NISFile(name string) string { return nisPrefix + name }

var (
	nisDomainForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)
	nisNameForm   = regexp.MustCompile(`^[a-z]([-a-z0-9_]{0,30}[a-z0-9])?$`)
	homeForm      = regexp.MustCompile(`^(/[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?){1,8}$`)
	// reservedUsers are those that the system of a server or of a box host has.
	reservedUsers = []string{"root", "box", "nobody", "nogroup", "daemon", "sshd"}
)

func (c *checker) nis(n *NIS) {
	if n == nil {
		return
	}
	if !nisDomainForm.MatchString(n.Domain) || strings.Contains(n.Domain, "..") || n.Domain == Securenets {
		c.refuse("nis.domain: %.64q is no name of lower case letters, digits, '-' and '.', such as box", n.Domain)
	}
	if !c.atMost("nis.users", len(n.Users), maxUsers) || !c.atMost("nis.groups", len(n.Groups), maxGroups) {
		return
	}
	groups, numbers, users := map[string]string{}, map[uint32]string{}, map[string]bool{}
	for i := range n.Users {
		user, field := &n.Users[i], fmt.Sprintf("nis.users[%d]", i)
		c.nisName(field, user.Name, "uid", user.UID)
		take(c, groups, user.Name, field+".name")
		take(c, numbers, user.UID, field+".uid")
		users[user.Name] = true
		if user.Home != "" && !homeForm.MatchString(user.Home) {
			c.refuse("%s.home: %.64q is no folder's path of lower case letters, digits, '-', '_' and '.', such as /home/alice",
				field, user.Home)
		}
	}
	for i := range n.Groups {
		group, field := &n.Groups[i], fmt.Sprintf("nis.groups[%d]", i)
		c.nisName(field, group.Name, "gid", group.GID)
		take(c, groups, group.Name, field+".name")
		take(c, numbers, group.GID, field+".gid")
		for _, member := range group.Members {
			if !users[member] {
				c.refuse("%s.members: %.64q is none of nis.users", field, member)
			}
		}
		if len(group.line()) > maxRecord {
			c.refuse("%s.members: the group's line has more than %d bytes, and NIS has no room for it: make several groups",
				field, maxRecord)
		}
	}
}

func (c *checker) nisName(field, name, kind string, number uint32) {
	if !nisNameForm.MatchString(name) || slices.Contains(reservedUsers, name) {
		c.refuse("%s.name: %.64q is no name of at most 32 lower case letters, digits, '-' and '_', such as alice, or is one of the system",
			field, name)
	}
	if number < minUserID || number > maxUserID {
		c.refuse("%s.%s: must be from %d to %d: others are those of the system", field, kind, minUserID, maxUserID)
	}
}

func (u *NISUser) line() string {
	home := u.Home
	if home == "" {
		home = "/home/" + u.Name
	}
	return fmt.Sprintf("%s:*:%d:%d::%s:%s", u.Name, u.UID, u.UID, home, userShell)
}

func (g *NISGroup) line() string {
	return fmt.Sprintf("%s:*:%d:%s", g.Name, g.GID, strings.Join(g.Members, ","))
}

// nis has a file for each map, with a line for each key, and the networks that are answered. Names of BMCs are not there: servers have
// no business with them.
func (w *writer) nis(files map[string]string) {
	maps := map[string]*lines{}
	for _, name := range NISMaps() {
		maps[name] = &lines{}
	}
	for i := range w.NIS.Users {
		user := &w.NIS.Users[i]
		maps["passwd.byname"].add("%s %s", user.Name, user.line())
		maps["passwd.byuid"].add("%d %s", user.UID, user.line())
	}
	for _, group := range w.nisGroups() {
		maps["group.byname"].add("%s %s", group.Name, group.line())
		maps["group.bygid"].add("%d %s", group.GID, group.line())
	}
	host := func(name string, address netip.Addr) {
		line := fmt.Sprintf("%s %s.%s %s", address, name, w.Domain, name)
		maps["hosts.byaddr"].add("%s %s", address, line)
		maps[NISHosts].add("%s %s", name, line)
		maps[NISHosts].add("%s.%s %s", name, w.Domain, line)
	}
	for _, of := range w.Hosts {
		host(of.Name, of.Address)
	}
	for i := range w.Servers {
		for _, port := range w.Servers[i].Ports {
			if port.Address.IsValid() {
				host(names.Port(w.Servers[i].Name, port.Suffix), port.Address)
			}
		}
	}
	for name, text := range maps {
		files[NISFile(name)] = text.String()
	}
	files[NISFile(Securenets)] = fmt.Sprintf("%s\n255.255.255.255 127.0.0.1\n%s %s\n", header, mask(w.network), w.network.Addr())
}

// nisGroups are those of users, and further ones.
func (w *writer) nisGroups() []NISGroup {
	all := make([]NISGroup, 0, len(w.NIS.Users)+len(w.NIS.Groups))
	for i := range w.NIS.Users {
		all = append(all, NISGroup{Name: w.NIS.Users[i].Name, GID: w.NIS.Users[i].UID})
	}
	return append(all, w.NIS.Groups...)
}

// nisOptions have DHCP tell servers of NIS (options 40 and 41).
func (w *writer) nisOptions(l *lines) {
	if w.NIS != nil {
		l.add("dhcp-option=option:nis-domain,%s\ndhcp-option=option:nis-server,%s", w.NIS.Domain, strings.Join(w.hostsHere(), ","))
	}
}

// nisFirewall closes the ports of rpcbind and ypserv, which bind to all addresses, at all interfaces but that of servers.
func (w *writer) nisFirewall(l *lines) {
	if w.NIS == nil || w.isMaintenance {
		return
	}
	l.add("\t\tiifname != { %q, \"lo\" } udp dport { %s } counter drop comment \"NIS\"", w.Interface, portsOfNIS())
	l.add("\t\tiifname != { %q, \"lo\" } tcp dport { %s } counter drop comment \"NIS\"", w.Interface, portsOfNIS())
}

// nisNetwork closes these ports to all but the network of servers.
func (w *writer) nisNetwork(l *lines) {
	if w.NIS != nil && !w.isMaintenance {
		l.add("\t\tip saddr != %s udp dport { %s } counter drop", w.network, portsOfNIS())
		l.add("\t\tip saddr != %s tcp dport { %s } counter drop", w.network, portsOfNIS())
	}
}

// portsOfNIS are those of rpcbind and ypserv, as nft writes them.
func portsOfNIS() string { return fmt.Sprintf("%d, %d-%d", PortRPC, PortNIS, LastPortNIS) }
