package redfish_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/redfish"
)

// account is the account of a stand-in, and how it keeps passwords.
type account struct {
	password string
	// isMissing: there is no account service.
	isMissing bool
	// longest password that it says that it takes, and that it keeps; 0: it says nothing, and keeps all.
	longest, keeps int
	// refuses is the status with which it refuses a password; 0: it does not.
	refuses int
	// endsSessions: whoever has a session when the password changes has none any more.
	endsSessions bool
	// changes of the password.
	changes int
	changed func()
}

const etag = `"1"`

func (s *service) accounts(w http.ResponseWriter, r *http.Request, asked map[string]any) {
	const root = "/redfish/v1/AccountService"
	switch r.URL.Path {
	case root:
		_, _ = fmt.Fprintf(w, `{"Accounts": {"@odata.id": %q}, "MaxPasswordLength": %d}`, root+"/Accounts", s.account.longest)
	case root + "/Accounts":
		_, _ = io.WriteString(w, `{"Members": [{"@odata.id": "`+root+`/Accounts/1"}, {"@odata.id": "`+root+`/Accounts/2"}]}`)
	case root + "/Accounts/1":
		_, _ = io.WriteString(w, `{"@odata.id": "`+root+`/Accounts/1", "Id": "1", "UserName": "", "Password": null}`)
	case root + "/Accounts/2":
		if r.Method == http.MethodPatch {
			s.changePassword(w, r, asked)
			return
		}
		w.Header().Set("Etag", etag)
		_, _ = io.WriteString(w, `{"@odata.id": "`+root+`/Accounts/2", "Id": "2", "UserName": "`+user+`", "Password": null}`)
	default:
		s.fail(w, http.StatusNotFound)
	}
}

func (s *service) changePassword(w http.ResponseWriter, r *http.Request, asked map[string]any) {
	fresh, _ := asked["Password"].(string)
	switch {
	case len(asked) != 1 || fresh == "":
		s.fail(w, http.StatusBadRequest)
		return
	case r.Header.Get("If-Match") != etag:
		s.fail(w, http.StatusPreconditionFailed)
		return
	case s.account.refuses != 0:
		s.fail(w, s.account.refuses)
		return
	}
	if s.account.keeps > 0 {
		fresh = fresh[:min(len(fresh), s.account.keeps)]
	}
	s.account.changes++
	s.account.password, s.expired = fresh, s.account.endsSessions
	if s.account.changed != nil {
		s.account.changed()
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *service) rotate(ctx context.Context, access bmc.Access, told func()) (*redfish.Client, error) {
	trusted := x509.NewCertPool()
	trusted.AddCert(s.Certificate())
	return redfish.Dialer{RootCAs: trusted}.DialRotating(ctx, access, told)
}

// A controller that knows the previous password is given the new one, once. None is given one that it may keep in part, and what it answers
// is final.
func TestRotation(t *testing.T) {
	t.Parallel()
	const long, fresh = "fresh-5tYw-5tYw-5tYw", "fresh-5tYw"
	for name, test := range map[string]struct {
		account  account
		password string
		previous string
		basic    bool
		refused  bmc.Refusal
		says     string
		changes  int
	}{
		"new":                       {password: fresh, changes: 1},
		"new, without sessions":     {password: fresh, basic: true, changes: 1},
		"new, and sessions end":     {account: account{endsSessions: true}, password: fresh, changes: 1},
		"long, and it takes that":   {account: account{longest: 20}, password: long, changes: 1},
		"long, and it does not say": {password: long, refused: bmc.RefusedNewPassword, says: "at most 16 bytes"},
		"longer than it takes": {
			account: account{longest: 8}, password: fresh, refused: bmc.RefusedNewPassword, says: "at most 8 bytes",
		},
		"kept in part": {
			account: account{longest: 20, keeps: 16}, password: long, changes: 2, refused: bmc.RefusedNewPassword,
			says: "has the previous one",
		},
		"against its rules": {
			account: account{refuses: http.StatusBadRequest}, password: fresh, refused: bmc.RefusedNewPassword, says: "its rules",
		},
		"no administrator": {account: account{refuses: http.StatusForbidden}, password: fresh, refused: bmc.RefusedPrivilege},
		"no account service": {
			account: account{isMissing: true}, password: fresh, refused: bmc.RefusedNewPassword, says: "change it in the BMC's own pages",
		},
		"neither": {password: fresh, previous: "before", refused: bmc.RefusedCredentials},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.basic, s.account = test.basic, test.account
			s.account.password = password
			with := s.access()
			with.Password, with.Previous = bmc.NewSecret(test.password), bmc.NewSecret(password)
			if test.previous != "" {
				with.Previous = bmc.NewSecret(test.previous)
			}
			told := 0
			session, err := s.rotate(t.Context(), with, func() { told++ })
			refused, isRefused := errors.AsType[*bmc.RefusedError](err)
			switch {
			case test.refused == "" && err != nil, test.refused != "" && (!isRefused || refused.Reason != test.refused):
				t.Fatalf("got %v", err)
			case isRefused && (!strings.Contains(refused.Detail, test.says) || strings.Contains(err.Error(), test.password)):
				t.Errorf("got %v", err)
			}
			want := test.password
			if test.refused != "" {
				want = password
			}
			if s.account.password != want || s.account.changes != test.changes || told > 0 != (test.refused == "") {
				t.Errorf("it has %q after %d changes, and was told %d times", s.account.password, s.account.changes, told)
			}
			if err == nil {
				_ = powerOf(t, session)
				_ = session.Close()
			}
		})
	}
}

// A box controller that is killed once the password was changed finds the BMC with the new one.
func TestKilledInTheMiddleOfARotation(t *testing.T) {
	t.Parallel()
	s := start(t)
	killed, kill := context.WithCancel(t.Context())
	s.account.changed = kill
	with := s.access()
	with.Password, with.Previous = bmc.NewSecret("fresh-5tYw"), bmc.NewSecret(password)
	if _, err := s.rotate(killed, with, func() { t.Error("it was told") }); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	session, err := s.rotate(t.Context(), with, func() { t.Error("it was told again") })
	if err != nil {
		t.Fatal(err)
	}
	_ = session.Close()
}
