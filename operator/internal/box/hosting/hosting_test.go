package hosting_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/hosting"
	"rcbox.dev/rcbox/operator/internal/boxhost"
)

var settings = &boxhost.Settings{Domain: "box.rcbox", Hosts: []boxhost.Host{}}

func chassisOf(name string) v1alpha1.Chassis {
	chassis := v1alpha1.Chassis{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	chassis.Spec = v1alpha1.ChassisSpec{
		NamePrefix: "atom", FirstServer: 1, Slots: "1-4",
		Management: v1alpha1.ChassisManagement{CMM: []string{"192.168.5.201", "2001:db8::1"}, ONS: []string{"192.168.5.203"}},
		Networks: []v1alpha1.ChassisNetwork{
			{NIC: 1, CIDR: "192.168.3.0/24", Range: "192.168.3.1+4"}, {NIC: 2, Suffix: "a"},
		},
	}
	return chassis
}

func serverOf(chassis string, number int) v1alpha1.Server {
	isController := true
	name := fmt.Sprintf("atom%03d", number)
	owner := metav1.OwnerReference{Kind: "Chassis", Name: chassis, UID: types.UID(chassis), Controller: &isController}
	server := v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{owner}}}
	server.Status = v1alpha1.ServerStatus{
		Slot: int32(number),
		MMC: v1alpha1.BMCStatus{
			Address: fmt.Sprintf("192.168.5.%d", number), SystemGUID: fmt.Sprintf("A1234567-89ab-cdef-a123-456789abcd%02d", number),
		},
		Ports: []v1alpha1.PortStatus{
			{Name: name + "a", NIC: 2, MAC: fmt.Sprintf("52:54:00:04:00:%02d", number)},
			{Name: name, NIC: 1, Address: fmt.Sprintf("192.168.3.%d", number), MAC: fmt.Sprintf("52:54:00:03:00:%02d", number)},
		},
	}
	return server
}

func world() ([]v1alpha1.Chassis, []v1alpha1.Server) {
	var servers []v1alpha1.Server
	for number := 4; number >= 1; number-- {
		servers = append(servers, serverOf("mercury1", number))
	}
	return []v1alpha1.Chassis{chassisOf("mercury1")}, servers
}

type (
	chassisList = []v1alpha1.Chassis
	serverList  = []v1alpha1.Server
)

func refuse(chassis *v1alpha1.Chassis) {
	chassis.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse}}
}

func encoded(t *testing.T, d *boxhost.Desired) string {
	t.Helper()
	data, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestDesired(t *testing.T) {
	t.Parallel()
	chassis, servers := world()
	made, notes := hosting.Desired(settings, chassis, servers, nil)
	text := encoded(t, made)
	if len(made.Servers) != 4 || len(made.Networks) != 1 || len(notes) != 0 {
		t.Errorf("%v\n%s", notes, text)
	}
	for _, want := range []string{
		`{"name":"atom001","chassis":"mercury1","slot":1,"uuid":"a1234567-89ab-cdef-a123-456789abcd01","boot":"Disk","ports":[` +
			`{"nic":1,"mac":"52:54:00:03:00:01","address":"192.168.3.1"},{"nic":2,"suffix":"a","mac":"52:54:00:04:00:01"}]}`,
		`{"name":"atom001m","address":"192.168.5.1"}`,
		`{"name":"mercury1cmm","address":"192.168.5.201"}`,
		`{"name":"mercury1onm","address":"192.168.5.203"}`,
		`"networks":[{"cidr":"192.168.3.0/24"}]`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("without %s:\n%s", want, text)
		}
	}
	// The order in which an API server lists them changes nothing.
	servers[0], servers[3] = servers[3], servers[0]
	if again, _ := hosting.Desired(settings, chassis, servers, made); encoded(t, again) != text {
		t.Error("another order, another result")
	}
}

// A mistake about one server costs no other one its address.
func TestMistakesCostNobodyElse(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(chassisList, serverList){
		"4: ports of atom003 and atom004 have it": func(_ chassisList, s serverList) {
			s[0].Status.Ports[1].MAC = s[1].Status.Ports[1].MAC
		},
		"4: port atom004 is left out: \"52:54:00:03:00:04; r\" is none": func(_ chassisList, s serverList) {
			s[0].Status.Ports[1].MAC = "52:54:00:03:00:04; rm"
		},
		"3: server atom004 is left out":           func(_ chassisList, s serverList) { s[0].Status.Ports[1].Address = "10.0.0.1" },
		"4: the system GUID of atom004":           func(_ chassisList, s serverList) { s[0].Status.MMC.SystemGUID = "none\n" },
		"3: server atom004 is left out: what":     func(_ chassisList, s serverList) { s[0].Status.Slot = -1 },
		"4: controller atom004m is left out: its": func(_ chassisList, s serverList) { s[0].Status.MMC.Address = "192.168.5.201" },
		"3:": func(_ chassisList, s serverList) { s[0].OwnerReferences = nil },
		"0:": func(c chassisList, _ serverList) {
			c[0].DeletionTimestamp = &metav1.Time{Time: time.Now()}
		},
	} {
		chassis, servers := world()
		change(chassis, servers)
		made, notes := hosting.Desired(settings, chassis, servers, nil)
		encoded(t, made)
		number, note, _ := strings.Cut(want, ":")
		if strconv.Itoa(len(made.Servers)) != number || !strings.Contains(strings.Join(notes, "; "), strings.TrimSpace(note)) {
			t.Errorf("%s: %d servers, %q", want, len(made.Servers), notes)
		}
		for i := range made.Servers {
			if server := &made.Servers[i]; server.Name < "atom003" && server.Ports[0].MAC == "" {
				t.Errorf("%s: %s has lost its MAC", want, server.Name)
			}
		}
	}
}

// A Chassis that is refused is served as before, and its neighbours as they are.
func TestRefusedChassisIsServedAsBefore(t *testing.T) {
	t.Parallel()
	chassis, servers := world()
	before, _ := hosting.Desired(settings, chassis, servers, nil)
	refuse(&chassis[0])
	chassis[0].Spec.Networks[0].Range = "192.168.9.1+4"
	for i := range servers {
		servers[i].Status.Ports[1].Address = fmt.Sprintf("192.168.9.%d", i)
	}
	after, _ := hosting.Desired(settings, chassis, servers, before)
	if encoded(t, after) != encoded(t, before) {
		t.Errorf("%s\n%s", encoded(t, before), encoded(t, after))
	}
	// Another one has taken an address meanwhile: it is that one's.
	chassis = append(chassis, chassisOf("mercury2"))
	other := serverOf("mercury2", 9)
	other.Status.Ports[1].Address = "192.168.3.1"
	after, notes := hosting.Desired(settings, chassis, append(servers, other), before)
	if len(after.Servers) != 4 || len(notes) == 0 {
		t.Errorf("%v %s", notes, encoded(t, after))
	}
	// A Server that was deleted, or is being deleted, is not served any more; one that has joined is not given the boot image any more.
	chassis, servers = world()
	order(&servers[0])
	before, _ = hosting.Desired(settings, chassis, servers, nil)
	refuse(&chassis[0])
	servers[0].Status.Join = &v1alpha1.JoinStatus{Order: "a", State: v1alpha1.JoinJoined}
	servers[1].DeletionTimestamp = &metav1.Time{Time: time.Now()}
	after, _ = hosting.Desired(settings, chassis, servers[:3], before)
	if names := namesOf(after); !slices.Equal(names, []string{"atom002", "atom004"}) || after.Servers[1].Boot != boxhost.BootDisk {
		t.Errorf("%v %s", names, encoded(t, after))
	}
	// Without what was before, nothing is served of it.
	if after, _ = hosting.Desired(settings, chassis[:1], servers, nil); len(after.Servers) != 0 {
		t.Error(encoded(t, after))
	}
}

// A server is wiped by its own order alone, and not once it has joined by that order.
func TestWipe(t *testing.T) {
	t.Parallel()
	chassis, servers := world()
	order(&servers[0])
	order(&servers[1])
	servers[0].Spec.Boot.Wipe = true
	wiped := func(before *boxhost.Desired) string {
		made, _ := hosting.Desired(settings, chassis, servers, before)
		var all []string
		for i := range made.Servers {
			if made.Servers[i].Wipe {
				all = append(all, made.Servers[i].Name)
			}
		}
		return strings.Join(all, " ")
	}
	if got := wiped(nil); got != "atom004" {
		t.Errorf("wiped: %q", got)
	}
	before, _ := hosting.Desired(settings, chassis, servers, nil)
	servers[0].Status.Join = &v1alpha1.JoinStatus{Order: "a", State: v1alpha1.JoinJoined}
	if got := wiped(before); got != "" {
		t.Errorf("wiped after it has joined: %q", got)
	}
	refuse(&chassis[0])
	if got := wiped(before); got != "" {
		t.Errorf("wiped after it has joined, while its Chassis is refused: %q", got)
	}
}

func namesOf(d *boxhost.Desired) []string {
	var all []string
	for i := range d.Servers {
		all = append(all, d.Servers[i].Name)
	}
	return all
}

// order has a server boot from the network.
func order(server *v1alpha1.Server) {
	server.Spec.Boot = &v1alpha1.BootOrder{ID: "a", Device: v1alpha1.BootNetwork}
	server.Status.Boot = &v1alpha1.BootStatus{
		ID: "a", Device: v1alpha1.BootNetwork, State: v1alpha1.OrderDone, Since: metav1.NewTime(time.Unix(1000, 0)),
	}
}

func TestFromNetwork(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(time.Unix(1000, 0))
	later := metav1.NewTime(time.Unix(2000, 0))
	ordered := func() v1alpha1.Server {
		server := serverOf("mercury1", 1)
		order(&server)
		return server
	}
	ready := func(since metav1.Time, status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionNodeReady, Status: status, LastTransitionTime: since}}
	}
	for what, of := range map[string]struct {
		change func(*v1alpha1.Server)
		want   bool
	}{
		"ordered":            {func(*v1alpha1.Server) {}, true},
		"not ordered":        {func(s *v1alpha1.Server) { s.Spec.Boot = nil }, false},
		"from the disk":      {func(s *v1alpha1.Server) { s.Spec.Boot.Device = v1alpha1.BootDisk }, false},
		"another order":      {func(s *v1alpha1.Server) { s.Spec.Boot.ID = "b" }, false},
		"waits for the BMC":  {func(s *v1alpha1.Server) { s.Status.Boot.State = v1alpha1.OrderWaiting }, false},
		"the BMC refused":    {func(s *v1alpha1.Server) { s.Status.Boot.State = v1alpha1.OrderFailed }, false},
		"ready before":       {func(s *v1alpha1.Server) { s.Status.Conditions = ready(at, metav1.ConditionTrue) }, true},
		"ready since":        {func(s *v1alpha1.Server) { s.Status.Conditions = ready(later, metav1.ConditionTrue) }, false},
		"not ready any more": {func(s *v1alpha1.Server) { s.Status.Conditions = ready(later, metav1.ConditionFalse) }, true},
		"joined": {func(s *v1alpha1.Server) {
			s.Status.Join = &v1alpha1.JoinStatus{Order: "a", State: v1alpha1.JoinJoined}
		}, false},
		"joining": {func(s *v1alpha1.Server) {
			s.Status.Join = &v1alpha1.JoinStatus{Order: "a", State: v1alpha1.JoinOffered}
		}, true},
		"joined by an order before": {func(s *v1alpha1.Server) {
			s.Status.Join = &v1alpha1.JoinStatus{Order: "z", State: v1alpha1.JoinJoined}
		}, true},
		"the BMC is being told": {func(s *v1alpha1.Server) { s.Status.Boot.State = v1alpha1.OrderRunning }, true},
	} {
		server := ordered()
		of.change(&server)
		if hosting.FromNetwork(&server) != of.want {
			t.Errorf("%s: not %v", what, of.want)
		}
	}
}

// Whatever is on record, what is made is valid, and no MAC is served twice.
func TestWhateverIsOnRecord(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		some := func(good ...string) string {
			return rapid.OneOf(rapid.SampledFrom(good), rapid.StringN(0, 20, 40)).Draw(t, "text")
		}
		chassis := []v1alpha1.Chassis{chassisOf("mercury1"), chassisOf("mercury2")}
		var servers []v1alpha1.Server
		for range rapid.IntRange(0, 6).Draw(t, "servers") {
			server := serverOf(some("mercury1", "mercury2"), rapid.IntRange(1, 5).Draw(t, "number"))
			for i := range server.Status.Ports {
				port := &server.Status.Ports[i]
				port.MAC = some(port.MAC, "52:54:00:03:00:01", "")
				port.Address = some(port.Address, "192.168.3.1", "")
				port.Name = some(port.Name, server.Name)
			}
			server.Status.MMC.Address = some(server.Status.MMC.Address, "192.168.3.2")
			servers = append(servers, server)
		}
		chassis[0].Spec.Networks[0].CIDR = some("192.168.3.0/24", "192.168.0.0/16", "192.168.3.7/24")
		before, _ := hosting.Desired(settings, chassis, servers, nil)
		if rapid.Bool().Draw(t, "refused") {
			refuse(&chassis[0])
		}
		made, notes := hosting.Desired(settings, chassis, servers, before)
		if _, err := made.Encode(); err != nil || len(notes) > 20 {
			t.Errorf("%v, %d notes", err, len(notes))
		}
	})
}
