// Package ownership makes sure that one operator at a time manages the Stores of a namespace. It does not elect a leader among the
// replicas of one operator: controller-runtime does.
package ownership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const (
	// OwnerLease names the operator that manages the Stores of the Lease's namespace. No Store's object has a dot in its name.
	OwnerLease = "stores.rcbox.dev"
	// WaitingLease names an operator that would manage them, too, and does not: the owner reports it.
	WaitingLease = "waiting.stores.rcbox.dev"

	// Duration is how long a Lease must not have changed, as seen by another operator's own clock, before that operator takes it.
	Duration = 60 * time.Second
	// Renewal is the pause between two renewals.
	Renewal = 15 * time.Second
	// validity is how long an operator relies on what it has read or written; it ends well before Duration does.
	validity = 30 * time.Second
	// retry is the pause after a round in which something failed.
	retry = time.Second
	// callTimeout bounds what one namespace's Leases may take.
	callTimeout = 5 * time.Second
)

// View is what is known of a namespace.
type View struct {
	// Mine: this operator manages the Stores of the namespace.
	Mine bool
	// Owner is the identity of the operator that does; empty where there is none yet.
	Owner string
	// Waiting is another operator that would manage them; empty where there is none, or this operator is not the owner.
	Waiting string

	at time.Time
}

// Leases keeps the Leases of all namespaces that have Stores. A nil one is that of an operator that is alone, such as a test's.
type Leases struct {
	// Client lists Stores from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Now is the clock.
	Now func() time.Time
	// Identity is the same for all replicas of one operator, and for its next version: its namespace.
	Identity string
	// Elected is closed once this replica leads; before, it writes nothing. Nil: it leads.
	Elected <-chan struct{}

	// refreshing is held while Leases are read and written.
	refreshing sync.Mutex
	sightings  map[client.ObjectKey]sighting

	// mutex guards what is below.
	mutex  sync.Mutex
	views  map[string]View
	looked bool
}

// sighting is a Lease as this process has last read or written it.
type sighting struct {
	holder, version string
	// since is when this process first saw that version; clocks of other machines mean nothing here.
	since time.Time
	// renewed: the version is not the first one that this process has seen, so the holder is alive.
	renewed bool
}

// Look says who manages the Stores of a namespace. It claims them if nobody else does.
func (l *Leases) Look(ctx context.Context, namespace string) (View, error) {
	if l == nil {
		return View{Mine: true}, nil
	}
	l.mutex.Lock()
	view, known := l.views[namespace]
	l.mutex.Unlock()
	if known && l.Now().Sub(view.at) < validity {
		return view, nil
	}
	return l.refresh(ctx, namespace)
}

// refresh claims or renews the Lease of a namespace.
func (l *Leases) refresh(ctx context.Context, namespace string) (View, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	l.refreshing.Lock()
	defer l.refreshing.Unlock()
	view := View{at: l.Now()}
	var err error
	if view.Owner, err = l.claim(ctx, client.ObjectKey{Namespace: namespace, Name: OwnerLease}, ""); err != nil {
		return View{}, err
	}
	view.Mine = view.Owner == l.Identity
	waiting := client.ObjectKey{Namespace: namespace, Name: WaitingLease}
	switch {
	case view.Mine:
		view.Waiting, err = l.waiting(ctx, waiting)
	case view.Owner != "":
		_, err = l.claim(ctx, waiting, view.Owner) // a third operator waits without a record
	}
	if err != nil {
		return View{}, err
	}
	l.mutex.Lock()
	before := l.views[namespace]
	if l.views == nil {
		l.views = map[string]View{}
	}
	l.views[namespace] = view
	l.mutex.Unlock()
	l.report(ctx, namespace, before, view)
	return view, nil
}

// report writes to the log what is new about a namespace.
func (l *Leases) report(ctx context.Context, namespace string, before, view View) {
	logger := log.FromContext(ctx).WithValues("namespace", namespace)
	switch {
	case view.Owner != before.Owner && view.Owner != "" && !view.Mine:
		logger.Info(l.elsewhere(namespace, view.Owner))
	case view.Mine && before.Owner != "" && !before.Mine:
		logger.Info("the operator in " + before.Owner + " is gone: this one manages the Stores of the namespace from now on")
	case view.Waiting != "" && view.Waiting != before.Waiting:
		logger.Info("another operator, in " + view.Waiting + ", would manage the Stores of the namespace, too; it waits")
	}
}

func (l *Leases) elsewhere(namespace, owner string) string {
	return fmt.Sprintf("another operator, in %s, manages the Stores of namespace %s; this one (in %s) leaves them alone. "+
		"Uninstall one of the two, or narrow watchNamespaces of one", owner, namespace, l.Identity)
}

// claim takes or renews a Lease unless another operator holds it, and gives the holder. A former holder, which has no use for it any more,
// does not count.
func (l *Leases) claim(ctx context.Context, key client.ObjectKey, former string) (string, error) {
	lease := &coordinationv1.Lease{}
	switch err := l.Live.Get(ctx, key, lease); {
	case apierrors.IsNotFound(err):
		return l.create(ctx, key)
	case err != nil:
		return "", fmt.Errorf("read the Lease %s: %w", key, err)
	}
	seen := l.observe(key, lease)
	if seen.holder != former && l.isHeldByAnother(seen) || !l.leads() {
		return seen.holder, nil
	}
	l.hold(lease, seen.holder)
	// The update has the version that was read: of two operators, one is refused.
	if err := l.Client.Update(ctx, lease); err != nil {
		return "", fmt.Errorf("renew the Lease %s: %w", key, err)
	}
	l.observe(key, lease)
	return l.Identity, nil
}

func (l *Leases) create(ctx context.Context, key client.ObjectKey) (string, error) {
	if !l.leads() {
		return "", nil
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	l.hold(lease, "")
	err := l.Client.Create(ctx, lease)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// The Lease goes with its namespace, maybe before the Stores. Whoever had it finishes the work.
		if seen := l.sightings[key]; l.isHeldByAnother(seen) {
			return seen.holder, nil
		}
		return l.Identity, nil
	case err != nil:
		return "", fmt.Errorf("make the Lease %s: %w", key, err)
	}
	l.observe(key, lease)
	return l.Identity, nil
}

// waiting gives the other operator that renews the Lease of those that wait.
func (l *Leases) waiting(ctx context.Context, key client.ObjectKey) (string, error) {
	lease := &coordinationv1.Lease{}
	switch err := l.Live.Get(ctx, key, lease); {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read the Lease %s: %w", key, err)
	}
	// A Lease that was left behind is never seen to be renewed.
	if seen := l.observe(key, lease); seen.renewed && l.isHeldByAnother(seen) {
		return seen.holder, nil
	}
	return "", nil
}

func (l *Leases) observe(key client.ObjectKey, lease *coordinationv1.Lease) sighting {
	before, known := l.sightings[key]
	if known && before.version == lease.ResourceVersion {
		return before
	}
	seen := sighting{version: lease.ResourceVersion, since: l.Now(), renewed: known}
	if holder := lease.Spec.HolderIdentity; holder != nil {
		seen.holder = *holder
	}
	if l.sightings == nil {
		l.sightings = map[client.ObjectKey]sighting{}
	}
	l.sightings[key] = seen
	return seen
}

func (l *Leases) isHeldByAnother(seen sighting) bool {
	return seen.holder != "" && seen.holder != l.Identity && l.Now().Sub(seen.since) < Duration
}

// hold writes this operator into a Lease.
func (l *Leases) hold(lease *coordinationv1.Lease, before string) {
	now := metav1.NewMicroTime(l.Now())
	if before != l.Identity {
		lease.Spec.AcquireTime = &now
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = new(l.Identity), &now
	lease.Spec.LeaseDurationSeconds = new(int32(Duration / time.Second))
}

func (l *Leases) leads() bool {
	if l.Elected == nil {
		return true
	}
	select {
	case <-l.Elected:
		return true
	default:
		return false
	}
}

// NeedLeaderElection is false: a replica that does not lead must know, too, whether it is ready.
func (l *Leases) NeedLeaderElection() bool { return false }

// Start keeps the Leases until the context ends. They are not given back then: the next version of this operator goes on with them.
func (l *Leases) Start(ctx context.Context) error {
	elected := l.Elected
	for {
		pause := Renewal
		if err := l.Round(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Info("not all Leases of Stores' namespaces could be renewed; this is tried again", "error", err.Error())
			pause = retry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-elected:
			elected = nil
		case <-time.After(pause):
		}
	}
}

// Round claims or renews the Lease of each namespace that has Stores.
func (l *Leases) Round(ctx context.Context) error {
	stores := &v1alpha1.StoreList{}
	if err := l.Client.List(ctx, stores); err != nil {
		return fmt.Errorf("list Stores: %w", err)
	}
	namespaces := map[string]bool{}
	for i := range stores.Items {
		namespaces[stores.Items[i].Namespace] = true
	}
	var errs []error
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		_, err := l.refresh(ctx, namespace)
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	l.refreshing.Lock()
	defer l.refreshing.Unlock()
	maps.DeleteFunc(l.sightings, func(key client.ObjectKey, _ sighting) bool { return !namespaces[key.Namespace] })
	l.mutex.Lock()
	defer l.mutex.Unlock()
	maps.DeleteFunc(l.views, func(namespace string, _ View) bool { return !namespaces[namespace] })
	l.looked = l.looked || err == nil
	return err
}

// Ready is an error until it is known that no other operator manages any of the Stores.
func (l *Leases) Ready(*http.Request) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if !l.looked {
		return errors.New("it is not known yet whether another operator manages the Stores")
	}
	for _, namespace := range slices.Sorted(maps.Keys(l.views)) {
		if view := l.views[namespace]; view.Owner != "" && !view.Mine {
			return errors.New(l.elsewhere(namespace, view.Owner))
		}
	}
	return nil
}
