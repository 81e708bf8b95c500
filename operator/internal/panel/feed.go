package panel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"rcbox.dev/rcbox/operator/internal/panel/front"
)

const (
	// lookInterval is that between two looks at what Kubernetes has on record; the Source has it in memory.
	lookInterval = 500 * time.Millisecond
	// maxViewers are the pages that are open at once.
	maxViewers = 32
)

// Source gives what is on record. Notes say what of it could not be read.
type Source interface {
	Objects(ctx context.Context) (objects front.Objects, notes []string, err error)
}

var errManyViewers = errors.New("so many pages are open already: close one")

// Note is a part of the picture: something that the whole page should say.
type Note struct {
	Text string `json:"text"`
}

// Feed looks again and again, and tells viewers what has changed.
type Feed struct {
	Source Source
	Now    func() time.Time
	// CanAct is what pages are told: whether they show buttons.
	CanAct bool

	mutex   sync.Mutex
	picture front.Picture
	// seenAt is when the Source last answered.
	seenAt  time.Time
	viewers map[*viewer]struct{}
}

// viewer is a page. It takes the newest picture when it has sent the one before: one that is slow sees fewer, and delays nobody.
type viewer struct{ changed chan struct{} }

// Run looks until its context ends.
func (f *Feed) Run(ctx context.Context) {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		f.Look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Look looks once.
func (f *Feed) Look(ctx context.Context) {
	objects, notes, err := f.Source.Objects(ctx)
	now := f.Now()
	var picture front.Picture
	if err == nil {
		parts := front.Look(objects, now)
		f.addNotes(parts, notes)
		picture, err = front.Draw(parts)
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if err != nil {
		picture = f.outdated(err)
	} else {
		f.seenAt = now
	}
	isSame := f.picture != nil && picture.Since(f.picture).IsNothing()
	f.picture = picture
	if isSame {
		return
	}
	for viewer := range f.viewers {
		select {
		case viewer.changed <- struct{}{}:
		default: // it has not yet taken the one before
		}
	}
}

func (f *Feed) addNotes(parts front.Parts, notes []string) {
	for i, text := range notes {
		parts[fmt.Sprintf("note/%d", i)] = Note{Text: text}
	}
	parts["panel"] = struct {
		CanAct bool `json:"canAct"`
	}{f.CanAct}
}

// outdated is what was seen last, with a note that it is old.
func (f *Feed) outdated(err error) front.Picture {
	text := fmt.Sprintf("Nothing could be read yet: %s", err)
	if !f.seenAt.IsZero() {
		text = fmt.Sprintf("This is what was seen at %s. Since then nothing could be read: %s", f.seenAt.UTC().Format(time.RFC3339), err)
	}
	parts := front.Parts{}
	f.addNotes(parts, nil)
	parts["note/outdated"] = Note{Text: text}
	drawn, err := front.Draw(parts)
	if err != nil { // texts alone are always drawn
		return f.picture
	}
	return f.picture.With(front.Change{Set: drawn})
}

// join adds a viewer.
func (f *Feed) join() (*viewer, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if len(f.viewers) >= maxViewers {
		return nil, errManyViewers
	}
	if f.viewers == nil {
		f.viewers = map[*viewer]struct{}{}
	}
	one := &viewer{changed: make(chan struct{}, 1)}
	one.changed <- struct{}{}
	f.viewers[one] = struct{}{}
	return one, nil
}

func (f *Feed) leave(one *viewer) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	delete(f.viewers, one)
}

// now gives the present picture, which nobody changes.
func (f *Feed) now() front.Picture {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.picture
}
