// Package members reads Stores' masters: it adds to a Store's status what its StoreMembers say, for whoever shows it or goes by it.
package members

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/record"
)

// Join has a Store's status say what is known of its masters.
func Join(ctx context.Context, reader client.Reader, store *v1alpha1.Store) error {
	list := &v1alpha1.StoreMemberList{}
	of := client.MatchingLabels{v1alpha1.LabelStore: store.Name}
	if err := reader.List(ctx, list, client.InNamespace(store.Namespace), of); err != nil {
		return fmt.Errorf("list the members of Store %s/%s (list on storemembers): %w", store.Namespace, store.Name, err)
	}
	record.Join(store, list.Items)
	return nil
}

// JoinAll does so for Stores of all namespaces, or of those that the options name.
func JoinAll(ctx context.Context, reader client.Reader, stores []v1alpha1.Store, options ...client.ListOption) error {
	if len(stores) == 0 {
		return nil
	}
	list := &v1alpha1.StoreMemberList{}
	if err := reader.List(ctx, list, options...); err != nil {
		return fmt.Errorf("list the members of Stores (list on storemembers): %w", err)
	}
	JoinEach(stores, list.Items)
	return nil
}

// JoinEach gives each of some Stores what its members say.
func JoinEach(stores []v1alpha1.Store, list []v1alpha1.StoreMember) {
	type key struct{ namespace, store string }
	of := map[key][]v1alpha1.StoreMember{}
	for i := range list {
		at := key{list[i].Namespace, list[i].Spec.StoreRef.Name}
		of[at] = append(of[at], list[i])
	}
	for i := range stores {
		record.Join(&stores[i], of[key{stores[i].Namespace, stores[i].Name}])
	}
}
