package ipmi_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/ipmi"
	"rcbox.dev/rcbox/operator/internal/bmc/standin"
)

// A controller that knows the previous password is given the new one, once; what else it says no to is not an occasion for that.
func TestRotation(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		password, previous string
		privilege          types.PrivilegeLevel
		refused            bmc.Refusal
		told               int
		keeps              int
	}{
		"new":             {password: "fresh-9dK3", previous: password, told: 1},
		"new of 20 bytes": {password: "fresh-9dK3-9dK3-9dK3", previous: password, told: 1, keeps: 20},
		"of 21 bytes":     {password: "fresh-9dK3-9dK3-9dK3-", previous: password, keeps: 21, refused: bmc.RefusedNewPassword},
		"already":         {password: password, previous: "before"},
		"none":            {password: "fresh-9dK3", refused: bmc.RefusedCredentials},
		"neither":         {password: "fresh-9dK3", previous: "before", refused: bmc.RefusedCredentials},
		"no administrator": {
			password: "fresh-9dK3", previous: password, privilege: types.PrivilegeLevelOperator, refused: bmc.RefusedPrivilege,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := config()
			changed.MaxPrivilege = test.privilege
			controller := start(t, changed)
			with := access(controller)
			with.Password, with.Previous = bmc.NewSecret(test.password), bmc.NewSecret(test.previous)
			with.PasswordBytes = test.keeps
			told := 0
			for range 2 { // the second time it has the new one
				session, err := ipmi.DialRotating(t.Context(), with, func() { told++ })
				if refused, is := errors.AsType[*bmc.RefusedError](err); test.refused != "" && (!is || refused.Reason != test.refused) ||
					test.refused == "" && err != nil {
					t.Fatalf("%v", err)
				}
				if err != nil && (strings.Contains(err.Error(), "fresh") || strings.Contains(err.Error(), password)) {
					t.Errorf("the password is in %q", err)
				}
				if err == nil {
					isOn(t, session)
					_ = session.Close()
				}
			}
			if told != test.told {
				t.Errorf("told %d times", told)
			}
		})
	}
}

// A controller that keeps less than its model says gets the previous password back.
func TestLessIsKeptThanTheModelSays(t *testing.T) {
	t.Parallel()
	controller := start(t, config())
	controller.Fault(func(faults *standin.Faults) { faults.ShortPasswords = true })
	with := access(controller)
	with.Password, with.Previous, with.PasswordBytes = bmc.NewSecret("fresh-9dK3-9dK3-9"), bmc.NewSecret(password), 20
	_, err := ipmi.DialRotating(t.Context(), with, func() { t.Error("it was told") })
	if refused, is := errors.AsType[*bmc.RefusedError](err); !is || refused.Reason != bmc.RefusedNewPassword ||
		!strings.Contains(refused.Detail, "has the previous one") {
		t.Errorf("got %v", err)
	}
	_ = dial(t, controller)
}

// Once a wrong password was tried, what is answered is final, and silence is told from other silence: both bound the attempts.
func TestWhatBecomesOfARotation(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*standin.BMC, *standin.Faults){
		"unsupported": func(_ *standin.BMC, faults *standin.Faults) { faults.Code = types.CodeInvalidCommand },
		"busy":        func(_ *standin.BMC, faults *standin.Faults) { faults.Code = types.CodeNodeBusy },
		"silent": func(controller *standin.BMC, faults *standin.Faults) {
			faults.OnPassword = func() { controller.Fault(func(faults *standin.Faults) { faults.Frozen = true }) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			controller := start(t, config())
			controller.Fault(func(faults *standin.Faults) { fault(controller, faults) })
			with := access(controller)
			with.Password, with.Previous = bmc.NewSecret("fresh-9dK3"), bmc.NewSecret(password)
			_, err := ipmi.DialRotating(t.Context(), with, func() { t.Error("it was told") })
			refused, isRefused := errors.AsType[*bmc.RefusedError](err)
			_, isInterrupted := errors.AsType[*bmc.RotationError](err)
			isSilent := name == "silent"
			if isSilent != (isInterrupted && errors.Is(err, bmc.ErrSilent)) ||
				isSilent == (isRefused && refused.Reason == bmc.RefusedNewPassword) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Some controllers keep only a part of a long password. If rcbox is killed before it has put the previous password back, everybody is
// locked out, because nobody knows which part the controller has kept. So rcbox gives a controller no password that is longer than the
// controller is known to keep.
func TestKilledInTheMiddleOfARotation(t *testing.T) {
	t.Parallel()
	for name, long := range map[string]string{"of 17 bytes": "fresh-9dK3-9dK3-9", "of 20 bytes": "fresh-9dK3-9dK3-9dK3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			controller := start(t, config())
			killed, kill := context.WithCancel(t.Context())
			controller.Fault(func(faults *standin.Faults) { faults.ShortPasswords, faults.OnPassword = true, kill })
			with := access(controller)
			with.Password, with.Previous = bmc.NewSecret(long), bmc.NewSecret(password)
			_, err := ipmi.DialRotating(killed, with, func() { t.Error("it was told") })
			if refused, is := errors.AsType[*bmc.RefusedError](err); !is || refused.Reason != bmc.RefusedNewPassword ||
				!strings.Contains(refused.Detail, "at most 16 bytes") {
				t.Errorf("got %v", err)
			}
			if killed.Err() != nil {
				t.Error("it was given a password that it cannot keep")
			}
			_ = dial(t, controller) // with the previous one
			// A shorter one is the way out.
			with.Password = bmc.NewSecret(long[:16])
			session, err := ipmi.DialRotating(t.Context(), with, func() {})
			if err != nil {
				t.Fatal(err)
			}
			_ = session.Close()
		})
	}
}
