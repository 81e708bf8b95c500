package vf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree is a port with two functions, of which the second is on vfio-pci, as the kernel shows them.
func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, folder := range []string{"0000:01:00.0/net/eth1", "0000:01:10.0", "0000:01:10.2", "drivers/" + UserDriver} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"0000:01:00.0/virtfn0": "../0000:01:10.0",
		"0000:01:00.0/virtfn1": "../0000:01:10.2",
		"0000:01:10.0/physfn":  "../0000:01:00.0",
		"0000:01:10.2/physfn":  "../0000:01:00.0",
		"0000:01:10.2/driver":  "../drivers/" + UserDriver,
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestFind(t *testing.T) {
	root := tree(t)
	for address, want := range map[string]Function{
		"0000:01:10.0": {Port: "eth1", Number: 0},
		"0000:01:10.2": {Port: "eth1", Number: 1, Driver: UserDriver},
	} {
		if got, err := Find(root, address); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", address, got, err, want)
		}
	}
}

func TestFindRefuses(t *testing.T) {
	root := tree(t)
	for address, why := range map[string]string{
		"0000:01:00.0":    "no virtual function",
		"0000:01:10.4":    "no PCI device",
		"":                "no PCI address",
		"../0000:01:10.0": "no PCI address",
	} {
		if got, err := Find(root, address); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %+v, %v; want an error with %q", address, got, err, why)
		}
	}
}

func TestFindNeedsAnInterfaceOfThePort(t *testing.T) {
	root := tree(t)
	if err := os.Remove(filepath.Join(root, "0000:01:00.0/net/eth1")); err != nil {
		t.Fatal(err)
	}
	if got, err := Find(root, "0000:01:10.0"); err == nil {
		t.Errorf("found %+v", got)
	}
}
