package controller

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// A Secret that a Chassis names is used only if it is meant for BMCs: whoever writes a Chassis must not have other passwords of the
// namespace sent to an address of their choice.
func TestSecretsOfOtherTypes(t *testing.T) {
	const namespace, name = "rcbox-system", "registry"
	data := map[string][]byte{"username": []byte("admin"), "password": []byte("canary-2f81")}
	for kind, isUsed := range map[corev1.SecretType]bool{
		v1alpha1.SecretTypeBMC: true, corev1.SecretTypeOpaque: false, "": false, corev1.SecretTypeBasicAuth: false,
		corev1.SecretTypeServiceAccountToken: false, v1alpha1.SecretTypeSwitch: false,
	} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: kind, Data: data}
		r := &Reconciler{Live: fake.NewClientBuilder().WithObjects(secret).Build(), Namespace: namespace}
		got, err := r.credentials(t.Context(), name, v1alpha1.SecretTypeBMC, bmcKeys)
		unusable, isUnusable := errors.AsType[*secretError](err)
		switch {
		case isUsed && (err != nil || string(got.Data["password"]) != "canary-2f81"):
			t.Errorf("type %q: %v", kind, err)
		case !isUsed && (got != nil || !isUnusable || !strings.Contains(err.Error(), "--type=rcbox.dev/bmc")):
			t.Errorf("type %q: %v", kind, err)
		case isUnusable && (len(unusable.Error()) > 300 || strings.Contains(unusable.Error(), "canary")):
			t.Errorf("type %q: %q", kind, unusable)
		}
	}
}
