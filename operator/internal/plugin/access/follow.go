package access

import (
	"context"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/view"
)

// Follower looks at a Store again and again, over one connection for as long as that holds.
type Follower struct {
	cluster     *Cluster
	store       *v1alpha1.Store
	coordinator *Coordinator
	last        *view.Snapshot
}

// Follow a Store. The Follower is to be closed.
func (c *Cluster) Follow(store *v1alpha1.Store) *Follower { return &Follower{cluster: c, store: store} }

// Coordinator that answered last; nil where none did.
func (f *Follower) Coordinator() *Coordinator { return f.coordinator }

// Close ends the connection.
func (f *Follower) Close() { f.coordinator.Close() }

// Look is what is seen now. While one coordinator answers, only that is asked; when it does not, another one is looked for, once.
func (f *Follower) Look(ctx context.Context) (*view.Snapshot, error) {
	if f.coordinator != nil {
		if answer, err := f.coordinator.Status(ctx); err == nil {
			next := *f.last
			next.Now, next.Cluster = f.cluster.Now(), answer
			f.last = &next
			return f.last, nil
		}
		f.coordinator.Close()
		f.coordinator = nil
	}
	snapshot, coordinator, err := f.cluster.LookAndAsk(ctx, f.store)
	if err != nil {
		return nil, err
	}
	f.last, f.coordinator = snapshot, coordinator
	return snapshot, nil
}
