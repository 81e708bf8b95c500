// Package ipmi speaks IPMI 2.0 over LAN with one management controller. It is the client of go-ipmi behind a socket that lets only genuine
// answers through (guard.go), with bounded time, errors as types, and repetitions that a controller does not take for replays.
//
// What it expects of hardware, beside the standard: the FRU of a server names its slot and the MAC addresses of its NICs in custom fields
// of the product, board or chassis area, as SLOT=7 and MAC1=52:54:00:03:00:07.
package ipmi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// Times of a session. A controller that gives no answer for silence is silent.
const (
	silence = 2 * time.Second
	// silenceOnce is the same for a command that is sent once. It is longer, because nobody knows whether a command without an answer was
	// carried out.
	silenceOnce = 10 * time.Second
	// repeatLogin is how long a message of the login waits until it is sent again, three times.
	repeatLogin = silence / 4
	// farewell bounds the end of a session.
	farewell = time.Second

	maxUsername = 16
	maxPassword = 20
)

// waits are how long a command waits until it is sent again. They grow, because a slow controller must not get more and more work.
var waits = []time.Duration{300 * time.Millisecond, 300 * time.Millisecond, 400 * time.Millisecond, time.Second}

var suites = map[int]suite{
	3: {
		id: types.CipherSuiteID3, auth: types.AuthAlg_HMAC_SHA1, integrity: types.IntegrityAlg_HMAC_SHA1_96,
		crypt: types.CryptAlg_AES_CBC_128, codeSize: 12,
	},
	17: {
		id: types.CipherSuiteID17, auth: types.AuthAlg_HMAC_SHA256, integrity: types.IntegrityAlg_HMAC_SHA256_128,
		crypt: types.CryptAlg_AES_CBC_128, codeSize: 16,
	},
}

// Client is a session with a controller.
type Client struct {
	address netip.AddrPort
	// lib is the library's client. It is behind a function because it has the password in a field, which printing would find.
	lib  func() *client.Client
	conn *guard
	// usual is how long answers took of late: repetitions wait for twice as long.
	usual   time.Duration
	records *repository
	// log is the part of the event log that was read.
	log *eventLog
	// keeps is how many bytes of a password the controller is known to keep.
	keeps   int
	silent  bool
	closing sync.Once
}

var _ bmc.BMC = (*Client)(nil)

// Dial opens a session. A wrong password costs the account one attempt.
func Dial(ctx context.Context, access bmc.Access) (*Client, error) {
	// What we do needs no more, and accounts that may not do more serve as well.
	return dial(ctx, access, types.PrivilegeLevelOperator)
}

func dial(ctx context.Context, access bmc.Access, privilege types.PrivilegeLevel) (*Client, error) {
	if err := check(access); err != nil {
		return nil, err
	}
	chosen := suites[cipherSuite(access)]
	conn, err := new(net.Dialer).DialContext(ctx, "udp", access.Address.String())
	if err != nil {
		return nil, unreachable(ctx, access.Address, err)
	}
	c := &Client{
		address: access.Address,
		conn:    &guard{Conn: conn, username: access.Username, password: access.Password, suite: chosen},
	}
	lib, err := client.NewClient(access.Address.Addr().String(), int(access.Address.Port()), access.Username, access.Password.Reveal())
	if err != nil {
		_ = conn.Close()
		return nil, &bmc.RefusedError{Address: access.Address, Reason: bmc.RefusedCredentials, Detail: "IPMI cannot use the user name"}
	}
	c.lib = func() *client.Client { return lib }
	// Without the cipher suite the library asks for the list of them, which some controllers do not answer before a session.
	lib.WithUDPProxy(dialer{c.conn}).WithCipherSuiteID(chosen.id).
		WithMaxPrivilegeLevel(privilege).
		// A repeated message of the login must be the same message.
		WithTimeout(repeatLogin).WithRetry(int(silence/repeatLogin) - 1)
	if err := c.login(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	// A repeated command must be a new message: controllers drop a sequence number that they have seen, also if their answer was lost.
	c.sendOnce()
	if err := c.raisePrivilege(ctx, privilege); err != nil {
		_ = c.Close() //nolint:contextcheck // it ends also when the context has ended
		return nil, err
	}
	return c, nil
}

// sendOnce makes the library send each command once, and wait for the answer as long as exchange allows.
func (c *Client) sendOnce() { c.lib().WithTimeout(silenceOnce).WithRetry(0) }

// Format prints the address alone.
func (c *Client) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, "IPMI session with "+c.address.String())
}

func cipherSuite(access bmc.Access) int {
	if access.CipherSuite == 0 {
		return 17
	}
	return access.CipherSuite
}

func check(access bmc.Access) error {
	refused := &bmc.RefusedError{Address: access.Address, Reason: bmc.RefusedCredentials}
	switch {
	case suites[cipherSuite(access)].codeSize == 0:
		refused.Reason = bmc.RefusedCipherSuite
		refused.Detail = fmt.Sprintf("cipher suite %d is weak or unknown: use 17 or 3", access.CipherSuite)
	case len(access.Username) > maxUsername:
		refused.Detail = fmt.Sprintf("IPMI's user names have at most %d bytes", maxUsername)
	case len(access.Password.Reveal()) > maxPassword:
		refused.Detail = fmt.Sprintf("IPMI's passwords have at most %d bytes", maxPassword)
	default:
		return nil
	}
	return refused
}

// dialer gives the library our socket.
type dialer struct{ conn net.Conn }

func (d dialer) Dial(string, string) (net.Conn, error) { return d.conn, nil }

// login establishes the session step by step: the library's Connect asks first for capabilities that we do not use, and starts a goroutine
// that sends commands between ours.
func (c *Client) login(ctx context.Context) error {
	steps := []func(context.Context) error{
		func(ctx context.Context) error { _, err := c.lib().OpenSession(ctx); return err },
		func(ctx context.Context) error { _, err := c.lib().RAKPMessage1(ctx); return err },
		func(ctx context.Context) error { _, err := c.lib().RAKPMessage3(ctx); return err },
	}
	for _, step := range steps {
		if err := safely(func() error { return step(ctx) }); err != nil {
			return c.loginError(ctx, err)
		}
	}
	return nil
}

func (c *Client) raisePrivilege(ctx context.Context, privilege types.PrivilegeLevel) error {
	err := c.exchange(ctx, "login", true, func(ctx context.Context) error {
		_, err := c.lib().SetSessionPrivilegeLevel(ctx, privilege)
		return err
	})
	if _, ok := errors.AsType[*types.ResponseError](err); ok {
		return &bmc.RefusedError{Address: c.address, Reason: bmc.RefusedPrivilege, Detail: fmt.Sprintf("the role %s is needed", privilege)}
	}
	return err
}

// exchange runs one command. While no answer comes, it repeats the command if a repetition is harmless. Otherwise it only waits, for a
// longer time.
func (c *Client) exchange(ctx context.Context, what string, repeatable bool, command func(context.Context) error) error {
	begin, patience := time.Now(), silenceOnce
	if repeatable {
		patience = silence
	}
	for attempt := 0; ; attempt++ {
		left := patience - time.Since(begin)
		wait := left
		if repeatable {
			wait = min(left, max(waits[min(attempt, len(waits)-1)], 2*c.usual))
		}
		if left < patience/20 {
			c.silent = true
			return fmt.Errorf("%s: %s: %w", c.address, what, bmc.ErrSilent)
		}
		sent := time.Now()
		limited, cancel := context.WithTimeout(ctx, wait)
		err := safely(func() error { return command(limited) })
		expired := ended(limited) != nil
		cancel()
		if cause := ended(ctx); err != nil && cause != nil {
			return fmt.Errorf("%s: %s: %w", c.address, what, cause)
		}
		if err == nil || c.conn.answered() && !expired {
			c.usual = max(time.Since(sent), c.usual/2) // it grows at once, and shrinks slowly
			c.silent = false
			return c.commandError(what, err)
		}
		if !expired && isTimeout(err) {
			continue
		}
		if !expired { // the network says that nobody is there
			c.silent = true
			return unreachable(ctx, c.address, err)
		}
	}
}

// ended is the context's error, also in the moment after its deadline in which it has none yet: the socket has the same deadline.
func ended(ctx context.Context) error {
	if deadline, has := ctx.Deadline(); has && ctx.Err() == nil && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err() //nolint:wrapcheck // the caller does
}

// Close ends the session.
func (c *Client) Close() error {
	c.closing.Do(func() {
		if !c.silent { // a controller that does not answer forgets the session by itself
			ctx, cancel := context.WithTimeout(context.Background(), farewell)
			defer cancel()
			_ = safely(func() error { return c.lib().Close(ctx) })
		}
		_ = c.conn.Close()
	})
	return nil
}

// safely turns a panic of the library's decoders into an error.
func safely(call func() error) (err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = errMalformed
		}
	}()
	return call()
}
