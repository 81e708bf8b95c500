package redfish_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/redfish"
)

func powerOf(t *testing.T, session bmc.BMC) bmc.Reading {
	t.Helper()
	reading, err := session.Power(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return reading
}

// TestOrders runs each order.
func TestOrders(t *testing.T) {
	t.Parallel()
	s := start(t)
	session := s.open(t)
	for _, step := range []struct {
		action bmc.Action
		power  bmc.Power
	}{
		{bmc.ActionOn, bmc.PowerOn},
		{bmc.ActionSoft, bmc.PowerOff},
		{bmc.ActionOn, bmc.PowerOn},
		{bmc.ActionReset, bmc.PowerOn},
		{bmc.ActionOff, bmc.PowerOff},
	} {
		if err := session.Do(t.Context(), step.action); err != nil {
			t.Errorf("%s: %v", step.action, err)
		}
		if got := powerOf(t, session).Power; got != step.power {
			t.Errorf("after %s it is %s", step.action, got)
		}
	}
	if err := session.Do(t.Context(), bmc.ActionCycle); !isUnsupported(err) {
		t.Errorf("an action that the service does not offer: %v", err)
	}
	if want := []string{"On", "GracefulShutdown", "On", "ForceRestart", "ForceOff"}; !slices.Equal(s.orders, want) {
		t.Errorf("the service saw %v", s.orders)
	}
	s.change(func() { s.power = "PoweringOff" })
	if got := powerOf(t, session).Power; got != bmc.PowerUnknown {
		t.Errorf("between on and off it is %s", got)
	}
}

func isUnsupported(err error) bool {
	_, unsupported := errors.AsType[*bmc.UnsupportedError](err)
	return unsupported
}

// TestWhatIsDoneIsNoError switches off what is off, on a service that refuses that.
func TestWhatIsDoneIsNoError(t *testing.T) {
	t.Parallel()
	s := start(t)
	session := s.open(t)
	s.change(func() { s.refuse = http.StatusConflict })
	if err := session.Do(t.Context(), bmc.ActionOff); err != nil {
		t.Errorf("off: %v", err)
	}
	if _, busy := errors.AsType[*bmc.BusyError](session.Do(t.Context(), bmc.ActionOn)); !busy {
		t.Error("a refused order is taken for one that was done")
	}
}

// TestBootAndIdentify sets what the server boots from, and its light.
func TestBootAndIdentify(t *testing.T) {
	t.Parallel()
	s := start(t)
	session := s.open(t)
	for network, target := range map[bool]string{true: "Pxe", false: "Hdd"} {
		if err := session.BootOnce(t.Context(), network); err != nil {
			t.Fatal(err)
		}
		want := bmc.NextBoot{From: map[bool]bmc.BootSource{true: bmc.BootNetwork, false: bmc.BootDisk}[network]}
		if next, err := session.NextBoot(t.Context()); err != nil || next != want {
			t.Errorf("network %v: it reads %+v, %v", network, next, err)
		}
		if s.boot["BootSourceOverrideTarget"] != target || s.boot["BootSourceOverrideEnabled"] != "Once" {
			t.Errorf("the service saw %v", s.boot)
		}
	}
	for _, test := range []struct {
		boot map[string]string
		want bmc.NextBoot
	}{
		{map[string]string{"BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled"}, bmc.NextBoot{From: bmc.BootUnset}},
		{map[string]string{"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Disabled"}, bmc.NextBoot{From: bmc.BootUnset}},
		{
			map[string]string{"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Continuous"},
			bmc.NextBoot{From: bmc.BootNetwork, EachTime: true},
		},
		{map[string]string{"BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once"}, bmc.NextBoot{From: bmc.BootOther}},
	} {
		s.change(func() { s.boot, s.keepsBoot = test.boot, true })
		if err := session.BootOnce(t.Context(), true); err != nil { // it says yes
			t.Fatal(err)
		}
		if next, err := session.NextBoot(t.Context()); err != nil || next != test.want {
			t.Errorf("%v: it reads %+v, %v", test.boot, next, err)
		}
	}
	s.change(func() { s.boot = nil })
	if _, err := session.NextBoot(t.Context()); !isUnsupported(err) {
		t.Errorf("a service that does not say what is booted from: %v", err)
	}
	for _, d := range []time.Duration{time.Minute, 0} {
		if err := session.Identify(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if got := powerOf(t, session).Identify; got != (d > 0) {
			t.Errorf("%s: the light blinks: %v", d, got)
		}
	}
	if _, err := session.Console(t.Context()); !isUnsupported(err) {
		t.Errorf("console: %v", err)
	}
}

// TestIdentity reads what the hardware is.
func TestIdentity(t *testing.T) {
	t.Parallel()
	identity, err := start(t).open(t).Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if identity.SystemGUID != "00112233-4455-4677-8899-aabbccddeeff" || identity.Manufacturer != "rcbox" ||
		identity.Product != "stand-in" || identity.Serial != "S-0007" || identity.Firmware != "2.07" || identity.Slot != 7 {
		t.Errorf("got %+v", identity)
	}
	if len(identity.MACs) != 2 || identity.MACs[1] != "52:54:00:03:00:07" || identity.MACs[2] != "52:54:00:04:00:07" {
		t.Errorf("MACs: %v", identity.MACs)
	}
}

// TestIdentityWithoutBlade: a system whose chassis, NICs or manager cannot be read has its GUID all the same. A service that is only busy,
// or silent, is not taken for one without them.
func TestIdentityWithoutBlade(t *testing.T) {
	t.Parallel()
	s := start(t)
	session := s.open(t)
	for path, isEmpty := range map[string]func(bmc.Identity) bool{
		"/redfish/v1/Chassis/1":                    func(i bmc.Identity) bool { return i.Slot == 0 && len(i.MACs) == 2 },
		"/redfish/v1/Systems/1/EthernetInterfaces": func(i bmc.Identity) bool { return i.Slot == 7 && len(i.MACs) == 0 },
		"/redfish/v1/Managers/1":                   func(i bmc.Identity) bool { return i.Slot == 7 && i.Firmware == "" },
	} {
		ask := func(status int) (bmc.Identity, error) {
			s.change(func() { s.statuses = map[string]int{path: status} })
			return session.Identity(t.Context())
		}
		for _, status := range []int{
			http.StatusNotFound, http.StatusNotImplemented, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusBadRequest,
		} {
			if identity, err := ask(status); err != nil || identity.SystemGUID == "" || !isEmpty(identity) {
				t.Errorf("%s, status %d: %+v, %v", path, status, identity, err)
			}
		}
		for _, status := range []int{
			http.StatusServiceUnavailable, http.StatusConflict, http.StatusInternalServerError, http.StatusUnauthorized,
		} {
			if identity, err := ask(status); err == nil {
				t.Errorf("%s, status %d: %+v", path, status, identity)
			}
		}
	}
}

// TestTimesOfLog leaves out times that no date in a status can have: in UTC, their year has more or fewer than four digits.
func TestTimesOfLog(t *testing.T) {
	t.Parallel()
	s := start(t)
	session := s.open(t)
	for created, want := range map[string]string{
		"9999-12-31T23:59:59-12:00": "", "0000-01-01T00:00:00+12:00": "", "0001-01-01T00:00:00Z": "", "1969-12-31T23:59:59Z": "",
		"9999-01-01T00:00:00Z": "", "no time": "",
		"1970-01-01T00:00:00Z": "1970-01-01T00:00:00Z", "9998-12-31T23:00:00Z": "9998-12-31T23:00:00Z",
		"2026-11-24T13:00:00+01:00": "2026-11-24T12:00:00Z",
	} {
		s.change(func() {
			s.sheets["/redfish/v1/Managers/1/LogServices/SEL/Entries"] = `{"Members": [
				{"Id": "1", "Message": "m", "Created": "` + created + `"}]}`
		})
		entries, err := session.Log(t.Context())
		if err != nil || len(entries) != 1 {
			t.Fatalf("%s: %+v, %v", created, entries, err)
		}
		got := ""
		if at := entries[0].At; !at.IsZero() {
			got = at.Format(time.RFC3339)
		}
		if got != want {
			t.Errorf("%s: got %q instead of %q", created, got, want)
		}
	}
}

// TestSensors reads the sensors of both models. What the service does not know must not be shown as 0.
func TestSensors(t *testing.T) {
	t.Parallel()
	sensors, err := start(t).open(t).Sensors(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range sensors {
		got = append(got, fmt.Sprintf("%s=%v%s beyond=%v", s.Name, s.Value, s.Unit, s.Beyond))
	}
	want := []string{
		"CPU=41.123C beyond=false", "Fan 1=4200RPM beyond=true", "Slot 7=22.5W beyond=false", "12V=12.1V beyond=false",
		"Inlet=-5C beyond=false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLog reads the event log, of which one entry is in the collection and the other is not.
func TestLog(t *testing.T) {
	t.Parallel()
	entries, err := start(t).open(t).Log(t.Context())
	if err != nil || len(entries) != 2 {
		t.Fatalf("got %v, %v", entries, err)
	}
	first, noon := entries[0], time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	if !first.At.Equal(noon) || first.At.Location() != time.UTC || strings.ContainsRune(first.Text, 0x1b) {
		t.Errorf("got %+v", first)
	}
	if entries[0].Asserted == entries[1].Asserted || entries[0].ID+entries[1].ID != 3 {
		t.Errorf("got %+v", entries)
	}
}

// TestRefusals counts the attempts that each refusal costs.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, basic := range []bool{false, true} {
		s := start(t)
		s.change(func() { s.basic = basic })
		wrong := s.access()
		wrong.Password = bmc.NewSecret("wrong")
		_, err := s.dial(t.Context(), wrong)
		if refused, is := errors.AsType[*bmc.RefusedError](err); !is || refused.Reason != bmc.RefusedCredentials {
			t.Errorf("basic %v: %v", basic, err)
		}
		if s.logins != 1 {
			t.Errorf("basic %v: %d attempts", basic, s.logins)
		}
	}
}

// TestBasicAuthentication works with a service that has no sessions.
func TestBasicAuthentication(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.change(func() { s.basic = true })
	if got := powerOf(t, s.open(t)).Power; got != bmc.PowerOff {
		t.Errorf("it is %s", got)
	}
}

// TestCertificate refuses one that nobody vouches for, and takes it if the user says so.
func TestCertificate(t *testing.T) {
	t.Parallel()
	s := start(t)
	access := s.access()
	_, err := redfish.Dialer{}.Dial(t.Context(), access)
	if refused, is := errors.AsType[*bmc.RefusedError](err); !is || refused.Reason != bmc.RefusedCertificate {
		t.Errorf("got %v", err)
	}
	if s.logins != 0 {
		t.Error("the password was sent")
	}
	access.InsecureSkipVerify = true
	session, err := redfish.Dialer{}.Dial(t.Context(), access)
	if err != nil {
		t.Fatal(err)
	}
	_ = session.Close()
}

// TestSessionEnds logs out, and notices when the service has ended the session: then the session is of no more use.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	s := start(t)
	session := s.open(t)
	s.change(func() { s.expired = true })
	if _, err := session.Power(t.Context()); !errors.Is(err, bmc.ErrSilent) {
		t.Errorf("got %v", err)
	}
	s.change(func() { s.expired = false })
	_ = session.Close()
	if s.sessions != 0 {
		t.Errorf("%d sessions are left over", s.sessions)
	}
}

// TestSilence asks where nobody listens, and gives up on a service that says nothing when the context ends.
func TestSilence(t *testing.T) {
	t.Parallel()
	s := start(t)
	session := s.open(t)
	hang := make(chan struct{})
	s.change(func() { s.hang = hang })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := session.Power(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, bmc.ErrSilent) {
		t.Errorf("got %v", err)
	}
	close(hang)
	s.change(func() { s.hang = nil })
	if got := powerOf(t, session).Power; got != bmc.PowerOff {
		t.Errorf("after that it is %s", got)
	}
	access := s.access()
	s.Close()
	if _, err := s.dial(t.Context(), access); !errors.Is(err, bmc.ErrSilent) {
		t.Errorf("where nobody listens: %v", err)
	}
}

// TestOtherHosts follows no reference to another host, since the token would go with it.
func TestOtherHosts(t *testing.T) {
	t.Parallel()
	s, thief := start(t), start(t)
	host := strings.TrimPrefix(thief.URL, "https://")
	for _, reference := range []string{"@" + host + "/redfish/v1/Chassis/1", ".example.com/", "0/redfish/v1/Chassis/1"} {
		s.change(func() { s.sheets["/redfish/v1/Chassis"] = `{"Members": [{"@odata.id": "` + reference + `"}]}` })
		session := s.open(t)
		if sensors, err := session.Sensors(t.Context(), nil); err == nil {
			t.Errorf("%s: %v", reference, sensors)
		}
	}
	session := s.open(t)
	s.change(func() { s.elsewhere = thief.URL })
	if reading, err := session.Power(t.Context()); err == nil {
		t.Errorf("sent elsewhere, it is %s", reading.Power)
	}
	if thief.requests != 0 {
		t.Errorf("another host got %d requests", thief.requests)
	}
}

// TestEndlessAnswers bounds a collection in a circle and a resource without end.
func TestEndlessAnswers(t *testing.T) {
	t.Parallel()
	for name, sheet := range map[string]string{
		"a circle": `{"Members": [{"@odata.id": "/redfish/v1/Chassis/1"}], "Members@odata.nextLink": "/redfish/v1/Chassis"}`,
		"nothing":  `{"Members": [], "Members@odata.nextLink": "/redfish/v1/Chassis"}`,
		"much":     `{"Members": [` + strings.Repeat(" ", 600<<10) + `]}`,
	} {
		s := start(t)
		s.change(func() { s.sheets["/redfish/v1/Chassis"] = sheet })
		if _, err := s.dial(t.Context(), s.access()); err == nil || errors.Is(err, bmc.ErrSilent) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSeveralSystems is a chassis manager: it has sensors, and no server of its own.
func TestSeveralSystems(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.change(func() {
		s.sheets["/redfish/v1/Systems"] = `{"Members": [{"@odata.id": "/redfish/v1/Systems/1"}, {"@odata.id": "/redfish/v1/Systems/2"}]}`
	})
	session := s.open(t)
	if _, err := session.Power(t.Context()); !isUnsupported(err) {
		t.Errorf("power: %v", err)
	}
	if _, err := session.Identity(t.Context()); !isUnsupported(err) {
		t.Errorf("identity: %v", err)
	}
	if sensors, err := session.Sensors(t.Context(), nil); err != nil || len(sensors) == 0 {
		t.Errorf("sensors: %v, %v", sensors, err)
	}
}

// TestNothingPrintsThePassword looks for it in sessions, errors and logs, of a service that repeats it in its errors.
func TestNothingPrintsThePassword(t *testing.T) {
	t.Parallel()
	s := start(t)
	session := s.open(t)
	wrong := s.access()
	wrong.Username = "nobody"
	_, refused := s.dial(t.Context(), wrong)
	s.change(func() { s.refuse = http.StatusInternalServerError })
	failed := session.Do(t.Context(), bmc.ActionOn)
	s.change(func() { s.expired = true })
	_, expired := session.Sensors(t.Context(), nil)
	hidden := struct{ session *redfish.Client }{session}
	printed := new(bytes.Buffer)
	for _, value := range []any{session, hidden, &hidden, s.access(), refused, failed, expired} {
		fmt.Fprintf(printed, "%v %+v %#v %s %x\n", value, value, value, value, value)
		slog.New(slog.NewJSONHandler(printed, nil)).Info("session", "with", value)
		slog.New(slog.NewTextHandler(printed, nil)).Info("session", "with", value)
	}
	for _, secret := range []string{password, token} {
		if strings.Contains(printed.String(), secret) {
			t.Errorf("%q is printed:\n%s", secret, printed)
		}
	}
}
