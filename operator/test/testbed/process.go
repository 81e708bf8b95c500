package testbed

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcbox.dev/rcbox/operator/internal/resources"
)

// clockTick is the unit of CPU time in /proc: USER_HZ is 100 on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// Process is a program that runs until the test ends, or Kill.
type Process struct {
	t       *testing.T
	name    string
	log     string
	command *exec.Cmd
	ended   chan struct{}
}

// StartProcess starts a program; what it writes is shown if the test fails.
func StartProcess(t *testing.T, path string, arguments ...string) *Process {
	t.Helper()
	return startProcess(t, nil, path, arguments...)
}

func startProcess(t *testing.T, environment []string, path string, arguments ...string) *Process {
	t.Helper()
	p := &Process{t: t, name: filepath.Base(path), log: filepath.Join(t.TempDir(), "log"), ended: make(chan struct{})}
	file, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	p.command = exec.CommandContext(context.WithoutCancel(t.Context()), path, arguments...) //nolint:gosec // a program of the test bed
	p.command.Stdout, p.command.Stderr = file, file
	p.command.Env = append(os.Environ(), environment...)
	// A test that is killed leaves nothing behind.
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	go func() {
		_ = p.command.Wait() // how it ended is in its log
		_ = file.Close()
		close(p.ended)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last words of %s:\n%s", p.name, p.tail())
		}
		p.Kill()
	})
	return p
}

// Kill ends it at once, as a node that loses power would.
func (p *Process) Kill() {
	_ = p.command.Process.Kill() // it may have ended
	<-p.ended
}

// Terminate has it end as a kubelet does, and waits until it has.
func (p *Process) Terminate() {
	_ = p.command.Process.Signal(syscall.SIGTERM) // it may have ended
	<-p.ended
}

// Ended says whether it has.
func (p *Process) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *Process) tail() string {
	const lines = 30
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Usage is what a process has used.
type Usage struct {
	CPU time.Duration
	// PeakBytes is the most memory that it has had resident, and Bytes what it has now.
	PeakBytes, Bytes int64
}

// Usage asks the kernel.
func (p *Process) Usage() Usage {
	p.t.Helper()
	proc := "/proc/" + strconv.Itoa(p.command.Process.Pid)
	status, err := os.ReadFile(proc + "/status") //nolint:gosec // the kernel's
	if err != nil {
		p.t.Fatalf("%s has ended: %v\n%s", p.name, err, p.tail())
	}
	stat, err := os.ReadFile(proc + "/stat") //nolint:gosec // the kernel's
	if err != nil {
		p.t.Fatal(err)
	}
	const userField, systemField = 11, 12 // counted behind the name
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	ticks := p.number(fields[userField]) + p.number(fields[systemField])
	return Usage{CPU: time.Duration(ticks) * clockTick, PeakBytes: p.kibibytes(status, "VmHWM:"), Bytes: p.kibibytes(status, "VmRSS:")}
}

func (p *Process) kibibytes(status []byte, field string) int64 {
	_, after, _ := strings.Cut(string(status), field)
	return p.number(strings.Fields(after)[0]) << 10
}

func (p *Process) number(text string) int64 {
	p.t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// Operator is the real program, with the rights of config/rbac.
type Operator struct {
	*Process

	metrics, health, pprof string
}

// BuildOperator gives the path of the program.
func BuildOperator(t *testing.T) string {
	t.Helper()
	return Build(t, "manager")
}

// Build gives the path of one of the operator's programs.
func Build(t *testing.T, program string) string {
	t.Helper()
	return filepath.Join(StartBuild(t, program)(), program)
}

// StartBuild builds programs of the operator while the test does something else. The function that it returns waits for that, and gives
// the folder that they are in.
func StartBuild(t *testing.T, programs ...string) (folder func() string) {
	t.Helper()
	path := t.TempDir()
	arguments := []string{"build", "-o", path + "/"}
	for _, program := range programs {
		arguments = append(arguments, "./operator/cmd/"+program)
	}
	build := exec.CommandContext(t.Context(), "go", arguments...) //nolint:gosec // this test's
	build.Dir = root(t)
	var output bytes.Buffer
	build.Stdout, build.Stderr = &output, &output
	if err := build.Start(); err != nil {
		t.Fatalf("build %v: %v", programs, err)
	}
	return func() string {
		t.Helper()
		if err := build.Wait(); err != nil {
			t.Fatalf("build %v: %v\n%s", programs, err, &output)
		}
		return path
	}
}

// StartOperator runs it as one that is elected, like the chart does.
func (c *Cluster) StartOperator(program string, arguments ...string) *Operator {
	c.t.Helper()
	operator := &Operator{}
	operator.metrics, operator.health, operator.pprof = freeAddresses(c.t)
	arguments = append([]string{
		"run", "--store-image=stand-in", "--namespace=" + operatorNamespace, "--leader-elect",
		"--metrics-bind-address=" + operator.metrics, "--health-probe-bind-address=" + operator.health,
		"--pprof-bind-address=" + operator.pprof,
	}, arguments...)
	environment := []string{
		"KUBECONFIG=" + c.kubeconfig(operatorUser, "system:serviceaccounts", "system:authenticated"),
		"MEMORY_LIMIT_BYTES=" + strconv.Itoa(256<<20), // as in config/manager
	}
	operator.Process = startProcess(c.t, environment, program, arguments...)
	return operator
}

// StartBox runs the box controller, as the chart does, with the rights of config/box.
func (c *Cluster) StartBox(program string, arguments ...string) *Operator {
	c.t.Helper()
	box := &Operator{}
	box.metrics, box.health, box.pprof = freeAddresses(c.t)
	arguments = append([]string{
		"box", "--namespace=" + operatorNamespace, "--leader-elect",
		"--metrics-bind-address=" + box.metrics, "--health-probe-bind-address=" + box.health,
	}, arguments...)
	environment := []string{
		"KUBECONFIG=" + c.kubeconfig(boxUser, "system:serviceaccounts", "system:authenticated"),
		"MEMORY_LIMIT_BYTES=" + strconv.Itoa(256<<20), // as in config/box
	}
	box.Process = startProcess(c.t, environment, program, arguments...)
	return box
}

// Log is all that the process has written.
func (p *Process) Log() string {
	p.t.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// Ready is what a kubelet is told: whether the operator is ready.
func (o *Operator) Ready() bool {
	o.t.Helper()
	request, err := http.NewRequestWithContext(o.t.Context(), http.MethodGet, "http://"+o.health+"/readyz", http.NoBody)
	if err != nil {
		o.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false // it does not listen yet
	}
	_ = response.Body.Close() // read only
	return response.StatusCode == http.StatusOK
}

// Metric adds up the values of a metric over those of its series whose labels contain some text.
func (o *Operator) Metric(name string, contains ...string) float64 {
	o.t.Helper()
	sum := 0.0
	for line := range strings.Lines(o.Metrics()) {
		rest, found := strings.CutPrefix(line, name)
		if !found || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		labels, value, _ := strings.Cut(rest, "} ")
		if !strings.HasPrefix(rest, "{") {
			labels, value = "", rest
		}
		for _, text := range contains {
			if !strings.Contains(labels, text) {
				value = "0"
			}
		}
		number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			o.t.Fatal(err)
		}
		sum += number
	}
	return sum
}

// Metrics are all of them, as text.
func (o *Operator) Metrics() string {
	o.t.Helper()
	return o.get("http://" + o.metrics + "/metrics")
}

// Profile is one of Go's, such as heap, or profile?seconds=10.
func (o *Operator) Profile(name string) []byte {
	o.t.Helper()
	return []byte(o.get("http://" + o.pprof + "/debug/pprof/" + name))
}

func (o *Operator) get(url string) string {
	o.t.Helper()
	request, err := http.NewRequestWithContext(o.t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		o.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		o.t.Fatalf("read %s of the operator: %v\n%s", url, err, o.tail())
	}
	defer func() { _ = response.Body.Close() }() // read only
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		o.t.Fatalf("read %s of the operator: %s, %v", url, response.Status, err)
	}
	return string(text)
}

// freeNetwork is one of pods' addresses that no other test bed of this machine has. They are loopback's, so that the operator reaches what
// a stand-in serves there.
func freeNetwork(t *testing.T) string {
	t.Helper()
	const first, last = 64, 127
	for second := first; second <= last; second++ {
		// Far behind those that kwok gives away.
		mark := fmt.Sprintf("127.%d.255.254:%d", second, resources.CoordinatorAdminPort)
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", mark)
		if err != nil {
			continue // taken
		}
		t.Cleanup(func() { _ = listener.Close() }) // nobody connects to it
		return fmt.Sprintf("127.%d.1.0/16", second)
	}
	t.Fatalf("each of the networks 127.%d.0.0/16 to 127.%d.0.0/16 is another test bed's", first, last)
	return ""
}

// freeAddresses are three that differ: the first is given back only when the last is there.
func freeAddresses(t *testing.T) (metrics, health, pprof string) {
	t.Helper()
	var addresses [3]string
	for i := range addresses {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }() // somebody else's from now on
		addresses[i] = fmt.Sprint(listener.Addr())
	}
	return addresses[0], addresses[1], addresses[2]
}
