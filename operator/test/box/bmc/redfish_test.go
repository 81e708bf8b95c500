package bmc_test

import (
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/redfish"
	"rcbox.dev/rcbox/operator/test/box/sushy"
)

const systemUUID = "a1234567-0007-4000-a000-000000000007"

// emulated starts the emulator of sushy-tools, which has one server, and returns the authority that signed its certificate.
func emulated(t *testing.T) (bmc.Access, *x509.CertPool, string) {
	t.Helper()
	emulator := sushy.Start(t, freePort(t), username, sushy.Server{Name: "atom007", UUID: systemUUID, MAC: "52:54:00:03:00:07"})
	return bmc.Access{
		Address: emulator.Address, Protocol: bmc.Redfish, Username: username, Password: bmc.NewSecret(sushy.Password),
	}, emulator.Trusted, emulator.CA
}

func freePort(t *testing.T) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	address, _ := listener.Addr().(*net.TCPAddr)
	return address.AddrPort()
}

// stranger vouches for nobody here.
func stranger(t *testing.T) string {
	t.Helper()
	_, text, _ := sushy.Certificate(t, netip.MustParseAddr("127.0.0.1"))
	return text
}

// TestRedfishAndEmulator runs each verb that the emulator has.
func TestRedfishAndEmulator(t *testing.T) {
	access, trusted, vouching := emulated(t)
	dialer := redfish.Dialer{RootCAs: trusted}
	var session *redfish.Client
	eventually(t, "a session with the emulator", func() (err error) {
		session, err = dialer.Dial(t.Context(), access)
		return err
	})
	t.Cleanup(func() { _ = session.Close() })
	is(t, session, bmc.PowerOff)
	for _, step := range []struct {
		action bmc.Action
		power  bmc.Power
	}{
		{bmc.ActionOn, bmc.PowerOn},
		{bmc.ActionReset, bmc.PowerOn},
		{bmc.ActionSoft, bmc.PowerOff},
		{bmc.ActionOn, bmc.PowerOn},
		{bmc.ActionOff, bmc.PowerOff},
		{bmc.ActionOff, bmc.PowerOff},
	} {
		if err := session.Do(t.Context(), step.action); err != nil {
			t.Fatalf("%s: %v", step.action, err)
		}
		is(t, session, step.power)
	}
	for _, d := range []time.Duration{time.Minute, 0} {
		if err := session.Identify(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if reading, err := session.Power(t.Context()); err != nil || reading.Identify != (d > 0) {
			t.Errorf("the light after %s: %+v, %v", d, reading, err)
		}
	}
	for _, want := range []bmc.BootSource{bmc.BootNetwork, bmc.BootDisk} {
		if err := session.BootOnce(t.Context(), want == bmc.BootNetwork); err != nil {
			t.Error(err)
		}
		if next, err := session.NextBoot(t.Context()); err != nil || next.From != want {
			t.Errorf("it was told to boot from %s, and reads %+v: %v", want, next, err)
		}
	}
	identity, err := session.Identity(t.Context())
	if err != nil || identity.SystemGUID != systemUUID || identity.MACs[1] != "52:54:00:03:00:07" {
		t.Errorf("got %+v, %v", identity, err)
	}
	if _, err := session.Sensors(t.Context(), nil); err != nil {
		t.Errorf("sensors: %v", err)
	}
	named := access
	named.CA = vouching
	other, err := redfish.Dialer{}.Dial(t.Context(), named)
	if err != nil {
		t.Fatalf("who vouches is named: %v", err)
	}
	_ = other.Close()
	for _, ca := range []string{"no certificate", stranger(t)} {
		named.CA = ca
		_, err := dialer.Dial(t.Context(), named)
		if refused, is := errors.AsType[*bmc.RefusedError](err); !is || refused.Reason != bmc.RefusedCertificate {
			t.Errorf("somebody else is named: %v", err)
		}
	}
	// It has no account service: the text says what to do.
	fresh := access
	fresh.Password, fresh.Previous = bmc.NewSecret("fresh"), access.Password
	_, err = dialer.DialRotating(t.Context(), fresh, func() { t.Error("it was told the new password") })
	if refused, is := errors.AsType[*bmc.RefusedError](err); !is || !strings.Contains(refused.Detail, "the BMC's own pages") {
		t.Errorf("a new password: %v", err)
	}
	access.Password = bmc.NewSecret("wrong")
	_, err = dialer.Dial(t.Context(), access)
	if refused, is := errors.AsType[*bmc.RefusedError](err); !is || refused.Reason != bmc.RefusedCredentials {
		t.Errorf("a wrong password: %v", err)
	}
	_, err = redfish.Dialer{}.Dial(t.Context(), access)
	if refused, is := errors.AsType[*bmc.RefusedError](err); !is || refused.Reason != bmc.RefusedCertificate {
		t.Errorf("a certificate that nobody vouches for: %v", err)
	}
}
