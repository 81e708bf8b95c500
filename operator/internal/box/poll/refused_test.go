package poll_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/ipmi"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
	"rcbox.dev/rcbox/operator/internal/bmc/standin"
	"rcbox.dev/rcbox/operator/internal/box/poll"
)

// process is the memory of a box controller, until the context ends.
func process(ctx context.Context, t *testing.T, target *pool.Target, recorded *v1alpha1.RefusedLogin) *poll.Poller {
	t.Helper()
	sessions := pool.New(pool.Config{Dial: func(ctx context.Context, access bmc.Access) (bmc.BMC, error) { return ipmi.Dial(ctx, access) }})
	poller := &poll.Poller{Pool: sessions, Clock: poll.NewClock(), Changed: func(string) {}, Intervals: poll.Intervals{
		Power: 20 * time.Millisecond, Hurry: 20 * time.Millisecond, Sensors: time.Hour, Identity: time.Hour, Timeout: patience,
	}}
	wanted := *target
	wanted.Refused = poll.OnRecord(&wanted, recorded)
	//nolint:contextcheck // nobody is forgotten
	poller.Set(chassis, map[string]poll.Want{manager: {Role: poll.Server, Target: wanted}})
	stopped := make(chan error, 1)
	go func() { stopped <- poller.Start(ctx) }()
	t.Cleanup(func() { <-stopped; sessions.Close() })
	return poller
}

// A BMC locks its user out after a few wrong passwords. A refused login is not tried again, not even by the next process, while Secret,
// address, protocol and cipher suite are the same. The record has no part of the password.
func TestRefusedLoginOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	controller, err := standin.Start(standin.Config{Username: "admin", Password: canary})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(controller.Close)
	target := &pool.Target{Name: "mercury1cmm", SecretUID: "its-uid", SecretVersion: "1", Access: bmc.Access{
		Address: controller.Address(), Protocol: bmc.IPMI, Username: "admin", Password: bmc.NewSecret(canary + "x"),
	}}
	isRefused := func(seen *poll.Seen) bool {
		_, is := errors.AsType[*bmc.RefusedError](seen.Contact.Err)
		return is && seen.Contact.Refused != nil
	}
	ctx, stop := context.WithCancel(t.Context())
	first := until(t, process(ctx, t, target, nil), "refused", isRefused)
	stop()
	recorded := first.Contact.Refused
	if logins := controller.Seen().Logins; logins != 1 || recorded.Reason != v1alpha1.LoginCredentials {
		t.Fatalf("%d logins: %+v", logins, recorded)
	}
	second := process(t.Context(), t, target, recorded)
	begun := until(t, second, "refused from its record", isRefused).Contact.AskedAt
	again := until(t, second, "asked some more times", func(seen *poll.Seen) bool {
		return isRefused(seen) && seen.Contact.AskedAt.Sub(begun) > 10*20*time.Millisecond
	})
	if logins := controller.Seen().Logins; logins != 1 {
		t.Errorf("%d logins: a process that began later tried again", logins)
	}
	if !again.Contact.Refused.IsSame(recorded) || again.Contact.Err.Error() != first.Contact.Err.Error() {
		t.Errorf("first %v and %+v, then %v and %+v", first.Contact.Err, recorded, again.Contact.Err, again.Contact.Refused)
	}
	right := *target
	right.SecretVersion, right.Access.Password = "2", bmc.NewSecret(canary)
	until(t, process(t.Context(), t, &right, recorded), "let in with another Secret", func(seen *poll.Seen) bool {
		return seen.Contact.Err == nil && seen.Contact.Refused == nil && !seen.Contact.AnsweredAt.IsZero()
	})
}

// If any field of the identity differs, it is another login, and is tried.
func TestOnRecord(t *testing.T) {
	t.Parallel()
	recorded := v1alpha1.RefusedLogin{
		Address: "192.168.5.1", Port: 623, Protocol: v1alpha1.ManagementIPMI, CipherSuite: 17, SecretUID: "uid", SecretVersion: "7",
		PasswordBytes: 16, Reason: v1alpha1.LoginNewPassword, Detail: "why\x1b[31m",
	}
	target := func() *pool.Target {
		return &pool.Target{SecretUID: "uid", SecretVersion: "7", Access: bmc.Access{
			Address: netip.MustParseAddrPort("192.168.5.1:623"), Protocol: bmc.IPMI, CipherSuite: 17, PasswordBytes: 16,
		}}
	}
	refused := poll.OnRecord(target(), &recorded)
	if refused == nil || refused.Reason != bmc.RefusedNewPassword || !refused.AtLogin || strings.Contains(refused.Detail, "\x1b") {
		t.Fatalf("%+v", refused)
	}
	if poll.OnRecord(target(), nil) != nil {
		t.Error("there is no record")
	}
	for name, change := range map[string]func(*pool.Target){
		"UID":            func(t *pool.Target) { t.SecretUID = "other" },
		"version":        func(t *pool.Target) { t.SecretVersion = "8" },
		"address":        func(t *pool.Target) { t.Access.Address = netip.MustParseAddrPort("192.168.5.2:623") },
		"port":           func(t *pool.Target) { t.Access.Address = netip.MustParseAddrPort("192.168.5.1:624") },
		"protocol":       func(t *pool.Target) { t.Access.Protocol = bmc.Redfish },
		"cipher suite":   func(t *pool.Target) { t.Access.CipherSuite = 3 },
		"password bytes": func(t *pool.Target) { t.Access.PasswordBytes = 20 },
	} {
		other := target()
		if change(other); poll.OnRecord(other, &recorded) != nil {
			t.Errorf("%s differs, and it is not tried", name)
		}
	}
	unknown := recorded
	if unknown.Reason = "Later"; poll.OnRecord(target(), &unknown) != nil {
		t.Error("a reason that this program does not know")
	}
}
