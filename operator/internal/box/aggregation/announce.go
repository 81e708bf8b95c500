package aggregation

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/operator/internal/box/subresources/protocol"
)

const (
	// portName is that of the Service's port.
	portName = "subresources"
	// managedBy tells the EndpointSlice from those that Kubernetes makes of a Service's selector.
	managedBy = "box.rcbox.dev"
)

// APIServiceName is the object that leads the Kubernetes API server to us.
var APIServiceName = protocol.GroupVersion.Version + "." + protocol.GroupVersion.Group

// Service is where the Kubernetes API server finds this process: behind a Service without a selector, because of several box controllers
// the one that leads has the consoles.
type Service struct {
	Namespace, Name string
	// Address is where this process listens, as others see it.
	Address netip.AddrPort
}

func (s Service) host() string { return s.Name + "." + s.Namespace + ".svc" }

// announcer tells the Kubernetes API server where this process is, and what certificate it has.
type announcer struct {
	// client reads these objects from the API server, not from a cache.
	client  client.Client
	service Service
}

// announce writes what is not so yet. The address comes first, so that a certificate that is trusted can be had at once.
func (a announcer) announce(ctx context.Context, bundle []byte) error {
	if err := a.announceAddress(ctx); err != nil {
		return err
	}
	return a.announceBundle(ctx, bundle)
}

func (a announcer) announceAddress(ctx context.Context) error {
	service := &corev1.Service{}
	key := client.ObjectKey{Namespace: a.service.Namespace, Name: a.service.Name}
	if err := a.client.Get(ctx, key, service); err != nil {
		return fmt.Errorf("read Service %s: %w", key, err)
	}
	wanted := a.slice(service)
	slice := &discoveryv1.EndpointSlice{}
	switch err := a.client.Get(ctx, key, slice); {
	case apierrors.IsNotFound(err):
		if err := a.client.Create(ctx, wanted); err != nil {
			return fmt.Errorf("make EndpointSlice %s: %w", key, err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("read EndpointSlice %s: %w", key, err)
	}
	if equality.Semantic.DeepEqual(slice.Endpoints, wanted.Endpoints) && equality.Semantic.DeepEqual(slice.Ports, wanted.Ports) &&
		equality.Semantic.DeepEqual(slice.Labels, wanted.Labels) {
		return nil
	}
	slice.Endpoints, slice.Ports, slice.Labels = wanted.Endpoints, wanted.Ports, wanted.Labels
	if err := a.client.Update(ctx, slice); err != nil {
		return fmt.Errorf("update EndpointSlice %s: %w", key, err)
	}
	return nil
}

func (a announcer) slice(service *corev1.Service) *discoveryv1.EndpointSlice {
	family := discoveryv1.AddressTypeIPv4
	if a.service.Address.Addr().Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: service.Name,
			Labels: map[string]string{discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: managedBy},
			// It goes with the Service.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID}},
		},
		AddressType: family,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{a.service.Address.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		}},
		Ports: []discoveryv1.EndpointPort{{
			Name: new(portName), Port: new(int32(a.service.Address.Port())), Protocol: new(corev1.ProtocolTCP),
		}},
	}
}

func (a announcer) announceBundle(ctx context.Context, bundle []byte) error {
	service := &unstructured.Unstructured{}
	service.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"})
	if err := a.client.Get(ctx, client.ObjectKey{Name: APIServiceName}, service); err != nil {
		return fmt.Errorf("read APIService %s: %w", APIServiceName, err)
	}
	text, _, _ := unstructured.NestedString(service.Object, "spec", "caBundle") // of another type it is wrong, and written
	if trusted, err := base64.StdEncoding.DecodeString(text); err == nil && bytes.Equal(trusted, bundle) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"caBundle": bundle}})
	if err != nil {
		return fmt.Errorf("write a patch: %w", err)
	}
	if err := a.client.Patch(ctx, service, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("update caBundle of APIService %s: %w", APIServiceName, err)
	}
	return nil
}
