package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"rcbox.dev/rcbox/operator/internal/perf"
	"rcbox.dev/rcbox/operator/internal/resources"
)

const (
	perfTimeout    = 5 * time.Second
	maxReportBytes = 512 << 10
)

// perfDocuments are what a ConfigMap keeps of a run, each with the most that there is room for: together less than the 1 MiB that an
// object may have.
var perfDocuments = []struct {
	name     string
	maxBytes int64
}{
	{"results.json", 500 << 10},
	{"table.txt", 200 << 10},
	{"plot.svg", 200 << 10},
}

// errTooLong is of an answer that is longer than there is room for.
var errTooLong = errors.New("it is too long")

// HTTPPerfReader asks clients over HTTP.
type HTTPPerfReader struct{ Client *http.Client }

// NewHTTPPerfReader makes one that goes where it is told to and nowhere else: who answers may have been made by anybody.
func NewHTTPPerfReader() *HTTPPerfReader {
	return &HTTPPerfReader{Client: &http.Client{
		Timeout:       perfTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{DisableKeepAlives: true},
	}}
}

// Report implements PerfReader.
func (h *HTTPPerfReader) Report(ctx context.Context, ip string) (*perf.Report, error) {
	text, err := h.get(ctx, ip, "report", maxReportBytes)
	if err != nil {
		return nil, err
	}
	report := &perf.Report{}
	if err := json.Unmarshal(text, report); err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	return report, nil
}

// Documents implements PerfReader. One that is too long is left out, and the others say so.
func (h *HTTPPerfReader) Documents(ctx context.Context, ip string) (map[string]string, error) {
	documents := map[string]string{}
	for _, document := range perfDocuments {
		text, err := h.get(ctx, ip, document.name, document.maxBytes)
		switch {
		case errors.Is(err, errTooLong):
			documents["omitted.txt"] += fmt.Sprintf("%s: more than %d bytes\n", document.name, document.maxBytes)
		case err != nil:
			return nil, err
		default:
			documents[document.name] = strings.ToValidUTF8(string(text), "?")
		}
	}
	return documents, nil
}

func (h *HTTPPerfReader) get(ctx context.Context, ip, path string, most int64) ([]byte, error) {
	url := "http://" + net.JoinHostPort(ip, strconv.Itoa(resources.PerfHTTPPort)) + "/" + path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", path, err)
	}
	answer, err := h.Client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", path, err)
	}
	defer answer.Body.Close() //nolint:errcheck // nothing is lost with it
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask for %s: %s", path, answer.Status)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", path, err)
	case int64(len(text)) > most:
		return nil, fmt.Errorf("read %s: %w", path, errTooLong)
	}
	return text, nil
}
