package controller

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// newScheme has all types that the controller reads and writes. Each test has one of its own: tests run side by side, and a scheme that
// takes up types must not be read meanwhile.
func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}
