package box_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"rcbox.dev/rcbox/operator/test/box/rack"
	"rcbox.dev/rcbox/operator/test/pty"
)

// line is a line of a page, as a user types it.
func (u *users) line(user, line string) *exec.Cmd {
	u.Helper()
	command := exec.CommandContext(u.Context(), "bash", "-euc", line)
	command.Dir = u.shell.dir
	command.Env = append(slices.Clone(u.shell.environment), "KUBECONFIG="+u.Kubeconfig(user), "TERM=dumb")
	return command
}

// opens starts a line at a terminal of its own, whose keys go to the server.
func (u *users) opens(user, line string) (*pty.Terminal, *exec.Cmd) {
	u.Helper()
	terminal, command := pty.Open(u.T), u.line(user, line)
	terminal.Start(command)
	terminal.Expect("~. ends")
	return terminal, command
}

// connected waits until the BMC has opened the console, because keys that a user types before that are lost.
func (u *users) connected(terminal *pty.Terminal, port *rack.Serial) {
	u.Helper()
	u.Eventually(patience, func() string {
		const text = "the server prints"
		if port.Print(text + "\r\n"); !strings.Contains(terminal.Shown(), text) {
			return "what the server prints is not shown"
		}
		return ""
	})
}

// consolePage runs the commands of console.md in their order, by an administrator, alice and bob. A command of the page that has no step
// here fails the test.
func consolePage(u *users) {
	const page = "console.md"
	port := u.rack.Serial("mercury1", consoleBlade)
	var first *pty.Terminal
	var alice *exec.Cmd
	steps := []struct {
		line string
		run  func(line string)
	}{
		{"kubectl create clusterrolebinding alice-consoles", func(line string) {
			if output, err := u.shell.run(u.Context(), line); err != nil {
				u.Fatalf("%v\n%s", err, output)
			}
		}},
		{"kubectl auth can-i --list --as=alice", func(line string) {
			output, err := u.shell.run(u.Context(), line)
			const of, verbs = "servers.subresources.rcbox.dev/console", "[get create]"
			if err != nil || !strings.Contains(output, of) || !strings.Contains(output, verbs) {
				u.Errorf("%v\n%s", err, output)
			}
		}},
		{"kubectl rcbox console atom007", func(line string) {
			first, alice = u.opens("alice", line)
			u.connected(first, port)
			u.typed(first, "a line of alice")
		}},
		{"kubectl rcbox console atom007", func(line string) {
			output, err := u.line("bob", line).CombinedOutput()
			if err == nil || !strings.Contains(string(output), "error: alice has the console of atom007 since 20") {
				u.Errorf("%v\n%s", err, output)
			}
		}},
		{"kubectl rcbox console atom007 --watch", func(line string) {
			terminal, command := u.opens("bob", line)
			terminal.Expect("a line of alice")
			terminal.Type("~.")
			u.ends(command, 0)
		}},
		{"kubectl rcbox console atom007 --force", func(line string) {
			terminal, command := u.opens("bob", line)
			first.Expect("bob took the console of atom007 over")
			u.ends(alice, 4)
			u.typed(terminal, "a line of bob")
			terminal.Type("~.")
			u.ends(command, 0)
			u.free(consoleBlade)
		}},
		{`printf 'uptime\r' | kubectl rcbox console atom007 --for`, func(line string) {
			output, err := u.line("bob", line).CombinedOutput()
			if err != nil || !strings.Contains(string(output), `got "uptime"`) {
				u.Errorf("%v\n%s", err, output)
			}
		}},
		{"kubectl rcbox console atom007 --watch --for 1h >", func(line string) {
			command := u.line("bob", line)
			command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
			u.must(command.Start())
			const printed = "a line that nobody typed"
			port.Print(printed + "\r\n")
			u.Eventually(patience, func() string {
				text, err := os.ReadFile(filepath.Join(u.shell.dir, "atom007.log"))
				if err != nil || !strings.Contains(string(text), printed) {
					return fmt.Sprintf("the file has %q: %v", text, err)
				}
				return ""
			})
			u.must(syscall.Kill(-command.Process.Pid, syscall.SIGINT))
			u.ends(command, 0)
		}},
	}
	commands := u.commandsOf(page)
	for i, command := range commands {
		if i >= len(steps) || !strings.HasPrefix(command, steps[i].line) {
			u.Fatalf("%s: command %d is not what is run here: %s", page, i+1, command)
		}
		steps[i].run(command)
	}
	if len(commands) != len(steps) {
		u.Errorf("%s has %d commands, and %d are run here", page, len(commands), len(steps))
	}
}
