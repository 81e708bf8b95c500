// Package bmc_test lets our IPMI client speak with ipmi_sim, whose authors did not write it. It has no cipher suite 17.
package bmc_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/ipmi"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
	"rcbox.dev/rcbox/operator/test/box/rack"
)

const (
	username = "admin"
	password = "not-a-secret"
	// patience is far beyond what anything here takes.
	patience = 30 * time.Second
	pause    = 50 * time.Millisecond
	blades   = 44
)

func start(t *testing.T) *rack.Rack {
	t.Helper()
	if os.Getenv("RCBOX_BOX_NETWORK") == "" {
		t.Skip("SKIPPED: it needs a network namespace of its own, with ipmi_sim: hack/box.sh")
	}
	chassis := rack.Chassis{Name: "mercury1", Managers: []netip.Addr{
		netip.MustParseAddr("192.168.5.201"), netip.MustParseAddr("192.168.5.202"),
	}, SwitchBoards: []netip.Addr{netip.MustParseAddr("192.168.5.203"), netip.MustParseAddr("192.168.5.204")}}
	for i := range blades {
		chassis.Slots = append(chassis.Slots, rack.Slot{
			Number: i + 1, Address: netip.AddrFrom4([4]byte{192, 168, 5, byte(i + 1)}),
			Blade: rack.Blade{
				Serial: fmt.Sprintf("MMS%04d", i+1), GUID: fmt.Sprintf("a1234567%04x4000a000%012d", i+1, i+1),
				MACs: []string{fmt.Sprintf("52:54:00:03:00:%02x", i+1), fmt.Sprintf("52:54:00:04:00:%02x", i+1)},
			},
		})
	}
	r, err := rack.Start(t.Context(), rack.Options{
		Dir: t.TempDir(), Username: username, Password: password, ShutdownTime: time.Second, Chassis: []rack.Chassis{chassis},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func access(address string) bmc.Access {
	return bmc.Access{
		Address: netip.AddrPortFrom(netip.MustParseAddr(address), 623), Protocol: bmc.IPMI, Username: username,
		Password: bmc.NewSecret(password), CipherSuite: 3,
	}
}

// dial waits until the emulator listens.
func dial(t *testing.T, address string) *ipmi.Client {
	t.Helper()
	var session *ipmi.Client
	eventually(t, "a session with "+address, func() (err error) {
		session, err = ipmi.Dial(t.Context(), access(address))
		return err
	})
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func eventually(t *testing.T, what string, holds func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(pause) {
		if err = holds(); err == nil {
			return
		}
	}
	t.Fatalf("after %s still not: %s: %v", patience, what, err)
}

func is(t *testing.T, session bmc.BMC, want bmc.Power) {
	t.Helper()
	eventually(t, want.String(), func() error {
		reading, err := session.Power(t.Context())
		if err == nil && reading.Power != want {
			err = fmt.Errorf("it is %s", reading.Power)
		}
		return err
	})
}

func watts(t *testing.T, manager bmc.BMC, slot int, want float64) {
	t.Helper()
	name := fmt.Sprintf("Slot %02d Power", slot)
	eventually(t, fmt.Sprintf("%s of %v W", name, want), func() error {
		sensors, err := manager.Sensors(t.Context(), nil)
		if err != nil {
			return err
		}
		for _, sensor := range sensors {
			if sensor.Name == name && sensor.Value == want && sensor.Unit == "W" {
				return nil
			}
		}
		return fmt.Errorf("got %+v", sensors)
	})
}

// TestClientAndEmulator runs each verb, with a witness beside the controller that was ordered.
func TestClientAndEmulator(t *testing.T) {
	r := start(t)
	const slot = 7
	blade, manager, slave := dial(t, "192.168.5.7"), dial(t, "192.168.5.201"), dial(t, "192.168.5.202")
	is(t, blade, bmc.PowerOff)
	for _, step := range []struct {
		action bmc.Action
		power  bmc.Power
		watts  float64
	}{
		{bmc.ActionOn, bmc.PowerOn, 22},
		{bmc.ActionReset, bmc.PowerOn, 22},
		{bmc.ActionSoft, bmc.PowerOff, 2},
		{bmc.ActionOn, bmc.PowerOn, 22},
		{bmc.ActionOff, bmc.PowerOff, 2},
		{bmc.ActionOff, bmc.PowerOff, 2},
	} {
		if err := blade.Do(t.Context(), step.action); err != nil {
			t.Fatalf("%s: %v", step.action, err)
		}
		is(t, blade, step.power)
		watts(t, manager, slot, step.watts)
		watts(t, slave, slot, step.watts)
	}
	for _, want := range []bmc.BootSource{bmc.BootNetwork, bmc.BootDisk} {
		if err := blade.BootOnce(t.Context(), want == bmc.BootNetwork); err != nil {
			t.Fatal(err)
		}
		// It always says that its flags are not valid.
		if next, err := blade.NextBoot(t.Context()); err != nil || next != (bmc.NextBoot{From: want, Invalid: true}) {
			t.Errorf("it was told to boot from %s, and reads %+v: %v", want, next, err)
		}
	}
	// One that says yes and does nothing.
	if err := errors.Join(r.Keep("mercury1", slot, true), blade.BootOnce(t.Context(), true), r.Keep("mercury1", slot, false)); err != nil {
		t.Fatal(err)
	}
	if next, err := blade.NextBoot(t.Context()); err != nil || next.From != bmc.BootDisk {
		t.Errorf("a lie about the boot device: %+v, %v", next, err)
	}
	if err := errors.Join(
		blade.Identify(t.Context(), 15*time.Second), blade.Identify(t.Context(), 0)); err != nil {
		t.Error(err)
	}
	identity, err := blade.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if identity.Serial != "MMS0007" || identity.Slot != slot ||
		identity.MACs[1] != "52:54:00:03:00:07" || identity.MACs[2] != "52:54:00:04:00:07" ||
		!bmc.SameSystem(identity.SystemGUID, "a1234567-0007-4000-a000-000000000007") {
		t.Errorf("got %+v", identity)
	}
	sensors, err := blade.Sensors(t.Context(), nil)
	if err != nil || len(sensors) != 1 || sensors[0].Name != "CPU Temp" || sensors[0].Value != 33 || sensors[0].Unit != "C" {
		t.Errorf("got %+v, %v", sensors, err)
	}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
		t.Fatal(err)
	}
	// Add SEL Entry: sensor 1, a temperature, is above its upper critical threshold (IPMI 2.0, section 31.6 and table 32-1).
	entry := strings.Fields("raw 0x0a 0x44 0 0 2 0 0 0 0 0x20 0 4 1 1 1 9 0xff 0xff")
	event := exec.CommandContext(t.Context(), "ipmitool", append([]string{
		"-I", "lanplus", "-C", "3", "-U", username, "-f", file, "-H", "192.168.5.7",
	}, entry...)...)
	if output, err := event.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if log, err := blade.Log(t.Context()); err != nil || len(log) != 1 || !log[0].Asserted || log[0].Sensor != "CPU Temp" {
		t.Errorf("event log: %+v, %v", log, err)
	}
	// A controller that lies says yes; what the slot draws is true.
	if err := errors.Join(blade.Do(t.Context(), bmc.ActionOn), r.Lie("mercury1", slot, rack.Off)); err != nil {
		t.Fatal(err)
	}
	is(t, blade, bmc.PowerOff)
	watts(t, manager, slot, 22)
	wrong, strong := access("192.168.5.8"), access("192.168.5.8")
	wrong.Password = bmc.NewSecret("wrong")
	strong.CipherSuite = 17
	for reason, with := range map[bmc.Refusal]bmc.Access{bmc.RefusedCredentials: wrong, bmc.RefusedCipherSuite: strong} {
		_, err := ipmi.Dial(t.Context(), with)
		if refused, is := errors.AsType[*bmc.RefusedError](err); !is || refused.Reason != reason {
			t.Errorf("want %q, got %v", reason, err)
		}
	}
}

// TestPoolAndEmulator reads a chassis at once, several times, in one session with each controller. All controllers are one process, which
// gives some of them no answer in time when the machine has much else to do: each silence may cost one more session, and nothing else does.
func TestPoolAndEmulator(t *testing.T) {
	start(t)
	dial(t, "192.168.5.201")
	var logins, silences atomic.Int32
	p := pool.New(pool.Config{Dial: func(ctx context.Context, access bmc.Access) (bmc.BMC, error) {
		logins.Add(1)
		session, err := ipmi.Dial(ctx, access)
		if errors.Is(err, bmc.ErrSilent) {
			silences.Add(1)
		}
		return session, err
	}})
	t.Cleanup(p.Close)
	isOff := func(ctx context.Context, session bmc.BMC) error {
		reading, err := session.Power(ctx)
		if errors.Is(err, bmc.ErrSilent) {
			silences.Add(1)
		}
		if err == nil && reading.Power != bmc.PowerOff {
			err = errors.New("it is on")
		}
		return err
	}
	for range 5 {
		var reading sync.WaitGroup
		for n := range blades {
			target := pool.Target{
				Name: fmt.Sprintf("atom%03dm", n+1), SecretVersion: "1", Access: access(fmt.Sprintf("192.168.5.%d", n+1)),
			}
			reading.Go(func() {
				deadline := time.Now().Add(2 * patience)
				err := p.Read(t.Context(), target, isOff)
				for errors.Is(err, bmc.ErrSilent) && time.Now().Before(deadline) {
					<-time.After(pause)
					err = p.Read(t.Context(), target, isOff)
				}
				if err != nil {
					t.Errorf("%s: %v", target.Name, err)
				}
			})
		}
		reading.Wait()
	}
	if logins.Load() > blades+silences.Load() {
		t.Errorf("%d logins to %d controllers, which were silent %d times", logins.Load(), blades, silences.Load())
	}
}

// TestRotation gives the controllers of blade and chassis a new password; ipmi_sim keeps it.
func TestRotation(t *testing.T) {
	start(t)
	dial(t, "192.168.5.7")
	for _, address := range []string{"192.168.5.7", "192.168.5.201"} {
		with := access(address)
		with.Password, with.Previous = bmc.NewSecret("fresh"), bmc.NewSecret(password)
		told := 0
		for range 2 {
			session, err := ipmi.DialRotating(t.Context(), with, func() { told++ })
			if err != nil {
				t.Fatal(err)
			}
			_ = session.Close()
		}
		if told != 1 {
			t.Errorf("%s was told %d times", address, told)
		}
	}
	// It keeps 16 bytes of a longer one, and says yes. So it is given none, unless its model says that it keeps that: then it gets the
	// previous one back.
	with := access("192.168.5.8")
	with.Password, with.Previous = bmc.NewSecret("fresh-of-17-bytes"), bmc.NewSecret(password)
	for bytes, detail := range map[int]string{0: "at most 16 bytes", 16: "at most 16 bytes", 20: "has the previous one"} {
		with.PasswordBytes = bytes
		_, err := ipmi.DialRotating(t.Context(), with, func() { t.Error("it was told") })
		if refused, is := errors.AsType[*bmc.RefusedError](err); !is || !strings.Contains(refused.Detail, detail) {
			t.Errorf("a password that it cannot keep: %v", err)
		}
	}
	dial(t, "192.168.5.8")
}

// TestReservations: others who read sensor records take each other's reservations away, as two users of a chassis manager do.
func TestReservations(t *testing.T) {
	start(t)
	var reading sync.WaitGroup
	for range 4 {
		manager := dial(t, "192.168.5.201")
		reading.Go(func() {
			sensors, err := manager.Sensors(t.Context(), nil)
			if err != nil || len(sensors) < blades {
				t.Errorf("%d sensors: %v", len(sensors), err)
			}
		})
	}
	reading.Wait()
}

// TestSwitchBoards: the controllers of switch boards show their uplinks.
func TestSwitchBoards(t *testing.T) {
	r := start(t)
	board := dial(t, "192.168.5.204")
	for _, value := range []float64{1, 0, 1} {
		if err := r.Link("mercury1", 2, "QSFP 3 Link", value > 0); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprintf("QSFP 3 at %v, and QSFP 4 up", value), func() error {
			sensors, err := board.Sensors(t.Context(), nil)
			if err != nil {
				return err
			}
			read := map[string]float64{}
			for _, sensor := range sensors {
				read[sensor.Name] = sensor.Value
			}
			if want := map[string]float64{"QSFP 3 Link": value, "QSFP 4 Link": 1}; !maps.Equal(read, want) {
				return fmt.Errorf("it shows %v", read)
			}
			return nil
		})
	}
}
