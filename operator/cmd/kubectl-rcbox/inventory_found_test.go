package main

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/blade/hardware"
)

// reported is a node with a report of its blade.
func reported(t *testing.T, name string, inventory hardware.Inventory) *corev1.Node {
	t.Helper()
	text, err := inventory.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{hardware.Annotation: text}}}
}

// TestInventoryOfBlades: what blades have found in themselves is shown, compared with what their BMCs report, and with each other. Texts of
// a blade that a terminal would obey are not printed as they are, and a report that is not usable is named.
func TestInventoryOfBlades(t *testing.T) {
	objects := mercury()
	for _, object := range objects {
		if server, is := object.(*v1alpha1.Server); is && server.Name == "atom001" {
			inventoried(server)
		} else if is && server.Name == "atom002" {
			server.Status.Node = "worker-2"
		} else if is && server.Name == "atom003" {
			server.Status.Node = "worker-3"
		}
	}
	first := hardware.Inventory{
		Serial: "MMS0001", MemoryBytes: 15 << 30,
		CPU:      hardware.Processor{Model: "Atom\x1b[31m C2750", Sockets: 1, Cores: 8, Threads: 8, CRC32: true, AES: true},
		Channels: []hardware.Channel{{Name: "A", Modules: 1, Bytes: 8 << 30, MHz: 1600}, {Name: "B", Modules: 1, Bytes: 8 << 30}},
		Disks:    []hardware.Disk{{Name: "sda", Bytes: 128 << 30}},
		Ports:    []hardware.Port{{Name: "eth0", MAC: "52:54:00:03:00:01", Driver: "igb"}},
		Measured: &hardware.Measured{ChecksumMBps: 900, CopyMBps: 5200, Failed: []string{"disk sda: input/output error"}},
	}
	second := hardware.Inventory{MemoryBytes: 3 << 29, Ports: []hardware.Port{{Name: "eth0", MAC: "52:54:00:03:00:01"}}}
	broken := reported(t, "worker-3", hardware.Inventory{})
	broken.Annotations[hardware.Annotation] = "{"
	h := newHarness(t, append(objects, reported(t, "worker-1", first), reported(t, "worker-2", second), broken)...)

	lines := strings.Split(h.must("inventory", "1-3", "-o", "wide"), "\n")
	for i, want := range []string{
		"LAST EVENT CPU CORES FLAGS MEMORY DISKS CHECKSUM COPY READ",
		`(ended) Atom\x1b[31m C2750 8 sse4_2 aes A 8.0 GiB at 1600 MHz, B 8.0 GiB sda 128.0 GiB 900 MB/s 5200 MB/s -`,
		"- 0 - 1.5 GiB - - - -", "- - - - - - - -", "", "atom001: slot 1 holds another blade",
		"atom001: the BMC reports port atom001a with the MAC address 52:54:00:04:00:01, and the blade's system found no such port",
		"atom002: the MAC address 52:54:00:03:00:01 of its port eth0 is one of atom001, too",
		"atom003: annotation rcbox.dev/inventory of node worker-3: the inventory is not usable: unexpected end of JSON input",
	} {
		if got := strings.Join(strings.Fields(lines[i]), " "); !strings.HasSuffix(got, want) || want == "" && got != "" {
			t.Errorf("%q, not %q", got, want)
		}
	}
	if text := h.must("inventory", "1", "-o", "csv"); !strings.Contains(text,
		`,MMS0001,eth0 igb,Atom\x1b[31m C2750,8,sse4_2 aes,"A 8.0 GiB at 1600 MHz, B 8.0 GiB",sda 128.0 GiB,900 MB/s,5200 MB/s,`) {
		t.Error(text)
	}
	var found listing
	if err := json.Unmarshal([]byte(h.must("inventory", "1-2", "-o", "json")), &found); err != nil || len(found.Servers) != 2 ||
		found.Servers[0].Found.CPU.Cores != 8 || len(found.Servers[0].Differs) != 1 || len(found.Servers[1].Differs) != 1 {
		t.Errorf("%+v %v", found, err)
	}
}
