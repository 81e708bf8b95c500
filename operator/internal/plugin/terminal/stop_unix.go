//go:build unix

package terminal

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

func notifyContinued(continued chan<- os.Signal) { signal.Notify(continued, unix.SIGCONT) }

// stop stops this program and those that it is connected with, as Ctrl-Z does.
func stop() error {
	if err := unix.Kill(0, unix.SIGTSTP); err != nil {
		return fmt.Errorf("stop this program: %w", err)
	}
	return nil
}
