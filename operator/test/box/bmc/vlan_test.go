package bmc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rcbox.dev/rcbox/operator/internal/bmc/ipmi"
)

// TestVLAN: what our client sets, ipmitool reads, and the other way round.
func TestVLAN(t *testing.T) {
	start(t)
	const address = "192.168.5.7"
	_ = dial(t, address) // it listens now
	session, err := ipmi.DialAdministrator(t.Context(), access(address))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
		t.Fatal(err)
	}
	ipmitool := func(words ...string) string {
		t.Helper()
		arguments := append([]string{"-I", "lanplus", "-C", "3", "-U", username, "-f", file, "-H", address}, words...)
		output, err := exec.CommandContext(t.Context(), "ipmitool", arguments...).CombinedOutput()
		if err != nil {
			t.Fatalf("ipmitool %v: %v\n%s", words, err, output)
		}
		return string(output)
	}
	reads := func(want int) {
		t.Helper()
		if got, err := session.VLAN(t.Context()); err != nil || got != want {
			t.Errorf("it is in VLAN %d (%v), not %d", got, err, want)
		}
	}
	reads(0)
	if err := session.SetVLAN(t.Context(), 4092); err != nil {
		t.Fatal(err)
	}
	reads(4092)
	if text := ipmitool("lan", "print", "1"); !strings.Contains(text, "802.1q VLAN ID          : 4092") {
		t.Errorf("ipmitool says:\n%s", text)
	}
	ipmitool("lan", "set", "1", "vlan", "id", "12")
	reads(12)
	if err := session.SetVLAN(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	reads(0)
	if text := ipmitool("lan", "print", "1"); !strings.Contains(text, "802.1q VLAN ID          : Disabled") {
		t.Errorf("ipmitool says:\n%s", text)
	}
	for _, id := range []int{-1, 4095, 1 << 20} {
		if err := session.SetVLAN(t.Context(), id); err == nil {
			t.Errorf("VLAN %d is set", id)
		}
	}
}
