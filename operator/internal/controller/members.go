package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/record"
)

const (
	// indexStore is an index of the cache: StoreMembers by the name of their Store.
	indexStore = "rcbox.dev/store"
	// memberWriters is how many StoreMembers of a Store are written at a time.
	memberWriters = 8
	// maxFiguresWritten bounds how many StoreMembers are written in one reconcile that have nothing new but figures. The figures of
	// all masters change at once while a store is being filled.
	maxFiguresWritten = 128
)

// storeOfMember is the index.
func storeOfMember(object client.Object) []string {
	member, isMember := object.(*v1alpha1.StoreMember)
	if !isMember || member.Spec.StoreRef.Name == "" {
		return nil
	}
	return []string{member.Spec.StoreRef.Name}
}

// ListMembers has a Store's status say what is known of its masters, from an index of the cache.
func listMembers(ctx context.Context, reader client.Reader, store *v1alpha1.Store) (map[string]*v1alpha1.StoreMember, error) {
	list := &v1alpha1.StoreMemberList{}
	if err := reader.List(ctx, list, client.InNamespace(store.Namespace), client.MatchingFields{indexStore: store.Name}); err != nil {
		return nil, fmt.Errorf("list the Store's members: %w", err)
	}
	members := map[string]*v1alpha1.StoreMember{}
	for i := range list.Items {
		if member := &list.Items[i]; record.IsOf(member, store) {
			members[member.Name] = member
		}
	}
	record.Join(store, list.Items)
	return members, nil
}

// checkMembers asks the API server, once in a reconcile, whether the Store's members are those that were seen. The cache of StoreMembers
// may be behind that of Stores: a record that it does not have yet counts for nothing, and one that was withdrawn still counts.
func (r *Reconciler) checkMembers(ctx context.Context, v *reconcileState) error {
	if v.membersAreFresh {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("StoreMemberList"))
	store := v.observed.Store
	ofStore := client.MatchingLabels{v1alpha1.LabelStore: store.Name}
	if err := r.Live.List(ctx, list, client.InNamespace(store.Namespace), ofStore); err != nil {
		return fmt.Errorf("look at the Store's members once more: %w", err)
	}
	now := map[string]string{}
	for i := range list.Items {
		if item := &list.Items[i]; item.DeletionTimestamp == nil && metav1.IsControlledBy(item, store) {
			now[item.Name] = item.ResourceVersion
		}
	}
	seen := map[string]string{}
	for name, member := range v.members {
		seen[name] = member.ResourceVersion
	}
	if !maps.Equal(seen, now) {
		return fmt.Errorf("the cache has other StoreMembers than the API server: %w", errStale)
	}
	v.membersAreFresh = true
	return nil
}

// recordPodNumber has a master's StoreMember, or the Store for a coordinator, say that there is a pod of this number, before there is one:
// whatever becomes of the pod and of this operator, no other pod gets its name.
func (r *Reconciler) recordPodNumber(ctx context.Context, v *reconcileState, step steps.CreatePod) error {
	if step.Component != v1alpha1.ComponentMaster {
		return r.recordCoordinatorPod(ctx, v, step.Number)
	}
	if member, found := v.members[step.Member]; found {
		if member.Record.PodNumber >= step.Number {
			return fmt.Errorf("create pod %d of %s: %d is on record: %w", step.Number, step.Member, member.Record.PodNumber, errStale)
		}
		changed := member.DeepCopy()
		changed.Record.PodNumber = step.Number
		return r.updateMember(ctx, v, changed)
	}
	next := v1alpha1.MemberStatus{Name: step.Member, MemberFigures: v1alpha1.MemberFigures{State: v1alpha1.MemberStarting}}
	next.PodNumber = step.Number
	return r.createMember(ctx, v, next)
}

// recordCoordinatorPod writes the number alone: what else is new of the Store is written once this reconcile is over.
func (r *Reconciler) recordCoordinatorPod(ctx context.Context, v *reconcileState, number int64) error {
	store := v.observed.Store
	changed := store.DeepCopy()
	changed.Status = *v.recorded.DeepCopy()
	if changed.Status.Record == nil {
		changed.Status = record.Split(store.Name, v.recorded).Store
	}
	record.Part(&changed.Status) // as it was read: a StoreMember that somebody has deleted stays on record as one that is missing
	changed.Status.Record.CoordinatorPodNumber = number
	if err := r.Client.Status().Update(ctx, changed); err != nil {
		return stale(err, "write the number of the coordinator's next pod")
	}
	// The status is written to what there is now.
	store.ResourceVersion = changed.ResourceVersion
	store.Status.Coordinator.PodNumber, v.recorded.Coordinator.PodNumber = number, number
	store.Status.Record, v.recorded.Record = changed.Status.Record.DeepCopy(), changed.Status.Record.DeepCopy()
	return nil
}

// updateMember writes a StoreMember in the version that was seen.
func (r *Reconciler) updateMember(ctx context.Context, v *reconcileState, changed *v1alpha1.StoreMember) error {
	if err := r.Client.Update(ctx, changed, FieldManager); err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("write StoreMember %s: it was deleted: %w", changed.Name, errStale)
		}
		return stale(err, "write StoreMember "+changed.Name)
	}
	v.setMember(changed)
	return nil
}

func (r *Reconciler) createMember(ctx context.Context, v *reconcileState, status v1alpha1.MemberStatus) error {
	member := record.New(v.observed.Store, status)
	if err := r.Client.Create(ctx, member, FieldManager); err != nil {
		if apierrors.IsAlreadyExists(err) {
			// The cache has yet to see it; or it is of a former Store of this name, and garbage collection removes it.
			return fmt.Errorf("create StoreMember %s: %w", member.Name, errStale)
		}
		return fmt.Errorf("create StoreMember %s: %w", member.Name, err)
	}
	v.setMember(member)
	return nil
}

// setMember notes what was written.
func (v *reconcileState) setMember(member *v1alpha1.StoreMember) {
	v.writing.Lock()
	defer v.writing.Unlock()
	v.members[member.Name] = member
}

// member as it was seen or written last; nil if there is none.
func (v *reconcileState) member(name string) *v1alpha1.StoreMember {
	v.writing.Lock()
	defer v.writing.Unlock()
	return v.members[name]
}

// writeMembers writes what changed, after the Store's status (package record says why), and deletes StoreMembers of masters that have left.
func (r *Reconciler) writeMembers(ctx context.Context, v *reconcileState, next map[string]v1alpha1.MemberStatus) error {
	var records, figures []v1alpha1.MemberStatus
	for _, name := range slices.Sorted(maps.Keys(next)) {
		is, status := v.members[name], next[name]
		switch {
		case is == nil || !equality.Semantic.DeepEqual(is.Record, status.MemberRecord) || isMoved(&is.Status, &status.MemberFigures):
			records = append(records, status)
		case !equality.Semantic.DeepEqual(is.Status, status.MemberFigures):
			figures = append(figures, status)
		}
	}
	if surplus := len(figures) - maxFiguresWritten; surplus > 0 {
		// Others than in the reconcile before: whose turn it is goes by the clock.
		first := int(v.observed.Now.Unix()) % len(figures)
		figures = slices.Concat(figures[first:], figures[:first])[:maxFiguresWritten]
	}
	if err := r.writeEach(ctx, v, slices.Concat(records, figures)); err != nil {
		return err
	}
	return r.deleteRetired(ctx, v, next)
}

// writeEach writes StoreMembers, some at a time; the first that fails ends it.
func (r *Reconciler) writeEach(ctx context.Context, v *reconcileState, list []v1alpha1.MemberStatus) error {
	if r.memberWriters <= 1 {
		for _, status := range list {
			if err := r.writeMember(ctx, v, status); err != nil {
				return err
			}
		}
		return nil
	}
	writers, inTime := errgroup.WithContext(ctx)
	writers.SetLimit(r.memberWriters)
	for _, status := range list {
		writers.Go(func() error { return r.writeMember(inTime, v, status) })
	}
	return writers.Wait() //nolint:wrapcheck // writeMember names the object
}

// isMoved says whether something is new that users wait for, unlike figures.
func isMoved(is, next *v1alpha1.MemberFigures) bool {
	return is.State != next.State || is.Pod != next.Pod || is.Node != next.Node || is.Claim != next.Claim || is.Pending != next.Pending ||
		!slices.Equal(is.ServerIDs, next.ServerIDs)
}

func (r *Reconciler) writeMember(ctx context.Context, v *reconcileState, status v1alpha1.MemberStatus) error {
	is := v.member(status.Name)
	if is == nil {
		if record.IsMissing(v.observed.Store, status.Name) {
			log.FromContext(ctx).Info("a StoreMember is made anew that was deleted, or not made in time", "member", status.Name)
		}
		return r.createMember(ctx, v, status)
	}
	changed := is.DeepCopy()
	record.Fill(changed, status)
	return r.updateMember(ctx, v, changed)
}

// deleteRetired deletes the StoreMembers of masters that have left the Store: they have no pod, the coordinator knows none of them, and the
// numbers of their pods are in the Store's status.
func (r *Reconciler) deleteRetired(ctx context.Context, v *reconcileState, next map[string]v1alpha1.MemberStatus) error {
	for _, name := range slices.Sorted(maps.Keys(v.members)) {
		if _, stays := next[name]; stays {
			continue
		}
		member := v.members[name]
		seen := metav1.Preconditions{UID: &member.UID, ResourceVersion: &member.ResourceVersion}
		if err := r.Client.Delete(ctx, member, &client.DeleteOptions{Preconditions: &seen}); err != nil && !apierrors.IsNotFound(err) {
			return stale(err, "delete StoreMember "+name)
		}
		delete(v.members, name)
	}
	return nil
}
