package blade

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// host is a box host that serves an image, and may be a bad one.
type host struct {
	files map[string][]byte
	// disk answers for the piece `disk` in place of a good host; asked counts.
	disk  func(w http.ResponseWriter, r *http.Request, count int32)
	asked atomic.Int32
}

func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/image/")
	content, isThere := h.files[name]
	switch {
	case !isThere:
		http.NotFound(w, r)
	case name == "disk" && h.disk != nil:
		h.disk(w, r, h.asked.Add(1))
	default:
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	}
}

// keys are a pair that is the same in all tests.
func keys() (ed25519.PublicKey, ed25519.PrivateKey) {
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	return private.Public().(ed25519.PublicKey), private //nolint:forcetypeassert // as documented
}

// newHost serves a signed image of noise.
func newHost(t *testing.T) (*host, ed25519.PublicKey) {
	t.Helper()
	public, private := keys()
	var packed bytes.Buffer
	writer, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Write(picture(1)); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"kernel": []byte("k"), "initrd": []byte("i"), "disk": packed.Bytes()}
	manifest := Manifest{Version: "v1"}
	for name, piece := range map[string]*Piece{"kernel": &manifest.Kernel, "initrd": &manifest.Initrd, "disk": &manifest.Disk} {
		if *piece, err = Measure(bytes.NewReader(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	manifest.Disk.RawSize = imageBytes
	if files["manifest.json"], files["manifest.sig"], err = Sign(private, manifest); err != nil {
		t.Fatal(err)
	}
	return &host{files: files}, public
}

// fetches downloads with a clock that does not wait; it gives how many pauses there were.
func fetches(t *testing.T, h *host, key ed25519.PublicKey, memory int64) (image Download, pauses []time.Duration, err error) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	fetcher := &Fetcher{
		Client: server.Client(), Hosts: []string{server.Listener.Addr().String()}, Report: func(error) {},
		Wait: func(_ context.Context, pause time.Duration) error {
			pauses = append(pauses, pause)
			return nil
		},
	}
	image, err = GetImage(t.Context(), fetcher, key, memory, func(int64) {})
	return image, pauses, err
}

const enough = 1 << 30

func TestImageIsDownloadedAndUnpacked(t *testing.T) {
	t.Parallel()
	h, key := newHost(t)
	image, pauses, err := fetches(t, h, key, enough)
	if err != nil || len(pauses) > 0 {
		t.Fatalf("%v, after %v", err, pauses)
	}
	content, err := Unpack(image.Disk)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	disk := newDisk(1)
	layout, err := PlanLayout(diskBytes, make([]byte, headBytes), Wish{SystemBytes: 1 << 30, ImageBytes: imageBytes})
	if err != nil {
		t.Fatal(err)
	}
	if err := Install(t.Context(), disk, Image{content, image.Manifest.Disk.RawSize}, layout, record(1), quiet); err != nil {
		t.Fatal(err)
	}
	if whole(disk) != 1 {
		t.Error("the image is not whole")
	}
}

// TestCutDownloadsGoOn: a host that cuts each answer short is asked for the rest, and only for the rest.
func TestCutDownloadsGoOn(t *testing.T) {
	t.Parallel()
	h, key := newHost(t)
	content := h.files["disk"]
	var served atomic.Int64
	h.disk = func(w http.ResponseWriter, r *http.Request, _ int32) {
		from := int64(0)
		if text := r.Header.Get("Range"); text != "" {
			from, _ = strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(text, "bytes="), "-"), 10, 64)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(content)-1, len(content)))
		}
		w.Header().Set("Content-Length", strconv.FormatInt(int64(len(content))-from, 10))
		if from > 0 {
			w.WriteHeader(http.StatusPartialContent)
		}
		half := (int64(len(content)) - from + 1) / 2
		if half < 1000 {
			half = int64(len(content)) - from
		}
		served.Add(half)
		_, _ = w.Write(content[from : from+half])
	}
	image, pauses, err := fetches(t, h, key, enough)
	if err != nil || !bytes.Equal(image.Disk, content) {
		t.Fatal(err)
	}
	if len(pauses) < 5 || served.Load() != int64(len(content)) {
		t.Errorf("%d pauses, and %d bytes were served of %d", len(pauses), served.Load(), len(content))
	}
}

func TestBadHosts(t *testing.T) {
	t.Parallel()
	_, otherKey, err := ed25519.GenerateKey(rand.NewChaCha8([32]byte{}))
	if err != nil {
		t.Fatal(err)
	}
	cut := func(w http.ResponseWriter) { // before the first byte
		w.Header().Set("Content-Length", "1000000")
		w.WriteHeader(http.StatusOK)
		panic(http.ErrAbortHandler)
	}
	for name, test := range map[string]struct {
		change func(*host)
		memory int64
		want   error
		pauses int
	}{
		"flipped bit of the disk": {func(h *host) { h.files["disk"][len(h.files["disk"])/2] ^= 1 }, enough, ErrCorrupt, 0},
		"flipped bit of the manifest": {func(h *host) {
			h.files["manifest.json"] = bytes.Replace(h.files["manifest.json"], []byte("v1"), []byte("v0"), 1)
		}, enough, ErrSignature, 0},
		"signed by somebody else": {func(h *host) {
			h.files["manifest.sig"] = ed25519.Sign(otherKey, h.files["manifest.json"])
		}, enough, ErrSignature, 0},
		"no signature":     {func(h *host) { h.files["manifest.sig"] = nil }, enough, ErrSignature, 0},
		"a long signature": {func(h *host) { h.files["manifest.sig"] = make([]byte, 100) }, enough, ErrDownload, maxBarrenAttempts - 1},
		"a long manifest": {func(h *host) {
			h.files["manifest.json"] = make([]byte, maxManifestBytes+1)
		}, enough, ErrDownload, maxBarrenAttempts - 1},
		"no manifest":      {func(h *host) { delete(h.files, "manifest.json") }, enough, ErrDownload, 0},
		"shorter disk":     {func(h *host) { h.files["disk"] = h.files["disk"][:1000] }, enough, ErrCorrupt, 0},
		"longer disk":      {func(h *host) { h.files["disk"] = append(h.files["disk"], 0) }, enough, ErrCorrupt, 0},
		"more than memory": {func(*host) {}, 1000, ErrDownload, 0},
		"cut, again and again": {func(h *host) {
			h.disk = func(w http.ResponseWriter, _ *http.Request, _ int32) { cut(w) }
		}, enough, ErrDownload, maxBarrenAttempts - 1},
		"an error, again and again": {func(h *host) {
			h.disk = func(w http.ResponseWriter, _ *http.Request, _ int32) {
				http.Error(w, "busy", http.StatusServiceUnavailable)
			}
		}, enough, ErrDownload, maxBarrenAttempts - 1},
		"one byte at a time": {func(h *host) {
			content := h.files["disk"]
			h.disk = func(w http.ResponseWriter, _ *http.Request, count int32) {
				if count > 1 {
					w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-", count-1))
					w.WriteHeader(http.StatusPartialContent)
				}
				_, _ = w.Write(content[count-1 : count])
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
		}, enough, ErrDownload, maxAttempts - 1},
		"another range": {func(h *host) {
			content := h.files["disk"]
			h.disk = func(w http.ResponseWriter, _ *http.Request, count int32) {
				if count > 1 {
					w.Header().Set("Content-Range", "bytes 7-")
					w.WriteHeader(http.StatusPartialContent)
				}
				_, _ = w.Write(content[:1000])
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
		}, enough, ErrDownload, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, key := newHost(t)
			test.change(h)
			_, pauses, err := fetches(t, h, key, test.memory)
			if !errors.Is(err, test.want) || len(pauses) != test.pauses {
				t.Errorf("after %d pauses: %v", len(pauses), err)
			}
			for i, pause := range pauses {
				if pause > longestPause || i > 0 && test.pauses < maxAttempts-1 && pause < pauses[i-1] {
					t.Errorf("pauses %v", pauses)
				}
			}
		})
	}
}

// TestHostThatIgnoresRanges: one that starts over each time is not taken at its word.
func TestHostThatIgnoresRanges(t *testing.T) {
	t.Parallel()
	h, key := newHost(t)
	content := h.files["disk"]
	h.disk = func(w http.ResponseWriter, _ *http.Request, _ int32) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = io.Copy(w, bytes.NewReader(content[:len(content)/2]))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	if _, _, err := fetches(t, h, key, enough); !errors.Is(err, ErrDownload) {
		t.Errorf("it says: %v", err)
	}
}

// TestHostsStandInForEachOther: of two, either ends in the middle of the download, and the other goes on.
func TestHostsStandInForEachOther(t *testing.T) {
	t.Parallel()
	h, key := newHost(t)
	content := h.files["disk"]
	dying := &host{files: h.files, disk: func(w http.ResponseWriter, _ *http.Request, count int32) {
		if count > 1 {
			http.NotFound(w, nil)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content[:len(content)/3])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}}
	one, other := httptest.NewServer(dying), httptest.NewServer(h)
	defer one.Close()
	defer other.Close()
	for _, hosts := range [][]string{
		{one.Listener.Addr().String(), other.Listener.Addr().String()},
		{"127.0.0.1:1", one.Listener.Addr().String(), other.Listener.Addr().String()},
	} {
		dying.asked.Store(0)
		fetcher := &Fetcher{
			Client: &http.Client{}, Hosts: hosts, Report: func(error) {}, Wait: func(context.Context, time.Duration) error { return nil },
		}
		image, err := GetImage(t.Context(), fetcher, key, enough, func(int64) {})
		if err != nil || !bytes.Equal(image.Disk, content) {
			t.Errorf("%v: %v", hosts, err)
		}
	}
}

// TestBadHostKeepsNobodyFromTheNext: of two hosts, one has damaged files, or those of two images, as while images are being replaced.
func TestBadHostKeepsNobodyFromTheNext(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(map[string][]byte){
		"disk":             func(files map[string][]byte) { files["disk"][len(files["disk"])/2] ^= 1 },
		"shorter disk":     func(files map[string][]byte) { files["disk"] = files["disk"][:1000] },
		"manifest":         func(files map[string][]byte) { files["manifest.json"][20] ^= 1 },
		"signature":        func(files map[string][]byte) { files["manifest.sig"][20] ^= 1 },
		"no signature yet": func(files map[string][]byte) { delete(files, "manifest.sig") },
		"long signature":   func(files map[string][]byte) { files["manifest.sig"] = make([]byte, 100) },
	} {
		bad, key := newHost(t)
		good, _ := newHost(t)
		change(bad.files)
		servers := []*httptest.Server{httptest.NewServer(bad), httptest.NewServer(good)}
		for first := range servers {
			fetcher := &Fetcher{
				Client: &http.Client{}, Report: func(error) {}, Wait: func(context.Context, time.Duration) error { return nil },
				Hosts: []string{servers[first].Listener.Addr().String(), servers[1-first].Listener.Addr().String()},
			}
			image, err := GetImage(t.Context(), fetcher, key, enough, func(int64) {})
			if err != nil || !bytes.Equal(image.Disk, good.files["disk"]) {
				t.Errorf("%s, host %d first: %v", name, first, err)
			}
		}
		servers[0].Close()
		servers[1].Close()
	}
}

func TestParseHosts(t *testing.T) {
	t.Parallel()
	if hosts, err := ParseHosts("192.168.3.254,192.168.3.253:8080"); err != nil || len(hosts) != 2 {
		t.Errorf("%v, %v", hosts, err)
	}
	for _, text := range []string{
		"", ",", "http://192.168.3.254", "192.168.3.254/x", "192.168.3.254, 192.168.3.253", strings.Repeat("1.1.1.1,", 20),
	} {
		if _, err := ParseHosts(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}
