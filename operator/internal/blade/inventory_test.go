package blade

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"rcbox.dev/rcbox/operator/internal/blade/hardware"
)

// smbios makes a structure.
func smbios(kind byte, formatted []byte, texts ...string) []byte {
	raw := append([]byte{kind, byte(structureHeader + len(formatted)), 0, 0}, formatted...)
	if len(texts) == 0 {
		return append(raw, 0, 0)
	}
	return append(raw, strings.Join(texts, "\x00")+"\x00\x00"...)
}

func systemOf(uuid [16]byte) []byte {
	return smbios(typeSystem, append([]byte{1, 2, 0, 3}, uuid[:]...), "Maker", "Blade 9", "MMS\x01\xff0001 ")
}

// moduleOf is a memory device of version 2.8.
func moduleOf(size, extended, speed, clock int, slot, bank string) []byte {
	data := make([]byte, 0x28-structureHeader)
	word := func(at, value int) { binary.LittleEndian.PutUint16(data[at-structureHeader:], uint16(value)) }
	word(0x0c, size)
	binary.LittleEndian.PutUint32(data[0x1c-structureHeader:], uint32(extended))
	word(0x15, speed)
	word(0x20, clock)
	data[0x10-structureHeader], data[0x11-structureHeader], data[0x18-structureHeader], data[0x1a-structureHeader] = 1, 2, 3, 4
	return smbios(typeMemoryDevice, data, slot, bank, "S1", "P1")
}

var uuid = [16]byte{0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}

func sampleTable() []byte {
	var table []byte
	for _, s := range [][]byte{
		smbios(0, []byte{1, 2, 3}, "BIOS"), systemOf(uuid),
		moduleOf(8192, 0, 1600, 1333, "ChannelA-DIMM0", "BANK 0"), moduleOf(0x7fff, 32768, 1600, 0, "DIMM_B1", "BANK 1"),
		moduleOf(0, 0, 0, 0, "ChannelA-DIMM1", "BANK 2"), moduleOf(0x8000|1024, 0, 0xffff, 0xffff, "socket", "Node0 Channel1"),
		smbios(typeEndOfTable, nil),
		{9, 9, 9},
	} {
		table = append(table, s...)
	}
	return table
}

func TestFirmware(t *testing.T) {
	t.Parallel()
	got, err := ParseFirmware(0x0208, sampleTable())
	want := Firmware{
		UUID: "00112233-4455-6677-8899-aabbccddeeff", Manufacturer: "Maker", Product: "Blade 9", Serial: "MMS0001",
		Memory: []hardware.Module{
			{Slot: "ChannelA-DIMM0", Channel: "A", Bytes: 8 << 30, MHz: 1333, Serial: "S1", Part: "P1"},
			{Slot: "DIMM_B1", Channel: "B", Bytes: 32 << 30, MHz: 1600, Serial: "S1", Part: "P1"},
			{Slot: "socket", Channel: "1", Bytes: 1 << 20, Serial: "S1", Part: "P1"},
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if old, err := ParseFirmware(0x0205, sampleTable()); err != nil || old.UUID != "33221100-5544-7766-8899-aabbccddeeff" {
		t.Errorf("version 2.5: %q, %v", old.UUID, err)
	}
	if unset, err := ParseFirmware(0x0208, systemOf([16]byte{})); err != nil || unset.UUID != "" {
		t.Errorf("a UUID that is not set: %q, %v", unset.UUID, err)
	}
}

func TestBrokenFirmware(t *testing.T) {
	t.Parallel()
	for name, table := range map[string][]byte{
		"half a header": {1, 27}, "longer than the table": {1, 200, 0, 0, 0, 0}, "shorter than a header": {1, 3, 0, 0, 0, 0},
		"no end of strings": append([]byte{1, 4, 0, 0}, "text"...), "one zero": {1, 4, 0, 0, 0}, "no zero": {1, 4, 0, 0},
		"too large": make([]byte, maxTableBytes+1), "too many": []byte(strings.Repeat("\x02\x04\x00\x00\x00\x00", maxStructures+1)),
	} {
		if _, err := ParseFirmware(0x0208, table); !errors.Is(err, ErrFirmware) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for text, want := range map[string]int{
		"_SM_\x00\x1f\x02\x08": 0x0208, "_SM3_\x00\x18\x03\x02": 0x0302, "_SM_\x00": 0, "": 0, "_DMI_____": 0,
	} {
		if got, err := VersionOf([]byte(text)); got != want || (err == nil) != (want > 0) {
			t.Errorf("entry point %q: %#x, %v", text, got, err)
		}
	}
}

// TestAnyFirmware: whatever bytes there are, texts are printable and bounded, and sizes are not negative.
func TestAnyFirmware(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table := sampleTable()
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			table[rapid.IntRange(0, len(table)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		table = table[:rapid.IntRange(0, len(table)).Draw(t, "length")]
		firmware, err := ParseFirmware(rapid.IntRange(0, 0x0400).Draw(t, "version"), table)
		if err != nil {
			if !errors.Is(err, ErrFirmware) {
				t.Fatal(err)
			}
			return
		}
		texts := []string{firmware.Manufacturer, firmware.Product, firmware.Serial}
		for _, module := range firmware.Memory {
			texts = append(texts, module.Slot, module.Channel, module.Part, module.Serial)
			if module.Bytes < 0 || module.MHz < 0 {
				t.Fatalf("%+v", module)
			}
		}
		for _, text := range texts {
			if len(text) > maxStringBytes || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("%q", text)
			}
		}
	})
}

const cpuinfo = `processor	: 0
model name	: Intel(R) Atom(TM) CPU  C2750  @ 2.40GHz
physical id	: 0
core id		: 0
flags		: fpu sse4_2 aes pdpe1gb

processor	: 1
model name	: Intel(R) Atom(TM) CPU  C2750  @ 2.40GHz
physical id	: 0
core id		: 1
flags		: fpu sse4_2 aes pdpe1gb
`

func sampleRoot() fstest.MapFS {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	return fstest.MapFS{
		"proc/cpuinfo": file(cpuinfo), "proc/meminfo": file("MemTotal:       32768000 kB\nMemAvailable:    1000 kB\n"),
		"sys/firmware/dmi/tables/smbios_entry_point": file("_SM_\x00\x1f\x02\x08"),
		"sys/firmware/dmi/tables/DMI":                file(string(sampleTable())),
		"sys/class/dmi/id/product_uuid":              file("00112233-4455-6677-8899-AABBCCDDEEFF\n"),
		"proc/self/mountinfo":                        file("22 1 0:20 / /sys rw - sysfs none rw\n30 1 8:1 / / rw - ext4 /dev/root rw\n"),
		"sys/block/sda/size":                         file("250069680\n"), "sys/block/sda/dev": file("8:0\n"),
		"sys/block/sda/sda1/dev": file("8:1\n"), "sys/block/sda/sda1/partition": file("1\n"), "sys/block/sda/sda1/size": file("2048\n"),
		"sys/block/sda/sda2/dev": file("8:2\n"), "sys/block/sda/sda2/partition": file("2\n"), "sys/block/sda/sda2/size": file("4096\n"),
		// The disk of another blade.
		"sys/block/sdc/size": file("4096\n"), "sys/block/sdc/sdc2/dev": file("8:34\n"), "sys/block/sdc/sdc2/partition": file("2\n"),
		"sys/block/sdc/sdc2/size":    file("9999\n"),
		"sys/block/sda/device/model": file("SSD 128\x07G\n"), "sys/block/sda/removable": file("0\n"),
		"sys/block/sda/queue/rotational": file("0\n"), "sys/block/loop0/size": file("100\n"),
		"sys/block/sr0/size": file("100\n"), "sys/block/sr0/device/model": file("DVD\n"), "sys/block/sr0/removable": file("1\n"),
		"sys/block/nvme0n1/size": file("0\n"), "sys/block/nvme0n1/device/serial": file("x\n"),
		// NVMe over TCP, iSCSI, and NVMe in a slot, which has a serial number and no medium above.
		"sys/block/nvme1n1/size": file("1000\n"), "sys/block/nvme1n1/device/transport": file("tcp\n"),
		"sys/block/nvme2n1/size": file("1000\n"), "sys/block/nvme2n1/device/nvme2/transport": file("rdma\n"),
		"sys/block/nvme3n1/size": file("1000\n"), "sys/block/nvme3n1/device/transport": file("pcie\n"),
		"sys/devices/platform/host2/session1/target2/block/sdb/size":         file("1000\n"),
		"sys/devices/platform/host2/session1/target2/block/sdb/device/model": file("LUN\n"),
		"sys/block/sdb": {
			Mode: fs.ModeSymlink, Data: []byte("../devices/platform/host2/session1/target2/block/sdb"),
		},
		"sys/class/net/eth0/address":       file("52:54:00:03:00:0A\n"),
		"sys/class/net/eth0/device/uevent": file("DRIVER=igb\nPCI_ID=8086:1F41\n"),
		"sys/class/net/eth0/speed":         file("2500\n"),
		"sys/class/net/eth1/address":       file("52:54:00:03:00:0B\n"),
		"sys/class/net/eth1/device/uevent": file("DRIVER=virtio_net\n"),
		"sys/class/net/eth1/speed":         file("-1\n"),
		"sys/class/net/lo/address":         file("00:00:00:00:00:00\n"),
	}
}

func TestInventory(t *testing.T) {
	t.Parallel()
	got := TakeInventory(sampleRoot())
	firmware, err := ParseFirmware(0x0208, sampleTable())
	if err != nil {
		t.Fatal(err)
	}
	want := hardware.Inventory{
		UUID: "00112233-4455-6677-8899-aabbccddeeff", Manufacturer: "Maker", Product: "Blade 9", Serial: "MMS0001",
		CPU: hardware.Processor{
			Model: "Intel(R) Atom(TM) CPU  C2750  @ 2.40GHz", Sockets: 1, Cores: 2, Threads: 2, CRC32: true, Pages1G: true, AES: true,
		},
		MemoryBytes: 32768000 << 10, Modules: firmware.Memory,
		Channels: []hardware.Channel{
			{Name: "1", Modules: 1, Bytes: 1 << 20},
			{Name: "A", Modules: 1, Bytes: 8 << 30, MHz: 1333},
			{Name: "B", Modules: 1, Bytes: 32 << 30, MHz: 1600},
		},
		Disks: []hardware.Disk{
			{Name: "nvme3n1", Bytes: 1000 * 512}, {Name: "sda", Bytes: 250069680 * 512, Model: "SSD 128G"},
		},
		Ports: []hardware.Port{
			{Name: "eth0", MAC: "52:54:00:03:00:0a", Driver: "igb", Mbps: 2500},
			{Name: "eth1", MAC: "52:54:00:03:00:0b", Driver: "virtio_net"},
		},
		Backups: &hardware.Partition{Name: "sda2", Bytes: 4096 * 512},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if available, err := AvailableMemory(sampleRoot()); err != nil || available != 1000<<10 {
		t.Errorf("%d, %v", available, err)
	}
}

// TestMeasuredAtThisStart: what was measured becomes a part of the inventory; a file that cannot be read says so.
func TestMeasuredAtThisStart(t *testing.T) {
	t.Parallel()
	const name = "run/rcbox/measured.json"
	for text, want := range map[string]*hardware.Measured{
		`{"checksumMBps": 900, "disk": "sda"}`: {ChecksumMBps: 900, Disk: "sda"},
		`{`:                                    {Failed: []string{"/run/rcbox/measured.json: unexpected end of JSON input"}},
		"":                                     nil,
	} {
		root := fstest.MapFS{}
		if text != "" {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		var inventory hardware.Inventory
		if AddMeasured(root, &inventory); !reflect.DeepEqual(inventory.Measured, want) {
			t.Errorf("%s: %+v", text, inventory.Measured)
		}
	}
}

func TestSystemDisk(t *testing.T) {
	t.Parallel()
	for mounts, want := range map[string]string{
		"30 1 8:1 / / rw - ext4 /dev/root rw": "sda", "30 1 8:0 / / rw - ext4 /dev/root rw": "sda", "30 1 0:20 / / rw - tmpfs none rw": "",
	} {
		root := sampleRoot()
		root["proc/self/mountinfo"] = &fstest.MapFile{Data: []byte(mounts + "\n")}
		if got, err := SystemDisk(root); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", mounts, got, err)
		}
	}
}

func TestInventoryNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	root := sampleRoot()
	delete(root, "proc/cpuinfo")
	root["proc/meminfo"] = &fstest.MapFile{Data: []byte("MemTotal: many kB\n")}
	root["sys/firmware/dmi/tables/DMI"] = &fstest.MapFile{Data: []byte{1, 2}}
	got := TakeInventory(root)
	if len(got.Missing) != 3 || got.MemoryBytes != 0 || len(got.Disks) != 2 {
		t.Errorf("%+v", got)
	}
	if none := TakeInventory(fstest.MapFS{}); len(none.Missing) != 4 {
		t.Errorf("%+v", none)
	}
}
