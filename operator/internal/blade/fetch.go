package blade

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// ErrDownload is wrapped by errors of a box host that does not give a file, and of networks on the way.
var ErrDownload = errors.New("a download failed")

// errFinal is wrapped by those that another attempt cannot mend.
var errFinal = errors.New("not tried again")

// Limits of a download.
const (
	// idleTime without a byte ends an attempt.
	idleTime = 30 * time.Second
	// attempts that bring not one byte, in a row, end the download.
	maxBarrenAttempts = 6
	// attempts at all end it, too: a host that gives a byte each time is no host.
	maxAttempts  = 60
	firstPause   = time.Second
	longestPause = 15 * time.Second
)

// Fetcher downloads over HTTP. A download that was cut goes on where it ended, from the next box host.
type Fetcher struct {
	Client *http.Client
	// Hosts are the addresses of box hosts that serve the same, such as 192.168.3.254.
	Hosts []string
	// Wait returns once a time has passed, or with the error of its context.
	Wait func(ctx context.Context, pause time.Duration) error
	// Report is told why an attempt failed.
	Report func(err error)

	at int // which host is asked
}

// ParseHosts reads a list of box hosts, as it is on the kernel's command line.
func ParseHosts(text string) ([]string, error) {
	const most = 16
	hosts := strings.Split(text, ",")
	if len(hosts) > most {
		return nil, fmt.Errorf("there are %d box hosts, more than %d", len(hosts), most)
	}
	for _, host := range hosts {
		if _, err := netip.ParseAddr(host); err == nil {
			continue
		}
		if _, err := netip.ParseAddrPort(host); err != nil {
			return nil, fmt.Errorf("box host %q is neither an address such as 192.168.3.254, nor one with a port", host)
		}
	}
	return hosts, nil
}

// Small downloads a file of at most limit bytes.
func (f *Fetcher) Small(ctx context.Context, path string, limit int64) ([]byte, error) {
	var content []byte
	err := f.attempt(ctx, path, func(ctx context.Context, url string) (int64, error) {
		content = nil
		body, err := f.get(ctx, url, 0, -1)
		if err != nil {
			return 0, err
		}
		defer func() { _ = body.Close() }() // read only
		content, err = readAtMost(body, limit)
		if err != nil {
			return 0, fmt.Errorf("%w: %s: %w", ErrDownload, url, err)
		}
		return int64(len(content)), nil
	})
	return content, err
}

// Piece downloads a piece of an image into memory, and compares it with its manifest.
func (f *Fetcher) Piece(ctx context.Context, path string, piece Piece, progress func(int64)) ([]byte, error) {
	content := make([]byte, 0, piece.Size)
	err := f.attempt(ctx, path, func(ctx context.Context, url string) (int64, error) {
		before := len(content)
		body, err := f.get(ctx, url, int64(before), piece.Size)
		if err != nil {
			return 0, err
		}
		defer func() { _ = body.Close() }() // read only
		for int64(len(content)) < piece.Size {
			n, err := body.Read(content[len(content):min(int64(len(content)+chunkBytes), piece.Size)])
			content = content[:len(content)+n]
			progress(int64(len(content)))
			if int64(len(content)) == piece.Size {
				break
			}
			if err != nil {
				return int64(len(content) - before),
					fmt.Errorf("%w: %s ended after %d of %d bytes: %w", ErrDownload, url, len(content), piece.Size, err)
			}
		}
		return int64(len(content) - before), nil
	})
	if err != nil {
		return nil, err
	}
	return content, piece.Check(path, content)
}

// attempt tries until all is there, or nothing more comes. After a failure, the next host is asked.
func (f *Fetcher) attempt(ctx context.Context, path string, try func(context.Context, string) (int64, error)) error {
	pause, barren, final := firstPause, 0, 0
	for count := 1; ; count++ {
		n, err := try(ctx, "http://"+f.Hosts[f.at%len(f.Hosts)]+path)
		if err == nil {
			return nil
		}
		f.at++
		if n > 0 {
			barren, pause = 0, firstPause
		} else {
			barren++
		}
		if errors.Is(err, errFinal) {
			final++
		} else {
			final = 0
		}
		switch {
		case ctx.Err() != nil, final == len(f.Hosts):
			return err
		case barren == maxBarrenAttempts:
			return fmt.Errorf("%d attempts in a row brought nothing; do the box hosts %s answer? %w", barren,
				strings.Join(f.Hosts, ", "), err)
		case count == maxAttempts:
			return fmt.Errorf("after %d attempts: %w", count, err)
		}
		f.Report(err)
		if err := f.Wait(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, longestPause)
	}
}

// get asks for the bytes from an offset on; size is that of the whole, or -1 if it is not known.
func (f *Fetcher) get(ctx context.Context, url string, from, size int64) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watch := time.AfterFunc(idleTime, func() { cancel(fmt.Errorf("no byte came for %s", idleTime)) })
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		cancel(nil)
		return nil, fmt.Errorf("%w: %w: %w", ErrDownload, errFinal, err)
	}
	if from > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	response, err := f.Client.Do(request) //nolint:bodyclose // the caller does
	if err != nil {
		cancel(nil)
		return nil, fmt.Errorf("%w: %w", ErrDownload, err)
	}
	body := &watched{ReadCloser: response.Body, watch: watch, cancel: func() { cancel(nil) }}
	if err := judge(response, url, from, size); err != nil {
		_ = body.Close() // the error says what was wrong
		return nil, err
	}
	return body, nil
}

// judge says whether an answer has the bytes that were asked for.
func judge(response *http.Response, url string, from, size int64) error {
	wanted, length := http.StatusOK, size
	if from > 0 {
		wanted, length = http.StatusPartialContent, size-from
	}
	switch {
	case response.StatusCode >= http.StatusBadRequest && response.StatusCode < http.StatusInternalServerError &&
		response.StatusCode != http.StatusTooManyRequests && response.StatusCode != http.StatusRequestTimeout:
		return fmt.Errorf("%w: %w: the box host answers %q to GET %s", ErrDownload, errFinal, response.Status, url)
	case response.StatusCode != wanted:
		return fmt.Errorf("%w: the box host answers %q to GET %s from byte %d", ErrDownload, response.Status, url, from)
	case size >= 0 && response.ContentLength >= 0 && response.ContentLength != length:
		return fmt.Errorf("%w: %w: %w: %s has %d bytes from byte %d on, and its manifest says %d; is an image being replaced?",
			ErrDownload, errFinal, ErrCorrupt, url, response.ContentLength, from, length)
	case from > 0 && !strings.HasPrefix(response.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", from)):
		return fmt.Errorf("%w: %w: the box host gives the range %q of %s, not that from byte %d on", ErrDownload, errFinal,
			response.Header.Get("Content-Range"), url, from)
	}
	return nil
}

// watched is a body that is given up if no byte comes for idleTime.
type watched struct {
	io.ReadCloser
	watch  *time.Timer
	cancel func()
}

func (w *watched) Read(into []byte) (int, error) {
	n, err := w.ReadCloser.Read(into)
	if n > 0 {
		w.watch.Reset(idleTime)
	}
	return n, err //nolint:wrapcheck // the caller says of what
}

func (w *watched) Close() error {
	w.watch.Stop()
	w.cancel()
	return w.ReadCloser.Close() //nolint:wrapcheck // nobody asks
}

// Download is an image that was downloaded and verified.
type Download struct {
	Manifest Manifest
	// Digest is the SHA-256 of the manifest.
	Digest string
	// Disk is the piece `disk`, compressed.
	Disk []byte
}

const imagePath = "/image/"

// GetImage downloads manifest and disk, and verifies both. availableBytes is what memory there is for it. Manifest and signature come from
// one box host. The disk may come from several, and if that is no whole image, from this one host alone. A host whose files are damaged, or
// not yet all of one image, does not keep a blade from those of the next one.
func GetImage(ctx context.Context, fetcher *Fetcher, key ed25519.PublicKey, availableBytes int64, progress func(int64)) (Download, error) {
	var failures []error
	for range fetcher.Hosts {
		text, err := fetcher.Small(ctx, imagePath+"manifest.json", maxManifestBytes)
		if err != nil {
			return Download{}, errors.Join(append(failures, err)...)
		}
		host := fetcher.at
		image, err := fetcher.imageOf(ctx, key, text, availableBytes, progress)
		if err == nil || !isOfHost(err) {
			return image, err
		}
		failures = append(failures, fmt.Errorf("box host %s: %w", fetcher.Hosts[host%len(fetcher.Hosts)], err))
		fetcher.Report(failures[len(failures)-1])
		fetcher.at = host + 1
	}
	return Download{}, errors.Join(failures...)
}

// isOfHost says whether another host's files may be better.
func isOfHost(err error) bool {
	return errors.Is(err, ErrSignature) || errors.Is(err, ErrManifest) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrDownload)
}

// imageOf has the manifest of the host that is asked now.
func (f *Fetcher) imageOf(ctx context.Context, key ed25519.PublicKey, text []byte, availableBytes int64, progress func(int64),
) (Download, error) {
	alone := *f
	alone.Hosts, alone.at = []string{f.Hosts[f.at%len(f.Hosts)]}, 0
	signature, err := alone.Small(ctx, imagePath+"manifest.sig", ed25519.SignatureSize)
	if err != nil {
		return Download{}, err
	}
	manifest, err := OpenManifest(key, text, signature)
	if err != nil {
		return Download{}, err
	}
	if manifest.Disk.Size > availableBytes {
		return Download{}, fmt.Errorf("%w: the image has %d MiB, and %d MiB of memory are free, in which it is to be verified "+
			"before anything is written", ErrDownload, manifest.Disk.Size>>20, availableBytes>>20)
	}
	disk, err := f.Piece(ctx, imagePath+"disk", manifest.Disk, progress)
	if errors.Is(err, ErrCorrupt) && len(f.Hosts) > 1 {
		f.Report(err)
		disk, err = alone.Piece(ctx, imagePath+"disk", manifest.Disk, progress)
	}
	if err != nil {
		return Download{}, err
	}
	sum := sha256.Sum256(text)
	return Download{Manifest: manifest, Digest: hex.EncodeToString(sum[:]), Disk: disk}, nil
}
