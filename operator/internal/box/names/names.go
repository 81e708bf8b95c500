// Package names makes the names of servers, of their ports and of management controllers, and finds the servers that somebody has typed. It
// does not judge whether Chassis contradict each other.
package names

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const (
	// width is the least number of digits in a server's name: atom001.
	width = 3
	// mmcSuffix follows a server's name in that of its BMC.
	mmcSuffix = "m"
	// firstPortSuffix and lastPortSuffix bound those of further ports: they do not reach that of the BMC.
	firstPortSuffix, lastPortSuffix = "a", "e"
)

// Role is which of a chassis' controllers somebody means.
type Role string

// Roles of controllers. Of a pair, the first is in charge.
const (
	CMM Role = "cmm"
	CMS Role = "cms"
	ONM Role = "onm"
	ONS Role = "ons"
)

// Server is the name of a server: atom001.
func Server(prefix string, number int32) string { return fmt.Sprintf("%s%0*d", prefix, width, number) }

// MMC is the name of a server's BMC: atom001m.
func MMC(server string) string { return server + mmcSuffix }

// Port is the name of a server's port: atom001 with suffix a is atom001a.
func Port(server, suffix string) string { return server + suffix }

// Controller is the name of a controller of a chassis: mercury1cmm.
func Controller(chassis string, role Role) string { return chassis + string(role) }

// Name is the name of a server, of its BMC or of one of its ports, in parts.
type Name struct {
	Prefix string
	Number int32
	// Suffix is empty, m or a to e.
	Suffix string
}

// String puts the parts together.
func (n Name) String() string { return Server(n.Prefix, n.Number) + n.Suffix }

// Server is the name without its suffix.
func (n Name) Server() string { return Server(n.Prefix, n.Number) }

// IsMMC says whether it is the name of a BMC.
func (n Name) IsMMC() bool { return n.Suffix == mmcSuffix }

// IsPort says whether it is the name of a further port.
func (n Name) IsPort() bool { return n.Suffix >= firstPortSuffix && n.Suffix <= lastPortSuffix }

var form = regexp.MustCompile(`^([a-z]|[a-z][-a-z]*[a-z])([0-9]{3,9})([a-em]?)$`)

// Parse takes a name apart; false for a text that Name does not make.
func Parse(text string) (Name, bool) {
	parts := form.FindStringSubmatch(text)
	if parts == nil {
		return Name{}, false
	}
	number, err := strconv.ParseInt(parts[2], 10, 32)
	name := Name{Prefix: parts[1], Number: int32(number), Suffix: parts[3]}
	return name, err == nil && number > 0 && name.String() == text
}

// ParseController takes the name of a controller apart; false for a text that is none.
func ParseController(text string) (chassis string, role Role, isOne bool) {
	for _, role := range []Role{CMM, CMS, ONM, ONS} {
		if chassis, isOne := strings.CutSuffix(text, string(role)); isOne && chassis != "" {
			return chassis, role, true
		}
	}
	return "", "", false
}
