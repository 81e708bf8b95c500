// Package bmc speaks with management controllers: those of servers (MMC) and those of chassis (CMM). It says what a controller answered and
// decides nothing: whether a server is off, and what is done about it, is decided by whoever compares several controllers' answers.
package bmc

import (
	"context"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Protocol is the language of a controller.
type Protocol string

const (
	// IPMI is IPMI 2.0 over LAN (RMCP+).
	IPMI Protocol = "IPMI"
	// Redfish is Redfish over HTTPS.
	Redfish Protocol = "Redfish"
)

// Power is what a controller says about a server's power. The zero value is unknown, and unknown never means off.
type Power int

// States of power.
const (
	PowerUnknown Power = iota
	PowerOn
	PowerOff
)

// String returns the word that status fields use.
func (p Power) String() string {
	switch p {
	case PowerOn:
		return "On"
	case PowerOff:
		return "Off"
	case PowerUnknown:
		return "Unknown"
	default:
		return "Power(" + strconv.Itoa(int(p)) + ")"
	}
}

// Action is what a controller is asked to do with a server's power.
type Action int

// Actions. The zero value is none of them, so that a forgotten action is refused.
const (
	// ActionOn switches the server on.
	ActionOn Action = iota + 1
	// ActionSoft asks the operating system to shut down.
	ActionSoft
	// ActionOff takes the power away, whatever runs.
	ActionOff
	// ActionCycle takes the power away and gives it back.
	ActionCycle
	// ActionReset restarts the server at once.
	ActionReset
)

// String returns the word that orders use.
func (a Action) String() string {
	switch a {
	case ActionOn:
		return "On"
	case ActionSoft:
		return "Soft"
	case ActionOff:
		return "Off"
	case ActionCycle:
		return "Cycle"
	case ActionReset:
		return "Reset"
	default:
		return "Action(" + strconv.Itoa(int(a)) + ")"
	}
}

// Reading is what a controller says about its server now.
type Reading struct {
	Power Power
	// Identify says whether the light blinks by which somebody finds the server.
	Identify bool
}

// BootSource is what a server boots from next, as its controller has it on record.
type BootSource int

// Sources. The zero value says nothing.
const (
	BootUnknown BootSource = iota
	// BootUnset means that nothing is on record: the server's own setup decides.
	BootUnset
	// BootNetwork is the network, by PXE.
	BootNetwork
	// BootDisk is the server's own disk.
	BootDisk
	// BootOther is something else, such as a CD.
	BootOther
)

// String names the source in a sentence.
func (s BootSource) String() string {
	switch s {
	case BootUnset:
		return "whatever the server's own setup says"
	case BootNetwork:
		return "the network"
	case BootDisk:
		return "the disk"
	case BootOther:
		return "neither network nor disk"
	case BootUnknown:
	}
	return "an unknown source"
}

// NextBoot is what a controller has on record about the next start of its server.
type NextBoot struct {
	From BootSource
	// EachTime: not the next start alone, but each one.
	EachTime bool
	// Invalid: it is marked as not valid, as ipmi_sim always does. A server need not heed that.
	Invalid bool
}

// Identity is what a controller says about the hardware that it is in. A field that the controller does not know is empty.
type Identity struct {
	// SystemGUID is in the text form of RFC 4122, in lower case, so that it can be compared with a node's systemUUID.
	SystemGUID   string
	Manufacturer string
	Product      string
	Serial       string
	// Firmware is the version of the controller's own firmware.
	Firmware string
	// Slot is the slot of the chassis that the hardware says it is in; 0: it does not say.
	Slot int
	// MACs are the addresses of the server's NICs by their number, which starts at 1, in lower case with colons.
	MACs map[int]string
}

// Sensor is one reading of a sensor. A sensor that has no reading now is left out of a list rather than shown as 0.
type Sensor struct {
	Name string
	// Value is rounded to the sensor's resolution; of a discrete sensor, the states that are asserted, as bits.
	Value float64
	// Unit is W, RPM, C, V, A, % or what else the controller says; empty for a discrete sensor.
	Unit     string
	Discrete bool
	// Beyond says whether the value is beyond one of the sensor's thresholds, as far as the controller knows.
	Beyond bool
	// Lower and Upper are the critical thresholds; nil: there is none.
	Lower, Upper *float64
}

// MaxLog is how many entries of an event log are kept.
const MaxLog = 16

// LogEntry is one record of a controller's event log.
type LogEntry struct {
	// ID is the controller's number of the record.
	ID int
	// At is zero where the controller did not know the time, or said one that EventTime leaves out.
	At time.Time
	// Sensor is the name of the sensor, or its type and number where it has no name.
	Sensor string
	Text   string
	// Asserted says whether the event began (rather than ended).
	Asserted bool
	// Memory says what kind of memory error it tells of.
	Memory MemoryError
}

// MemoryError is what a record tells of an error of memory.
type MemoryError int

// Memory errors.
const (
	// NoMemoryError: the record is about something else, or nobody knows.
	NoMemoryError MemoryError = iota
	// CorrectedError was corrected by ECC.
	CorrectedError
	// TooManyCorrected: the controller records no more corrected errors, because there were too many.
	TooManyCorrected
	// UncorrectedError could not be corrected: data was lost.
	UncorrectedError
)

// EventTime is the time of an event in UTC, or zero for a year outside 1970 to 9998: the status of a Server has no place for a year of five
// digits or a negative one, in any time zone, and the API server would refuse the whole status.
func EventTime(said time.Time) time.Time {
	const first, last = 1970, 9998
	if at := said.UTC(); at.Year() >= first && at.Year() <= last {
		return at
	}
	return time.Time{}
}

// BMC is a session with one controller. Each method is bounded by its context. The methods of one BMC are not called at the same time.
//
// A method returns ErrSilent when the controller does not answer, and the types of errors.go where one of them applies. When the context
// ends first, the error is the context's, and says nothing about the controller, or a SlowError, which says that it answers.
type BMC interface {
	// Power reads whether the server is on.
	Power(ctx context.Context) (Reading, error)
	// Do orders an action. Without an error the controller said yes, which proves nothing. Off on a server that is off is no error.
	Do(ctx context.Context, action Action) error
	// BootOnce says what the server boots from at its next start: the network, or else its disk.
	BootOnce(ctx context.Context, network bool) error
	// NextBoot reads what the controller has on record about that.
	NextBoot(ctx context.Context) (NextBoot, error)
	// Identify lets the light blink for d; 0 ends that. IPMI knows whole seconds, and at most 255 of them. Redfish knows no time: there the
	// light blinks until somebody ends that.
	Identify(ctx context.Context, d time.Duration) error
	// Identity reads what the hardware is.
	Identity(ctx context.Context) (Identity, error)
	// Sensors reads the sensors whose names are wanted; nil: all.
	Sensors(ctx context.Context, isWanted func(name string) bool) ([]Sensor, error)
	// Log reads the newest MaxLog entries of the event log, oldest first.
	Log(ctx context.Context) ([]LogEntry, error)
	// Console opens the server's serial console. The session serves nothing else until the console is closed.
	Console(ctx context.Context) (io.ReadWriteCloser, error)
	// Close ends the session. It is bounded by a few seconds, also for a controller that does not answer.
	Close() error
}

// VLANs is a BMC whose VLAN can be read and set. One of Redfish is not.
type VLANs interface {
	// VLAN reads which VLAN the controller's own frames are in; 0: they have no tag.
	VLAN(ctx context.Context) (int, error)
	// SetVLAN has the controller move to another one; 0: its frames have no tag. It may move before it answers.
	SetVLAN(ctx context.Context, id int) error
}

// Access is how to reach a controller.
type Access struct {
	Address  netip.AddrPort
	Protocol Protocol
	Username string
	Password Secret
	// Previous is what the password was before; empty: there was none. A controller that knows only that one is given the password.
	Previous Secret
	// PasswordBytes is the longest password that an IPMI controller is known to keep; less than ShortPassword: that.
	PasswordBytes int
	// CipherSuite is 17 or 3 and of use for IPMI only; 0 means 17.
	CipherSuite int
	// InsecureSkipVerify lets Redfish accept any certificate.
	InsecureSkipVerify bool
	// CA is who may vouch for certificates of Redfish, as PEM; empty: those whom the machine trusts.
	CA string
}

// Equal says whether two ways to reach a controller are the same, password included.
func (a Access) Equal(b Access) bool {
	return a.Address == b.Address && a.Protocol == b.Protocol && a.Username == b.Username && a.Password.Equal(b.Password) &&
		a.Previous.Equal(b.Previous) && a.PasswordBytes == b.PasswordBytes && a.CipherSuite == b.CipherSuite &&
		a.InsecureSkipVerify == b.InsecureSkipVerify && a.CA == b.CA
}

// Printable keeps what a controller says from reaching a terminal as escape sequences.
func Printable(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, text))
}
