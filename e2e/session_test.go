package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// session is a prompt of `rcbox` in a pod, fed by the test line by line. It ends at the first command that fails.
type session struct {
	pod    string
	in     io.WriteCloser
	out    *bufio.Scanner
	stderr *bytes.Buffer
}

// openSession starts a pod whose commands are tried for so many seconds. It ends with the owner, which may outlive t.
func openSession(t, owner *testing.T, pod string, timeoutSeconds int) *session {
	t.Helper()
	create(t, podManifest(t, pod, settings.storeImage, rcbox(t, "--timeout", strconv.Itoa(timeoutSeconds), "shell"), true))
	kubectl(t, "wait", "--for=condition=Ready", "pod/"+pod, "-n", namespaceOf(t), "--timeout=120s")

	return talkTo(t, owner, pod, settings.kubectl, "attach", "-q", "-i", "-n", namespaceOf(t), pod)
}

// talkTo starts a program that leads to a prompt.
func talkTo(t, owner *testing.T, where, program string, arguments ...string) *session {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, program, arguments...)
	s := &session{pod: where, stderr: &bytes.Buffer{}}
	command.Stderr = s.stderr
	var err error
	if s.in, err = command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewScanner(out)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	owner.Cleanup(func() {
		cancel()
		_ = command.Wait() // it was told to end
	})
	return s
}

// ask gives a command and reads so many lines of its output.
func (s *session) ask(lines int, command string) ([]string, error) {
	if _, err := io.WriteString(s.in, command+"\n"); err != nil {
		return nil, fmt.Errorf("%s: %s: %w (%s)", s.pod, command, err, s.stderr)
	}
	answer := make([]string, 0, lines)
	for range lines {
		if !s.out.Scan() {
			return answer, fmt.Errorf("%s: %s: the session has ended: %w (%s)", s.pod, command, errors.Join(s.out.Err(), io.EOF), s.stderr)
		}
		answer = append(answer, s.out.Text())
	}
	return answer, nil
}

func (s *session) mustAsk(t *testing.T, lines int, command string) []string {
	t.Helper()
	answer, err := s.ask(lines, command)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// traffic repeats a command until it is stopped, or a command fails.
type traffic struct {
	mu    sync.Mutex
	count int
	err   error
	stop  chan struct{}
	done  chan struct{}
}

// startTraffic gives the command for each number, counting from 0.
func startTraffic(s *session, command func(int) string) *traffic {
	tr := &traffic{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(tr.done)
		for i := 0; ; i++ {
			select {
			case <-tr.stop:
				return
			default:
			}
			_, err := s.ask(1, command(i))
			tr.mu.Lock()
			if err != nil {
				tr.err = err
				tr.mu.Unlock()
				return
			}
			tr.count = i + 1
			tr.mu.Unlock()
		}
	}()
	return tr
}

// answered is how many commands were.
func (tr *traffic) answered() (int, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.count, tr.err
}

// goesOn waits until so many more commands were answered.
func (tr *traffic) goesOn(t *testing.T, what string, more int) {
	t.Helper()
	before, _ := tr.answered()
	eventually(t, what, changeDeadline, func() error {
		count, err := tr.answered()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if count < before+more {
			return fmt.Errorf("%d of %d", count-before, more)
		}
		return nil
	})
}

// end stops it and gives how many commands were answered.
func (tr *traffic) end(t *testing.T) int {
	t.Helper()
	close(tr.stop)
	<-tr.done
	count, err := tr.answered()
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// joined makes one command of a word and many keys.
func joined(words string, from, to int) string {
	var command strings.Builder
	command.WriteString(words)
	for i := from; i < to; i++ {
		fmt.Fprintf(&command, " k%d", i)
	}
	return command.String()
}
