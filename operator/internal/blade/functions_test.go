package blade

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// emulatedKernel has files as Linux shows them, and does what Linux does when some are written.
type emulatedKernel struct {
	*testing.T
	root string
	// noIOMMU has vfio-pci refuse, as it does without one. deaf: the port divides into nothing, and says that it has.
	noIOMMU, deaf bool
	said          []string
}

var errEmulated = errors.New("the emulated kernel refuses")

func (k *emulatedKernel) file(name, text string) {
	k.Helper()
	path := filepath.Join(k.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		k.Fatal(err)
	}
}

func (k *emulatedKernel) link(target, name string) {
	k.Helper()
	path := filepath.Join(k.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path)); err != nil {
		k.Fatal(err)
	}
}

// port adds one; without functions, its hardware has no SR-IOV.
func (k *emulatedKernel) port(name, driver, device string, functions int) {
	folder := "sys/bus/pci/devices/" + device
	k.file(folder+"/uevent", "DRIVER="+driver+"\nPCI_CLASS=20000\n")
	k.file("sys/class/net/"+name+"/address", "52:54:00:03:00:0"+device[len(device)-1:]+"\n")
	k.link("../../../bus/pci/devices/"+device, "sys/class/net/"+name+"/device")
	if functions > 0 {
		k.file(folder+"/sriov_totalvfs", strconv.Itoa(functions)+"\n")
		k.file(folder+"/sriov_numvfs", "0\n")
		k.file(folder+"/sriov_drivers_autoprobe", "1\n")
	}
}

func (k *emulatedKernel) say(format string, of ...any) {
	k.said = append(k.said, fmt.Sprintf(format, of...))
}

// Write is what Linux does.
func (k *emulatedKernel) Write(name, text string) error {
	path, err := filepath.EvalSymlinks(filepath.Join(k.root, filepath.Dir(name)))
	if err != nil {
		return fmt.Errorf("%w: %w", errEmulated, err)
	}
	inside, _ := filepath.Rel(k.root, path)
	k.say("%s/%s %s", strings.TrimPrefix(inside, "sys/bus/pci/"), filepath.Base(name), text)
	switch filepath.Base(name) {
	case "sriov_numvfs":
		count, _ := strconv.Atoi(text)
		for index := 0; index < count && !k.deaf; index++ {
			function := fmt.Sprintf("0000:01:10.%d", index)
			k.file("sys/bus/pci/devices/"+function+"/vendor", "0x8086\n")
			k.file("sys/bus/pci/devices/"+function+"/device", "0x10ca\n")
			k.link("../"+function, filepath.Join(inside, "virtfn"+strconv.Itoa(index)))
		}
		k.file(filepath.Join(inside, filepath.Base(name)), text+"\n")
	case "drivers_probe":
		override, _ := os.ReadFile(filepath.Join(k.root, "sys/bus/pci/devices", text, "driver_override"))
		if string(override) == driverOfVFs && !k.noIOMMU {
			k.link("../../drivers/vfio-pci", "sys/bus/pci/devices/"+text+"/driver")
		}
	default:
		k.file(filepath.Join(inside, filepath.Base(name)), text)
	}
	return nil
}

func (k *emulatedKernel) SetUp(_ context.Context, port string) error {
	k.say("%s up", port)
	return nil
}

func (k *emulatedKernel) SetFunction(_ context.Context, port string, index int, mac net.HardwareAddr) error {
	if mac[0]&3 != 2 {
		k.Errorf("%s is no local address of one port", mac)
	}
	k.say("%s function %d", port, index)
	return nil
}

func startKernel(t *testing.T) *emulatedKernel {
	t.Helper()
	k := &emulatedKernel{T: t, root: t.TempDir()}
	k.file("proc/meminfo", "MemTotal: 2097152 kB\nHugePages_Total: 102\n")
	k.file("sys/bus/pci/drivers_probe", "")
	k.port("eth0", "virtio_net", "0000:00:03.0", 0)
	k.port("eth1", "igb", "0000:01:00.1", 7)
	return k
}

func twoOf(driver, port string) Settings {
	settings := DefaultSettings()
	settings.VirtualFunctions = []VirtualFunctions{{Driver: driver, Port: port, Count: 2}}
	return settings
}

// TestFunctionsAreMade: in this order, and only once; the inventory has them.
func TestFunctionsAreMade(t *testing.T) {
	t.Parallel()
	k := startKernel(t)
	settings := twoOf("igb", "eth1")
	const none = "virtual functions of eth1: the port has 0, not 2"
	if got := settings.Unapplied(os.DirFS(k.root)); len(got) != 1 || !strings.Contains(got[0], none) {
		t.Errorf("%q", got)
	}
	made, err := MakeFunctions(t.Context(), os.DirFS(k.root), k, settings)
	want := []string{
		"devices/0000:01:00.1/sriov_drivers_autoprobe 0", "devices/0000:01:00.1/sriov_numvfs 2", "eth1 up",
		"eth1 function 0", "devices/0000:01:10.0/driver_override vfio-pci", "./drivers_probe 0000:01:10.0",
		"eth1 function 1", "devices/0000:01:10.1/driver_override vfio-pci", "./drivers_probe 0000:01:10.1",
	}
	for i := range k.said {
		k.said[i] = strings.Replace(k.said[i], "sys/bus/pci/drivers_probe", "./drivers_probe", 1)
	}
	if err != nil || !slices.Equal(made, []string{"eth1"}) || !slices.Equal(k.said, want) {
		t.Errorf("%v %q\n%s", err, made, strings.Join(k.said, "\n"))
	}
	if got := settings.Unapplied(os.DirFS(k.root)); len(got) > 0 {
		t.Errorf("%q", got)
	}
	if ports := TakeInventory(os.DirFS(k.root)).Ports; len(ports) != 2 || ports[0].VirtualFunctions != 0 || ports[1].VirtualFunctions != 2 {
		t.Errorf("%+v", ports)
	}
	k.said = nil
	if _, err := MakeFunctions(t.Context(), os.DirFS(k.root), k, settings); err != nil || !slices.Equal(k.said, []string{"eth1 up"}) {
		t.Errorf("the second time: %v %q", err, k.said)
	}
	settings.VirtualFunctions[0].Count = 3
	_, err = MakeFunctions(t.Context(), os.DirFS(k.root), k, settings)
	if err == nil || !strings.Contains(err.Error(), "restart the blade") {
		t.Errorf("functions that pods may use: %v", err)
	}
}

func TestFunctionsAreNotMade(t *testing.T) {
	t.Parallel()
	writes := func(file, text string) func(*emulatedKernel) {
		return func(k *emulatedKernel) { k.file("sys/class/net/eth1/"+file, text) }
	}
	igb := twoOf("igb", "")
	for name, test := range map[string]struct {
		settings Settings
		change   func(*emulatedKernel)
		want     string
	}{
		"no such driver":  {settings: twoOf("ixgbe", "")},
		"no such port":    {settings: twoOf("igb", "eth7")},
		"not asked for":   {settings: DefaultSettings()},
		"no SR-IOV":       {settings: twoOf("virtio_net", ""), want: "virtual functions of eth0: the port can have 0"},
		"too many":        {settings: igb, change: writes("device/sriov_totalvfs", "1\n"), want: "can have 1"},
		"no IOMMU":        {settings: igb, change: func(k *emulatedKernel) { k.noIOMMU = true }, want: "is the IOMMU on"},
		"none are there":  {settings: igb, change: func(k *emulatedKernel) { k.deaf = true }, want: "function 0: find its device"},
		"no hardware MAC": {settings: igb, change: writes("address", "\n"), want: "no MAC"},
	} {
		k := startKernel(t)
		if test.change != nil {
			test.change(k)
		}
		made, err := MakeFunctions(t.Context(), os.DirFS(k.root), k, test.settings)
		if len(made) > 0 || (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %q %v", name, made, err)
		}
		if got := test.settings.Unapplied(os.DirFS(k.root)); (len(got) == 0) != (test.want == "") {
			t.Errorf("%s: the inventory says %q", name, got)
		}
	}
}

// TestUnapplied: huge pages that the kernel did not find, and devices that another driver has.
func TestUnapplied(t *testing.T) {
	t.Parallel()
	k := startKernel(t)
	k.file("proc/meminfo", "MemTotal: 2097152 kB\nHugePages_Total: 90\n")
	k.file("sys/bus/pci/devices/0000:00:14.1/vendor", "0x8086\n")
	k.file("sys/bus/pci/devices/0000:00:14.1/device", "0x1f41\n")
	settings := DefaultSettings()
	settings.VFIO = []string{"8086:1f41", "8086:1520"}
	got := settings.Unapplied(os.DirFS(k.root))
	if len(got) != 2 || !strings.Contains(got[0], "there are 90, and the settings want 102") || !strings.Contains(got[1], "0000:00:14.1") {
		t.Errorf("%q", got)
	}
}

func TestFunctionSettings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"virtualFunctions": [{"driver": "igb", "port": "eth1", "count": 2}]}`:    "",
		`{"virtualFunctions": [{"driver": "igb", "count": 0}]}`:                    "virtualFunctions[0].count is 0",
		`{"virtualFunctions": [{"port": "eth1", "count": 2}]}`:                     "virtualFunctions[0].driver is \"\"",
		`{"virtualFunctions": [{"driver": "igb", "port": "../eth1", "count": 2}]}`: "virtualFunctions[0].port is",
		`{"virtualFunction": [{"driver": "igb", "port": "eth1", "count": 2}]}`:     "unknown field",
	} {
		settings, err := ParseSettings([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
		if err == nil && (settings.Queues != 8 || settings.VirtualFunctions[0].Count != 2) {
			t.Errorf("%+v", settings)
		}
	}
}

func TestAddressesOfFunctions(t *testing.T) {
	t.Parallel()
	own, other := net.HardwareAddr{0x52, 0x54, 0, 3, 0, 1}, net.HardwareAddr{0x52, 0x54, 0, 3, 0, 2}
	first := addressOf(own, 0).String()
	if first != addressOf(own, 0).String() || first == addressOf(own, 1).String() || first == addressOf(other, 0).String() {
		t.Errorf("%s %s %s", first, addressOf(own, 1), addressOf(other, 0))
	}
}
