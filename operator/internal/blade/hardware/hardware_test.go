package hardware_test

import (
	"errors"
	"strings"
	"testing"

	"rcbox.dev/rcbox/operator/internal/blade/hardware"
)

const macOfPort = "52:54:00:03:00:01"

// TestEncodedInventoriesAreBounded: a report fits its bound whatever the machine has, says what it leaves out, and a longer one is refused.
func TestEncodedInventoriesAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 60)
	inventory := hardware.Inventory{Serial: "MMS0001", Missing: []string{"cpu: gone"}}
	for range 1024 {
		inventory.Disks = append(inventory.Disks, hardware.Disk{Name: long, Serial: long})
		inventory.Ports = append(inventory.Ports, hardware.Port{Name: long, MAC: macOfPort})
	}
	text, err := inventory.Encode()
	if err != nil || len(text) > hardware.MaxBytes {
		t.Fatal(len(text), err)
	}
	found, err := hardware.Parse(text)
	if err != nil || found.Serial != "MMS0001" || len(found.Missing) != 4 || len(inventory.Missing) != 1 {
		t.Errorf("%+v %v", found, err)
	}
	for range 1024 {
		inventory.Missing = append(inventory.Missing, long)
	}
	if _, err := inventory.Encode(); !errors.Is(err, hardware.ErrUnusable) {
		t.Errorf("%v", err)
	}
	for _, wrong := range []string{`"` + strings.Repeat("x", hardware.MaxBytes) + `"`, "{", `{"cpu":1}`} {
		if _, err := hardware.Parse(wrong); !errors.Is(err, hardware.ErrUnusable) {
			t.Errorf("%.20s: %v", wrong, err)
		}
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	inventory := hardware.Inventory{Serial: "MMS0001", Ports: []hardware.Port{{Name: "eth0", MAC: macOfPort}}}
	for name, test := range map[string]struct {
		inventory hardware.Inventory
		serial    string
		mac       string
		want      int
	}{
		"the same":                      {inventory, "MMS0001", "52:54:00:03:00:01", 0},
		"another serial number":         {inventory, "MMS0002", macOfPort, 1},
		"a port is missing":             {inventory, "MMS0001", "52:54:00:03:00:02", 1},
		"both":                          {inventory, "MMS0002", "52:54:00:03:00:02", 2},
		"the BMC reports nothing":       {inventory, "", "", 0},
		"the blade could read no ports": {hardware.Inventory{}, "MMS0001", macOfPort, 0},
	} {
		got := test.inventory.Differences(test.serial, []hardware.RecordedPort{{Name: "atom001", MAC: strings.ToUpper(test.mac)}})
		if len(got) != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"uuid":"a","cpu":{"cores":8},"channels":[{"name":"A"}],"ports":[{"mac":"` + macOfPort + `"}]}`)
	f.Add("{")
	f.Fuzz(func(t *testing.T, text string) {
		inventory, err := hardware.Parse(text)
		if err != nil {
			return
		}
		again, err := inventory.Encode()
		if err == nil {
			_, err = hardware.Parse(again)
		}
		if err != nil && !errors.Is(err, hardware.ErrUnusable) {
			t.Error(err)
		}
		inventory.Differences("x", []hardware.RecordedPort{{Name: "a", MAC: macOfPort}})
	})
}

// TestDoubled: an address that two blades have found is told of at the one whose BMC does not report the address; at both, if no BMC does.
func TestDoubled(t *testing.T) {
	t.Parallel()
	port := func(mac string) []hardware.Port { return []hardware.Port{{Name: "eth0", MAC: mac}} }
	index := hardware.Index{}
	for _, name := range []string{"atom001", "atom002", "atom003"} {
		index.Add(name, port(strings.ToUpper(macOfPort)))
		index.Add(name, port(strings.ToUpper(macOfPort))) // a bond: both ports have it
	}
	index.Add("atom004", port(""))
	for name, test := range map[string]struct {
		recorded string
		want     string
	}{
		"atom001": {macOfPort, ""},
		"atom002": {"52:54:00:03:00:02", "the MAC address 52:54:00:03:00:01 of its port eth0 is one of atom001, too"},
		"atom003": {"", "the MAC address 52:54:00:03:00:01 of its port eth0 is one of atom001, too"},
	} {
		got := index.Doubled(name, port(macOfPort), []hardware.RecordedPort{{Name: name, MAC: test.recorded}})
		if text := strings.Join(got, "; "); text != test.want {
			t.Errorf("%s: %q", name, text)
		}
	}
	if got := index.Doubled("atom004", port(""), nil); len(got) > 0 {
		t.Errorf("%q", got)
	}
	if len(index[macOfPort]) != 2 {
		t.Errorf("kept %q", index[macOfPort])
	}
}
