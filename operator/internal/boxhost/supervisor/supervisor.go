package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

const (
	// retryEvery is the pause before something that was refused is tried again: an address may have come to the interface meanwhile.
	retryEvery = 5 * time.Second
	// probeSoon and probeEvery are the pauses between two rounds of queries, before and after all services have answered.
	probeSoon, probeEvery = 100 * time.Millisecond, 15 * time.Second
	// guardEvery is the pause between two looks at the firewall.
	guardEvery = 2 * time.Second
	// reportPause is the least pause between two reports.
	reportPause = time.Second
)

// lastGood is the file of what was served last, in the folder Place.State: a box host that is started while there is no API server goes on
// with that.
const lastGood = boxhost.Key

// Config is what a supervisor is told.
type Config struct {
	// Interface is the only one that is served.
	Interface string
	// Run, State, TFTP and Images are folders: of rendered files, of what outlives a restart, of first programs for PXE, and of the boot
	// image.
	Run, State, TFTP, Images string
	// User is who logs in by SSH, and UserID that user's number.
	User   string
	UserID uint32
	// Health is where probes and metrics are served.
	Health string
	// Desired gives what is to be served, as JSON, whenever that changes.
	Desired func(ctx context.Context, changed func([]byte))
	// Report tells somebody how the box host is; nil: nobody.
	Report func(ctx context.Context, report *boxhost.Report) error
	// Join answers requests to join the cluster; nil: they are refused.
	Join http.Handler
	Log  logr.Logger
}

// served is what is served now.
type served struct {
	desired   *boxhost.Desired
	rendering *boxhost.Rendering
	place     boxhost.Place
	// known are the MACs of servers, in whatever network.
	known map[string]bool
	// unexported is why no folder is served by NFS, though some are to be.
	unexported error
}

// Supervisor runs the services of a box host.
type Supervisor struct {
	Config

	state *state
	web   *web

	mutex     sync.Mutex
	children  map[string]*child
	current   *served
	strangers strangers
	// probeNow has services asked at once.
	probeNow chan struct{}
}

// New makes a supervisor.
func New(config Config) *Supervisor {
	return &Supervisor{
		Config: config, state: newState(), web: &web{images: config.Images, join: config.Join, limits: usualLimits()},
		children: map[string]*child{}, probeNow: make(chan struct{}, 1),
	}
}

// Serve serves until the context ends. The firewall stays as it is when it ends: without services, servers reach no more than before.
func (s *Supervisor) Serve(ctx context.Context) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	health := &http.Server{Addr: s.Health, Handler: s.state.handler(), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() {
		if err := health.ListenAndServe(); !isClosed(err) {
			failed <- fmt.Errorf("serve probes and metrics at %s: %w", s.Health, err)
		}
	}()
	defer func() { _ = health.Close() }()
	var running sync.WaitGroup
	for _, loop := range []func(context.Context){s.watchStrangers, s.probe, s.guard, s.report} {
		running.Go(func() { loop(ctx) })
	}
	newest := make(chan []byte, 1)
	running.Go(func() { s.Desired(ctx, func(data []byte) { replace(newest, data) }) })
	err := s.follow(ctx, newest, failed)
	for _, c := range s.children {
		c.stop()
	}
	s.web.close()
	running.Wait()
	return err
}

// replace puts the newest into a channel of one.
func replace(newest chan []byte, data []byte) {
	for {
		select {
		case newest <- data:
			return
		default:
		}
		select {
		case <-newest:
		default:
		}
	}
}

// follow serves the newest, and tries again what is refused.
func (s *Supervisor) follow(ctx context.Context, newest <-chan []byte, failed <-chan error) error {
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	data, err := os.ReadFile(filepath.Join(s.State, lastGood))
	if err == nil {
		s.take(ctx, data)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case data = <-newest:
			s.take(ctx, data)
		case <-retry.C:
			if data != nil {
				s.take(ctx, data)
			}
		}
	}
}

// prepare makes folders.
func (s *Supervisor) prepare(ctx context.Context) error {
	for _, folder := range []string{s.Run, filepath.Join(s.Run, boxhost.NISFolder), s.State, "/run/sshd", "/run/rpcbind", "/run/ganesha"} {
		if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // dnsmasq reads there as a user of its own
			return fmt.Errorf("make folder %s: %w", folder, err)
		}
	}
	for _, folder := range []string{filepath.Dir(s.Run), s.Run, s.State} {
		// sshd trusts no keys in a folder that others may write into, as volumes of pods are at first.
		if found, err := os.Stat(folder); err == nil && found.Mode().Perm() == 0o755 {
			continue
		}
		if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // as above
			return fmt.Errorf("set the rights of folder %s: %w", folder, err)
		}
	}
	return s.makeHostKey(ctx)
}

// take serves something, or says why not and goes on with what is served.
func (s *Supervisor) take(ctx context.Context, data []byte) {
	err := s.apply(ctx, data)
	if ctx.Err() != nil {
		return
	}
	var isNews bool
	s.state.set(func() {
		isNews = err != nil && (s.state.refused == nil || s.state.refused.Error() != err.Error())
		s.state.refused = err
	})
	if isNews {
		s.Log.Error(err, "a configuration is refused, and the one before goes on")
	}
}

// apply renders, checks, and puts into effect.
func (s *Supervisor) apply(ctx context.Context, data []byte) error {
	desired, err := boxhost.Decode(data)
	if err != nil {
		return err
	}
	// Once something is served, it goes on: a box host does not let go of servers because all Chassis have vanished.
	isIdle := len(desired.Networks) == 0 && s.now() == nil
	s.state.set(func() { s.state.idle = isIdle })
	if isIdle {
		return nil
	}
	address, err := addressOf(s.Interface)
	if err != nil {
		return err
	}
	place := boxhost.Place{
		Interface: s.Interface, Address: address, Run: s.Run, State: s.State, TFTP: s.TFTP, User: s.User, UserID: s.UserID,
	}
	unexported := s.whyNotExported(desired)
	if unexported != nil {
		desired.Exports = nil // everything else is served
	}
	rendering, err := boxhost.Render(desired, &place)
	if err != nil {
		return err
	}
	old := s.now()
	isElsewhere := old != nil && old.place != place
	if old != nil && old.rendering.Version == rendering.Version && !isElsewhere {
		return nil
	}
	if err := s.makeFolders(desired); err != nil {
		return err
	}
	if err := s.check(ctx, rendering); err != nil {
		return err
	}
	if err := s.commit(ctx, rendering, netip.AddrPortFrom(address.Addr(), boxhost.PortHTTP)); err != nil {
		return err
	}
	s.act(ctx, old, rendering, &place, isElsewhere)
	s.mutex.Lock()
	s.current = &served{desired: desired, rendering: rendering, place: place, known: desired.MACs(), unexported: unexported}
	s.mutex.Unlock()
	s.state.set(func() {
		s.state.serving, s.state.unready = rendering.Version, errors.New("it is being loaded")
		s.state.known.Set(float64(len(rendering.Known)))
	})
	replaceSignal(s.probeNow)
	if err := writeFile(filepath.Join(s.State, lastGood), data); err != nil {
		s.Log.Error(err, "what is served cannot be kept for the next start")
	}
	return nil
}

// commit has a checked rendering take effect. If anything fails, all files are as before, and so is what is served by HTTP.
func (s *Supervisor) commit(ctx context.Context, rendering *boxhost.Rendering, at netip.AddrPort) error {
	opened, err := s.web.open(ctx, at)
	if err != nil {
		return err
	}
	if err := s.run(ctx, "nft", "-f", filepath.Join(s.Run, next, boxhost.FirewallFile)); err != nil {
		opened.drop()
		return err
	}
	if err := moveFiles(filepath.Join(s.Run, next), s.Run, rendering.Files); err != nil {
		opened.drop()
		return err
	}
	if err := s.placeMaps(rendering); err != nil {
		opened.drop()
		return err
	}
	s.web.serve(opened, rendering)
	return nil
}

func replaceSignal(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// act starts, reloads, restarts and stops programs.
func (s *Supervisor) act(ctx context.Context, old *served, next *boxhost.Rendering, place *boxhost.Place, isElsewhere bool) {
	var before *boxhost.Rendering
	if old != nil {
		before = old.rendering
	}
	for _, u := range units() {
		do := actionFor(&u, before, next, isElsewhere)
		if u.name == unitDnsmasq && do == reload && s.mustPurge(next) {
			do = restart
		}
		if do != nothing {
			s.Log.Info("service", "name", u.name, "action", do, "configuration", next.Version)
			s.state.applied.WithLabelValues(string(do)).Inc()
		}
		if u.command == nil {
			continue // the firewall is in effect already
		}
		was := s.child(u.name)
		if do == stop || do == restart {
			was.stop()
			s.setChild(u.name, nil)
		}
		if u.name == unitDnsmasq && (do == start || do == restart) {
			s.purge(next)
		}
		switch do {
		case start, restart:
			s.setChild(u.name, startChild(ctx, s.Log, u.command(place), s.whenEnded(u.name), func(ctx context.Context) {
				if u.before != nil {
					u.before(ctx, place)
				}
			}))
		case reload:
			was.reload()
		case nothing, stop:
		}
	}
}

// whenEnded is what happens when a program has ended by itself.
func (s *Supervisor) whenEnded(name string) func() {
	ends := s.state.restarts.WithLabelValues(name)
	return func() {
		ends.Inc()
		if name != unitRPC {
			return
		}
		// Another rpcbind does not know of ypserv, which tells it when it starts.
		if served := s.child(unitNIS); served != nil {
			served.end()
		}
	}
}

// mustPurge says whether a lease is in the way of what is to be served.
func (s *Supervisor) mustPurge(r *boxhost.Rendering) bool {
	leases, err := os.ReadFile(filepath.Join(s.State, boxhost.Leases))
	if err != nil {
		return false // there are none
	}
	_, isNeeded := boxhost.PurgeLeases(string(leases), r.Files[boxhost.DHCPHosts])
	return isNeeded
}

// purge takes leases out that are in the way, while dnsmasq does not run.
func (s *Supervisor) purge(r *boxhost.Rendering) {
	path := filepath.Join(s.State, boxhost.Leases)
	leases, err := os.ReadFile(path) //nolint:gosec // a path of this package
	if err != nil {
		return // there are none
	}
	kept, isNeeded := boxhost.PurgeLeases(string(leases), r.Files[boxhost.DHCPHosts])
	if !isNeeded {
		return
	}
	if err := writeFile(path, []byte(kept)); err != nil {
		s.Log.Error(err, "servers whose blade was swapped wait for their address until the old lease has ended")
	}
}

func (s *Supervisor) child(name string) *child {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.children[name]
}

func (s *Supervisor) setChild(name string, of *child) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if of == nil {
		delete(s.children, name)
	} else {
		s.children[name] = of
	}
}

// whyEnded says which programs do not run. That a query is answered does not prove that: somebody else's program may have the port.
func (s *Supervisor) whyEnded() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.children)) {
		if err := s.children[name].why(); err != nil {
			errs = append(errs, fmt.Errorf("%s does not run: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (s *Supervisor) now() *served {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.current
}

// probe asks all services, again and again.
func (s *Supervisor) probe(ctx context.Context) {
	pause, patience := probeSoon, firstPatience
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.probeNow:
			patience = firstPatience
		case <-time.After(pause):
		}
		of := s.now()
		if of == nil {
			continue
		}
		err := s.whyEnded()
		if err == nil {
			err = errors.Join(askAll(ctx, probesOf(of.desired, of.rendering, &of.place), patience), of.unexported)
		}
		if ctx.Err() != nil || s.now() != of {
			continue
		}
		if err != nil {
			pause, patience = probeSoon, min(2*patience, longestPatience)
		} else {
			pause, patience = probeEvery, longestPatience
		}
		s.sayUnready(of, err)
	}
}

func (s *Supervisor) sayUnready(of *served, err error) {
	var was error
	s.state.set(func() { was, s.state.unready = s.state.unready, err })
	switch {
	case err == nil && was != nil:
		s.Log.Info("every service answers", "configuration", of.rendering.Version)
	case err != nil && (was == nil || was.Error() != err.Error()):
		s.Log.Info("a service does not answer", "why", err.Error())
	}
}

// guard puts the firewall back whenever somebody has flushed it.
func (s *Supervisor) guard(ctx context.Context) {
	for ctx.Err() == nil {
		wait(ctx, guardEvery)
		if s.now() == nil || ctx.Err() != nil || firewallIsThere(ctx) == nil || ctx.Err() != nil {
			continue
		}
		if err := s.run(ctx, "nft", "-f", filepath.Join(s.Run, boxhost.FirewallFile)); err != nil {
			s.Log.Error(err, "the firewall cannot be put back")
			continue
		}
		s.Log.Info("the firewall was put back: somebody had taken it away", "table", boxhost.Table)
	}
}

// watchStrangers takes down who asks for addresses.
func (s *Supervisor) watchStrangers(ctx context.Context) {
	for ctx.Err() == nil {
		err := sniff(ctx, s.Interface, func(mac string) {
			of := s.now()
			if of == nil {
				return // nobody is known yet
			}
			if of.known[mac] {
				return
			}
			s.mutex.Lock()
			isNews := s.strangers.see(time.Now(), mac)
			s.mutex.Unlock()
			if isNews {
				replaceSignal(s.state.changed)
			}
		})
		if err != nil {
			s.Log.Error(err, "strangers are not seen for now")
			wait(ctx, retryEvery)
		}
	}
}

// cut is the beginning of a text, of whole characters, in at most so many bytes.
func cut(text string, most int) string {
	text = strings.ToValidUTF8(text, "?") // output of programs may be in it
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

func wait(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

// report tells how the box host is, whenever that has changed.
func (s *Supervisor) report(ctx context.Context) {
	var sent []byte
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.state.changed:
		case <-time.After(boxhost.ReportEvery):
		}
		report := s.reportNow()
		if report == nil || s.Report == nil {
			continue
		}
		data, err := report.Encode()
		if err == nil && bytes.Equal(data, sent) {
			wait(ctx, reportPause) // whoever floods the network has not more than one report made per pause
			continue
		}
		if err == nil {
			err = s.Report(ctx, report)
		}
		if err != nil && ctx.Err() == nil {
			s.Log.Error(err, "the report cannot be written")
			wait(ctx, retryEvery)
			replaceSignal(s.state.changed)
			continue
		}
		sent = data
		wait(ctx, reportPause)
	}
}

func (s *Supervisor) reportNow() *boxhost.Report {
	of := s.now()
	if of == nil {
		return nil
	}
	text, isReady, isRefused := s.state.text()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	report := &boxhost.Report{
		Network: of.rendering.Network, Address: of.place.Address.Addr(), Rendering: of.rendering.Version, Ready: isReady,
		Refused: isRefused, At: time.Now().UTC().Truncate(boxhost.ReportEvery),
		Message:   cut(text, boxhost.MaxMessage),
		Image:     imageVersion(s.Images),
		Strangers: s.strangers.list(time.Now(), func(mac string) bool { return of.known[mac] }),
	}
	s.state.unknown.Set(float64(len(report.Strangers)))
	return report
}
