package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const laptopTable = "laptop"

// proxied is a Store that clients of this machine use through kubectl rcbox proxy; locator is what they connect to.
type proxied struct{ namespace, store, locator string }

// onThisMachine runs a program and gives what it printed.
func onThisMachine(t *testing.T, environment []string, program string, arguments ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), changeDeadline)
	defer cancel()
	command := exec.CommandContext(ctx, program, arguments...)
	command.Env = append(os.Environ(), environment...)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", program, arguments, err, output)
	}
	return strings.TrimSpace(string(output))
}

func (p *proxied) rcbox(t *testing.T, words ...string) string {
	t.Helper()
	program := os.Getenv("RCBOX_CLI")
	if program == "" {
		t.Fatal("RCBOX_CLI is not set: hack/e2e.sh sets it to the program rcbox")
	}
	return onThisMachine(t, nil, program, append([]string{"-C", p.locator}, words...)...)
}

// letsIn: the proxy runs as long as the whole test.
func (p *proxied) letsIn(t, whole *testing.T) {
	proxy := exec.CommandContext(whole.Context(), setting("RCBOX_PLUGIN", "kubectl-rcbox"),
		"proxy", p.store, "-n", p.namespace, "--port", "0", "-o", "json")
	var errs strings.Builder
	proxy.Stderr = &errs
	out, err := proxy.StdoutPipe()
	if err == nil {
		err = proxy.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	whole.Cleanup(func() {
		_ = proxy.Process.Kill() // it has ended if the test's context has
		_ = proxy.Wait()
		whole.Logf("the proxy said: %s", errs.String())
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("the proxy printed nothing: %v: %s", lines.Err(), errs.String())
	}
	var printed struct {
		Locator   string `json:"locator"`
		Processes []struct {
			Member string `json:"member"`
		} `json:"processes"`
	}
	if err := json.Unmarshal(lines.Bytes(), &printed); err != nil {
		t.Fatalf("%v in %s", err, lines.Text())
	}
	if !strings.HasPrefix(printed.Locator, "tcp:host=127.0.0.1,port=") {
		t.Fatalf("the locator is %q", printed.Locator)
	}
	p.locator = printed.Locator
	p.rcbox(t, "create-table", laptopTable, "--span", "3") // over all masters
	p.rcbox(t, "put", laptopTable, "hello", "world")
	if got := p.rcbox(t, "get", laptopTable, "hello"); got != "world" {
		t.Errorf("hello is %q", got)
	}
}

const pythonScript = `
import sys, rcbox
table = rcbox.Cluster(sys.argv[1]).table("laptop")
for number in range(30):
    table.write(f"key{number}", f"value{number}")
print(table.read("hello").text(), sum(table.read(f"key{n}").text() == f"value{n}" for n in range(30)))
`

// letsInPython: the client's Python package, as it was installed for its own tests.
func (p *proxied) letsInPython(t *testing.T) {
	installed := os.Getenv("RCBOX_PYTHON_PACKAGE")
	if _, err := os.Stat(filepath.Join(installed, "rcbox")); installed == "" || err != nil {
		t.Skip("SKIPPED: the client's Python package is not installed in .build/python-installed: hack/python.sh does that")
	}
	got := onThisMachine(t, []string{"PYTHONPATH=" + installed}, "python3", "-c", pythonScript, p.locator)
	if got != "world 30" {
		t.Errorf("Python reads %q", got)
	}
}
