package controller

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"rcbox.dev/rcbox/operator/internal/admin"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/resources"
)

const (
	// figuresAge is how old figures may be, of which streams tell nothing. Streams say something every two seconds.
	figuresAge = 4 * time.Second
	// askPause is the least time between two questions for a status: a store may change all the time.
	askPause = 500 * time.Millisecond
	// oldest is how old a status may be that counts.
	oldest = 15 * time.Second
	// retryStreamLeast and retryStreamMost bound the pause after all of a Store's coordinators were asked in vain.
	retryStreamLeast, retryStreamMost = 200 * time.Millisecond, 5 * time.Second
	// mostKept bounds the answers that are kept of all Stores together, in bytes: an eighth of the operator's memory, and 20 times the
	// status of 736 members. What is beyond is asked for when it is needed.
	mostKept = 32 << 20
)

// StatusWatch is the StatusSource of real coordinators. Each Store has two goroutines, one that asks for one status at a time, and one that
// reads one stream: a coordinator that does not answer holds up nobody but its own Store.
type StatusWatch struct {
	dial   admin.Dialer
	listen admin.Watcher

	mu     sync.Mutex
	stores map[types.NamespacedName]*watchedStore
	// kept is how many bytes the answers take that are kept.
	kept int
	// streams that are open.
	streams int
	// ctx and enqueue are the controller's, from Start on.
	ctx     context.Context //nolint:containedctx // goroutines begin with reconciles, and outlive them
	enqueue func(types.NamespacedName)
}

// watchedStore is guarded by its StatusWatch's mutex.
type watchedStore struct {
	key    types.NamespacedName
	cancel context.CancelFunc
	// targets in the order in which they are tried; restart has their goroutine begin anew.
	targets []target
	restart context.CancelFunc
	// listening is the target whose stream is open.
	listening *target
	seen      Sight
	from      target
	isKnown   bool
	kept      int
}

// target is one coordinator's process.
type target struct {
	pod, uid, ip string
	// isReady: one that becomes ready is tried at once.
	isReady bool
}

func (t target) isSame(other target) bool { return t.uid == other.uid && t.ip == other.ip }

// NewStatusWatch makes one that has nothing until its source is started.
func NewStatusWatch(dial admin.Dialer, listen admin.Watcher) *StatusWatch {
	return &StatusWatch{dial: dial, listen: listen, stores: map[types.NamespacedName]*watchedStore{}}
}

// Source has the controller reconcile Stores whose coordinators tell of a change.
func (w *StatusWatch) Source() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ctx, w.enqueue = ctx, func(store types.NamespacedName) { queue.Add(reconcile.Request{NamespacedName: store}) }
		return nil
	})
}

// Newest implements StatusSource.
func (w *StatusWatch) Newest(store types.NamespacedName, coordinators []*facts.Pod) (Sight, bool) {
	targets := make([]target, 0, len(coordinators))
	for _, pod := range coordinators {
		targets = append(targets, target{pod.Name, pod.UID, pod.IP, pod.Ready})
	}
	if len(targets) == 0 {
		w.Forget(store)
		return Sight{Error: noCoordinator}, true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stores[store]
	if s == nil {
		w.begin(store, targets)
		return Sight{}, false
	}
	if !slices.Equal(s.targets, targets) {
		w.change(s, targets)
	}
	if s.isKnown && s.seen.Error == "" && time.Since(s.seen.At) > oldest {
		return Sight{Error: "the coordinator has not told its status for " + oldest.String()}, true
	}
	return s.seen, s.isKnown
}

// begin has a goroutine watch the Store's coordinators.
func (w *StatusWatch) begin(store types.NamespacedName, targets []target) {
	ctx, cancel := context.WithCancel(w.ctx)
	s := &watchedStore{key: store, cancel: cancel, targets: targets, restart: func() {}}
	w.stores[store] = s
	go w.follow(ctx, s)
}

// change: what was seen of a process that is not there any more does not count.
func (w *StatusWatch) change(s *watchedStore, targets []target) {
	isAmong := func(wanted target) bool { return slices.ContainsFunc(targets, wanted.isSame) }
	s.targets = targets
	if s.listening == nil || !isAmong(*s.listening) {
		s.restart()
	}
	if s.seen.Error != "" || !isAmong(s.from) {
		s.isKnown = false
	}
}

// Forget implements StatusSource.
func (w *StatusWatch) Forget(store types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.stores[store]; s != nil {
		s.cancel()
		w.kept -= s.kept
		delete(w.stores, store)
	}
}

// follow has the Store's coordinators tried until one leads, and again when its stream ends.
func (w *StatusWatch) follow(ctx context.Context, s *watchedStore) {
	pause := retryStreamLeast
	for ctx.Err() == nil {
		attempt, targets := w.attempt(ctx, s)
		begun := time.Now()
		failed, heard := w.tryAll(attempt, s, targets)
		switch {
		case attempt.Err() != nil:
			pause = retryStreamLeast // others are to be tried
			continue
		case !heard:
			w.publish(attempt, s, target{}, failed, 0, false)
		case time.Since(begun) > retryStreamMost:
			pause = retryStreamLeast
		}
		// Not all at the same moment: many Stores may have lost their coordinators together.
		sleep(attempt, wait.Jitter(pause/2, 1))
		pause = min(2*pause, retryStreamMost)
	}
}

// tryAll listens to the first coordinator that leads, until its stream ends. If none does, it gives what is to be said of that.
func (w *StatusWatch) tryAll(ctx context.Context, s *watchedStore, targets []target) (failed Sight, heard bool) {
	failed = Sight{Error: noCoordinator}
	for i, one := range targets {
		heard, err := w.listenTo(ctx, s, one)
		if heard || ctx.Err() != nil {
			return failed, heard
		}
		if refused, isRefusal := errors.AsType[*refusedError](err); isRefusal {
			failed.Error, failed.Refusal = refused.refusal, refused.refusal
			continue
		}
		// What the likeliest leader says tells most.
		if i == 0 {
			failed.Error = err.Error()
		}
		failed.Refusal = orElse(refusalIn(err), failed.Refusal)
	}
	return failed, false
}

// attempt is over when the Store's coordinators are others.
func (w *StatusWatch) attempt(ctx context.Context, s *watchedStore) (context.Context, []target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.restart() // lets go of the last one's resources
	attempt, cancel := context.WithCancel(ctx)
	s.restart = cancel
	return attempt, slices.Clone(s.targets)
}

func sleep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// refusedError is a coordinator's word that it was elected and must not lead.
type refusedError struct{ refusal string }

func (e *refusedError) Error() string { return e.refusal }

// listenTo asks for the status whenever the coordinator's stream tells of a change, and for figures now and then. It says whether the
// coordinator has given a status.
func (w *StatusWatch) listenTo(ctx context.Context, s *watchedStore, to target) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The last message alone counts: while a status is asked for, what changes is one change.
	told, ended := make(chan uint64, 1), make(chan error, 1)
	go func() {
		ended <- w.listen(ctx, to.ip, resources.CoordinatorAdminPort, func(changes uint64) error {
			select {
			case <-told:
			default:
			}
			told <- changes
			return nil
		})
	}()
	var last uint64
	var asked time.Time
	for {
		select {
		case err := <-ended:
			if status.Code(err) == codes.Unimplemented {
				return w.poll(ctx, s, to)
			}
			return heard, err
		case changes := <-told:
			if changes == last && time.Since(asked) < figuresAge {
				continue
			}
			if asked.IsZero() {
				w.opened(s, &to)
				defer w.opened(s, nil)
			}
			isNew := changes != last
			last, asked = changes, time.Now()
			if err := w.see(ctx, s, to, isNew); err != nil {
				return heard, err
			}
			heard = true
			sleep(ctx, askPause)
		}
	}
}

// poll is for coordinators of builds that have no streams.
func (w *StatusWatch) poll(ctx context.Context, s *watchedStore, to target) (heard bool, err error) {
	for ctx.Err() == nil {
		if err := w.see(ctx, s, to, false); err != nil {
			return heard, err
		}
		heard = true
		sleep(ctx, planner.UnsettledInterval)
	}
	return heard, nil
}

// opened counts a stream, or one that is open no more.
func (w *StatusWatch) opened(s *watchedStore, to *target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.listening = to; to == nil {
		w.streams--
	} else {
		w.streams++
	}
}

// see asks for the status. The connection is one for each question, as everywhere: a large answer is in memory only as long as that.
func (w *StatusWatch) see(ctx context.Context, s *watchedStore, from target, isNew bool) error {
	at := time.Now()
	coordinator, answer, err := ask(ctx, w.dial, from.ip)
	if err != nil {
		return err
	}
	_ = coordinator.Close() // nothing is lost with a connection
	if answer.refusal != "" {
		return &refusedError{answer.refusal}
	}
	w.publish(ctx, s, from, Sight{Cluster: answer.cluster, LeaderPod: from.pod, At: at}, answer.bytes, isNew)
	return nil
}

// publish has the Store reconciled if there is something new. An attempt that is over has nothing to say.
func (w *StatusWatch) publish(attempt context.Context, s *watchedStore, from target, seen Sight, bytes int, isNew bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if attempt.Err() != nil {
		return
	}
	w.kept -= s.kept
	if s.kept = bytes; w.kept+bytes > mostKept {
		seen.Cluster, seen.NotKept, s.kept = nil, true, 0
	}
	w.kept += s.kept
	before := s.seen
	isNew = isNew || !s.isKnown || before.Error != seen.Error || before.LeaderPod != seen.LeaderPod
	s.seen, s.from, s.isKnown = seen, from, true
	if isNew || !isAlike(before.Cluster, seen.Cluster) {
		w.enqueue(s.key)
	}
}

// isAlike: nothing but figures has changed, for which a Store is reconciled often enough.
func isAlike(a, b *facts.Cluster) bool {
	if a == nil || b == nil {
		return a == b
	}
	return reflect.DeepEqual(withoutFigures(a), withoutFigures(b))
}

func withoutFigures(cluster *facts.Cluster) facts.Cluster {
	plain := *cluster
	plain.Recoveries, plain.Members = slices.Clone(plain.Recoveries), slices.Clone(plain.Members)
	for i := range plain.Recoveries {
		plain.Recoveries[i].Age, plain.Recoveries[i].Bytes = 0, 0
	}
	for i := range plain.Members {
		member := &plain.Members[i]
		member.LiveBytes, member.Segments = 0, 0
		if member.Backup != nil {
			backup := *member.Backup
			backup.Free = 0
			member.Backup = &backup
		}
	}
	return plain
}
