package scale_test

import (
	"context"
	"maps"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// view is the large Store as the API server told of it last. It is watched, and not read: to read an object of some 100 kB again and again
// takes the API server one processor, which is not what is measured. Nor can a state be missed that lasts for a moment only.
type view struct {
	mu     sync.Mutex
	store  *v1alpha1.Store
	proven map[string]bool // members of which any version said that they are proven to be lost
}

// watchLarge begins before the Store is made.
func (r *run) watchLarge() {
	r.Helper()
	watcher, err := r.Client.Watch(r.Context(), &v1alpha1.StoreList{},
		client.InNamespace(metav1.NamespaceDefault), client.MatchingFields{"metadata.name": large})
	r.must(err)
	r.view.proven = map[string]bool{}
	ctx := r.Context()
	go func() {
		defer watcher.Stop()
		for isOpen := true; isOpen; {
			isOpen = r.view.note(ctx, watcher.ResultChan())
		}
		if ctx.Err() == nil {
			r.Error("the watch of the large Store has ended: what it says from now on is not seen")
		}
	}()
}

// note waits for one event; false if there are no more.
func (v *view) note(ctx context.Context, events <-chan watch.Event) bool {
	select {
	case event := <-events:
		store, isStore := event.Object.(*v1alpha1.Store)
		if !isStore {
			return false
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.store = store
		for i := range store.Status.Masters.Members {
			if member := &store.Status.Masters.Members[i]; member.Lost != nil && member.Lost.ProvenAt != nil {
				v.proven[member.Name] = true
			}
		}
		return true
	case <-ctx.Done():
		return false
	}
}

// latest is nil until the Store is there. It is not to be changed.
func (v *view) latest() *v1alpha1.Store {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.store
}

func (v *view) provenSoFar() map[string]bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.proven)
}
