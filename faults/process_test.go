package faults

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// deadline is for everything that is waited for: more than ten times what the slowest of it takes.
const deadline = 60 * time.Second

// waitFor waits until a condition holds, and says what was missing if it never does.
func waitFor(t *testing.T, what string, holds func() error) {
	t.Helper()
	end := time.Now().Add(deadline)
	for {
		problem := holds()
		if problem == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s: %v", deadline, what, problem)
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // the interval of a poll
	}
}

// program is the path of something that was built: RCBOX_PROGRAMS, or where cargo puts it.
func program(t *testing.T, name string) string {
	t.Helper()
	folder := os.Getenv("RCBOX_PROGRAMS")
	if folder == "" {
		folder = filepath.Join("..", "images", "store", "target", "debug")
	}
	path, err := filepath.Abs(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: build it with hack/test-programs.sh, or run `make faults`", err)
	}
	return path
}

// process is a program that runs, with what it has logged. The kernel kills it if the tests end before they do.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	// ended is closed once the process is gone.
	ended chan struct{}
	mutex sync.Mutex
	lines []string
}

// starter starts all processes. The kernel kills them when the thread that started them ends, so it is one that never does.
var starter = sync.OnceValue(func() chan func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range work {
			start()
		}
	}()
	return work
})

// command is a program that is yet to be started.
func command(words []string) *exec.Cmd {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = []string{}
	return cmd
}

// start runs a command in a network namespace ("" is that of the tests). Standard output, if stdout is given, goes there line by line.
func start(t *testing.T, name, namespace string, stdout func(string), cmd *exec.Cmd) *process {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &process{t: t, name: name, cmd: cmd, ended: make(chan struct{})}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	readers.Go(func() { readLines(stderr, p.note) })
	if stdout != nil {
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		readers.Go(func() { readLines(pipe, stdout) })
	}
	result := make(chan error)
	starter() <- func() { result <- inNamespace(namespace, cmd.Start) }
	if err := <-result; err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	go func() {
		readers.Wait()
		_ = cmd.Wait() // How it ended is in cmd.ProcessState.
		close(p.ended)
	}()
	return p
}

func readLines(from interface{ Read([]byte) (int, error) }, note func(string)) {
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		note(scanner.Text())
	}
}

func (p *process) note(line string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.lines = append(p.lines, line)
}

// logged is the first line with all of these texts, "" if there is none.
func (p *process) logged(parts ...string) string {
	if lines := p.allLogged(parts...); len(lines) > 0 {
		return lines[0]
	}
	return ""
}

// allLogged is all lines with all of these texts.
func (p *process) allLogged(parts ...string) []string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	var found []string
	for _, line := range p.lines {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			found = append(found, line)
		}
	}
	return found
}

// waitLogged waits for a line with all of these texts.
func (p *process) waitLogged(parts ...string) string {
	p.t.Helper()
	var line string
	waitFor(p.t, fmt.Sprintf("a line of %s with %q", p.name, parts), func() error {
		if line = p.logged(parts...); line == "" {
			return fmt.Errorf("it has logged:\n%s", p.log())
		}
		return nil
	})
	return line
}

func (p *process) log() string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return strings.Join(p.lines, "\n")
}

func (p *process) signal(signal syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// kill ends the process at once, if it has not ended, and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // It may be gone.
	<-p.ended
}

// waitEnd waits until the process has ended by itself.
func (p *process) waitEnd() {
	p.t.Helper()
	waitFor(p.t, "the end of "+p.name, func() error {
		select {
		case <-p.ended:
			return nil
		default:
			return fmt.Errorf("it runs; it has logged:\n%s", p.log())
		}
	})
}

// stop halts the process as SIGSTOP does, and waits until it has.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	waitFor(p.t, p.name+" to stop", func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			return err
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		if !strings.HasPrefix(after, "T") {
			return fmt.Errorf("its state is %.1s", after)
		}
		return nil
	})
}
