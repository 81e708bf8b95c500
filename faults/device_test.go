package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// loopDevice is a block device over a file of so many bytes.
func loopDevice(t *testing.T, bytes int64) (device, file string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: a block device over a file (losetup) needs root; run as root")
	}
	file = filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, bytes); err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command("losetup", "--find", "--show", file).Output()
	if err != nil {
		t.Skipf("NOT TESTED: no block device over a file can be made here: losetup: %v", withStderr(err))
	}
	device = strings.TrimSpace(string(output))
	t.Cleanup(func() {
		if err := exec.Command("losetup", "--detach", device).Run(); err != nil {
			t.Errorf("losetup --detach %s: %v", device, withStderr(err))
		}
	})
	return device, file
}

// withStderr is an error of a program with what that said.
func withStderr(err error) error {
	var ended *exec.ExitError
	if errors.As(err, &ended) && len(ended.Stderr) > 0 {
		return errors.New(strings.TrimSpace(string(ended.Stderr)))
	}
	return err
}

// TestBlockDevice: backups whose storages are block devices, which are used whole. All processes are killed, and everything comes
// back from the devices. One of these has become larger when its next process comes: that has more frames.
func TestBlockDevice(t *testing.T) {
	const frames = 60
	members := []string{"m0", "m1", "m2"}
	files, devices := map[string]string{}, map[string]string{}
	for _, member := range members {
		devices[member], files[member] = loopDevice(t, (frames+1)*frameBytes)
	}
	s := startStore(t, onLoopback)
	for _, member := range members {
		s.add(member, append(slices.Clone(replicated), "-f", devices[member], "--durability", "flushed")...)
	}
	for _, member := range members {
		s.waitReady(member)
		s.waitFrames(member, frames)
	}
	clients := record(t, s.locator, usual)
	clients.waitProgress(usual.keys, 20)

	// A device belongs to one process.
	second := start(t, "second", "", nil, command(s.words("second", append(slices.Clone(replicated), "-f", devices["m1"])...)))
	t.Cleanup(second.kill)
	second.waitEnd()
	second.waitLogged(devices["m1"], "busy")

	if err := os.Truncate(files["m0"], 2*(frames+1)*frameBytes); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("losetup", "--set-capacity", devices["m0"]).Run(); err != nil {
		t.Fatal(withStderr(err))
	}
	s.replaceAll()
	clients.waitProgress(usual.keys, 20)
	for _, member := range members {
		s.waitReady(member)
	}
	s.servers["m0"].waitLogged("from now on; it had 60")
	s.waitFrames("m0", 2*frames+1)
	s.waitFrames("m1", frames)
	judge(t, usual.keys, clients)
}

// waitFrames waits until a member has so many frames, free or not.
func (s *store) waitFrames(member string, wanted float64) {
	s.t.Helper()
	waitFor(s.t, fmt.Sprintf("%v frames of %s", wanted, member), func() error {
		var found float64
		for _, kind := range []string{"free", "open", "closed"} {
			frames, err := s.metric(member, "rcbox_backup_frames_"+kind)
			if err != nil {
				return err
			}
			found += frames
		}
		if found != wanted {
			return fmt.Errorf("it has %v", found)
		}
		return nil
	})
}
