package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
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
	manifest, err := json.Marshal(sessionPod(pod, rcbox("--timeout", strconv.Itoa(timeoutSeconds), "shell")))
	if err != nil {
		t.Fatal(err)
	}
	must(t, settings.kubectl, string(manifest), "create", "-f", "-")
	kubectl(t, "wait", "--for=condition=Ready", "pod/"+pod, "-n", namespace, "--timeout=120s")

	return talkTo(t, owner, pod, settings.kubectl, "attach", "-q", "-i", "-n", namespace, pod)
}

// nodeSession runs beside a pod's process, in its file system and network. The API server has no part in it.
func nodeSession(t *testing.T, pod podObject, timeoutSeconds int) *session {
	t.Helper()
	command := []string{"exec", "-i", pod.Spec.NodeName, "nsenter", "-t", processOf(t, pod), "-m", "-n", "--"}
	command = append(command, rcbox("--timeout", strconv.Itoa(timeoutSeconds), "shell")...)
	return talkTo(t, t, "beside "+pod.Metadata.Name, setting("RCBOX_DOCKER", "docker"), command...)
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

// sessionPod waits for what is attached to it.
func sessionPod(name string, command []string) map[string]any {
	return map[string]any{
		"apiVersion": "v1",
		"kind":       "Pod",
		"metadata":   map[string]any{"name": name, "namespace": namespace, "labels": map[string]string{"e2e": "client"}},
		"spec": map[string]any{
			"restartPolicy":                 "Never",
			"automountServiceAccountToken":  false,
			"terminationGracePeriodSeconds": 1,
			"securityContext": map[string]any{
				"runAsNonRoot":   true,
				"runAsUser":      65532,
				"seccompProfile": map[string]string{"type": "RuntimeDefault"},
			},
			"containers": []any{map[string]any{
				"name":            "client",
				"image":           settings.storeImage,
				"imagePullPolicy": "IfNotPresent",
				"command":         command,
				"stdin":           true,
				"stdinOnce":       true,
				"securityContext": map[string]any{
					"allowPrivilegeEscalation": false,
					"capabilities":             map[string]any{"drop": []string{"ALL"}},
				},
			}},
		},
	}
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
