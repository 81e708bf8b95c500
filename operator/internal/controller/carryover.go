package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/record"
)

// carryOver gives each master a StoreMember whose Store has the status of an earlier operator, and takes what StoreMembers have out of the
// Store's status last. Nothing else is done before: until that write, the Store has everything, and whoever is interrupted begins anew.
//
// StoreMembers are read before the Store. While the Store is the former one at that later time, nobody has carried it over, and a
// StoreMember that says something else than the Store is from before somebody went back to the earlier operator; it is written in the
// version that was read.
func (r *Reconciler) carryOver(ctx context.Context, seen *v1alpha1.Store) error {
	list := &v1alpha1.StoreMemberList{}
	ofStore := client.MatchingLabels{v1alpha1.LabelStore: seen.Name}
	if err := r.Live.List(ctx, list, client.InNamespace(seen.Namespace), ofStore); err != nil {
		return fmt.Errorf("list the Store's members: %w", err)
	}
	store := &v1alpha1.Store{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(seen), store); err != nil {
		return fmt.Errorf("read the Store whose status is carried over: %w", client.IgnoreNotFound(err))
	}
	if store.UID != seen.UID || !record.IsFormer(&store.Status) {
		return fmt.Errorf("the Store's status was carried over before: %w", errStale)
	}
	v := &reconcileState{members: map[string]*v1alpha1.StoreMember{}}
	v.observed.Store = store
	for i := range list.Items {
		if member := &list.Items[i]; record.IsOf(member, store) {
			v.members[member.Name] = member
		}
	}
	parts := record.Split(store.Name, &store.Status)
	var missing []v1alpha1.MemberStatus
	for _, name := range slices.Sorted(maps.Keys(parts.Members)) {
		status, is := parts.Members[name], v.members[name]
		isWritten := is != nil && equality.Semantic.DeepEqual(is.Record, status.MemberRecord) &&
			equality.Semantic.DeepEqual(is.Status, status.MemberFigures)
		if !isWritten {
			missing = append(missing, status)
		}
	}
	if err := r.writeEach(ctx, v, missing); err != nil {
		return err
	}
	store.Status = parts.Store
	if err := r.Client.Status().Update(ctx, store); err != nil {
		return stale(client.IgnoreNotFound(err), "write the status without what StoreMembers have")
	}
	log.FromContext(ctx).Info("the status of an earlier operator was carried over to StoreMembers", "members", len(parts.Members))
	return nil
}
