package aggregation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const host = "rcbox-box.rcbox-system.svc"

// trusts says whether somebody who knows a bundle trusts what serves.
func trusts(t *testing.T, bundle []byte, serving *tls.Certificate, at time.Time) bool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		t.Fatal("no bundle")
	}
	leaf, err := x509.ParseCertificate(serving.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	_, err = leaf.Verify(x509.VerifyOptions{
		Roots: pool, DNSName: host, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err == nil
}

// A client that knows a bundle trusts the serving certificate for a whole period after the bundle was replaced, and not for ever.
func TestRotation(t *testing.T) {
	now := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	certificates, err := NewCertificates(host, now)
	if err != nil {
		t.Fatal(err)
	}
	for day := range 10 {
		bundle, before := certificates.Bundle(), certificates.Serving()
		if !trusts(t, bundle, before, now) {
			t.Fatalf("day %d: what serves is not trusted", day)
		}
		if err := certificates.Rotate(now.Add(servesFor - time.Second)); err != nil || certificates.Serving() != before {
			t.Fatalf("day %d: rotated too early: %v", day, err)
		}
		now = now.Add(servesFor)
		if err := certificates.Rotate(now); err != nil || certificates.Serving() == before {
			t.Fatalf("day %d: not rotated: %v", day, err)
		}
		// An API server that has not heard of the rotation.
		if !trusts(t, bundle, certificates.Serving(), now.Add(servesFor)) {
			t.Fatalf("day %d: the next certificate was not announced", day)
		}
		if trusts(t, certificates.Bundle(), before, now) {
			t.Fatalf("day %d: the one before is still trusted", day)
		}
	}
	if trusts(t, certificates.Bundle(), certificates.Serving(), now.Add(30*servesFor)) {
		t.Error("certificates do not end")
	}
}

// bed is an API server with what the chart makes.
type bed struct {
	client.Client

	announcer
	writes int
}

func newBed(t *testing.T) *bed {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	gvk := schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}
	scheme.AddKnownTypeWithName(gvk, &unstructured.Unstructured{})
	api := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"version": "v1alpha1"}}}
	api.SetGroupVersionKind(gvk)
	api.SetName(APIServiceName)
	b := &bed{}
	b.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(api, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rcbox-system", Name: "rcbox-box", UID: "of-the-service"},
	}).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			b.writes++
			return c.Create(ctx, o, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			b.writes++
			return c.Update(ctx, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			b.writes++
			return c.Patch(ctx, o, p, options...)
		},
	}).Build()
	b.announcer = announcer{b.Client, Service{
		Namespace: "rcbox-system", Name: "rcbox-box", Address: netip.MustParseAddrPort("192.0.2.7:8443"),
	}}
	return b
}

func (b *bed) bundle(t *testing.T) string {
	t.Helper()
	api := &unstructured.Unstructured{}
	api.SetAPIVersion("apiregistration.k8s.io/v1")
	api.SetKind("APIService")
	if err := b.Get(t.Context(), client.ObjectKey{Name: APIServiceName}, api); err != nil {
		t.Fatal(err)
	}
	text, _, _ := unstructured.NestedString(api.Object, "spec", "caBundle")
	bundle, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(bundle)
}

// The announcement is kept right, and written only where it is wrong.
func TestAnnounce(t *testing.T) {
	b := newBed(t)
	announce := func(bundle string, writes int) {
		t.Helper()
		before := b.writes
		if err := b.announce(t.Context(), []byte(bundle)); err != nil {
			t.Fatal(err)
		}
		if got := b.bundle(t); got != bundle || b.writes-before != writes {
			t.Errorf("the bundle is %q after %d writes, not %d", got, b.writes-before, writes)
		}
		slice := &discoveryv1.EndpointSlice{}
		if err := b.Get(t.Context(), client.ObjectKey{Namespace: "rcbox-system", Name: "rcbox-box"}, slice); err != nil {
			t.Fatal(err)
		}
		if slice.Endpoints[0].Addresses[0] != b.service.Address.Addr().String() || *slice.Ports[0].Port != 8443 ||
			slice.Labels[discoveryv1.LabelServiceName] != "rcbox-box" || slice.OwnerReferences[0].UID != "of-the-service" {
			t.Errorf("the EndpointSlice is %+v", slice)
		}
	}
	announce("one", 2)
	announce("one", 0)
	announce("two", 1)
	// Another box controller leads.
	b.service.Address = netip.MustParseAddrPort("192.0.2.8:8443")
	announce("three", 2)
	// Somebody has the chart's Service made anew.
	b.service.Name = "other"
	if err := b.announce(t.Context(), []byte("four")); err == nil {
		t.Error("there is no such Service")
	}
}
