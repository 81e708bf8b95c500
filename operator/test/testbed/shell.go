package testbed

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Shell is where people type commands: with kubectl, helm, and programs of the operator, as an administrator of a cluster.
type Shell struct {
	// Dir has this project's folders that commands name.
	Dir string

	environment []string
}

// foldersOfShell are this project's that commands name.
var foldersOfShell = []string{
	"charts", "config/default", "config/box", "config/crd", "config/rbac", "config/manager", "config/network-policy",
}

// NewShell makes one with the programs in a folder.
func NewShell(t *testing.T, cluster *Cluster, programs string) *Shell {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := &Shell{Dir: t.TempDir()}
	for program, variable := range map[string]string{"kubectl": "RCBOX_KUBECTL", "helm": "RCBOX_HELM"} {
		path := os.Getenv(variable)
		if path == "" {
			t.Fatalf("%s does not say where %s is: set it to what hack/tool.sh %s prints", variable, program, program)
		}
		must(os.Symlink(path, filepath.Join(programs, program)))
	}
	for _, folder := range foldersOfShell {
		link := filepath.Join(s.Dir, folder)
		must(os.MkdirAll(filepath.Dir(link), 0o700))
		must(os.Symlink(filepath.Join(root(t), folder), link))
	}
	s.environment = append(os.Environ(), "HOME="+s.Dir, "KUBECONFIG="+cluster.AdminKubeconfig(), "PATH="+programs+":"+os.Getenv("PATH"))
	return s
}

// Command is a line as somebody types it.
func (s *Shell) Command(ctx context.Context, line string) *exec.Cmd {
	command := exec.CommandContext(ctx, "bash", "-euc", line) //nolint:gosec // a test's
	command.Dir, command.Env = s.Dir, s.environment
	return command
}

// Run runs a line, and gives all that it writes.
func (s *Shell) Run(ctx context.Context, line string) (string, error) {
	output, err := s.Command(ctx, line).CombinedOutput()
	return string(output), err
}
