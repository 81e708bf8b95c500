package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// lookBook has when it was last written down that a Store was looked at.
type lookBook struct {
	mu      sync.Mutex
	written map[client.ObjectKey]time.Time
}

// noteLook writes into the Store's Lease that it was looked at, and that its status is what was seen: at most once in NoteLooks. A status
// alone does not say whether nothing changes or nobody looks any more; and to write that anew all the time, it is too large.
func (r *Reconciler) noteLook(ctx context.Context, store *v1alpha1.Store, at time.Time) error {
	key := client.ObjectKeyFromObject(store)
	if r.NoteLooks == 0 || store.DeletionTimestamp != nil || !r.looks.isDue(key, at, r.NoteLooks) {
		return nil
	}
	if err := r.Client.Apply(ctx, resources.LookLease(store, r.Holder, at, r.NoteLooks), FieldManager, client.ForceOwnership); err != nil {
		return fmt.Errorf("note in Lease %s that the Store was looked at: %w", v1alpha1.LookLease(store.Name), err)
	}
	r.looks.write(key, at)
	return nil
}

func (b *lookBook) isDue(key client.ObjectKey, at time.Time, interval time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, known := b.written[key]
	return !known || at.Sub(last) >= interval
}

func (b *lookBook) write(key client.ObjectKey, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.written == nil {
		b.written = map[client.ObjectKey]time.Time{}
	}
	b.written[key] = at
}

func (b *lookBook) forget(key client.ObjectKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.written, key)
}
