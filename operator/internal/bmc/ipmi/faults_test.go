package ipmi_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/protocol"
	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/ipmi"
	"rcbox.dev/rcbox/operator/internal/bmc/standin"
)

// hang is ten times as long as a silent controller is waited for.
const hang = 20 * time.Second

func reason(err error) bmc.Refusal {
	if refused, ok := errors.AsType[*bmc.RefusedError](err); ok {
		return refused.Reason
	}
	return ""
}

// TestSilence freezes a controller before and in a session, and asks where none is.
func TestSilence(t *testing.T) {
	t.Parallel()
	controller := start(t, config())
	session := dial(t, controller)
	controller.Fault(func(f *standin.Faults) { f.Frozen = true })
	for name, ask := range map[string]func() error{
		"login":      func() error { _, err := ipmi.Dial(t.Context(), access(controller)); return err },
		"in session": func() error { _, err := session.Power(t.Context()); return err },
	} {
		begin := time.Now()
		if err := ask(); !errors.Is(err, bmc.ErrSilent) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(begin); took < time.Second || took > hang {
			t.Errorf("%s: %s", name, took)
		}
	}
	begin := time.Now()
	if err := session.Close(); err != nil || time.Since(begin) > hang {
		t.Errorf("closing: %v after %s", err, time.Since(begin))
	}
	nobody, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddrPort(nobody.LocalAddr().String())
	_ = nobody.Close()
	if _, err := ipmi.Dial(t.Context(), bmc.Access{Address: address, Username: user}); !errors.Is(err, bmc.ErrSilent) {
		t.Errorf("where nobody listens: %v", err)
	}
}

// TestContextEnds cancels what waits. The error says nothing about the controller.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	controller := start(t, config())
	session := dial(t, controller)
	controller.Fault(func(f *standin.Faults) { f.Frozen = true })
	for name, ask := range map[string]func(context.Context) error{
		"login":      func(ctx context.Context) error { _, err := ipmi.Dial(ctx, access(controller)); return err },
		"in session": func(ctx context.Context) error { _, err := session.Sensors(ctx, nil); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := ask(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, bmc.ErrSilent) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}

// TestRefusals counts the attempts that each refusal costs.
func TestRefusals(t *testing.T) {
	t.Parallel()
	wrong := func(change func(*bmc.Access)) func(*standin.BMC) bmc.Access {
		return func(controller *standin.BMC) bmc.Access {
			with := access(controller)
			change(&with)
			return with
		}
	}
	limited, old := config(), config()
	limited.MaxPrivilege = types.PrivilegeLevelUser
	old.CipherSuites = []types.CipherSuiteID{types.CipherSuiteID3}
	tests := map[string]struct {
		config standin.Config
		access func(*standin.BMC) bmc.Access
		reason bmc.Refusal
		logins int
	}{
		"wrong password": {
			config(), wrong(func(a *bmc.Access) { a.Password = bmc.NewSecret("wrong-" + password) }), bmc.RefusedCredentials, 1,
		},
		"no password": {config(), wrong(func(a *bmc.Access) { a.Password = bmc.Secret{} }), bmc.RefusedCredentials, 1},
		"wrong user":  {config(), wrong(func(a *bmc.Access) { a.Username = "nobody" }), bmc.RefusedCredentials, 1},
		"long user":   {config(), wrong(func(a *bmc.Access) { a.Username = strings.Repeat("u", 17) }), bmc.RefusedCredentials, 0},
		"long password": {
			config(), wrong(func(a *bmc.Access) { a.Password = bmc.NewSecret(strings.Repeat(password, 2)) }), bmc.RefusedCredentials, 0,
		},
		"cipher suite 1":  {config(), wrong(func(a *bmc.Access) { a.CipherSuite = 1 }), bmc.RefusedCipherSuite, 0},
		"cipher suite 8":  {config(), wrong(func(a *bmc.Access) { a.CipherSuite = 8 }), bmc.RefusedCipherSuite, 0},
		"no suite 17":     {old, access, bmc.RefusedCipherSuite, 0},
		"only a user":     {limited, access, bmc.RefusedPrivilege, 1},
		"negative cipher": {config(), wrong(func(a *bmc.Access) { a.CipherSuite = -1 }), bmc.RefusedCipherSuite, 0},
	}
	for name, test := range tests {
		controller := start(t, test.config)
		_, err := ipmi.Dial(t.Context(), test.access(controller))
		if reason(err) != test.reason {
			t.Errorf("%s: %v", name, err)
		}
		if logins := controller.Seen().Logins; logins != test.logins {
			t.Errorf("%s: %d attempts", name, logins)
		}
	}
}

// TestCompletionCodes maps what a controller answers to types.
func TestCompletionCodes(t *testing.T) {
	t.Parallel()
	controller := start(t, config())
	session := dial(t, controller)
	ask := func(code types.CompletionCode) error {
		controller.Fault(func(f *standin.Faults) { f.Code = code })
		_, err := session.Power(t.Context())
		return err
	}
	var busy *bmc.BusyError
	if err := ask(types.CodeNodeBusy); !errors.As(err, &busy) {
		t.Errorf("busy: %v", err)
	}
	var unsupported *bmc.UnsupportedError
	if err := ask(types.CodeInvalidCommand); !errors.As(err, &unsupported) {
		t.Errorf("unknown command: %v", err)
	}
	if err := ask(types.CodeInsufficientPrivilege); reason(err) != bmc.RefusedPrivilege {
		t.Errorf("privilege: %v", err)
	}
	if err := ask(types.CodeUnspecifiedError); err == nil || errors.Is(err, bmc.ErrSilent) {
		t.Errorf("unspecified: %v", err)
	}
}

// TestLyingController believes nothing more than was said: yes to an order, and on.
func TestLyingController(t *testing.T) {
	t.Parallel()
	lying := config()
	lying.On = true
	controller := start(t, lying)
	session := dial(t, controller)
	controller.Fault(func(f *standin.Faults) { f.KeepsPower = true })
	if err := session.Do(t.Context(), bmc.ActionOff); err != nil {
		t.Error(err)
	}
	if !isOn(t, session) || !controller.On() {
		t.Error("it is off")
	}
	controller.Fault(func(f *standin.Faults) { f.SaysOff = true })
	if isOn(t, session) || !controller.On() {
		t.Error("the stand-in does not lie")
	}
}

// TestWhatIsDoneIsNoError switches off what is off, on a controller that refuses that.
func TestWhatIsDoneIsNoError(t *testing.T) {
	t.Parallel()
	controller := start(t, config())
	session := dial(t, controller)
	controller.Fault(func(f *standin.Faults) { f.RefusesWhatIsDone = true })
	for _, action := range []bmc.Action{bmc.ActionOff, bmc.ActionSoft, bmc.ActionOn, bmc.ActionOn} {
		if err := session.Do(t.Context(), action); err != nil {
			t.Errorf("%s: %v", action, err)
		}
	}
	controller.Fault(func(f *standin.Faults) { f.Code = types.CodeNodeBusy })
	if err := session.Do(t.Context(), bmc.ActionOff); err == nil {
		t.Error("a refused order is taken for one that was done")
	}
}

// isSession says whether a datagram belongs to an established session.
func isSession(packet []byte) bool {
	return len(packet) > 16 && binary.LittleEndian.Uint32(packet[6:]) != 0
}

// loseOne returns a fault that loses one answer in a session.
func loseOne() func([]byte) []byte {
	lost := false
	return func(packet []byte) []byte {
		if !lost && isSession(packet) {
			lost = true
			return nil
		}
		return packet
	}
}

// TestLostAnswer loses an answer. The repetition must be a new message, since a controller drops one with a sequence number that it has
// seen; and what must not happen twice is not repeated.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	running := config()
	running.On = true
	controller := start(t, running)
	session := dial(t, controller)
	controller.Fault(func(f *standin.Faults) { f.Forge = loseOne() })
	if !isOn(t, session) {
		t.Error("it is off")
	}
	controller.Fault(func(f *standin.Faults) { f.Forge = loseOne() })
	begin := time.Now()
	if err := session.Do(t.Context(), bmc.ActionCycle); !errors.Is(err, bmc.ErrSilent) || time.Since(begin) > hang {
		t.Errorf("cycle: %v after %s", err, time.Since(begin))
	}
	if orders := controller.Seen().Orders; len(orders) != 1 || orders[0] != "cycle" {
		t.Errorf("the controller saw %v", orders)
	}
}

// TestLateAnswerOfWhatIsSentOnce: the client waits longer for the answer to a command that it must not repeat, because the controller may
// have carried it out.
func TestLateAnswerOfWhatIsSentOnce(t *testing.T) {
	t.Parallel()
	running := config()
	running.On = true
	controller := start(t, running)
	for _, action := range []bmc.Action{bmc.ActionReset, bmc.ActionCycle} {
		session := dial(t, controller)
		controller.Fault(func(f *standin.Faults) { f.Delay = 3 * time.Second })
		if err := session.Do(t.Context(), action); err != nil {
			t.Errorf("%s: %v", action, err)
		}
		controller.Fault(func(f *standin.Faults) { f.Delay = 0 })
	}
	if orders := controller.Seen().Orders; len(orders) != 2 {
		t.Errorf("the controller saw %v", orders)
	}
}

// TestLoss loses three of ten datagrams in each direction. Each reading is true or silence, and most are readings.
func TestLoss(t *testing.T) {
	t.Parallel()
	running := config()
	running.On = true
	controller := start(t, running)
	session := dial(t, controller)
	controller.Fault(func(f *standin.Faults) { f.Loss = 0.3 })
	const readings = 12
	read := 0
	for range readings {
		reading, err := session.Power(t.Context())
		switch {
		case err == nil && reading.Power == bmc.PowerOn:
			read++
		case !errors.Is(err, bmc.ErrSilent):
			t.Fatalf("%+v, %v", reading, err)
		}
	}
	if read < readings/2 {
		t.Errorf("%d of %d", read, readings)
	}
}

// TestSlowController answers late, and is not taken for a silent one.
func TestSlowController(t *testing.T) {
	t.Parallel()
	controller := start(t, config())
	controller.Fault(func(f *standin.Faults) { f.Delay = 700 * time.Millisecond })
	session := dial(t, controller)
	if isOn(t, session) {
		t.Error("it is on")
	}
	before := controller.Seen().Datagrams
	if isOn(t, session) {
		t.Error("it is on")
	}
	if sent := controller.Seen().Datagrams - before; sent > 2 {
		t.Errorf("a controller that is known to be slow got %d datagrams", sent)
	}
}

// TestControllerRestarts forgets the session. It is silent in that session, and takes a new one.
func TestControllerRestarts(t *testing.T) {
	t.Parallel()
	controller := start(t, config())
	session := dial(t, controller)
	if err := controller.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := session.Power(t.Context()); !errors.Is(err, bmc.ErrSilent) {
		t.Errorf("in the old session: %v", err)
	}
	if isOn(t, dial(t, controller)) {
		t.Error("it is on")
	}
}

// TestForgedAnswers says off in a controller's name in each way that somebody on the way could try. None is believed.
func TestForgedAnswers(t *testing.T) {
	t.Parallel()
	off := (&[8]byte{})[:3]
	tests := map[string]func([]byte) []byte{
		"a bit flipped in the first block": func(p []byte) []byte { p[16+7] ^= 1; return p },
		"in plain text": func(p []byte) []byte {
			message := protocol.BuildIPMIResponse(uint8(types.NetFnChassisRequest), 1, 2, 0, off)
			return protocol.BuildRMCPPlusPacket(0, 0, binary.LittleEndian.Uint32(p[6:]), 9, message)
		},
		"in no session": func([]byte) []byte {
			message := protocol.BuildIPMIResponse(uint8(types.NetFnChassisRequest), 1, 2, 0, off)
			return protocol.BuildRMCPPlusPacket(0, 0, 0, 0, message)
		},
		"a payload of a wrong size": func(p []byte) []byte {
			return protocol.BuildRMCPPlusPacket(0, 0xc0, binary.LittleEndian.Uint32(p[6:]), 9, make([]byte, 20))
		},
		"an empty payload": func(p []byte) []byte {
			return protocol.BuildRMCPPlusPacket(0, 0xc0, binary.LittleEndian.Uint32(p[6:]), 9, nil)
		},
		"the code cut off": func(p []byte) []byte { return p[:len(p)-16] },
	}
	for name, forge := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			running := config()
			running.On = true
			controller := start(t, running)
			session := dial(t, controller)
			controller.Fault(func(f *standin.Faults) {
				f.Forge = func(p []byte) []byte {
					if isSession(p) || name == "in no session" {
						return forge(p)
					}
					return p
				}
			})
			reading, err := session.Power(t.Context())
			if reading.Power == bmc.PowerOff || !errors.Is(err, bmc.ErrSilent) {
				t.Errorf("%s, %v", reading.Power, err)
			}
		})
	}
}

// TestDowngrade lets the controller choose no authentication, in answer to cipher suite 17.
func TestDowngrade(t *testing.T) {
	t.Parallel()
	for _, at := range []int{16, 24, 32} {
		controller := start(t, config())
		controller.Fault(func(f *standin.Faults) {
			f.Forge = func(p []byte) []byte {
				if types.PayloadType(p[5]&0x3f) == types.PayloadTypeRmcpOpenSessionResponse {
					p[16+at] = 0
				}
				return p
			}
		})
		if _, err := ipmi.Dial(t.Context(), access(controller)); reason(err) != bmc.RefusedCipherSuite {
			t.Errorf("algorithm at %d: %v", at, err)
		}
		if logins := controller.Seen().Logins; logins != 0 {
			t.Errorf("algorithm at %d: %d attempts", at, logins)
		}
	}
}

// TestNothingPrintsThePassword looks for it in sessions, errors and logs.
func TestNothingPrintsThePassword(t *testing.T) {
	t.Parallel()
	controller := start(t, config())
	session := dial(t, controller)
	wrong := access(controller)
	wrong.Username = "nobody"
	_, refused := ipmi.Dial(t.Context(), wrong)
	wrong.CipherSuite = 1
	_, weak := ipmi.Dial(t.Context(), wrong)
	controller.Fault(func(f *standin.Faults) { f.Frozen = true })
	_, silent := session.Power(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, ended := session.Identity(ctx)
	printed := new(bytes.Buffer)
	hidden := struct{ session *ipmi.Client }{session}
	for _, value := range []any{session, hidden, &hidden, access(controller), refused, weak, silent, ended} {
		fmt.Fprintf(printed, "%v %+v %#v %s %x\n", value, value, value, value, value)
		slog.New(slog.NewJSONHandler(printed, nil)).Info("session", "with", value)
		slog.New(slog.NewTextHandler(printed, nil)).Info("session", "with", value)
	}
	for _, form := range []string{password, hex.EncodeToString([]byte(password))} {
		if strings.Contains(printed.String(), form) {
			t.Errorf("the password is printed:\n%s", printed)
		}
	}
}
