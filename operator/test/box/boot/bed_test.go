// Package boot_test starts a blade from nothing: an emulated machine with a blank disk, behind a BMC that ipmi_sim emulates. It is ordered
// to boot from the network as a person does, finds its box host, installs a signed image, and becomes a node of a cluster. The box
// controller, which also approves its certificate, the supervisor of the box host with its programs, and all of a blade's software are
// real. Stand-ins: the hardware, and the kubelet of the box host's node, which would bring the pod its Secret and its ConfigMaps.
package boot_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/join"
	"rcbox.dev/rcbox/operator/internal/boxhost"
	"rcbox.dev/rcbox/operator/test/box/rack"
	"rcbox.dev/rcbox/operator/test/testbed"
)

const (
	environmentImage = "RCBOX_BLADE_IMAGE"
	bridge           = "blades"
	tap              = "blade1"
	hostAddress      = "192.168.3.254"
	apiPort          = "6443"
	chassisName      = "mercury1"
	bladeName        = "atom001"
	bladeAddress     = "192.168.3.1"
	bladeMAC         = "52:54:00:03:00:01"
	slot             = 1
	username         = "admin"
	password         = "canary-71c3e0"
	// patience is ten times what a step takes on two busy processors.
	patience = 15 * time.Minute
	poll     = 100 * time.Millisecond
	diskSize = 12 << 30 // of which a file has only what is written
	// processors and memoryMiB are those of an emulated blade.
	processors = 2
	memoryMiB  = 1536
	mebi       = 1 << 20
)

// theBlade is what its BMC says of it.
var theBlade = rack.Blade{Serial: "MMS0001", GUID: "a123456789abcdef0000000000000001", MACs: []string{bladeMAC}}

// bed is a chassis with one blade, its box host, and a cluster.
type bed struct {
	*testing.T
	*testbed.Cluster

	image    string // the folder of the image
	programs string
	folder   string
	rack     *rack.Rack
	box      *testbed.Operator
	host     *testbed.Process
	// seen is how much of the console belongs to earlier starts.
	seen int
}

// newBed makes everything but the blade's power. Without an image, or without the rights to make a network, the test is skipped.
func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{T: t, image: os.Getenv(environmentImage), folder: t.TempDir()}
	if b.image == "" {
		t.Skipf("there is no image for blades: set %s=\"$(hack/blade-image.sh)\"", environmentImage)
	}
	network := os.Getenv("RCBOX_BOX_NETWORK")
	if network == "" {
		t.Skip("blades need a network namespace of their own: run hack/box.sh as root")
	}
	built := testbed.StartBuild(t, "manager", "kubectl-rcbox", "boxhost")
	makeNetwork(t, network)
	b.Cluster = testbed.StartForNodes(t, hostAddress, apiPort)
	b.programs = built()
	b.startRack()
	b.startBox()
	b.startHost()
	b.makeChassis()
	return b
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// makeNetwork replaces the route by which all addresses of the rack are this machine's: a bridge has the blades, and BMCs stay as they
// were. The network ends with the namespace, which is that of this package's tests alone.
func makeNetwork(t *testing.T, network string) {
	t.Helper()
	for _, arguments := range [][]string{
		{"route", "delete", "local", network, "dev", "lo"},
		{"route", "add", "local", "192.168.5.0/24", "dev", "lo"},
		{"link", "add", bridge, "type", "bridge", "forward_delay", "0"},
		{"address", "add", hostAddress + "/24", "dev", bridge},
		{"link", "set", bridge, "up"},
		{"tuntap", "add", tap, "mode", "tap"},
		{"link", "set", tap, "master", bridge, "up"},
	} {
		if output, err := exec.CommandContext(t.Context(), "ip", arguments...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v\n%s", arguments, err, output)
		}
	}
}

func (b *bed) startRack() {
	b.Helper()
	var err error
	b.rack, err = rack.Start(b.Context(), rack.Options{
		Dir: b.TempDir(), Username: username, Password: password, ShutdownTime: time.Second,
		Chassis: []rack.Chassis{{
			Name: chassisName, Managers: []netip.Addr{netip.MustParseAddr("192.168.5.201")},
			Slots: []rack.Slot{{
				Number: slot, Address: netip.MustParseAddr("192.168.5.1"), Blade: theBlade,
				Machine: &rack.Machine{Dir: b.folder, Tap: tap, Processors: processors, MemoryMiB: memoryMiB, DiskBytes: diskSize},
			}},
		}},
	})
	b.must(err)
	b.Cleanup(func() {
		if err := b.rack.Stop(); err != nil {
			b.Error(err)
		}
		if b.Failed() {
			b.Logf("the last words of the blade:\n%s", tail(b.console()))
		}
	})
}

// startBox starts the box controller with the rights that it has in a cluster.
func (b *bed) startBox() {
	b.Helper()
	settings, err := json.Marshal(boxhost.Settings{
		Domain: "box.rcbox", Hosts: []boxhost.Host{{Name: "boxhost1", Address: netip.MustParseAddr(hostAddress)}},
		BootArguments: []string{"console=ttyS0", "net.ifnames=0", "no_timer_check", "mitigations=off", "edd=off", "rcbox.system=4096"},
		OpenTCP:       []uint16{6443},
	})
	b.must(err)
	file := filepath.Join(b.folder, "settings.json")
	b.must(os.WriteFile(file, settings, 0o600))
	for _, name := range []string{boxhost.ConfigMap, boxhost.StatusConfigMap} {
		b.must(b.Client.Create(b.Context(), &corev1.ConfigMap{ObjectMeta: inNamespace(name)}))
	}
	b.box = b.StartBox(filepath.Join(b.programs, "manager"), "--host-settings="+file, "--join-api-server=https://"+hostAddress+":"+apiPort)
}

func inNamespace(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: testbed.OperatorNamespace, Name: name}
}

// startHost starts the supervisor of the box host, with a /run of its own as in a pod.
func (b *bed) startHost() {
	b.Helper()
	file := func(name string) string { return filepath.Join(b.folder, name) }
	b.host = testbed.StartProcess(b.T, "unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--",
		"/bin/sh", "-euc",
		`mount -t tmpfs -o mode=755 tmpfs /run && exec "$@"`, "boxhost", filepath.Join(b.programs, "boxhost"), "--interface="+bridge,
		"--run=/run/rcbox-boxhost", "--state=/run/state", "--images="+b.image, "--user=nobody", "--desired="+file("desired.json"),
		"--report="+file("report.json"), "--join-file="+file("join.json"))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(poll):
				b.carry(file)
			}
		}
	}()
	b.Cleanup(func() { close(stop); <-done })
}

// carry stands in for a kubelet: it brings the pod of the box host what it mounts and reads, and takes its report away.
func (b *bed) carry(file func(string) string) {
	desired, secret := &corev1.ConfigMap{}, &corev1.Secret{}
	get := func(into client.Object, name string) bool {
		return b.Client.Get(b.Context(), client.ObjectKey{Namespace: testbed.OperatorNamespace, Name: name}, into) == nil
	}
	if get(desired, boxhost.ConfigMap) {
		replace(file("desired.json"), []byte(desired.Data[boxhost.Key]))
	}
	if get(secret, join.SecretName) {
		replace(file("join.json"), secret.Data[join.SecretKey])
	}
	reported := &corev1.ConfigMap{}
	if report, err := os.ReadFile(file("report.json")); err == nil && get(reported, boxhost.StatusConfigMap) {
		reported.Data = map[string]string{"boxhost1": string(report)}
		_ = b.Client.Update(b.Context(), reported) // the next round is soon
	}
}

// replace writes a file in one step, if it is to have something else.
func replace(path string, content []byte) {
	before, err := os.ReadFile(path)
	if len(content) == 0 || err == nil && string(before) == string(content) {
		return
	}
	if os.WriteFile(path+".new", content, 0o600) == nil {
		_ = os.Rename(path+".new", path) // the next round is soon
	}
}

// makeChassis describes the hardware, and waits until the BMC answers and the box host serves.
func (b *bed) makeChassis() {
	b.Helper()
	b.must(b.Client.Create(b.Context(), &corev1.Secret{
		ObjectMeta: inNamespace("chassis-bmc"), Type: v1alpha1.SecretTypeBMC,
		Data: map[string][]byte{corev1.BasicAuthUsernameKey: []byte(username), corev1.BasicAuthPasswordKey: []byte(password)},
	}))
	chassis := &v1alpha1.Chassis{ObjectMeta: metav1.ObjectMeta{Name: chassisName}}
	chassis.Spec = v1alpha1.ChassisSpec{
		Model: "EmulatedRack", NamePrefix: "atom", FirstServer: 1, Slots: "1",
		Management: v1alpha1.ChassisManagement{
			CredentialsSecret: "chassis-bmc", CipherSuite: 3, MMC: "192.168.5.1", CMM: []string{"192.168.5.201"},
		},
		Networks: []v1alpha1.ChassisNetwork{{NIC: 1, CIDR: "192.168.3.0/24", Range: bladeAddress}},
		Boot:     v1alpha1.ChassisBoot{Image: filepath.Base(b.image)},
	}
	b.must(b.Client.Create(b.Context(), chassis))
	b.Eventually(patience, func() string {
		if !b.Get(chassis, "", chassisName) {
			return "there is no Chassis"
		}
		for _, name := range []string{v1alpha1.ConditionManagementReady, v1alpha1.ConditionServicesReady} {
			if !meta.IsStatusConditionTrue(chassis.Status.Conditions, name) {
				return fmt.Sprintf("%s is not so: %+v\n%s", name, chassis.Status.Conditions, b.host.Log())
			}
		}
		return ""
	})
}

// kubectl runs a command of the plugin.
func (b *bed) kubectl(arguments ...string) {
	b.Helper()
	command := exec.CommandContext(b.Context(), filepath.Join(b.programs, "kubectl-rcbox"), arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+b.AdminKubeconfig())
	output, err := command.CombinedOutput()
	if err != nil {
		b.Fatalf("kubectl rcbox %v: %v\n%s", arguments, err, output)
	}
	b.Logf("kubectl rcbox %s: %s", strings.Join(arguments, " "), strings.TrimSpace(string(output)))
}

// up switches the blade on; what the console says from then on belongs to this start.
func (b *bed) up() {
	b.Helper()
	b.seen += len(b.console())
	b.kubectl("up", bladeName)
}

// cut takes the power away, as if by the cable, and waits until the controller has seen that.
func (b *bed) cut() {
	b.Helper()
	b.must(b.rack.Set(chassisName, slot, rack.Off))
	b.Eventually(patience, func() string {
		if server := b.server(); server.Status.Power.State != v1alpha1.PowerOff {
			return "it is " + string(server.Status.Power.State)
		}
		return ""
	})
}

func (b *bed) server() *v1alpha1.Server {
	b.Helper()
	server := &v1alpha1.Server{}
	if !b.Get(server, "", bladeName) {
		b.Fatal("there is no Server " + bladeName)
	}
	return server
}

func (b *bed) disk() string { return filepath.Join(b.folder, "disk") }

// console is what the blade has printed since it was switched on last.
func (b *bed) console() string {
	text, err := os.ReadFile(filepath.Join(b.folder, "console"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.Fatal(err)
	}
	return string(text[min(b.seen, len(text)):])
}

// says waits until the console has a text.
func (b *bed) says(text string) {
	b.Helper()
	started := time.Now()
	b.Eventually(patience, func() string {
		b.isAlive()
		if !strings.Contains(b.console(), text) {
			return fmt.Sprintf("the console does not say %q:\n%s", text, tail(b.console()))
		}
		return ""
	})
	b.Logf("%q after %d s", text, int(time.Since(started).Seconds()))
}

// isAlive ends the test if the blade says itself that it has failed.
func (b *bed) isAlive() {
	b.Helper()
	if console := b.console(); strings.Contains(console, "FAILED: ") {
		b.Fatalf("the blade says that it has failed:\n%s", tail(console))
	}
}

func tail(text string) string {
	const lines = 40
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
