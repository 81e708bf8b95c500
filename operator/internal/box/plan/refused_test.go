package plan_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// A refused login stays recorded until the controller accepts a login: not shorter, because BMCs lock accounts, and not longer.
func TestRefusedLoginsAreOnRecord(t *testing.T) {
	refusal := func(address, version string, at time.Time) *v1alpha1.RefusedLogin {
		return &v1alpha1.RefusedLogin{
			Address: address, Port: 623, Protocol: v1alpha1.ManagementIPMI, SecretUID: "uid", SecretVersion: version,
			Reason: v1alpha1.LoginCredentials, At: metav1.NewTime(at),
		}
	}
	now := newScene(bmc.PowerOn).now
	earlier := now.Add(-time.Hour)
	refusedContact := func(record *v1alpha1.RefusedLogin) plan.Contact {
		return plan.Contact{AskedAt: now, Err: &bmc.RefusedError{Reason: bmc.RefusedCredentials, AtLogin: true}, Refused: record}
	}
	for name, test := range map[string]struct {
		contact plan.Contact
		before  bool
		version string
		at      time.Time
	}{
		"refused":               {refusedContact(refusal("192.168.5.3", "7", now)), false, "7", now},
		"refused, as on record": {refusedContact(refusal("192.168.5.3", "6", now)), true, "6", earlier},
		"refused with another":  {refusedContact(refusal("192.168.5.3", "7", now)), true, "7", now},
		"not asked yet":         {plan.Contact{}, true, "6", earlier},
		"silent":                {plan.Contact{AskedAt: now, Err: bmc.ErrSilent}, true, "6", earlier},
		"lets in":               {plan.Contact{AskedAt: now, AnsweredAt: now}, true, "", time.Time{}},
		"a certificate is refused": {
			plan.Contact{AskedAt: now, Err: &bmc.RefusedError{Reason: bmc.RefusedCertificate}}, true, "6", earlier,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(bmc.PowerOn)
			s.Servers[2].MMC = test.contact
			s.Managers[1].Contact = test.contact
			if test.contact.Refused != nil {
				of := *test.contact.Refused
				of.Address = s.Managers[1].Address
				s.Managers[1].Refused = &of
			}
			if test.before {
				s.Servers[2].Object.Status.MMC.Refused = refusal("192.168.5.3", "6", earlier)
				s.Chassis.Status.Refused = []v1alpha1.RefusedLogin{
					*refusal(s.Managers[1].Address, "6", earlier), *refusal("192.168.9.9", "6", earlier),
				}
			}
			made := plan.Make(s.now, s.Observed)
			of := made.Servers["atom003"].MMC.Refused
			switch {
			case test.version == "" && (of != nil || len(made.Chassis.Refused) > 0):
				t.Errorf("still on record: %+v, %+v", of, made.Chassis.Refused)
			case test.version == "":
			case of == nil || of.SecretVersion != test.version || !of.At.Time.Equal(test.at):
				t.Errorf("on record is %+v", of)
			case len(made.Chassis.Refused) != 1 || !made.Chassis.Refused[0].At.Time.Equal(test.at) ||
				made.Chassis.Refused[0].Address != s.Managers[1].Address:
				t.Errorf("of managers, on record is %+v", made.Chassis.Refused)
			}
		})
	}
}
