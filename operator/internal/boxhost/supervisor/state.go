package supervisor

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// state is what a supervisor says of itself.
type state struct {
	mutex sync.Mutex
	// serving is the version that is served; empty before the first.
	serving string
	// idle: there is nothing to serve yet.
	idle bool
	// refused is why something newer is not served; nil: it is the newest.
	refused error
	// unready is why a service does not answer; nil: all do.
	unready error
	// reported is set whenever something has changed that is reported.
	changed chan struct{}

	registry *prometheus.Registry
	rejected prometheus.Gauge
	ready    prometheus.Gauge
	known    prometheus.Gauge
	unknown  prometheus.Gauge
	restarts *prometheus.CounterVec
	applied  *prometheus.CounterVec
}

func newState() *state {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "rcbox", Subsystem: "boxhost", Name: name, Help: help})
	}
	counter := func(name, help, label string) *prometheus.CounterVec {
		options := prometheus.CounterOpts{Namespace: "rcbox", Subsystem: "boxhost", Name: name, Help: help}
		return prometheus.NewCounterVec(options, []string{label})
	}
	s := &state{
		changed:  make(chan struct{}, 1),
		registry: prometheus.NewRegistry(),
		rejected: gauge("configuration_refused", "1 while the newest configuration is refused and the one before is served."),
		ready:    gauge("ready", "1 while every service answers by what is served."),
		known:    gauge("known_ports", "Ports of servers that DHCP answers."),
		unknown:  gauge("strangers", "Machines that asked for an address and are known by no Server."),
		restarts: counter("program_ends_total", "How often a program has ended by itself.", "program"),
		applied:  counter("actions_total", "What was done about services for new configurations.", "action"),
	}
	s.registry.MustRegister(s.rejected, s.ready, s.known, s.unknown, s.restarts, s.applied)
	return s
}

func (s *state) set(change func()) {
	s.mutex.Lock()
	change()
	s.rejected.Set(0)
	if s.refused != nil {
		s.rejected.Set(1)
	}
	s.ready.Set(0)
	if s.isReadyLocked() {
		s.ready.Set(1)
	}
	s.mutex.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *state) isReadyLocked() bool { return s.idle || s.serving != "" && s.unready == nil }

// text says in words what the box host serves, whether it is ready, and whether it refuses something newer.
func (s *state) text() (text string, isReady, isRefused bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	text = "nothing is served yet"
	switch {
	case s.serving != "" && s.unready != nil:
		text = fmt.Sprintf("configuration %s is served, but: %v", s.serving, s.unready)
	case s.serving != "":
		text = fmt.Sprintf("configuration %s is served", s.serving)
	case s.idle:
		text = "there is nothing to serve yet: no Chassis has a network (spec.networks[].cidr)"
	}
	if s.refused != nil {
		text += fmt.Sprintf("; a newer one is refused: %v", s.refused)
	}
	return text, s.isReadyLocked(), s.refused != nil
}

// handler serves probes of the kubelet and metrics.
func (s *state) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(to http.ResponseWriter, _ *http.Request) { _, _ = to.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(to http.ResponseWriter, _ *http.Request) {
		text, isReady, _ := s.text()
		if !isReady {
			to.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = fmt.Fprintln(to, text)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	return mux
}
