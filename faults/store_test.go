package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"rcbox.dev/rcbox/faults/contain"
)

// segmentFrames is what a backup that is nothing else has room for, of 2 MiB each.
const segmentFrames = 80

// store is a coordinator that keeps its state in a folder, and servers with their files beside it.
type store struct {
	t           *testing.T
	folder      string
	locator     string
	coordinator *process
	// The addresses of the coordinator, which its successors have as well.
	addresses []string
	servers   map[string]*server
	// around are words before those of the coordinator's command line.
	around []string
	// build is which version the coordinator behaves as.
	build build
	// processes of members, also those that have ended.
	processes []*process
	// hosts gives a member its address and network namespace.
	hosts func(member string) host
	// evensOut lets the coordinator move tablets by itself; elsewhere tests say what moves.
	evensOut bool
	// containers are the cgroups of those processes that have one, by their names.
	containers map[string]*contain.Group
}

// host is where a process runs.
type host struct{ address, namespace string }

// server is a process of a member, and what it was started with.
type server struct {
	*process
	words []string
	// locator is where it listens for clients.
	locator string
	http    string
}

func onLoopback(string) host { return host{address: "127.0.0.1"} }

// startStore starts a coordinator.
func startStore(t *testing.T, hosts func(string) host) *store {
	t.Helper()
	return (&store{t: t, hosts: hosts}).start()
}

func (s *store) start() *store {
	s.t.Helper()
	s.folder, s.servers = s.t.TempDir(), map[string]*server{}
	s.t.Cleanup(s.end)
	s.startCoordinator(s.hosts("coordinator").address + ":0")
	line := s.serving(s.coordinator, "member")
	s.locator = line["locator"]
	for _, which := range []string{"client", "member", "admin", "http"} {
		s.addresses = append(s.addresses, line[which])
	}
	return s
}

// withServers is a store of members m0, m1, ... that are masters and backups.
func withServers(t *testing.T, count int, more ...string) *store {
	t.Helper()
	s := startStore(t, onLoopback)
	s.addServers("m", count, more...)
	return s
}

func (s *store) startCoordinator(client string, more ...string) {
	s.t.Helper()
	words := []string{
		program(s.t, "coordinator"), "-C", tcp(client),
		"--state", "file:" + filepath.Join(s.folder, "state"), "--logFormat", "json",
	}
	if !s.evensOut {
		words = append(words, "--rebalance", "off")
	}
	command := s.command("coordinator", slices.Concat(s.around, s.build.of(append(words, more...))))
	s.coordinator = start(s.t, "coordinator", s.hosts("coordinator").namespace, nil, command)
}

// command is a program that is yet to be started, in its container if it has one.
func (s *store) command(name string, words []string) *exec.Cmd {
	if group := s.containers[name]; group != nil {
		return command(group.Words(words))
	}
	return command(words)
}

// restartCoordinator starts another one in the place of the one that was killed.
func (s *store) restartCoordinator() {
	s.t.Helper()
	s.startCoordinator(s.addresses[0],
		"--memberListen", s.addresses[1], "--adminListen", s.addresses[2], "--httpListen", s.addresses[3])
	s.serving(s.coordinator, "member")
}

func (s *store) addServers(prefix string, count int, more ...string) {
	s.t.Helper()
	for number := range count {
		s.add(fmt.Sprintf("%s%d", prefix, number), more...)
	}
	for number := range count {
		s.waitReady(fmt.Sprintf("%s%d", prefix, number))
	}
}

// file is where a member keeps its copies of others' objects.
func (s *store) file(member string) string { return filepath.Join(s.folder, member) }

// words is the command line of a member that is on a machine of its own, as far as the store knows.
func (s *store) words(member string, more ...string) []string {
	s.t.Helper()
	words := []string{
		program(s.t, "server"), "-C", s.locator, "-L", tcp(s.hosts(member).address + ":0"), "--member", member, "--hostId", member,
		"--logFormat", "json", "--pollMicros", "0",
	}
	if !slices.Contains(more, "-B") && !slices.Contains(more, "-t") {
		words = append(words, "-t", "64")
	}
	words = append(words, "--segmentMB", "2")
	if slices.Contains(more, "-B") {
		words = append(words, "--segmentFrames", strconv.Itoa(segmentFrames))
	}
	if !slices.Contains(more, "-M") && !slices.Contains(more, "-f") {
		words = append(words, "-f", s.file(member))
	}
	return append(words, more...)
}

// add starts a process of a new member.
func (s *store) add(member string, more ...string) {
	s.t.Helper()
	s.run(member, s.words(member, more...))
}

func (s *store) run(member string, words []string) {
	s.t.Helper()
	p := start(s.t, member, s.hosts(member).namespace, nil, s.command(member, words))
	s.processes = append(s.processes, p)
	started := &server{process: p, words: words}
	s.servers[member] = started
	started.locator = s.serving(p, `"shard":0`, `"member"`)["locator"]
	started.http = s.serving(p, "serving health")["http"]
}

// restart starts another process of a member in the place of one that has ended.
func (s *store) restart(member string) {
	s.t.Helper()
	s.run(member, s.servers[member].words)
}

// serving is the line that says where a process listens.
func (s *store) serving(p *process, parts ...string) map[string]string {
	s.t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(p.waitLogged(append(parts, "serving")...)), &fields); err != nil {
		s.t.Fatal(err)
	}
	texts := map[string]string{}
	for name, value := range fields {
		texts[name] = fmt.Sprint(value)
	}
	return texts
}

// get is the body of a page of a member's HTTP port.
func (s *store) get(member, path string) (string, error) {
	namespace := s.hosts(member).namespace
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (connection net.Conn, err error) {
			err = inNamespace(namespace, func() error {
				connection, err = new(net.Dialer).DialContext(ctx, network, address)
				return err
			})
			return connection, err
		},
	}}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+s.servers[member].http+path, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}

func (s *store) waitReady(member string) {
	s.t.Helper()
	waitFor(s.t, member+" to be ready", func() error {
		_, err := s.get(member, "/readyz")
		return err
	})
}

// metric is a number that a member shows.
func (s *store) metric(member, name string) (float64, error) {
	text, err := s.get(member, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ") {
			fields := strings.Fields(line)
			return strconv.ParseFloat(fields[len(fields)-1], 64)
		}
	}
	return 0, fmt.Errorf("%s shows no %s", member, name)
}

// waitCopies waits until no segment of these masters is short of copies.
func (s *store) waitCopies(masters ...string) {
	s.t.Helper()
	for _, member := range masters {
		s.waitShortness("all copies", member, func(segments float64) bool { return segments == 0 })
	}
}

// waitShort waits until a master misses copies.
func (s *store) waitShort(master string) {
	s.t.Helper()
	s.waitShortness("missing copies", master, func(segments float64) bool { return segments > 0 })
}

func (s *store) waitShortness(what, master string, holds func(segments float64) bool) {
	s.t.Helper()
	waitFor(s.t, what+" of "+master, func() error {
		short, err := s.metric(master, "rcbox_replication_segments_short")
		if err == nil && !holds(short) {
			err = fmt.Errorf("%v segments are short of copies", short)
		}
		return err
	})
}

// owners is how many tablets each member has, by the coordinator's account; those that nobody serves are under "".
func (s *store) owners() (map[string]int, error) {
	var tables []struct {
		Tablets []struct{ Member, State string }
	}
	if err := s.ask(&tables, "tables"); err != nil {
		return nil, err
	}
	owners := map[string]int{}
	for _, table := range tables {
		for _, tablet := range table.Tablets {
			if tablet.State != "NORMAL" {
				tablet.Member = ""
			}
			owners[tablet.Member]++
		}
	}
	return owners, nil
}

// ask reads what the command line tool prints.
func (s *store) ask(answer any, words ...string) error {
	return s.askWithin(5*time.Second, answer, words...)
}

func (s *store) askWithin(timeout time.Duration, answer any, words ...string) error {
	seconds := strconv.FormatFloat(timeout.Seconds(), 'f', -1, 64)
	cmd := command(append([]string{program(s.t, "rcbox"), "-C", s.locator, "--json", "--timeout", seconds}, words...))
	var output, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &problem
	if err := inNamespace(s.hosts("coordinator").namespace, cmd.Run); err != nil {
		return fmt.Errorf("rcbox %s: %w: %s", words[0], err, problem.String())
	}
	return json.Unmarshal(output.Bytes(), answer)
}

// waitOwner waits until a member has tablets.
func (s *store) waitOwner(member string) {
	s.t.Helper()
	waitFor(s.t, member+" to have tablets", func() error {
		owners, err := s.owners()
		if err == nil && owners[member] == 0 {
			err = fmt.Errorf("the owners are %v", owners)
		}
		return err
	})
}

// waitMoved waits until others than these members serve all tablets.
func (s *store) waitMoved(from ...string) {
	s.t.Helper()
	waitFor(s.t, fmt.Sprintf("other owners than %v", from), func() error {
		owners, err := s.owners()
		for _, member := range append(slices.Clone(from), "") {
			if count := owners[member]; err == nil && count > 0 {
				err = fmt.Errorf("%q has %d tablets", member, count)
			}
		}
		return err
	})
	for _, line := range s.coordinator.allLogged("recovered server") {
		s.t.Log(line)
	}
}

// member is what the coordinator knows of a member.
type member struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Shards []struct {
		ServerID string `json:"serverId"`
		Backup   struct {
			StalledReason string `json:"stalledReason"`
		} `json:"backup"`
	} `json:"shards"`
}

func (s *store) member(name string) (member, error) {
	var status struct {
		Members []member `json:"members"`
	}
	if err := s.ask(&status, "status"); err != nil {
		return member{}, err
	}
	for _, known := range status.Members {
		if known.Name == name {
			return known, nil
		}
	}
	return member{}, fmt.Errorf("no member %s among %v", name, status.Members)
}

// waitState waits until the coordinator sees a member like this.
func (s *store) waitState(name, state string) {
	s.t.Helper()
	waitFor(s.t, name+" to be "+state, func() error {
		known, err := s.member(name)
		if err == nil && known.State != state {
			err = fmt.Errorf("it is %s", known.State)
		}
		return err
	})
}

// waitDeposed waits until a process that lives, and is dead as the others see it, has ended and said why.
func (s *store) waitDeposed(member string) {
	s.t.Helper()
	s.servers[member].waitEnd()
	s.servers[member].waitLogged("ERROR", "taken for dead", "can safely be started again")
}

// end kills all processes; if the test has failed, it says first in which state they are, and what they logged.
func (s *store) end() {
	if s.t.Failed() {
		s.show()
	}
	if s.coordinator != nil {
		s.coordinator.kill()
	}
	for _, server := range s.servers {
		server.kill()
	}
}

func (s *store) show() {
	owners, err := s.owners()
	s.t.Logf("tablets: %v %v", owners, err)
	s.t.Logf("coordinator:\n%s", s.coordinator.log())
	for member, server := range s.servers {
		ready, err := s.get(member, "/readyz")
		s.t.Logf("%s: ready: %s %v", member, ready, err)
		text, _ := s.get(member, "/metrics") // It may be gone.
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "rcbox_replication") || strings.HasPrefix(line, "rcbox_backup") {
				s.t.Log(strings.TrimSpace(line))
			}
		}
		s.t.Logf("%s:\n%s", member, server.log())
	}
}

func tcp(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return fmt.Sprintf("tcp:host=%s,port=%s", host, port)
}
