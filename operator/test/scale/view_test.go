package scale_test

import (
	"context"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/record"
)

// view is the large Store as the API server told of it last, with its StoreMembers. They are watched, and not read: to read hundreds of
// objects again and again takes the API server one processor, which is not what is measured. Nor can a state be missed that lasts for
// a moment only.
type view struct {
	mu      sync.Mutex
	store   *v1alpha1.Store
	members map[string]v1alpha1.StoreMember
	proven  map[string]bool // members of which any version said that they are proven to be lost
}

// watchLarge begins before the Store is made.
func (r *run) watchLarge() {
	r.Helper()
	r.view.proven, r.view.members = map[string]bool{}, map[string]v1alpha1.StoreMember{}
	r.watch(&v1alpha1.StoreList{}, client.MatchingFields{"metadata.name": large})
	r.watch(&v1alpha1.StoreMemberList{}, client.MatchingLabels{v1alpha1.LabelStore: large})
}

func (r *run) watch(list client.ObjectList, of client.ListOption) {
	r.Helper()
	watcher, err := r.Client.Watch(r.Context(), list, client.InNamespace(metav1.NamespaceDefault), of)
	r.must(err)
	ctx := r.Context()
	go func() {
		defer watcher.Stop()
		for isOpen := true; isOpen; {
			isOpen = r.view.note(ctx, watcher.ResultChan())
		}
		if ctx.Err() == nil {
			r.Errorf("the watch of %T has ended: what it says from now on is not seen", list)
		}
	}()
}

// note waits for one event; false if there are no more.
func (v *view) note(ctx context.Context, events <-chan watch.Event) bool {
	select {
	case event := <-events:
		v.mu.Lock()
		defer v.mu.Unlock()
		switch object := event.Object.(type) {
		case *v1alpha1.Store:
			v.store = object
		case *v1alpha1.StoreMember:
			v.members[object.Name] = *object
			if event.Type == watch.Deleted {
				delete(v.members, object.Name)
			}
			if lost := object.Record.Lost; lost != nil && lost.ProvenAt != nil {
				v.proven[object.Name] = true
			}
		default:
			return false
		}
		return true
	case <-ctx.Done():
		return false
	}
}

// latest is nil until the Store is there. It has what its StoreMembers say.
func (v *view) latest() *v1alpha1.Store {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.store == nil {
		return nil
	}
	store := v.store.DeepCopy()
	record.Join(store, slices.Collect(maps.Values(v.members)))
	return store
}

func (v *view) provenSoFar() map[string]bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.proven)
}
