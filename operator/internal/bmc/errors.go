package bmc

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrSilent means that the controller gave no answer. Whether its server runs is unknown.
var ErrSilent = errors.New("the management controller does not answer")

// Refusal is why a controller lets nobody in.
type Refusal string

// Reasons of refusals. None of them goes away by itself.
const (
	// RefusedCredentials means that the user name or the password is wrong, or that the account is locked.
	RefusedCredentials Refusal = "user name or password is wrong" //nolint:gosec // a message, not a password
	// RefusedPrivilege means that the account may not do what is asked.
	RefusedPrivilege Refusal = "the account's privilege is too low"
	// RefusedCipherSuite means that the controller does not offer the cipher suite, or that rcbox does not use it.
	RefusedCipherSuite Refusal = "no agreement on the cipher suite"
	// RefusedNewPassword means that the controller takes the previous password, and cannot be given the new one.
	RefusedNewPassword Refusal = "it takes only the previous password, and cannot be given the new one" //nolint:gosec // a message
	// RefusedCertificate means that nobody whom we trust vouches for the controller's certificate.
	RefusedCertificate Refusal = "the certificate cannot be verified"
)

// RefusedError means that the controller answers, and refuses the session or the order. The same Secret is not tried again: controllers
// lock accounts after a few attempts.
type RefusedError struct {
	Address netip.AddrPort
	Reason  Refusal
	// Detail is what the controller said, if it said something.
	Detail string
	// AtLogin means that the controller refused to open a session. Otherwise it refused an order in an open session.
	AtLogin bool
}

// Error names the controller and the reason.
func (e *RefusedError) Error() string {
	text := fmt.Sprintf("management controller %s refused: %s", e.Address, e.Reason)
	if e.Detail != "" {
		text += " (" + e.Detail + ")"
	}
	return text
}

// UnsupportedError means that the controller cannot do what is asked, now or later.
type UnsupportedError struct {
	Address netip.AddrPort
	// What is the order or the reading, such as "sensors".
	What   string
	Detail string
}

// Error names the controller and what it cannot do.
func (e *UnsupportedError) Error() string {
	text := fmt.Sprintf("management controller %s does not support %s", e.Address, e.What)
	if e.Detail != "" {
		text += " (" + e.Detail + ")"
	}
	return text
}

// BusyError means that the controller cannot do what is asked just now: it is busy, has no session left, or somebody else has the console.
type BusyError struct {
	Address netip.AddrPort
	What    string
	Detail  string
}

// Error names the controller and what it is too busy for.
func (e *BusyError) Error() string {
	text := fmt.Sprintf("management controller %s is busy: %s", e.Address, e.What)
	if e.Detail != "" {
		text += " (" + e.Detail + ")"
	}
	return text
}

// Operations that take too long at a slow controller.
const (
	SlowRecords = "sensor records"
	SlowSensors = "sensors"
	SlowLog     = "records of the event log"
)

// SlowError means that the controller answers, but did not answer all that was asked in the time for it. Records that were read are kept:
// the next question goes on with those that are left.
type SlowError struct {
	Address netip.AddrPort
	// What was asked for: SlowRecords or SlowSensors.
	What string
	// Done of All were read.
	Done, All int
}

// Error names the controller, and how far it came.
func (e *SlowError) Error() string {
	return fmt.Sprintf("management controller %s is slow: %d of %d %s were read in the time for it", e.Address, e.Done, e.All, e.What)
}
