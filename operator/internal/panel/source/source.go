// Package source reads for the front panel what a user, or the box controller, may read. It keeps copies in memory, which the API server
// updates: a look costs it nothing.
package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/members"
	"rcbox.dev/rcbox/operator/internal/panel/front"
)

// syncTimeout is how long the first reading may take.
const syncTimeout = 30 * time.Second

// Cached reads from a cache. Kinds that may not be read are left out, and a note says so.
type Cached struct {
	Reader client.Reader
	// Namespace is the only one whose Stores are read; empty: all.
	Namespace string
	// NoStores says that Stores are not read, and Notes why.
	NoStores bool
	Notes    []string
}

// Objects reads all.
func (c *Cached) Objects(ctx context.Context) (front.Objects, []string, error) {
	chassis, servers, stores := v1alpha1.ChassisList{}, v1alpha1.ServerList{}, v1alpha1.StoreList{}
	if err := c.Reader.List(ctx, &chassis, client.UnsafeDisableDeepCopy); err != nil {
		return front.Objects{}, nil, fmt.Errorf("list Chassis: %w", err)
	}
	if err := c.Reader.List(ctx, &servers, client.UnsafeDisableDeepCopy); err != nil {
		return front.Objects{}, nil, fmt.Errorf("list Servers: %w", err)
	}
	if !c.NoStores {
		if err := c.Reader.List(ctx, &stores, client.InNamespace(c.Namespace)); err != nil {
			return front.Objects{}, nil, fmt.Errorf("list Stores: %w", err)
		}
		if err := members.JoinAll(ctx, c.Reader, stores.Items, client.InNamespace(c.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return front.Objects{}, nil, err
		}
	}
	return front.Objects{Chassis: chassis.Items, Servers: servers.Items, Stores: stores.Items}, c.Notes, nil
}

// Follow finds out what may be read, and follows that until the context ends. Chassis and Servers are what the panel is for: without the
// right to read these there is none.
func Follow(ctx context.Context, config *rest.Config, scheme *runtime.Scheme, live client.Reader, namespace string) (*Cached, error) {
	one := client.Limit(1)
	for what, list := range map[string]client.ObjectList{"chassis": &v1alpha1.ChassisList{}, "servers": &v1alpha1.ServerList{}} {
		if err := live.List(ctx, list, one); err != nil {
			return nil, fmt.Errorf("list %s (list and watch on %s; is the box controller installed?): %w", what, what, err)
		}
	}
	source := &Cached{}
	stripped := cache.ByObject{Transform: cache.TransformStripManagedFields()}
	kinds := map[client.Object]cache.ByObject{&v1alpha1.Chassis{}: stripped, &v1alpha1.Server{}: stripped}
	stores := stripped
	err := errors.Join(live.List(ctx, &v1alpha1.StoreList{}, one), live.List(ctx, &v1alpha1.StoreMemberList{}, one))
	if apierrors.IsForbidden(err) {
		source.Namespace = namespace
		stores.Namespaces = map[string]cache.Config{namespace: {}}
		source.Notes = []string{"You may not read the Stores of all namespaces; only those of namespace " + namespace + " are shown."}
		own := client.InNamespace(namespace)
		err = errors.Join(live.List(ctx, &v1alpha1.StoreList{}, one, own), live.List(ctx, &v1alpha1.StoreMemberList{}, one, own))
	}
	switch {
	case apierrors.IsForbidden(err):
		source.NoStores = true
		source.Notes = []string{"You may not read Stores (list and watch on stores and storemembers); none is shown."}
	case err != nil:
		return nil, fmt.Errorf("list Stores: %w", err)
	default:
		kinds[&v1alpha1.Store{}], kinds[&v1alpha1.StoreMember{}] = stores, stores
	}
	copies, err := cache.New(config, cache.Options{Scheme: scheme, ByObject: kinds})
	if err != nil {
		return nil, fmt.Errorf("set up copies of what is shown: %w", err)
	}
	for kind := range kinds {
		if _, err := copies.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return nil, fmt.Errorf("follow %T: %w", kind, err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- copies.Start(ctx) }()
	waiting, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !copies.WaitForCacheSync(waiting) {
		select {
		case err := <-ended:
			return nil, fmt.Errorf("follow what is shown: %w", err)
		default:
			return nil, fmt.Errorf("the API server did not send what is shown within %s", syncTimeout)
		}
	}
	source.Reader = copies
	return source, nil
}
