package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/layout"
	"rcbox.dev/rcbox/operator/internal/box/plan"
	"rcbox.dev/rcbox/operator/internal/box/switches"
)

// switchKeys are the keys of a Secret for switches, and minPassword is the length that SNMPv3 asks of passwords (RFC 3414, section 11.2).
var switchKeys = []string{corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey, v1alpha1.PrivacyPasswordKey}

const minPassword = 8

// setSwitches has the switches of a Chassis asked. One whose Secret is of no use is not asked; the others are.
func (r *Reconciler) setSwitches(ctx context.Context, chassis *v1alpha1.Chassis, laid *layout.Layout) error {
	targets := map[int32]switches.Target{}
	var errs []error
	for i := range chassis.Spec.SwitchPorts {
		of := &chassis.Spec.SwitchPorts[i]
		address, err := netip.ParseAddr(of.Address)
		if err != nil || len(laid.Problems) > 0 {
			continue
		}
		secret, err := r.credentials(ctx, of.CredentialsSecret, v1alpha1.SecretTypeSwitch, switchKeys)
		if err == nil {
			err = whyTooShort(secret)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		targets[of.NIC] = switches.Target{
			Address:  netip.AddrPortFrom(address, uint16(of.UDPPort)), //nolint:gosec // the API server has checked it
			Username: string(secret.Data[corev1.BasicAuthUsernameKey]),
			Password: password(secret, corev1.BasicAuthPasswordKey),
			Privacy:  password(secret, v1alpha1.PrivacyPasswordKey),
		}
	}
	r.Switches.Set(chassis.Name, targets)
	return errors.Join(errs...)
}

func whyTooShort(secret *corev1.Secret) error {
	for _, key := range switchKeys[1:] {
		if len(password(secret, key).Reveal()) < minPassword {
			return &secretError{secret.Namespace + "/" + secret.Name, fmt.Sprintf(
				"the key %s has fewer than %d characters, which SNMPv3 does not take", key, minPassword)}
		}
	}
	return nil
}

// seenSwitches is what the switches of a Chassis have said last.
func (r *Reconciler) seenSwitches(chassis *v1alpha1.Chassis) []plan.Switch {
	all := make([]plan.Switch, 0, len(chassis.Spec.SwitchPorts))
	for i := range chassis.Spec.SwitchPorts {
		of := &chassis.Spec.SwitchPorts[i]
		seen := r.Switches.Seen(chassis.Name, of.NIC)
		ports := make(map[string]plan.SwitchPort, len(seen.Ports))
		for name, port := range seen.Ports {
			ports[name] = plan.SwitchPort{Enabled: port.Enabled, Up: port.Up}
		}
		all = append(all, plan.Switch{NIC: of.NIC, Address: of.Address, Name: of.Name, At: seen.At, Err: seen.Err, Ports: ports})
	}
	return all
}
