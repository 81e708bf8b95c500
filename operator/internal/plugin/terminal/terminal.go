// Package terminal has a user's terminal in raw mode, in which all keys go to the program, and gives it back as it was.
package terminal

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/term"
)

// Terminal is one in raw mode.
type Terminal struct {
	descriptor int
	before     *term.State

	mutex sync.Mutex
	isRaw bool
}

// Is says whether a file is a terminal.
func Is(file *os.File) bool { return term.IsTerminal(int(file.Fd())) }

// Raw puts a terminal into raw mode. Restore ends that. While the context lives, the mode outlives stops of this program, also those that
// others cause.
func Raw(ctx context.Context, file *os.File) (*Terminal, error) {
	t := &Terminal{descriptor: int(file.Fd()), isRaw: true}
	var err error
	if t.before, err = term.MakeRaw(t.descriptor); err != nil {
		return nil, fmt.Errorf("put the terminal into raw mode: %w", err)
	}
	continued := make(chan os.Signal, 1)
	notifyContinued(continued)
	go func() {
		defer signal.Stop(continued)
		for {
			select {
			case <-ctx.Done():
				return
			case <-continued:
				// The shell had the terminal meanwhile.
				t.raw()
			}
		}
	}()
	return t, nil
}

// raw sets the mode again, unless the terminal was given back.
func (t *Terminal) raw() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.isRaw {
		_, _ = term.MakeRaw(t.descriptor) // the terminal is gone: so is its user
	}
}

// Restore gives the terminal back as it was.
func (t *Terminal) Restore() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.isRaw = false
	_ = term.Restore(t.descriptor, t.before) // likewise
}

// Suspend gives the terminal back and stops this program, until the shell has it go on.
func (t *Terminal) Suspend() error {
	t.Restore()
	err := stop()
	t.mutex.Lock()
	t.isRaw = true
	t.mutex.Unlock()
	// Also if the program does not stop, or stops a moment later: then it is set again when it goes on.
	t.raw()
	return err
}
