package consoles

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// Session is a user at a console.
type Session struct {
	console    *console
	user       string
	client     string
	isWatching bool
	once       sync.Once

	// Guarded by the console.
	place     Place
	displaced *DisplacedError
	// until is where the output ends for one that was displaced.
	until int64
}

// Holder says who has the console.
func (s *Session) Holder() Holder {
	s.console.mutex.Lock()
	defer s.console.mutex.Unlock()
	if s.console.user == nil {
		return Holder{}
	}
	return Holder{User: s.console.user.user, Since: s.console.since}
}

// Place is where the next output begins.
func (s *Session) Place() Place {
	s.console.mutex.Lock()
	defer s.console.mutex.Unlock()
	return s.place
}

// Read waits for output, and gives the place where it begins: further on than the last output ended, if the user was too slow for what is
// kept. Its error is a *DisplacedError where another user took the console over, ErrStopped where this process ends, and why the console
// can never be opened otherwise.
func (s *Session) Read(ctx context.Context) (output []byte, from Place, err error) {
	for {
		output, from, changed, err := s.next()
		if len(output) > 0 || err != nil {
			return output, from, err
		}
		select {
		case <-ctx.Done():
			return nil, from, fmt.Errorf("wait for the console of %s: %w", s.console.server, ctx.Err())
		case <-changed:
		}
	}
}

func (s *Session) next() (output []byte, from Place, changed <-chan struct{}, err error) {
	c := s.console
	c.mutex.Lock()
	defer c.mutex.Unlock()
	begin := c.begin()
	from = Place{Stream: s.place.Stream, Position: max(s.place.Position, begin)}
	end := c.position
	if s.displaced != nil {
		end = s.until
	}
	if from.Position < end {
		output = append(output, c.history[from.Position-begin:end-begin]...)
		s.place.Position = end
	}
	switch {
	case len(output) > 0:
	case s.displaced != nil:
		err = s.displaced
	case c.ended != nil:
		err = c.ended
	}
	return output, from, c.changed, err
}

// Write sends keys, once the console is opened for the first time. Keys of a user who does not have the console, or for one whose
// connection broke, are an error.
func (s *Session) Write(ctx context.Context, keys []byte) error {
	line, err := s.line(ctx)
	if err != nil {
		return fmt.Errorf("write to the console of %s: %w", s.console.server, err)
	}
	if _, err := line.Write(keys); err != nil {
		return fmt.Errorf("write to the console of %s: %w", s.console.server, err)
	}
	return nil
}

func (s *Session) line(ctx context.Context) (io.Writer, error) {
	c := s.console
	for {
		c.mutex.Lock()
		line, trouble, ended, isUser, changed := c.line, c.trouble, c.ended, c.user == s, c.changed
		c.mutex.Unlock()
		switch {
		case !isUser:
			return nil, fmt.Errorf("%s does not have it", s.user)
		case ended != nil:
			return nil, ended
		case line != nil:
			return line, nil
		case trouble != "":
			return nil, fmt.Errorf("it is not connected: %s", trouble)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err() //nolint:wrapcheck // the caller does
		case <-changed:
		}
	}
}

// Close gives the console to whoever comes next.
func (s *Session) Close() {
	s.once.Do(func() {
		c := s.console
		c.mutex.Lock()
		defer c.mutex.Unlock()
		switch {
		case s.isWatching:
			c.watchers--
		case c.user == s:
			c.user = nil
		}
		c.left = c.now()
		c.notify()
	})
}
