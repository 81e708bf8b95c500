package main

import (
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc/standin"
)

// boxController is a stand-in that changes Servers until the test ends.
func (h *harness) boxController(change func(*v1alpha1.Server)) {
	h.t.Helper()
	stop := make(chan struct{})
	done := make(chan struct{})
	h.t.Cleanup(func() { close(stop); <-done })
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			list := &v1alpha1.ServerList{}
			if h.client.List(h.t.Context(), list) != nil {
				continue
			}
			for i := range list.Items {
				change(&list.Items[i])
				_ = h.client.Update(h.t.Context(), &list.Items[i]) // a conflict is tried again
			}
		}
	}()
}

func TestLED(t *testing.T) {
	h := newHarness(t, mercury()...)
	h.boxController(func(server *v1alpha1.Server) {
		until := server.Spec.LocateUntil
		switch {
		case until == nil:
			server.Status.Light = nil
		case server.Name == "atom002":
			server.Status.Light = &v1alpha1.LightStatus{
				Until: until, TriedAt: metav1.Now(), State: v1alpha1.OrderFailed, Message: "it has no light",
			}
		default:
			server.Status.Light = &v1alpha1.LightStatus{Until: until, TriedAt: metav1.Now(), State: v1alpha1.OrderDone}
		}
	})
	text := h.must("led", "1,3", "on", "--for", "1h")
	until := h.server("atom001").Spec.LocateUntil
	if until == nil || time.Until(until.Time) < 59*time.Minute || h.server("atom002").Spec.LocateUntil != nil {
		t.Errorf("until %v", until)
	}
	if !strings.Contains(text, "atom003: its light blinks until "+until.UTC().Format(time.RFC3339)) {
		t.Errorf("%s", text)
	}
	if text := h.must("led", "1", "off"); text != "atom001: its light does not blink\n" || h.server("atom001").Spec.LocateUntil != nil {
		t.Errorf("%s", text)
	}
	if code, out, _ := h.run("led", "2", "on"); code != exitFailed || out != "atom002: it has no light\n" {
		t.Errorf("%d %s", code, out)
	}
	for says, arguments := range map[string][]string{
		"neither on nor off": {"led", "1", "blink"}, "more than 0": {"led", "1", "on", "--for=-1s"},
	} {
		if code, _, errs := h.run(arguments...); code != exitUsage || !strings.Contains(errs, says) {
			t.Errorf("%v: %d %s", arguments, code, errs)
		}
	}
}

func TestBoot(t *testing.T) {
	h := newHarness(t, mercury()...)
	h.boxController(func(server *v1alpha1.Server) {
		if order := server.Spec.Boot; order != nil {
			server.Status.Boot = &v1alpha1.BootStatus{ID: order.ID, Device: order.Device, State: v1alpha1.OrderDone, Message: "yes"}
			if server.Name == "atom002" {
				server.Status.Boot.State, server.Status.Boot.Message = v1alpha1.OrderFailed, "no"
			}
		}
		if order := server.Spec.Order; order != nil {
			server.Status.Order = &v1alpha1.OrderStatus{ID: order.ID, State: v1alpha1.OrderDone, Message: "the server is on"}
		}
	})
	if text := h.must("pxeboot", "1,3"); text != "atom001: done: yes\natom003: done: yes\n" {
		t.Errorf("%s", text)
	}
	if boot := h.server("atom003").Spec.Boot; boot.Device != v1alpha1.BootNetwork || h.server("atom003").Spec.Order != nil {
		t.Errorf("%+v", boot)
	}
	if h.server("atom003").Spec.Boot.Wipe {
		t.Error("a disk is wiped that nobody has asked for")
	}
	if h.must("pxeboot", "3", "--wipe"); !h.server("atom003").Spec.Boot.Wipe {
		t.Errorf("%+v", h.server("atom003").Spec.Boot)
	}
	if text := h.must("boot", "1", "--from", "disk"); text != "atom001: done: yes\natom001: done: the server is on\n" {
		t.Errorf("%s", text)
	}
	if of := h.server("atom001").Spec; of.Boot.Device != v1alpha1.BootDisk || of.Order.Action != v1alpha1.ActionOn {
		t.Errorf("%+v", of)
	}
	if text := h.must("boot", "3"); text != "atom003: done: the server is on\n" {
		t.Errorf("%s", text)
	}
	// A server whose BMC refuses is not started.
	code, out, _ := h.run("boot", "2", "--from=network")
	if code != exitFailed || out != "atom002: failed: no\n" || h.server("atom002").Spec.Order != nil {
		t.Errorf("%d %s", code, out)
	}
	if code, _, errs := h.run("boot", "1", "--from=tape"); code != exitUsage || !strings.Contains(errs, "network or disk") {
		t.Errorf("%d %s", code, errs)
	}
}

// inventoried is atom001 as the box controller describes it, with a text of hardware that a terminal would obey.
func inventoried(server *v1alpha1.Server) {
	server.Status = v1alpha1.ServerStatus{
		Chassis: "mercury1", Slot: 1, Node: "worker-1",
		Hardware: v1alpha1.HardwareStatus{Manufacturer: "rcbox", Product: "blade\x1b[31m", Serial: "MMS0001"},
		MMC:      v1alpha1.BMCStatus{Address: "192.168.5.1", Firmware: "2.07", SystemGUID: "a1234567-0001"},
		Ports: []v1alpha1.PortStatus{
			{Name: "atom001", NIC: 1, Address: "192.168.3.1", MAC: "52:54:00:03:00:01"},
			{Name: "atom001a", NIC: 2, MAC: "52:54:00:04:00:01"},
		},
		Sensors: []v1alpha1.SensorStatus{{Name: "CPU Temp", Value: "97 C", Beyond: true}},
		Events: []v1alpha1.EventStatus{
			{ID: 1, Sensor: "Watchdog", Text: "expired"},
			{
				ID: 2, At: &metav1.Time{Time: time.Date(2026, 5, 20, 9, 0, 0, 0, time.UTC)}, Sensor: "CPU Temp", Text: "high\x1b[31m",
				Ended: true,
			},
		},
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionAsRecorded, Status: metav1.ConditionFalse, Message: "slot 1 holds another blade"},
		},
	}
}

func TestInventory(t *testing.T) {
	objects := mercury()
	for _, object := range objects {
		if server, is := object.(*v1alpha1.Server); is && server.Name == "atom001" {
			inventoried(server)
		}
	}
	h := newHarness(t, append(objects, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}, Status: corev1.NodeStatus{Capacity: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("31.5Gi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("110Gi"),
		}},
	})...)
	lines := strings.Split(h.must("inventory", "1-2"), "\n")
	for i, want := range []string{
		"SERVER CHASSIS SLOT MANUFACTURER PRODUCT SERIAL FIRMWARE BMC PORTS SENSORS LAST EVENT",
		`atom001 mercury1 1 rcbox blade\x1b[31m MMS0001 2.07 192.168.5.1 ` +
			"atom001=52:54:00:03:00:01/192.168.3.1 atom001a=52:54:00:04:00:01 CPU Temp 97 C! " +
			`2026-05-20T09:00:00Z CPU Temp: high\x1b[31m (ended)`,
		"atom002 - 0 - - - - - - - -", "", "atom001: slot 1 holds another blade", "",
		"mercury1: 1 server; 1 node with 4 processors, 31.5 GiB of memory and 110.0 GiB of disk",
		"-: 1 server; processors, memory and disks are not known, since no node runs there",
		"total: 2 servers; 1 node with 4 processors, 31.5 GiB of memory and 110.0 GiB of disk", "",
	} {
		if got := strings.Join(strings.Fields(lines[i]), " "); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	var found listing
	if err := json.Unmarshal([]byte(h.must("inventory", "1", "-o", "json")), &found); err != nil || len(found.Servers) != 1 ||
		found.Servers[0].BMC.GUID != "a1234567-0001" || len(found.Servers[0].Events) != 2 || found.Servers[0].Events[0].Text != "expired" ||
		found.Servers[0].Sensors[0].Value != "97 C" ||
		found.Servers[0].MemoryBytes != 63<<29 || len(found.Chassis) != 1 || found.Total.DiskBytes != 110<<30 || found.Total.Nodes != 1 {
		t.Errorf("%+v %v", found, err)
	}
	want := "chassis,slot,server,port,nic,mac,address,bmc,serial,foundPort,cpu,cores,flags,memory,disks,checksum,copy,read\n" +
		"mercury1,1,atom001,atom001,1,52:54:00:03:00:01,192.168.3.1,192.168.5.1,MMS0001,,,,,,,,,\n" +
		"mercury1,1,atom001,atom001a,2,52:54:00:04:00:01,,192.168.5.1,MMS0001,,,,,,,,,\n"
	if text := h.must("inventory", "1", "-o", "csv"); text != want {
		t.Errorf("%s", text)
	}
	if code, _, errs := h.run("inventory", "1", "-o", "xml"); code != exitUsage || !strings.Contains(errs, "wide, json or csv") {
		t.Errorf("%d %s", code, errs)
	}
}

// A machine that asked box hosts for an address, and is no server, is listed as unknown. Control characters in texts are not printed.
func TestInventoryNamesStrangers(t *testing.T) {
	objects := onLoopback(t, 623)
	chassis, _ := objects[0].(*v1alpha1.Chassis)
	chassis.Status.Strangers = []v1alpha1.StrangerStatus{
		{MAC: "52:54:00:03:00:99", Network: "192.168.3.0/24", Since: metav1.Unix(1000, 0)},
		{MAC: "\x1b[31mred", Network: "192.168.3.0/24", Since: metav1.Unix(1000, 0)},
	}
	for _, name := range []string{"atom001", "atom002"} {
		server := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: name}}
		server.Status.Chassis = chassis.Name
		objects = append(objects, server)
	}
	h := newHarness(t, objects...)
	text := h.must("inventory", "mercury1")
	if !strings.Contains(text, "unknown: 52:54:00:03:00:99 asked for an address in 192.168.3.0/24; first seen 1970-01-01T00:16:40Z\n") ||
		strings.Contains(text, "\x1b") {
		t.Errorf("%q", text)
	}
	if text := h.must("inventory", "mercury1", "-o", "json"); !strings.Contains(text, `"mac": "52:54:00:03:00:99"`) {
		t.Errorf("%s", text)
	}
}

// onLoopback is a Chassis whose first BMC is a stand-in that answers, and whose second address is nobody's.
func onLoopback(t *testing.T, port uint16) []client.Object {
	t.Helper()
	chassis := &v1alpha1.Chassis{ObjectMeta: metav1.ObjectMeta{Name: "mercury1"}}
	chassis.Spec = v1alpha1.ChassisSpec{
		Model: "EmulatedRack", NamePrefix: "atom", FirstServer: 1, Slots: "1-2",
		Management: v1alpha1.ChassisManagement{CipherSuite: 3, MMC: "127.0.0.1+2", CMM: []string{"127.0.0.1"}, Port: int32(port)},
	}
	return []client.Object{chassis}
}

func TestScan(t *testing.T) {
	controller, err := standin.Start(standin.Config{Username: "admin", Password: "canary-7Qx"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(controller.Close)
	h := newHarness(t, onLoopback(t, controller.Address().Port())...)
	code, out, errs := h.run("scan")
	table := strings.Join(strings.Fields(out), " ")
	for _, says := range []string{
		"127.0.0.1 IPMI 2.0 mercury1cmm", "127.0.0.2 - atom002m declared, and does not answer", "1 of 2 addresses answer",
	} {
		if !strings.Contains(table, says) {
			t.Errorf("%q is not in %s", says, out)
		}
	}
	if code != exitFailed || !strings.Contains(errs, "1 BMCs are not as declared") {
		t.Errorf("%d %s", code, errs)
	}
	if text := h.must("scan", "127.0.0.1"); strings.Contains(text, "127.0.0.2") || !strings.Contains(text, "1 of 1 addresses answer") {
		t.Errorf("%s", text)
	}
	if seen := controller.Seen(); seen.Logins > 0 {
		t.Errorf("it logged in %d times", seen.Logins)
	}
	if code, _, errs := h.run("scan", "127.0.0.1+"); code != exitFailed || !strings.Contains(errs, "127.0.0.1+") {
		t.Errorf("%d %s", code, errs)
	}
}

// A BMC that answers and is not declared is found by its address alone.
func TestScanFindsWhatNobodyDeclares(t *testing.T) {
	socket, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.9:623")))
	if err != nil {
		t.Skipf("SKIPPED: port 623 of 127.0.0.9 cannot be had here: %v", err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	go func() { // the answer of ipmi_sim to Get Channel Authentication Capabilities
		buffer := make([]byte, 512)
		for {
			_, from, err := socket.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			_, _ = socket.WriteToUDPAddrPort([]byte{
				6, 0, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0x81, 0x1c, 0x63, 0x20, 0, 0x38, 0, 1, 0x84, 4, 3, 0, 0, 0, 0, 0x1c,
			}, from)
		}
	}()
	h := newHarness(t, onLoopback(t, 623)...)
	code, out, _ := h.run("scan", "127.0.0.9")
	table := strings.Join(strings.Fields(out), " ")
	if code != exitFailed || !strings.Contains(table, "127.0.0.9 IPMI 2.0 - answers, and no Chassis declares it") {
		t.Errorf("%d %s", code, out)
	}
}

// The check says what real hardware must confirm, and reads sensors of the chassis manager if it is given a password.
func TestScanCheck(t *testing.T) {
	const password = "canary-7Qx"
	controller, err := standin.Start(standin.Config{
		Username: "admin", Password: password, Sensors: []standin.Sensor{{Name: "PSU 1", Count: 120}, {Name: "Slot 01 Power", Count: 22}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(controller.Close)
	objects := onLoopback(t, controller.Address().Port())
	server := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: "atom001"}}
	inventoried(server)
	h := newHarness(t, append(objects, server)...)
	text := h.must("scan", "--check")
	for _, says := range []string{
		"Chassis mercury1, model EmulatedRack:", "seen     system GUID: all 1 BMCs report one; that of 1 is",
		"seen     server.nics.count: the BMCs name the hardware addresses of all 2 NICs", "open     manager.slotState: nothing, for",
	} {
		if !strings.Contains(text, says) {
			t.Errorf("%q is not in %s", says, text)
		}
	}
	if controller.Seen().Datagrams > 0 {
		t.Error("without a password nothing is asked")
	}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := h.run("scan", "--check", "--password-file", file)
	for _, says := range []string{
		"seen     manager: reading all 2 sensors took ", " a round, and the box controller waits 10s\n",
		`seen     manager.slotWatts: the chassis manager shows a sensor for each slot, such as "Slot 01 Power"`,
		`differs  manager.inCharge: the chassis manager shows no sensor "In Charge"`,
		`seen     manager.powerSupplies: the chassis manager shows the sensor "PSU 1"`,
		`differs  manager.powerSupplies: the chassis manager shows no sensor "PSU 2"`,
	} {
		if !strings.Contains(out, says) {
			t.Errorf("%q is not in %s", says, out)
		}
	}
	if code != exitFailed || !strings.Contains(errs, "differ from the models") || strings.Contains(out+errs, password) {
		t.Errorf("%d %s", code, errs)
	}
	if code, _, errs := h.run("scan", "--check", ".1"); code != exitUsage || !strings.Contains(errs, "takes no addresses") {
		t.Errorf("%d %s", code, errs)
	}
}
