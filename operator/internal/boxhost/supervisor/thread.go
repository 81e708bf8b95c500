package supervisor

import (
	"os/exec"
	"runtime"
	"strings"
)

// end is how a program has ended, once done is closed.
type end struct {
	done chan struct{}
	err  error
}

// startOnThread starts a program. The kernel kills a program (Pdeathsig) when the thread ends that has started it, so that this thread is
// kept until then.
func startOnThread(command *exec.Cmd) (*end, error) {
	started := make(chan error, 1)
	of := &end{done: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			of.err = command.Wait()
			close(of.done)
		}
	}()
	return of, <-started
}

func trimmed(line string) string { return strings.TrimRight(line, "\r\n") }
