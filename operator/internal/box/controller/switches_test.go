package controller

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/layout"
	"rcbox.dev/rcbox/operator/internal/box/plan"
	"rcbox.dev/rcbox/operator/internal/box/switches"
)

// threePorts is a switch with three ports that are on.
type threePorts struct{}

func (threePorts) Ports(context.Context) (map[string]switches.Port, error) {
	return map[string]switches.Port{
		"Gi0/1": {Index: 1, Enabled: true, Up: true}, "Gi0/2": {Index: 2, Enabled: true}, "Gi0/3": {Index: 3},
	}, nil
}
func (threePorts) Enable(context.Context, int, bool) error { return nil }
func (threePorts) Close() error                            { return nil }

// TestSwitchesOfAChassis: a Secret of the right type with both passwords is used for the address of the spec, and no other.
func TestSwitchesOfAChassis(t *testing.T) {
	data := func(password, privacy string) map[string][]byte {
		return map[string][]byte{"username": []byte("box"), "password": []byte(password + "\n"), "privacyPassword": []byte(privacy)}
	}
	for name, test := range map[string]struct {
		kind corev1.SecretType
		data map[string][]byte
		says string
	}{
		"good": {v1alpha1.SecretTypeSwitch, data("canary-2f81", "canary-77aa"), ""},
		"for BMCs": {
			v1alpha1.SecretTypeBMC, data("canary-2f81", "canary-77aa"), "only Secrets of type rcbox.dev/switch are sent to switches",
		},
		"no privacy": {v1alpha1.SecretTypeSwitch, data("canary-2f81", ""), "the key privacyPassword is missing or empty"},
		"short":      {v1alpha1.SecretTypeSwitch, data("canary", "canary-77aa"), "the key password has fewer than 8 characters"},
		"none": {
			"", nil, "there is none: make it with --type=rcbox.dev/switch, with the keys username and password and privacyPassword",
		},
	} {
		var asked *switches.Target
		keeper := &switches.Keeper{
			Dial: func(_ context.Context, target *switches.Target) (switches.Session, error) {
				asked = target
				return threePorts{}, nil
			},
			Now: time.Now, Changed: func(string) {},
		}
		builder := fake.NewClientBuilder()
		if test.data != nil {
			builder = builder.WithObjects(&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "rcbox-system", Name: "mercury1-switch"}, Type: test.kind, Data: test.data,
			})
		}
		r := &Reconciler{Live: builder.Build(), Namespace: "rcbox-system", Switches: keeper}
		chassis := &v1alpha1.Chassis{ObjectMeta: metav1.ObjectMeta{Name: "mercury1"}}
		chassis.Spec.SwitchPorts = []v1alpha1.SwitchPorts{
			{NIC: 1, Address: "192.168.5.211", UDPPort: 161, Name: "Gi0/%d", CredentialsSecret: "mercury1-switch"},
		}
		err := r.setSwitches(t.Context(), chassis, &layout.Layout{})
		isSaid := err != nil && strings.Contains(err.Error(), test.says) && !strings.Contains(err.Error(), "canary")
		if test.says == "" && err != nil || test.says != "" && !isSaid {
			t.Errorf("%s: %v", name, err)
		}
		var all sync.WaitGroup
		keeper.Round(t.Context(), &all)
		all.Wait()
		seen := r.seenSwitches(chassis)
		if len(seen) != 1 || seen[0].At.IsZero() != (test.says != "") || (asked == nil) != (test.says != "") {
			t.Fatalf("%s: %+v, %v", name, seen, asked)
		}
		if asked != nil && (asked.Address.String() != "192.168.5.211:161" || asked.Password.Reveal() != "canary-2f81" ||
			seen[0].Ports["Gi0/2"] != (plan.SwitchPort{Enabled: true})) {
			t.Errorf("%s: %v %+v", name, asked, seen)
		}
	}
}
