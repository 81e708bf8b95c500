package switches

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// Every is the pause between two looks at a switch.
	Every = 5 * time.Second
	// AskTime is what one look may take.
	AskTime = 10 * time.Second
	// maxAtOnce bounds how many switches are spoken with at once.
	maxAtOnce = 16
)

var errNotKnown = errors.New("the switch has no such port")

// Keeper asks switches again and again, and keeps what each has said last. Nobody waits for a switch that is silent. A nil Keeper keeps
// none.
type Keeper struct {
	// Dial makes sessions.
	Dial func(ctx context.Context, target *Target) (Session, error)
	// Now is the wall clock's, and Changed is called with a key's chassis whenever something was read or switched.
	Now     func() time.Time
	Changed func(chassis string)

	mutex    sync.Mutex
	switches map[Key]*kept
	slots    chan struct{}
	once     sync.Once
}

// Key is a switch of a chassis: by the number of the NIC that is plugged in there.
type Key struct {
	Chassis string
	NIC     int32
}

// kept is a switch.
type kept struct {
	target Target
	seen   Seen
	// isBusy: it is being spoken with. next are ports to be switched, by their names.
	isBusy  bool
	askedAt time.Time
	next    map[string]bool
}

// Set says which switches of a chassis are kept. Readings of a switch that is reached in another way now are forgotten.
func (k *Keeper) Set(chassis string, targets map[int32]Target) {
	if k == nil {
		return
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if k.switches == nil {
		k.switches = map[Key]*kept{}
	}
	for key, of := range k.switches {
		if target, isWanted := targets[key.NIC]; key.Chassis == chassis && (!isWanted || !of.target.equal(&target)) {
			delete(k.switches, key)
		}
	}
	for nic, target := range targets {
		if key := (Key{chassis, nic}); k.switches[key] == nil {
			k.switches[key] = &kept{target: target}
		}
	}
}

// Seen is what the switch of a chassis' NIC has said last.
func (k *Keeper) Seen(chassis string, nic int32) Seen {
	if k == nil {
		return Seen{}
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if of := k.switches[Key{chassis, nic}]; of != nil {
		return of.seen
	}
	return Seen{}
}

// Enable has a port switched on or off soon. A later call for the same port counts.
func (k *Keeper) Enable(chassis string, nic int32, port string, enabled bool) {
	if k == nil {
		return
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if of := k.switches[Key{chassis, nic}]; of != nil {
		if of.next == nil {
			of.next = map[string]bool{}
		}
		of.next[port] = enabled
		of.askedAt = time.Time{} // at once
	}
}

// Start asks until the context ends.
func (k *Keeper) Start(ctx context.Context) error {
	const look = 200 * time.Millisecond
	var all sync.WaitGroup
	defer all.Wait()
	for {
		k.Round(ctx, &all)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(look):
		}
	}
}

// NeedLeaderElection implements controller-runtime's interface of that name: it switches ports.
func (*Keeper) NeedLeaderElection() bool { return true }

// Round begins to ask each switch whose time has come.
func (k *Keeper) Round(ctx context.Context, all *sync.WaitGroup) {
	k.once.Do(func() { k.slots = make(chan struct{}, maxAtOnce) })
	k.mutex.Lock()
	defer k.mutex.Unlock()
	for key, of := range k.switches {
		if of.isBusy || k.Now().Sub(of.askedAt) < Every && !k.Now().Before(of.askedAt) {
			continue
		}
		select {
		case k.slots <- struct{}{}:
		default:
			return // others take long: the next round is soon
		}
		of.isBusy, of.askedAt = true, k.Now()
		next := of.next
		of.next = nil
		all.Go(func() {
			defer func() { <-k.slots }()
			k.ask(ctx, key, of, next)
		})
	}
}

// ask switches ports, and reads all.
func (k *Keeper) ask(ctx context.Context, key Key, of *kept, next map[string]bool) {
	ctx, cancel := context.WithTimeout(ctx, AskTime)
	defer cancel()
	begun := k.Now()
	ports, err := k.speak(ctx, &of.target, next)
	k.mutex.Lock()
	of.isBusy = false
	if of.seen.Err = err; ports != nil {
		of.seen.At, of.seen.Ports = begun, ports
	}
	isKept := k.switches[key] == of
	k.mutex.Unlock()
	if isKept {
		k.Changed(key.Chassis)
	}
}

// speak reads all ports, switches some, and reads all again. The first reading is not an old one: after a restart of the switch, numbers of
// ports may be those of others.
func (k *Keeper) speak(ctx context.Context, target *Target, next map[string]bool) (map[string]Port, error) {
	session, err := k.Dial(ctx, target)
	if err != nil {
		return nil, err
	}
	defer func() { _ = session.Close() }() // all was said
	before, err := session.Ports(ctx)
	if err != nil || len(next) == 0 {
		return before, err
	}
	var errs []error
	for name, enabled := range next {
		port, isThere := before[name]
		if !isThere {
			errs = append(errs, fmt.Errorf("switch port %s: %w", name, errNotKnown))
			continue
		}
		if err := session.Enable(ctx, port.Index, enabled); err != nil {
			errs = append(errs, fmt.Errorf("switch port %s: %w", name, err))
		}
	}
	ports, err := session.Ports(ctx)
	return ports, errors.Join(append(errs, err)...)
}
