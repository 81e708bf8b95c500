package ipmi_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/ipmi"
	"rcbox.dev/rcbox/operator/internal/bmc/standin"
)

const (
	user     = "admin"
	password = "canary-9dK3"
	guid     = "00112233-4455-4677-8899-aabbccddeeff"
)

func config() standin.Config {
	states := uint16(0x0102)
	return standin.Config{
		Username: user, Password: password, SystemGUID: guid, Manufacturer: "rcbox", Product: "stand-in", Serial: "S-0007",
		Custom: []string{"SLOT=7", "MAC1=52:54:00:03:00:07", "mac2 = 52-54-00-04-00-07", "MAC99=52:54:00:04:00:07", "SLOT=x", "note"},
		Sensors: []standin.Sensor{
			{Name: "Power 7", Type: types.SensorTypePowerSupply, Unit: types.SensorUnitType_Watts, Step: 2, Count: 30},
			{
				Name: "CPU", Type: types.SensorTypeTemperature, Unit: types.SensorUnitType_DegreesC, Signed: true, Count: 0xfb,
				UpperCritical: new(uint8(95)),
			},
			{
				Name: "12V", Type: types.SensorTypeVoltage, Unit: types.SensorUnitType_Volts, Step: 63, Exponent: -3, Count: 200,
				LowerCritical: new(uint8(170)), UpperCritical: new(uint8(199)),
			},
			{Name: "Fan", Type: types.SensorTypeFan, Unit: types.SensorUnitType_RPM, Step: 100, Unavailable: true},
			{Name: "Gone", Type: types.SensorTypePowerSupply, Unit: types.SensorUnitType_Watts, Broken: true},
			{Name: "Slot", Type: types.SensorTypeSlotConnector, States: &states},
		},
	}
}

func start(t *testing.T, config standin.Config) *standin.BMC {
	t.Helper()
	started, err := standin.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(started.Close)
	return started
}

func access(controller *standin.BMC) bmc.Access {
	return bmc.Access{Address: controller.Address(), Protocol: bmc.IPMI, Username: user, Password: bmc.NewSecret(password)}
}

func dial(t *testing.T, controller *standin.BMC) *ipmi.Client {
	t.Helper()
	session, err := ipmi.Dial(t.Context(), access(controller))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func isOn(t *testing.T, session bmc.BMC) bool {
	t.Helper()
	reading, err := session.Power(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return reading.Power == bmc.PowerOn
}

// TestOrders runs each order with each of the cipher suites.
func TestOrders(t *testing.T) {
	t.Parallel()
	for _, suite := range []int{0, 3, 17} {
		controller := start(t, config())
		with := access(controller)
		with.CipherSuite = suite
		session, err := ipmi.Dial(t.Context(), with)
		if err != nil {
			t.Fatal(err)
		}
		steps := []struct {
			action bmc.Action
			on     bool
			order  string
		}{
			{bmc.ActionOn, true, "up"},
			{bmc.ActionSoft, false, "soft"},
			{bmc.ActionOn, true, "up"},
			{bmc.ActionReset, true, "reset"},
			{bmc.ActionCycle, true, "cycle"},
			{bmc.ActionOff, false, "down"},
			{bmc.ActionOff, false, "down"},
		}
		for i, step := range steps {
			if err := session.Do(t.Context(), step.action); err != nil {
				t.Fatalf("%s: %v", step.action, err)
			}
			if on := isOn(t, session); on != step.on || controller.On() != step.on {
				t.Errorf("after %s: says %v, is %v, want %v", step.action, on, controller.On(), step.on)
			}
			if orders := controller.Seen().Orders; len(orders) != i+1 || orders[i] != step.order {
				t.Errorf("after %s the controller saw %v", step.action, orders)
			}
		}
		if err := session.Do(t.Context(), 0); err == nil {
			t.Error("an order that is none was sent")
		}
		if err := session.Close(); err != nil {
			t.Error(err)
		}
		if seen := controller.Seen(); seen.Logins != 1 {
			t.Errorf("%d logins", seen.Logins)
		}
	}
}

// TestBootAndIdentify sets what the server boots from, and its light.
func TestBootAndIdentify(t *testing.T) {
	t.Parallel()
	controller := start(t, config())
	session := dial(t, controller)
	for _, network := range []bool{true, false} {
		if err := session.BootOnce(t.Context(), network); err != nil {
			t.Fatal(err)
		}
		if seen := controller.Seen(); seen.Network != network || seen.Disk == network {
			t.Errorf("network %v: the controller saw %+v", network, seen)
		}
		want := bmc.NextBoot{From: bmc.BootDisk}
		if network {
			want.From = bmc.BootNetwork
		}
		if next, err := session.NextBoot(t.Context()); err != nil || next != want {
			t.Errorf("network %v: it reads %+v, %v", network, next, err)
		}
	}
	fresh := start(t, config())
	fresh.Fault(func(faults *standin.Faults) { faults.KeepsBoot = true })
	liar := dial(t, fresh)
	if err := liar.BootOnce(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if next, err := liar.NextBoot(t.Context()); err != nil || next != (bmc.NextBoot{From: bmc.BootUnset}) {
		t.Errorf("a controller that says yes and forgets it: %+v, %v", next, err)
	}
	fresh.Fault(func(faults *standin.Faults) { faults.Code = types.CodeInvalidCommand })
	if _, err := liar.NextBoot(t.Context()); err == nil || !errors.As(err, new(*bmc.UnsupportedError)) {
		t.Errorf("a controller that cannot be asked: %v", err)
	}
	for d, want := range map[time.Duration]uint8{0: 0, 500 * time.Millisecond: 1, 15 * time.Second: 15, time.Hour: 255, -1: 0} {
		if err := session.Identify(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		reading, err := session.Power(t.Context())
		if seen := controller.Seen(); err != nil || seen.IdentifySeconds != want || reading.Identify != (want > 0) {
			t.Errorf("%s: %+v, the controller saw %d, %v", d, reading, seen.IdentifySeconds, err)
		}
	}
}

// TestIdentity reads GUID, FRU and its own fields.
func TestIdentity(t *testing.T) {
	t.Parallel()
	identity, err := dial(t, start(t, config())).Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if identity.SystemGUID != guid || identity.Manufacturer != "rcbox" || identity.Product != "stand-in" || identity.Serial != "S-0007" ||
		identity.Firmware != "2.07" || identity.Slot != 7 {
		t.Errorf("got %+v", identity)
	}
	if len(identity.MACs) != 2 || identity.MACs[1] != "52:54:00:03:00:07" || identity.MACs[2] != "52:54:00:04:00:07" {
		t.Errorf("MACs: %v", identity.MACs)
	}
	without := config()
	without.SystemGUID = ""
	identity, err = dial(t, start(t, without)).Identity(t.Context())
	if err != nil || identity.SystemGUID != "" || identity.Serial != "S-0007" {
		t.Errorf("without a GUID: %+v, %v", identity, err)
	}
}

// TestIdentityOfBusyController: a controller that cannot read its GUID or FRU just now does not say that there is none. Without the slot,
// nobody would ask the chassis manager whether the server is off.
func TestIdentityOfBusyController(t *testing.T) {
	t.Parallel()
	controller := start(t, config())
	session := dial(t, controller)
	for _, command := range []types.Command{types.CommandGetSystemGUID, types.CommandReadFRUData} {
		ask := func(code types.CompletionCode) (bmc.Identity, error) {
			controller.Fault(func(f *standin.Faults) { f.Codes = map[types.Command]types.CompletionCode{command: code} })
			return session.Identity(t.Context())
		}
		codes := []types.CompletionCode{
			types.CodeNodeBusy, types.CodeProcessTimeout, types.CodeCannotProvideResponse, types.CodeCannotProvideResponseBMCInitialize,
		}
		if command == types.CommandReadFRUData {
			codes = append(codes, types.CodeReadFRUDataDeviceBusy)
		}
		for _, code := range codes {
			if identity, err := ask(code); !errors.As(err, new(*bmc.BusyError)) {
				t.Errorf("%s, %#02x: %+v, %v", command.Name, uint8(code), identity, err)
			}
		}
		if identity, err := ask(types.CodeUnspecifiedError); err == nil {
			t.Errorf("%s, unspecified: %+v", command.Name, identity)
		}
		for _, code := range []types.CompletionCode{
			types.CodeInvalidCommand, types.CodeRequestedDataNotPresent, types.CodeParameterOutOfRange, types.CodeInsufficientPrivilege,
		} {
			if identity, err := ask(code); err != nil || identity.Slot != 0 && identity.SystemGUID != "" {
				t.Errorf("%s, %#02x: %+v, %v", command.Name, uint8(code), identity, err)
			}
		}
	}
}

// TestSensors reads values, units, thresholds and states. A sensor without a reading must not be shown as 0.
func TestSensors(t *testing.T) {
	t.Parallel()
	controller := start(t, config())
	session := dial(t, controller)
	read := func() map[string]bmc.Sensor {
		sensors, err := session.Sensors(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		byName := make(map[string]bmc.Sensor)
		for _, sensor := range sensors {
			byName[sensor.Name] = sensor
		}
		return byName
	}
	got := read()
	if len(got) != 4 {
		t.Errorf("got %d sensors: %v", len(got), got)
	}
	if power := got["Power 7"]; power.Value != 60 || power.Unit != "W" || power.Beyond || power.Discrete || power.Upper != nil {
		t.Errorf("power: %+v", power)
	}
	if cpu := got["CPU"]; cpu.Value != -5 || cpu.Unit != "C" || cpu.Upper == nil || *cpu.Upper != 95 || cpu.Lower != nil {
		t.Errorf("temperature: %+v", cpu)
	}
	if volts := got["12V"]; volts.Value != 12.6 || volts.Unit != "V" || !volts.Beyond || volts.Lower == nil || *volts.Lower != 10.71 {
		t.Errorf("voltage: %+v", volts)
	}
	if slot := got["Slot"]; !slot.Discrete || slot.Value != 0x0102 || slot.Unit != "" {
		t.Errorf("slot: %+v", slot)
	}
	controller.SetSensor("Power 7", func(s *standin.Sensor) { s.Broken = true })
	controller.SetSensor("Fan", func(s *standin.Sensor) { s.Unavailable, s.Count = false, 50 })
	got = read()
	if _, shown := got["Power 7"]; shown {
		t.Error("a sensor that cannot be read is shown")
	}
	if got["Fan"].Value != 5000 || got["Fan"].Unit != "RPM" {
		t.Errorf("fan: %+v", got["Fan"])
	}
}

// TestConsole prints and types, and says that somebody else has the console.
func TestConsole(t *testing.T) {
	t.Parallel()
	controller := start(t, config())
	session := dial(t, controller)
	console, err := session.Console(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	controller.Print("login: ")
	buffer := make([]byte, 64)
	var read string
	for read != "login: " {
		n, err := console.Read(buffer)
		if err != nil {
			t.Fatalf("after %q: %v", read, err)
		}
		read += string(buffer[:n])
	}
	if _, err := console.Write([]byte("root\r")); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return controller.Typed() == "root\r" })
	_, err = dial(t, controller).Console(t.Context())
	if _, ok := errors.AsType[*bmc.BusyError](err); !ok {
		t.Errorf("the second user is told %v", err)
	}
	if err := console.Close(); err != nil {
		t.Error(err)
	}
	if isOn(t, session) {
		t.Error("it is on")
	}
	again, err := session.Console(t.Context())
	if err != nil {
		t.Fatalf("the console was not given back: %v", err)
	}
	_ = again.Close()
}

// TestConsoleOfItsOwn opens a console in a session of its own: as an operator, as an administrator where the controller asks for that, and
// not at all where the account is none.
func TestConsoleOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		needs, account types.PrivilegeLevel
		logins         int
		opens          bool
	}{
		{types.PrivilegeLevelOperator, types.PrivilegeLevelOperator, 1, true},
		{types.PrivilegeLevelAdministrator, types.PrivilegeLevelAdministrator, 2, true},
		{types.PrivilegeLevelAdministrator, types.PrivilegeLevelOperator, 2, false},
	} {
		limited := config()
		limited.ConsolePrivilege, limited.MaxPrivilege = test.needs, test.account
		controller := start(t, limited)
		console, err := ipmi.DialConsole(t.Context(), access(controller), false)
		if logins := controller.Seen().Logins; logins != test.logins {
			t.Errorf("%+v: %d logins", test, logins)
		}
		if !test.opens {
			if reason(err) != bmc.RefusedPrivilege {
				t.Errorf("%+v: %v", test, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%+v: %v", test, err)
		}
		if _, err := console.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		waitFor(t, func() bool { return controller.Typed() == "x" })
		var busy *bmc.BusyError
		if _, err := ipmi.DialConsole(t.Context(), access(controller), false); !errors.As(err, &busy) {
			t.Errorf("the second user is told %v", err)
		}
		if err := console.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestConsoleOfSlowController: a controller that is slow for a while, or whose datagrams get lost, loses no key and ends no console.
func TestConsoleOfSlowController(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]standin.Faults{
		"it answers nothing for a while": {Frozen: true}, "30 of 100 datagrams get lost": {Loss: 0.3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			controller := start(t, config())
			console, err := ipmi.DialConsole(t.Context(), access(controller), false)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := io.ReadAll(console)
				ended <- err
			}()
			controller.Fault(func(f *standin.Faults) { *f = fault })
			if _, err := console.Write([]byte("root\r")); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				t.Fatalf("the console ended: %v", err)
			case <-time.After(3 * time.Second): // as long as the controller is slow
			}
			if fault.Frozen {
				controller.Fault(func(f *standin.Faults) { *f = standin.Faults{} })
			}
			waitFor(t, func() bool { return len(controller.Typed()) >= len("root\r") })
			if typed := controller.Typed(); typed != "root\r" {
				t.Errorf("typed was %q", typed)
			}
			if err := console.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestConsoleOfSilentController ends the stream when the controller does not answer any more.
func TestConsoleOfSilentController(t *testing.T) {
	t.Parallel()
	controller := start(t, config())
	console, err := ipmi.DialConsole(t.Context(), access(controller), false)
	if err != nil {
		t.Fatal(err)
	}
	controller.Fault(func(f *standin.Faults) { f.Frozen = true })
	if _, err := io.ReadAll(console); !errors.Is(err, bmc.ErrSilent) {
		t.Errorf("got %v", err)
	}
	begin := time.Now()
	if err := console.Close(); err != nil || time.Since(begin) > hang {
		t.Errorf("closing: %v after %s", err, time.Since(begin))
	}
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		<-ctx.Done()
		cancel()
	}
}

// TestConsoleShowsSignsOfLife: ipmi_sim ends a session with a console after 30 s without another command, and it is not alone.
func TestConsoleShowsSignsOfLife(t *testing.T) {
	ipmi.KeepConsole(t, 10*time.Millisecond)
	controller := start(t, config())
	console, err := ipmi.DialConsole(t.Context(), access(controller), false)
	if err != nil {
		t.Fatal(err)
	}
	const enough = 3
	waitFor(t, func() bool { return controller.Seen().SignsOfLife >= enough })
	// They do not disturb the console.
	if _, err := console.Write([]byte("root\r")); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return controller.Typed() == "root\r" })
	if err := console.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestConsoleByForce ends the session that has the console, and no other way does.
func TestConsoleByForce(t *testing.T) {
	controller := start(t, config())
	first, err := ipmi.DialConsole(t.Context(), access(controller), false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	var busy *bmc.BusyError
	if _, err := ipmi.DialConsole(t.Context(), access(controller), false); !errors.As(err, &busy) {
		t.Errorf("a second one: %v", err)
	}
	second, err := ipmi.DialConsole(t.Context(), access(controller), true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}
