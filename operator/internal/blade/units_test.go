package blade_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	filesPlace = "../../../images/blade/files"
	managerBin = "/lib/systemd/systemd"
)

// manage runs systemd as the manager of a user, in namespaces of its own: as root, it needs no more than a cgroup tree and an empty /run.
// "ready" is printed once namespaces can be made at all.
const manage = `
set -eu
mount --make-rprivate /
umount -R /sys/fs/cgroup || true
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs none /run
mkdir -p /run/systemd/system /run/user
export XDG_RUNTIME_DIR=/run/user SYSTEMD_UNIT_PATH="$1/units" SYSTEMD_LOG_TARGET=console
echo ready
# Not by exec: as process 1, systemd would be the manager of the system.
` + managerBin + ` --user --unit=multi-user.target
echo ended
`

// Programs of a blade, for the units. Each says in $PLACE/log that it was run.
var standIns = map[string]string{
	"containerd": "exec sleep 1000",
	"settings":   "exit 0",
	// The ports of this blade have no functions.
	"functions": `log functions; exit 1`,
	// The disk gives no answer.
	"measure": `log measure; exit 1`,
	"report":  `echo report >>"$PLACE/reports"; fails_first report 1`,
	// fails_first NAME N: fails the first N times that it is called.
	"images": `log images; fails_first images 1; touch "$PLACE/images"`,
	"join":   `log join; fails_first join 2; touch "$PLACE/answered"`,
	// The first token is dead.
	"kubelet": `[ -e "$PLACE/answered" ] || log "kubelet without an answer"
		[ "$KUBELET_ARGUMENTS" = given ] || log "kubelet without arguments"
		log kubelet; fails_first kubelet 1; log running; exec sleep 1000`,
	"systemctl": `exec /usr/bin/systemctl --user "$@"`,
}

const standInHead = `#!/bin/sh
PLACE=@PLACE@
log() { echo "$*" >>"$PLACE/log"; }
fails_first() {
	count=$(cat "$PLACE/$1.count" 2>/dev/null || echo 0)
	echo $((count + 1)) >"$PLACE/$1.count"
	[ "$count" -ge "$2" ] || exit 1
}
`

// TestKubeletStartsAfterRefusals runs the blade's units under the real systemd. Images are imported at the second attempt, the box host
// refuses the blade twice, ports have no virtual functions, and the first token that it gives is dead: the kubelet ends. It must be running
// in the end, with an answer that is younger than that token; and the inventory must be reported at the second attempt.
func TestKubeletStartsAfterRefusals(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(managerBin); err != nil || os.Geteuid() != 0 {
		t.Skip("this test needs root and systemd 252 or later (Debian: systemd): it runs the units of a blade")
	}
	place := t.TempDir()
	writeUnits(t, place)
	const patience = 2 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, "unshare", "--mount", "--cgroup", "--pid", "--fork", "--kill-child", "--mount-proc",
		"sh", "-c", manage, "manage", place)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = command.Wait(); close(ended) }() // it is killed
	defer func() { cancel(); <-ended }()
	const want = "measure functions images images join join join kubelet join kubelet running" //nolint:dupword // attempts
	for {
		got := strings.Join(strings.Fields(readText(t, filepath.Join(place, "log"))), " ")
		isReported := strings.Count(readText(t, filepath.Join(place, "reports")), "report") == 2
		if isReported && strings.HasSuffix(got, "running") || strings.Contains(got, "without") {
			if got != want {
				t.Errorf("it ran %s, not %s", got, want)
			}
			return
		}
		select {
		case <-ended:
			if !strings.Contains(output.String(), "ready") {
				t.Skipf("this machine lets nobody make namespaces for systemd: %s", output.String())
			}
			t.Fatalf("systemd has ended, or was ended after a long time; it ran: %s\n%s", got, output.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

// writeUnits copies the units of a blade, with stand-ins for its programs, and enables what multi-user.target wants.
func writeUnits(t *testing.T, place string) {
	t.Helper()
	programs := filepath.Join(place, "programs")
	units := filepath.Join(place, "units")
	wants := filepath.Join(units, "multi-user.target.wants")
	for _, folder := range []string{programs, wants} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(path, text string, mode os.FileMode) {
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range standIns {
		write(filepath.Join(programs, name), strings.ReplaceAll(standInHead, "@PLACE@", place)+text+"\n", 0o755)
	}
	write(filepath.Join(place, "kubelet.env"), "KUBELET_ARGUMENTS=given\n", 0o600)
	write(filepath.Join(place, "settings.json"), "{}", 0o600)
	for _, target := range []string{"multi-user", "basic", "shutdown"} {
		write(filepath.Join(units, target+".target"), "[Unit]\n", 0o600)
	}
	write(filepath.Join(units, "containerd.service"), "[Service]\nExecStart="+programs+"/containerd\n", 0o600)
	replacer := strings.NewReplacer("/usr/bin/rcbox-blade settings", programs+"/settings", "/usr/bin/rcbox-blade join", programs+"/join",
		"/usr/bin/rcbox-blade report", programs+"/report", "/usr/bin/rcbox-blade measure", programs+"/measure",
		"/usr/bin/rcbox-blade virtual-functions", programs+"/functions",
		"/usr/bin/kubelet", programs+"/kubelet", "/usr/lib/rcbox/import-images", programs+"/images",
		"/usr/lib/rcbox/nis", "/bin/true", "/usr/bin/systemctl",
		programs+"/systemctl", "/usr/sbin/sysctl", "/bin/true", "/etc/rcbox", place, "/var/lib/rcbox", place,
		"journal+console", "inherit", "=journal", "=inherit", "RestartSec=3", "RestartSec=100ms", "RestartSec=10", "RestartSec=100ms")
	found, err := filepath.Glob(filesPlace + "/etc/systemd/system/*.service")
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	for _, path := range found {
		text := readText(t, path)
		write(filepath.Join(units, filepath.Base(path)), replacer.Replace(text), 0o600)
		if strings.Contains(text, "WantedBy=multi-user.target") {
			if err := os.Symlink("../"+filepath.Base(path), filepath.Join(wants, filepath.Base(path))); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestEachCarriedImageHasADigest: archives of umoci and of Docker are read; one that says no digest ends the build.
func TestEachCarriedImageHasADigest(t *testing.T) {
	t.Parallel()
	const named = `{"manifests":[{"digest":"sha256:aa","annotations":{"io.containerd.image.name":"example/a:1"}}]}`
	for name, test := range map[string]struct{ file, content, want string }{
		"umoci":      {"./index.json", named, "example/a:1 sha256:aa\n"},
		"Docker":     {"index.json", named, "example/a:1 sha256:aa\n"},
		"Docker 24":  {"manifest.json", `[{"RepoTags":["example/a:1"]}]`, ""},
		"no name":    {"index.json", `{"manifests":[{"digest":"sha256:aa"}]}`, ""},
		"no image":   {"index.json", `{"manifests":[]}`, ""},
		"not usable": {"index.json", `{`, ""},
	} {
		archive := filepath.Join(t.TempDir(), "a.tar")
		file, err := os.Create(archive)
		if err != nil {
			t.Fatal(err)
		}
		writer := tar.NewWriter(file)
		header := &tar.Header{Name: test.file, Mode: 0o600, Size: int64(len(test.content))}
		written := writer.WriteHeader(header)
		if written == nil {
			_, written = writer.Write([]byte(test.content))
		}
		if err := errors.Join(written, writer.Close(), file.Close()); err != nil {
			t.Fatal(err)
		}
		output, err := exec.CommandContext(t.Context(), "../../../images/blade/digests.sh", archive).Output()
		if (err == nil) != (test.want != "") || test.want != "" && string(output) != test.want {
			t.Errorf("%s: %q, %v", name, output, err)
		}
	}
}
