package box_test

import (
	"bufio"
	"strings"
	"sync/atomic"
	"syscall"
)

// reads runs the plugin with some keys as its input at the console of the tests, until the plugin's output has the wanted text. Without
// keys the server prints the text by itself, again and again, since its BMC may not be connected yet.
func (u *users) reads(user, keys, want string, arguments ...string) {
	u.Helper()
	port := u.rack.Serial(place(consoleBlade))
	command := u.command(user, arguments...)
	command.Stdin = strings.NewReader(keys)
	output, err := command.StdoutPipe()
	u.must(err)
	var errs strings.Builder
	command.Stderr = &errs
	u.must(command.Start())
	var isSeen atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if strings.Contains(lines.Text(), want) {
				isSeen.Store(true)
			}
		}
	}()
	isOver := false
	u.Eventually(patience, func() string {
		select {
		case <-ended:
			isOver = true
		default:
		}
		if isSeen.Load() || isOver {
			return ""
		}
		if keys == "" {
			port.Print(want + "\r\n")
		}
		return user + " sees no " + want
	})
	if !isSeen.Load() {
		_ = command.Wait() // it has ended, and says why
		u.Fatalf("%s: %v ended without %q: %s", user, arguments, want, errs.String())
	}
	u.must(command.Process.Signal(syscall.SIGTERM))
	<-ended
	u.ends(command, 0)
}
