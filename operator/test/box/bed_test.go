// Package box_test runs the box controller's real program, with the rights of config/box, against a real kube-apiserver and emulated
// chassis (package rack), and asks ipmitool whether what it says is so. Blades are stand-ins.
package box_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/test/box/rack"
	"rcbox.dev/rcbox/operator/test/testbed"
)

const (
	username = "admin"
	// canary is the password: it must be nowhere to be seen.
	canary = "canary-5e0c1f"
	secret = "chassis-bmc"
	slots  = 44
	// roundOfQuestions is how often the controller asks each BMC.
	roundOfQuestions = 5 * time.Second
	// patience is far beyond what anything here takes.
	patience     = 4 * time.Minute
	pause        = 100 * time.Millisecond
	shutdownTime = time.Second
)

// The rack of all tests but those of passwords, and the one of these: they change what all BMCs and controllers rely on.
var (
	three = site{network: "192.168.5", chassis: 3, hasSpare: true, subresources: "192.168.6.1:8443", panel: panelAddress}
	alone = site{network: "192.168.4", chassis: 1, subresources: "192.168.6.2:8443", panel: "127.0.0.1:8091"}
)

// bed is an API server, an emulated rack and the box controller.
type bed struct {
	*testing.T
	*testbed.Cluster

	// seen has the Chassis and Servers as the API server announces them. All tests read from this cache, because their many reads would
	// overload the API server.
	seen   cache.Cache
	rack   *rack.Rack
	filter *filter
	// silent are the addresses of BMCs that answer nothing.
	silent   []string
	box      *testbed.Operator
	shell    *shell
	program  string
	password string
	site     site
}

// site is what beds that are used at the same time do not share.
type site struct {
	// network is that of the rack's BMCs.
	network string
	// chassis is how many chassis the rack has.
	chassis int
	// hasSpare: there is a small chassis, too, which is for one test alone.
	hasSpare bool
	// subresources and panel are where the box controller serves the API server, and the front panel.
	subresources, panel string
}

// bladeAddress is that of the BMC of a server by its number, and managerAddress that of the nth manager of a chassis.
func bladeAddress(number int) string { return three.blade(number) }

func managerAddress(chassis, n int) string { return three.manager(chassis, n) }

// boardAddress is that of the controller of the nth switch board.
func boardAddress(chassis, n int) string { return three.manager(chassis, n+2) }

func (s site) blade(number int) string { return fmt.Sprintf("%s.%d", s.network, number) }

func (s site) manager(chassis, n int) string { return fmt.Sprintf("%s.%d", s.network, 200+4*chassis+n) }

func (s site) slot(slot, number int) rack.Slot {
	return rack.Slot{Number: slot, Address: netip.MustParseAddr(s.blade(number)), Blade: blade(number)}
}

func start(t *testing.T, at site, cluster *testbed.Cluster, programs string) *bed {
	t.Helper()
	b := &bed{T: t, Cluster: cluster, filter: newFilter(t, at.network), site: at}
	b.password = filepath.Join(t.TempDir(), "password")
	b.must(os.WriteFile(b.password, []byte(canary), 0o600))
	options := rack.Options{Dir: t.TempDir(), Username: username, Password: canary, ShutdownTime: shutdownTime}
	for i := range at.chassis {
		one := rack.Chassis{Name: fmt.Sprintf("mercury%d", i+1)}
		for n := range 2 {
			one.Managers = append(one.Managers, netip.MustParseAddr(at.manager(i, n+1)))
			one.SwitchBoards = append(one.SwitchBoards, netip.MustParseAddr(at.manager(i, n+3)))
		}
		for slot := 1; slot <= slots; slot++ {
			one.Slots = append(one.Slots, at.slot(slot, i*slots+slot))
		}
		options.Chassis = append(options.Chassis, one)
	}
	if at.hasSpare {
		one := rack.Chassis{Name: spareChassis}
		for n := range spareSlots {
			one.Managers = append(one.Managers, netip.MustParseAddr(at.blade(spareManager+n)))
			one.Slots = append(one.Slots, at.slot(n+1, spareBlade+n))
		}
		options.Chassis = append(options.Chassis, one)
	}
	var err error
	b.rack, err = rack.Start(t.Context(), options)
	b.must(err)
	t.Cleanup(func() {
		if err := b.rack.Stop(); err != nil {
			t.Error(err)
		}
	})
	b.program, b.shell = filepath.Join(programs, "manager"), newShell(b, filepath.Join(programs, "kubectl-rcbox"))
	b.InstallSubresources()
	b.watch()
	b.box = b.startBox()
	return b
}

// watch starts the cache.
func (b *bed) watch() {
	b.Helper()
	var err error
	b.seen, err = cache.New(b.Config, cache.Options{Scheme: b.Client.Scheme()})
	b.must(err)
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := b.seen.Start(b.Context()); err != nil {
			b.Error(err)
		}
	})
	b.Cleanup(watching.Wait)
	for _, kind := range []client.Object{&v1alpha1.Chassis{}, &v1alpha1.Server{}} {
		_, err := b.seen.GetInformer(b.Context(), kind)
		b.must(err)
	}
	if !b.seen.WaitForCacheSync(b.Context()) {
		b.Fatal("Chassis and Servers cannot be watched")
	}
}

// look reads an object of the cluster.
func (b *bed) look(into client.Object, name string) {
	b.Helper()
	err := b.seen.Get(b.Context(), client.ObjectKey{Name: name}, into)
	if apierrors.IsNotFound(err) { // the cache may not have it yet
		err = b.Client.Get(b.Context(), client.ObjectKey{Name: name}, into)
	}
	b.must(err)
}

// of is the same bed for a test within the test.
func (b *bed) of(t *testing.T) *bed {
	t.Helper()
	mine := *b
	mine.T, mine.filter = t, &filter{t, b.filter.table}
	return &mine
}

// Eventually waits until a condition holds, and ends this test, not the whole, if it does not.
func (b *bed) Eventually(within time.Duration, missing func() string) {
	b.Helper()
	text := "nothing was looked at"
	for deadline := time.Now().Add(within); time.Now().Before(deadline); <-time.After(pause) {
		if text = missing(); text == "" {
			return
		}
	}
	b.Fatalf("after %s: %s", within, text)
}

func (b *bed) startBox() *testbed.Operator {
	b.Helper()
	host, _, _ := strings.Cut(b.site.subresources, ":")
	return b.StartBox(b.program, "--subresources-bind-address="+b.site.subresources, "--advertise-address="+host,
		"--panel-bind-address="+b.site.panel)
}

// killBox ends the controller without a word. The next one does not have to wait until its Lease is up.
func (b *bed) killBox() {
	b.Helper()
	b.box.Kill()
	b.must(b.Client.Delete(b.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: testbed.OperatorNamespace, Name: "rcbox-box"},
	}))
}

func blade(number int) rack.Blade {
	return rack.Blade{
		Serial: fmt.Sprintf("MMS%04d", number), GUID: fmt.Sprintf("a123456789abcdef0000%012d", number),
		MACs: []string{fmt.Sprintf("52:54:00:03:00:%02x", number), fmt.Sprintf("52:54:00:04:00:%02x", number)},
	}
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) servers() map[string]*v1alpha1.Server {
	b.Helper()
	list := &v1alpha1.ServerList{}
	b.must(b.seen.List(b.Context(), list))
	all := map[string]*v1alpha1.Server{}
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	return all
}

func (b *bed) server(name string) *v1alpha1.Server {
	b.Helper()
	server := &v1alpha1.Server{}
	b.look(server, name)
	return server
}

// change patches the spec of a Server.
func (b *bed) change(name string, change func(*v1alpha1.ServerSpec)) {
	b.Helper()
	server := b.server(name)
	before := server.DeepCopy()
	change(&server.Spec)
	b.must(b.Client.Patch(b.Context(), server, client.MergeFrom(before)))
}

// power waits until Servers say so.
func (b *bed) power(state v1alpha1.PowerState, names ...string) {
	b.Helper()
	b.Eventually(patience, func() string {
		all := b.servers()
		for _, name := range names {
			if server := all[name]; server == nil || server.Status.Power.State != state {
				return fmt.Sprintf("%s is not %s: %+v", name, state, statusOf(server))
			}
		}
		return ""
	})
}

func statusOf(server *v1alpha1.Server) any {
	if server == nil {
		return "not there"
	}
	return server.Status
}

// order gives the blade orderedBlade an order, and waits until the order has ended.
func (b *bed) order(id string, action v1alpha1.PowerAction) *v1alpha1.OrderStatus {
	b.Helper()
	b.give(orderedBlade, id, action)
	var order *v1alpha1.OrderStatus
	b.Eventually(patience, func() string {
		order = b.server(name(orderedBlade)).Status.Order
		if order == nil || order.ID != id || order.State == v1alpha1.OrderWaiting || order.State == v1alpha1.OrderRunning {
			return fmt.Sprintf("order %s of %s: %+v", id, name(orderedBlade), order)
		}
		return ""
	})
	return order
}

func (b *bed) condition(name, kind string) *metav1.Condition {
	b.Helper()
	return meta.FindStatusCondition(b.server(name).Status.Conditions, kind)
}

// ipmitool is the judge.
func (b *bed) ipmitool(number int, arguments ...string) string {
	b.Helper()
	// -N: on a busy machine ipmi_sim takes seconds to answer, and answers to questions that were repeated confuse ipmitool.
	access := []string{"-I", "lanplus", "-C", "3", "-N", "10", "-U", username, "-f", b.password, "-H", bladeAddress(number)}
	access = append(access, arguments...)
	output, err := exec.CommandContext(b.Context(), "ipmitool", access...).CombinedOutput()
	if err != nil {
		b.Fatalf("ipmitool %v: %v\n%s", arguments, err, output)
	}
	return strings.TrimSpace(string(output))
}
