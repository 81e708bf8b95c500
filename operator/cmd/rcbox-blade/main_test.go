package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"rcbox.dev/rcbox/operator/internal/blade"
	"rcbox.dev/rcbox/operator/internal/blade/hardware"
	"rcbox.dev/rcbox/operator/internal/blade/machine"
)

// runs the program with arguments, and gives what it printed.
func runs(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	command := command()
	command.SetArgs(arguments)
	command.SetOut(&out)
	command.SetErr(&out)
	err := command.ExecuteContext(t.Context())
	return out.String(), err
}

// image makes and signs an image in a folder; it gives the folder and the file of the public key.
func image(t *testing.T) (folder, key string) {
	t.Helper()
	folder = t.TempDir()
	raw := bytes.Repeat([]byte{0xeb, 0x5a, 1, 2}, 1<<19) // 2 MiB
	clear(raw[1<<20-4096 : 1<<20])
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"kernel": []byte("k"), "initrd": []byte("i"), "disk": encoder.EncodeAll(raw, nil)} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	private := filepath.Join(t.TempDir(), "key")
	if _, err := runs(t, "keygen", private); err != nil {
		t.Fatal(err)
	}
	if _, err := runs(t, "sign", folder, "--key", private, "--version", "v1", "--raw-bytes", "2097152"); err != nil {
		t.Fatal(err)
	}
	return folder, private + ".pub"
}

func flip(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestKeysAreNotReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	for i, isRefused := range []bool{false, true} {
		if _, err := runs(t, "keygen", path); (err != nil) != isRefused {
			t.Errorf("time %d: %v", i, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	folder, key := image(t)
	if out, err := runs(t, "verify", folder, "--key", key); err != nil || out != "image v1 is signed, and whole\n" {
		t.Errorf("%q, %v", out, err)
	}
	for _, name := range []string{"kernel", "initrd", "disk"} {
		flip(t, filepath.Join(folder, name))
		if _, err := runs(t, "verify", folder, "--key", key); !errors.Is(err, blade.ErrCorrupt) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s with a flipped bit: %v", name, err)
		}
		flip(t, filepath.Join(folder, name))
	}
	flip(t, filepath.Join(folder, "manifest.json"))
	if _, err := runs(t, "verify", folder, "--key", key); !errors.Is(err, blade.ErrSignature) {
		t.Errorf("the manifest with a flipped bit: %v", err)
	}
}

// TestInstall installs over the network onto a file. What is not verified does not change one byte of the disk.
func TestInstall(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flips string
		size  int64
		want  error
	}{
		"whole":             {"", 3 << 30, nil},
		"flipped bit":       {"disk", 3 << 30, blade.ErrCorrupt},
		"flipped manifest":  {"manifest.json", 3 << 30, blade.ErrSignature},
		"flipped signature": {"manifest.sig", 3 << 30, blade.ErrSignature},
		"too small a disk":  {"", 2 << 30, blade.ErrTooSmall},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder, key := image(t)
			if test.flips != "" {
				flip(t, filepath.Join(folder, test.flips))
			}
			server := httptest.NewServer(http.StripPrefix("/image/", http.FileServer(http.Dir(folder))))
			defer server.Close()
			disk := filepath.Join(t.TempDir(), "disk")
			if err := errors.Join(os.WriteFile(disk, nil, 0o600), os.Truncate(disk, test.size)); err != nil {
				t.Fatal(err)
			}
			out, err := runs(t, "install", "--hosts", server.Listener.Addr().String(), "--disk", disk, "--key", key,
				"--mac", "52:54:00:03:00:01", "--system-mib", "1024")
			if !errors.Is(err, test.want) {
				t.Fatalf("%v\n%s", err, out)
			}
			device, err := machine.OpenDevice(disk, false)
			if err != nil {
				t.Fatal(err)
			}
			defer device.Close()
			head, err := blade.Head(device)
			if err != nil {
				t.Fatal(err)
			}
			if test.want != nil {
				if blade.KindOf(head) != blade.Blank {
					t.Error("something was written")
				}
				return
			}
			if record, err := blade.ReadRecord(device); err != nil || record.Version != "v1" || record.MAC != "52:54:00:03:00:01" {
				t.Errorf("%+v, %v", record, err)
			}
		})
	}
}

func TestInstallNeedsHostsAndPort(t *testing.T) {
	t.Parallel()
	const host = "192.168.3.254"
	for _, arguments := range [][]string{{}, {"--hosts", "x"}, {"--hosts", host}, {"--hosts", host, "--mac", "eth0"}} {
		if _, err := runs(t, append([]string{"install"}, arguments...)...); err == nil {
			t.Errorf("%v was taken", arguments)
		}
	}
}

func TestSettingsAreWritten(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	place := filepath.Join(root, "etc/rcbox")
	if err := os.MkdirAll(place, 0o755); err != nil {
		t.Fatal(err)
	}
	for text, isTaken := range map[string]bool{`{"queues":4,"vfio":["8086:1520"]}`: true, `{"queues":0}`: false, `{`: false} {
		if err := os.WriteFile(filepath.Join(place, "settings.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := runs(t, "settings", "--root", root, "--memory", "machine"); (err == nil) != isTaken {
			t.Errorf("%s: %v", text, err)
		}
	}
	link, err := os.ReadFile(filepath.Join(root, "etc/systemd/network/70-rcbox-igb.link"))
	if err != nil || !strings.Contains(string(link), "CombinedChannels=4\n") {
		t.Errorf("%s, %v", link, err)
	}
	if _, err := runs(t, "settings", "--root", root, "--memory", "much"); err == nil {
		t.Error("an unknown memory was taken")
	}
}

func TestInventoryOfThisMachine(t *testing.T) {
	t.Parallel()
	out, err := runs(t, "inventory")
	var found hardware.Inventory
	if err != nil || json.Unmarshal([]byte(out), &found) != nil || found.MemoryBytes == 0 || found.CPU.Threads == 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestAnswersReplaceEachOther: a token that is dead is replaced. Without another answer, the files of the first one stay, and a
// blade that never had a whole one says that it has none.
func TestAnswersReplaceEachOther(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	refusal := errors.New("refused")
	refuses := func() ([]blade.File, error) { return nil, refusal }
	gives := func(text string) func() ([]blade.File, error) {
		return func() ([]blade.File, error) {
			return []blade.File{{Path: "/token", Mode: 0o600, Content: text}, {Path: blade.KubeletEnvironment, Mode: 0o600}}, nil
		}
	}
	for _, step := range []struct {
		ask   func() ([]blade.File, error)
		err   error
		token string
	}{{refuses, refusal, ""}, {gives("one"), nil, "one"}, {refuses, nil, "one"}, {gives("two"), nil, "two"}} {
		if err := renew(io.Discard, root, step.ask); !errors.Is(err, step.err) {
			t.Fatal(err)
		}
		token, err := os.ReadFile(filepath.Join(root, "token"))
		if string(token) != step.token {
			t.Errorf("the token is %q, not %q: %v", token, step.token, err)
		}
	}
}

// TestBoxHostsSendNobodyOn: the client of box hosts follows no redirects.
func TestBoxHostsSendNobodyOn(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.RedirectHandler("/other", http.StatusTemporaryRedirect))
	defer server.Close()
	hosts := []string{server.Listener.Addr().String()}
	_, err := blade.Join(t.Context(), boxHostClient(time.Minute), hosts, time.Minute, blade.JoinRequest{})
	if !errors.Is(err, blade.ErrRefused) || !strings.Contains(err.Error(), "307") {
		t.Error(err)
	}
}
