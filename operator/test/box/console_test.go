package box_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/test/pty"
)

// users is a bed with the plugin, and who runs it.
type users struct {
	*bed

	plugin string
}

// userConsoles: the real plugin opens consoles of blades through a real API server and the box controller; ipmi_sim serves the consoles.
func userConsoles(b *bed) {
	u := b.users()
	b.Subresources(patience)
	u.grant("bob", "rcbox-box-console")
	for _, test := range []struct {
		name string
		run  func(*users)
	}{
		{"the page's commands", consolePage},
		{"rights", rights},
		{"strangers", strangers},
		{"keys and escapes", keys},
		{"suspended", suspended},
		{"two users", twoUsers},
		{"a script", script},
		{"beside ipmitool", besideIPMITool},
		{"the plugin is killed", pluginKilled},
	} {
		if !b.Run(test.name, func(t *testing.T) {
			test.run(&users{bed: b.of(t), plugin: u.plugin})
		}) {
			return // what follows finds consoles as this one has left them
		}
	}
	if strings.Contains(b.box.Log(), "is forbidden") {
		b.Error("the box controller lacks a right")
	}
}

// users is this bed with its plugin.
func (b *bed) users() *users { return &users{bed: b, plugin: b.shell.plugin} }

// grant gives a user a ClusterRole.
func (u *users) grant(user, role string) {
	u.Helper()
	u.must(u.Client.Create(u.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}))
}

// allow gives a user rights of their own.
func (u *users) allow(user string, rules ...rbacv1.PolicyRule) {
	u.Helper()
	u.must(u.Client.Create(u.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "of-" + user}, Rules: rules}))
	u.grant(user, "of-"+user)
}

// command is the plugin, run by a user.
func (u *users) command(user string, arguments ...string) *exec.Cmd {
	u.Helper()
	command := exec.CommandContext(u.Context(), u.plugin, arguments...)
	command.Env = append(command.Environ(), "KUBECONFIG="+u.Kubeconfig(user), "TERM=dumb")
	return command
}

// run runs the plugin without a terminal.
func (u *users) run(user string, arguments ...string) (code int, output string) {
	u.Helper()
	text, err := u.command(user, arguments...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		u.Fatal(err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return code, string(text)
}

// at starts the plugin at a terminal of its own.
func (u *users) at(user string, arguments ...string) (*pty.Terminal, *exec.Cmd) {
	u.Helper()
	terminal, command := pty.Open(u.T), u.command(user, arguments...)
	terminal.Start(command)
	terminal.Expect("~. ends") // from now on all keys are the server's
	return terminal, command
}

// ends waits for the plugin, and expects an exit code.
func (u *users) ends(command *exec.Cmd, want int) {
	u.Helper()
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case <-ended:
		if code := command.ProcessState.ExitCode(); code != want {
			u.Errorf("%v ended with %s, not exit code %d", command.Args, command.ProcessState, want)
		}
	case <-time.After(patience):
		u.Fatalf("%v does not end", command.Args)
	}
}

// typed types a line, and expects that the server has got it.
func (u *users) typed(terminal *pty.Terminal, line string) {
	u.Helper()
	terminal.Type(line + "\r")
	terminal.Expect(fmt.Sprintf("got %q", line))
}

// may asks as a user whether they may do something.
func (u *users) may(user, verb, subresource string) bool {
	u.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", u.Kubeconfig(user))
	u.must(err)
	clientset, err := kubernetes.NewForConfig(config)
	u.must(err)
	review, err := clientset.AuthorizationV1().SelfSubjectAccessReviews().Create(u.Context(), &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: "subresources.rcbox.dev", Resource: "servers", Subresource: subresource, Name: name(consoleBlade),
		}},
	}, metav1.CreateOptions{})
	u.must(err)
	return review.Status.Allowed
}

// Consoles, power and raw IPMI take rights of their own, which no others imply.
func rights(u *users) {
	everything := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}
	servers := rbacv1.PolicyRule{
		APIGroups: []string{"rcbox.dev"}, Resources: []string{"chassis", "servers"},
		Verbs: []string{"get", "list", "watch", "patch", "update", "create"},
	}
	u.allow("forwarder", servers, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"pods/portforward", "pods/exec"}, Verbs: []string{"get", "create"},
	})
	u.allow("reader", everything)
	u.grant("editor", "rcbox-box-editor")
	u.grant("viewer", "rcbox-box-viewer")
	for _, test := range []struct {
		user                               string
		watches, types, switches, speaksTo bool
	}{
		{"forwarder", false, false, false, false},
		{"viewer", false, false, false, false},
		// Roles that may read everything are common: they look on, and type nothing.
		{"reader", true, false, false, false},
		{"editor", false, false, true, true},
		{"alice", true, true, false, false},
	} {
		got := []bool{
			u.may(test.user, "get", "console"), u.may(test.user, "create", "console"),
			u.may(test.user, "update", "power"), u.may(test.user, "create", "ipmi"),
		}
		want := []bool{test.watches, test.types, test.switches, test.speaksTo}
		for i, what := range []string{"watch", "type", "switch power", "use ipmitool"} {
			if got[i] != want[i] {
				u.Errorf("%s may %s: %t", test.user, what, got[i])
			}
		}
		typing := []string{"console", name(consoleBlade), "--for=1h"}
		watch := append(slices.Clone(typing), "--watch")
		if test.watches {
			u.reads(test.user, "", "for "+test.user+" to see", watch...)
		} else {
			u.tries(test.user, false, watch...)
		}
		if test.types {
			u.reads(test.user, "typed by "+test.user+"\r", fmt.Sprintf("got %q", "typed by "+test.user), typing...)
		} else {
			u.tries(test.user, false, typing...)
		}
		// It is off already, or on: nothing is switched.
		u.tries(test.user, test.switches, "power", name(rightsBlade), "off", "--wait=false")
		if !test.speaksTo { // the others run ipmitool
			u.tries(test.user, false, "ipmi", "--password-file="+u.password, name(rightsBlade), "power", "status")
		}
	}
	// A user who may write Servers, but not switch them, may do the rest.
	patch := fmt.Appendf(nil, `{"spec":{"acceptedSerial":%q}}`, blade(rightsBlade).Serial)
	config, err := clientcmd.BuildConfigFromFlags("", u.Kubeconfig("forwarder"))
	u.must(err)
	clientset, err := kubernetes.NewForConfig(config)
	u.must(err)
	for body, isAllowed := range map[string]bool{
		string(patch): true, `{"spec":{"power":"Off"}}`: false, `{"spec":{"order":{"id":"x","action":"Off"}}}`: false,
		`{"spec":{"boot":{"id":"x","device":"Network"}}}`: false, `{"spec":{"isolated":{"reason":"x"}}}`: false,
	} {
		path := "/apis/rcbox.dev/v1alpha1/servers/" + name(rightsBlade)
		err := clientset.CoreV1().RESTClient().Patch("application/merge-patch+json").AbsPath(path).
			Body([]byte(body)).Do(u.Context()).Error()
		if (err == nil) != isAllowed || err != nil && !strings.Contains(err.Error(), "take update on servers/power") {
			u.Errorf("%s: %v", body, err)
		}
	}
	u.chassisTakesPower()
}

// chassisTakesPower: whoever writes the spec of a Chassis can have servers cut and passwords sent elsewhere, and needs the right to power.
func (u *users) chassisTakesPower() {
	u.Helper()
	for what, change := range map[string]func(*v1alpha1.Chassis){
		"a label":                 func(c *v1alpha1.Chassis) { c.Labels = map[string]string{"example.com/room": "1"} },
		"spec.fencing.namespaces": func(c *v1alpha1.Chassis) { c.Spec.Fencing.Namespaces = []string{metav1.NamespaceDefault} },
		"spec.management":         func(c *v1alpha1.Chassis) { c.Spec.Management.CredentialsSecret = "registry" },
		"spec.slots":              func(c *v1alpha1.Chassis) { c.Spec.Slots = "1-20" },
		"a new Chassis": func(c *v1alpha1.Chassis) {
			*c = v1alpha1.Chassis{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: c.Spec}
		},
	} {
		for user, isAllowed := range map[string]bool{"forwarder": what == "a label", "editor": true} {
			before := u.chassis("mercury1")
			written := before.DeepCopy()
			change(written)
			as := u.As(user)
			var err error
			if written.UID == "" {
				err = as.Create(u.Context(), written, client.DryRunAll)
			} else {
				err = as.Patch(u.Context(), written, client.MergeFrom(before), client.DryRunAll)
			}
			if (err == nil) != isAllowed || err != nil && !strings.Contains(err.Error(), "takes update on servers/power, for all servers") {
				u.Errorf("%s writes %s: %v", user, what, err)
			}
		}
	}
}

// tries runs the plugin, and expects that it is allowed, or refused with the name of the right.
func (u *users) tries(user string, isAllowed bool, arguments ...string) {
	u.Helper()
	code, text := u.run(user, arguments...)
	isNamed := strings.Contains(text, "servers/"+arguments[0]) || strings.Contains(text, "forbidden")
	if isAllowed && code != 0 || !isAllowed && (code != 1 || !isNamed) {
		u.Errorf("%s: %v: exit code %d: %s", user, arguments, code, text)
	}
}

func keys(u *users) {
	port := u.rack.Serial("mercury1", consoleBlade)
	terminal := pty.Open(u.T)
	before := terminal.Mode()
	u.free(consoleBlade)
	command := u.command("alice", "console", name(consoleBlade))
	terminal.Start(command)
	terminal.Expect("~. ends")
	u.typed(terminal, "")
	if !terminal.IsRaw() {
		u.Error("the terminal is not raw")
	}
	u.typed(terminal, "hello \x03\x1a") // Ctrl-C and Ctrl-Z are the server's
	port.Print("a line of the server\r\n")
	terminal.Expect("a line of the server")
	terminal.Type("~?")
	terminal.Expect("~^Z suspends")
	// To a program that runs on the server, ~. goes as ~~.
	terminal.Type("~~.\r")
	terminal.Expect(`got "~."`)
	if strings.Contains(port.Typed(), "?") {
		u.Errorf("the server has got %q", port.Typed())
	}
	terminal.Type("~.")
	u.ends(command, 0)
	if after := terminal.Mode(); after != before {
		u.Errorf("the terminal was %+v, and is %+v", before, after)
	}
	// A signal ends it, too, and the terminal is given back.
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		terminal := pty.Open(u.T)
		command := u.console(terminal)
		u.must(command.Process.Signal(signal))
		u.ends(command, 0)
		if after := terminal.Mode(); after != before {
			u.Errorf("after %s the terminal is %+v", signal, after)
		}
	}
}

// opened counts the consoles that were opened.
var opened int

// console opens that of the seventh server for alice at a terminal as soon as whoever had it has left.
func (u *users) console(terminal *pty.Terminal) *exec.Cmd {
	u.Helper()
	u.free(consoleBlade)
	command := u.command("alice", "console", name(consoleBlade))
	terminal.Start(command)
	terminal.Expect("~. ends")
	// Its text must not be in the output that was kept of others.
	opened++
	u.typed(terminal, fmt.Sprintf("ready alice %d", opened))
	return command
}

// free waits until nobody uses or watches a console.
func (u *users) free(blade int) {
	u.Helper()
	u.Eventually(patience, func() string {
		users := 0
		for line := range strings.Lines(u.box.Log()) {
			switch {
			case !strings.Contains(line, fmt.Sprintf(`"server":%q`, name(blade))):
			case strings.Contains(line, `"console opened"`):
				users++
			case strings.Contains(line, `"console closed"`):
				users--
			}
		}
		if users > 0 {
			return fmt.Sprintf("%d users have or watch the console of %s", users, name(blade))
		}
		return ""
	})
}

// raw waits until all keys go to the program: those that were typed before are not as they were typed.
func (u *users) raw(terminal *pty.Terminal) {
	u.Helper()
	u.Eventually(patience, func() string {
		if !terminal.IsRaw() {
			return "the terminal is not raw"
		}
		return ""
	})
}

// A shell has the terminal while the plugin is stopped.
func suspended(u *users) {
	terminal := pty.Open(u.T)
	shell := exec.CommandContext(u.Context(), "bash", "--norc", "--noprofile", "-i")
	shell.Env = append(shell.Environ(), "KUBECONFIG="+u.Kubeconfig("alice"), "TERM=dumb", "PS1=shell> ",
		"PATH="+filepath.Dir(u.plugin)+":/usr/bin:/bin")
	u.free(consoleBlade)
	terminal.Start(shell)
	terminal.Type(fmt.Sprintf("kubectl-rcbox console %d\n", consoleBlade))
	terminal.Expect("~. ends")
	u.typed(terminal, "one")
	terminal.Type("~\x1a")
	terminal.Expect("Stopped")
	terminal.Type("echo sum $((40 + 2))\n")
	terminal.Expect("sum 42")
	terminal.Type("fg\n")
	terminal.Expect(fmt.Sprintf("kubectl-rcbox console %d", consoleBlade))
	u.raw(terminal)
	u.typed(terminal, "two")
	terminal.Type("\r~.")
	terminal.Expect("shell> ")
	terminal.Type("echo code $?\n")
	terminal.Expect("code 0")
	terminal.Type("exit\n")
	u.ends(shell, 0)
}

func twoUsers(u *users) {
	port := u.rack.Serial("mercury1", consoleBlade)
	first := pty.Open(u.T)
	alice := u.console(first)
	since := time.Now().UTC().Format("2006-01-02T15")
	code, text := u.run("bob", "console", name(consoleBlade))
	if code != 4 || !strings.Contains(text, "alice has the console of atom007 since "+since) ||
		!strings.Contains(text, "--watch looks on, --force") {
		u.Errorf("bob: exit code %d: %s", code, text)
	}
	watcher, watching := u.at("bob", "console", name(consoleBlade), "--watch")
	watcher.Expect("alice has the console since " + since)
	port.Print("both see it\r\n")
	first.Expect("both see it")
	watcher.Expect("both see it")
	before := port.Typed()
	watcher.Type("keys of a watcher\r")
	u.typed(first, "keys of alice")
	if typed := strings.TrimPrefix(port.Typed(), before); typed != "keys of alice\r" {
		u.Errorf("the server has got %q", typed)
	}
	second, bob := u.at("bob", "console", name(consoleBlade), "--force")
	first.Expect("bob took the console of atom007 over")
	u.ends(alice, 4)
	watcher.Expect("bob took the console over from alice")
	u.typed(second, "bob has it")
	second.Type("~.")
	u.ends(bob, 0)
	watcher.Type("~.")
	u.ends(watching, 0)
}

// Without a terminal, a script types and reads.
func script(u *users) {
	u.free(scriptBlade)
	command := u.command("alice", "console", name(scriptBlade), "--for=30s")
	command.Stdin = strings.NewReader("from a script\r~.\r")
	output, err := command.StdoutPipe()
	u.must(err)
	u.must(command.Start())
	var text bytes.Buffer
	buffer := make([]byte, 1024)
	// No key is special here.
	for !strings.Contains(text.String(), `got "~."`) {
		n, err := output.Read(buffer)
		text.Write(buffer[:n])
		if err != nil {
			u.Fatalf("it ended with %q: %v", text.String(), err)
		}
	}
	if !strings.Contains(text.String(), `got "from a script"`) {
		u.Errorf("%q", text.String())
	}
	go func() { _, _ = io.Copy(io.Discard, output) }()
	u.must(command.Process.Signal(syscall.SIGINT))
	u.ends(command, 0)
}

// ipmitool sees the same server, and one of both has its console.
func besideIPMITool(u *users) {
	terminal := pty.Open(u.T)
	sol := exec.CommandContext(u.Context(), "ipmitool", "-I", "lanplus", "-C", "3", "-U", username, "-f", u.password,
		"-H", bladeAddress(solBlade), "sol", "activate")
	terminal.Start(sol)
	terminal.Expect("SOL Session operational")
	u.raw(terminal)
	u.typed(terminal, "by ipmitool")
	mine, command := u.at("alice", "console", name(solBlade))
	mine.Expect("somebody else has the console")
	mine.Type("~.")
	u.ends(command, 0)
	u.free(solBlade)
	forced, command := u.at("alice", "console", name(solBlade), "--force")
	forced.Expect("connected again")
	u.typed(forced, "by force")
	// ipmi_sim does not tell ipmitool, which would wait.
	_ = sol.Process.Kill()
	_ = sol.Wait()
	// The other way round, ipmitool is told.
	out, err := exec.CommandContext(u.Context(), sol.Path, sol.Args[1:]...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "already active") {
		u.Errorf("ipmitool says %s, %v", out, err)
	}
	forced.Type("\r~.")
	u.ends(command, 0)
}

func pluginKilled(u *users) {
	port := u.rack.Serial("mercury1", consoleBlade)
	terminal := pty.Open(u.T)
	command := u.console(terminal)
	u.must(command.Process.Kill())
	_ = command.Wait()
	port.Print("printed while nobody looked\r\n")
	u.free(consoleBlade)
	again, command := u.at("alice", "console", name(consoleBlade))
	again.Expect("ready alice")
	again.Expect("printed while nobody looked")
	again.Type("~.")
	u.ends(command, 0)
}

func boxEnds(b *bed) {
	u := b.users()
	port := u.rack.Serial("mercury1", consoleBlade)
	terminal := pty.Open(u.T)
	command := u.console(terminal)
	// In peace, it gives the console back.
	u.box.Terminate()
	terminal.Expect("the connection is lost, and made again")
	*u.box = *u.startBox()
	terminal.Expect("connected again")
	terminal.Expect("the box controller opened the console anew")
	u.typed(terminal, "after the end")
	// Killed, it leaves its session to the BMC, which does not know that nobody is there.
	u.killBox()
	terminal.Expect("the connection is lost, and made again")
	*u.box = *u.startBox()
	terminal.Expect("connected again")
	terminal.Expect("somebody else has the console")
	forced, other := u.at("alice", "console", name(consoleBlade), "--force")
	u.ends(command, 4)
	forced.Expect("connected again; what was printed or typed meanwhile is lost")
	u.typed(forced, "after the kill")
	port.Print("and on it goes\r\n")
	forced.Expect("and on it goes")
	forced.Type("~.")
	u.ends(other, 0)
}
