package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode"

	"rcbox.dev/rcbox/faults/contain"
)

// Each way in which strangers were able to harm a store, against a store whose processes are in cgroups of their containers' default sizes.
// Operators in such a cgroup: operator/internal/admin; neighbours of a NIC: ports_test.go; and so on by address: bounds_test.go.

// attackedPorts is how many pairs of UDP ports a server has that is attacked.
const attackedPorts = 3

// strangersFrom are addresses of attackers. Some bounds are for each address, so there are several.
var strangersFrom = []string{"127.0.0.66", "127.0.0.67", "127.0.0.68", "127.0.0.69", "127.0.0.70", "127.0.0.71"}

// underAttack is a store of a coordinator and two members, m0 and m1, that are masters and each other's backups.
type underAttack struct {
	*store
	// clientPorts are UDP ports of m0 for clients, peerPorts those for other servers.
	clientPorts, peerPorts []int
	// value is a file of 1 MiB.
	value string
}

// stranger is how somebody does harm.
type stranger struct {
	name string
	// attack is one of several that go on at the same time, each from an address of its own, until ctx ends; or ends by itself when it has
	// found out what it wants. What goes wrong for the attacker is no error, what should not have gone well is.
	attack func(ctx context.Context, s *underAttack, from string, sent *atomic.Int64) error
	// enough is how much is sent before others are looked at.
	enough int64
	// after looks at what came of it.
	after func(s *underAttack)
}

func strangers() []stranger {
	return []stranger{
		{name: "EnumerationsOfEmptyRanges", attack: enumerateEmptyRanges, enough: 6},
		{name: "PeersProtocolForClients", attack: speakAsPeer, enough: 6 * attackedPorts},
		{name: "InventoriesBeforeHello", attack: sendInventories(""), enough: 12},
		{name: "InventoriesAfterHello", attack: sendInventories("stranger"), enough: 12},
		{name: "RequestsWithoutTheirEnd", attack: beginRequests, enough: 64 << 20, after: (*underAttack).servesByDatagrams},
		{name: "AcknowledgementsOfOthers", attack: acknowledgeForOthers, enough: 6 * 64},
		{name: "ResetsAndEnds", attack: resetAndEnd, enough: 20_000},
		{name: "GuessedSessions", attack: guessSessions, enough: 6},
		{name: "ControlOfManyShards", attack: controlMany, enough: 6 * 64},
		{name: "AppendsOfNothing", attack: appendNothing, enough: 6 * 500, after: (*underAttack).hasFrames},
		{name: "NamesThatTerminalsObey", attack: nameForTerminals, enough: 6, after: (*underAttack).showsPlainly},
	}
}

// TestStrangers: whatever strangers send, no process reaches the end of its memory, and other clients are served.
func TestStrangers(t *testing.T) {
	s := startAttacked(t)
	clients := record(t, s.locator, workload{clients: 2, keys: 4, ballast: 8})
	for _, stranger := range strangers() {
		t.Run(stranger.name, func(t *testing.T) {
			s.t = t
			s.endure(stranger)
			clients.waitProgress(4, 1)
		})
		if t.Failed() {
			break
		}
	}
	s.t = t
	judge(t, 4, clients)
}

func startAttacked(t *testing.T) *underAttack {
	t.Helper()
	ports := freeUDPPorts(t, 2*attackedPorts)
	s := &underAttack{
		store: &store{t: t, hosts: onLoopback, containers: map[string]*contain.Group{
			"coordinator": contain.New(t, "coordinator", coordinatorMiB<<20),
			"m0":          contain.New(t, "m0", masterMiB<<20),
			"m1":          contain.New(t, "m1", masterMiB<<20),
		}},
		clientPorts: ports[:attackedPorts], peerPorts: ports[attackedPorts:], value: filepath.Join(t.TempDir(), "value"),
	}
	if err := os.WriteFile(s.value, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	s.start()
	words := []string{"-r", "1", "-t", storeMiB(t, masterMiB, 1, 0)}
	var locators []string
	for i, port := range s.clientPorts {
		locators = append(locators, "-L", fmt.Sprintf("fast+udp:host=127.0.0.1,port=%d,peerPort=%d", port, s.peerPorts[i]))
	}
	s.add("m0", append(locators, words...)...)
	s.add("m1", append([]string{"-L", "fast+udp:host=127.0.0.1,port=0"}, words...)...)
	s.waitReady("m0")
	s.waitReady("m1")
	s.waitCopies("m0", "m1")
	return s
}

// endure has a stranger do what he does, from several addresses at the same time, while another client works.
func (s *underAttack) endure(stranger stranger) {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	var sent atomic.Int64
	for _, from := range strangersFrom {
		all.Go(func() {
			if err := stranger.attack(ctx, s, from, &sent); err != nil && ctx.Err() == nil {
				s.t.Errorf("the attack from %s: %v", from, err)
			}
		})
	}
	waitFor(s.t, "the attack to get going", func() error {
		if now := sent.Load(); now < stranger.enough && !s.t.Failed() {
			return fmt.Errorf("%d of %d sent", now, stranger.enough)
		}
		return nil
	})
	s.serves(s.value, stranger.name)
	if stranger.after != nil {
		stranger.after(s)
	}
	s.t.Logf("%d sent", sent.Load())
	s.survive()
}

// served is a table at the address of a server that has a part of it.
type served struct {
	table  uint64
	target string
}

// tables are all that are served, at each of their servers.
func (s *underAttack) tables() ([]served, error) {
	var tables []struct {
		TableID string `json:"tableId"`
		Tablets []struct{ Member string }
	}
	if err := s.ask(&tables, "tables"); err != nil {
		return nil, err
	}
	var found []served
	for _, table := range tables {
		id, err := strconv.ParseUint(table.TableID, 0, 64)
		if err != nil {
			return nil, err
		}
		for _, tablet := range table.Tablets {
			if server := s.servers[tablet.Member]; server != nil {
				found = append(found, served{table: id, target: addressOf(server.locator)})
			}
		}
	}
	return found, nil
}

// addressOf is the address over TCP in a locator.
func addressOf(locator string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(locator, "tcp:host="), ";")
	return strings.Replace(first, ",port=", ":", 1)
}

// repeat does something until it is not wanted any more. That a server ends a connection is not what is looked for.
func repeat(ctx context.Context, do func() error) error {
	for ctx.Err() == nil {
		var refused refusedError
		if err := do(); errors.As(err, &refused) {
			return err
		}
	}
	return nil
}

// refusedError is what must not happen.
type refusedError string

func (e refusedError) Error() string { return string(e) }

func mustNot(format string, more ...any) error { return refusedError(fmt.Sprintf(format, more...)) }

// enumerateEmptyRanges: the longest request, which says that it goes on with 4 million ranges.
func enumerateEmptyRanges(ctx context.Context, s *underAttack, from string, sent *atomic.Int64) error {
	tables, err := s.tables()
	if err != nil {
		return err
	}
	return repeat(ctx, func() error {
		for _, served := range tables {
			c, err := dialFrom(from, served.target)
			if err != nil {
				return err
			}
			answer, err := c.ask(enumeration(served.table, messageBytes-100))
			_ = c.Close()
			if err != nil {
				return err
			}
			if isOK(answer) {
				return mustNot("an enumeration that goes on with %d ranges was served", messageBytes/2)
			}
			sent.Add(1)
		}
		return nil
	})
}

// isOK is whether an answer to a client says that all is well.
func isOK(answer []byte) bool { return len(answer) >= 4 && string(answer[:4]) == "\x00\x00\x00\x00" }

// speakAsPeer asks at the ports for clients for what only servers ask each other.
func speakAsPeer(_ context.Context, s *underAttack, from string, sent *atomic.Int64) error {
	known, err := s.member("m1")
	if err != nil {
		return err
	}
	index, _, _ := strings.Cut(known.Shards[0].ServerID, ".")
	log, err := strconv.ParseUint(index, 10, 64)
	if err != nil {
		return err
	}
	for _, port := range s.clientPorts {
		socket, err := newSocket(from, port)
		if err != nil {
			return err
		}
		defer socket.Close()
		if _, kind, err := socket.open(opening{own: 1, incarnation: 1, inOrder: true}); err != nil || kind != packetRefused {
			return fmt.Errorf("a session in order at the clients' port %d: packet of kind %d, %w", port, kind, err)
		}
		session, kind, err := socket.open(opening{own: 2, incarnation: 1})
		if err != nil || kind != packetOpened {
			return fmt.Errorf("a client's session at port %d: packet of kind %d, %w", port, kind, err)
		}
		c, err := dialFrom(from, addressOf(s.servers["m0"].locator))
		if err != nil {
			return err
		}
		defer c.Close()
		number := uint32(0)
		for name, request := range peerRequests(log) {
			number++
			byDatagram, err := socket.ask(session, number, request)
			if err != nil {
				return err
			}
			byTCP, err := c.ask(request)
			if err != nil {
				return err
			}
			for _, answer := range [][]byte{byDatagram, byTCP} {
				// The protocol of clients has a status of four bytes.
				if len(answer) != 4 || isOK(answer) {
					return fmt.Errorf("%s was answered with %d bytes: %.40x", name, len(answer), answer)
				}
			}
		}
		sent.Add(1)
	}
	return nil
}

// sendInventories sends the longest message of what a backup holds to the coordinator; with a name, after saying that a new member is here.
func sendInventories(name string) func(context.Context, *underAttack, string, *atomic.Int64) error {
	inventory := sync.OnceValue(emptyReplicas)
	return func(ctx context.Context, s *underAttack, from string, sent *atomic.Int64) error {
		const members = 10
		tries := 0
		return repeat(ctx, func() error {
			if tries++; name != "" && tries > members {
				<-ctx.Done()
				return nil
			}
			c, err := dialFrom(from, s.addresses[1])
			if err != nil {
				return err
			}
			defer c.Close()
			begin := []byte(memberPreface)
			if name != "" {
				begin = append(begin, hello(fmt.Sprintf("%s %s %d", name, from, tries), 0, 1)...)
			}
			if _, err := c.Write(begin); err != nil {
				return err
			}
			_, err = c.Write(inventory())
			sent.Add(1)
			// To the end: that it comes is what the stranger waits for.
			_, _ = io.Copy(io.Discard, c)
			return err
		})
	}
}

// beginRequests sends all but the last piece of the longest request in several slots of several sessions at each UDP port, for clients and
// for other servers.
func beginRequests(ctx context.Context, s *underAttack, from string, sent *atomic.Int64) error {
	const sessions = 3
	var all sync.WaitGroup
	defer all.Wait()
	begin := func(port int, inOrder bool) {
		_ = repeat(ctx, func() error { // What is refused is as it should be.
			socket, err := newSocket(from, port)
			if err != nil {
				return err
			}
			defer socket.Close()
			session, kind, err := socket.open(opening{own: 1, incarnation: 1, inOrder: inOrder})
			if err != nil || kind != packetOpened {
				return err
			}
			return sendAllButLast(ctx, socket, session, sent)
		})
	}
	for range sessions {
		for port := range attackedPorts {
			all.Go(func() { begin(s.clientPorts[port], false) })
			all.Go(func() { begin(s.peerPorts[port], true) })
		}
	}
	return nil
}

// sendAllButLast sends as much as is granted of requests, and never their last pieces, until the session has ended.
func sendAllButLast(ctx context.Context, socket *socket, session uint64, sent *atomic.Int64) error {
	const slots, lastPiece = 4, (messageBytes - 1) / pieceBytes * pieceBytes
	piece := make([]byte, pieceBytes)
	var granted, at [slots]uint32
	for slot := range slots {
		granted[slot] = unaskedBytes
	}
	for ctx.Err() == nil {
		for slot := range slots {
			for ; at[slot] < min(granted[slot], lastPiece); at[slot] += pieceBytes {
				err := socket.send(datagram{
					kind: packetRequest, slot: byte(slot), session: session, number: uint32(slot) + 1,
					length: messageBytes, offset: at[slot], payload: piece,
				})
				if err != nil {
					return err
				}
				sent.Add(pieceBytes)
			}
		}
		answer, err := socket.receive(repeatAfter)
		switch {
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case answer.kind == packetClose || answer.kind == packetReset:
			return nil
		case int(answer.slot) >= slots:
		case answer.kind == packetGrant:
			granted[answer.slot] = max(granted[answer.slot], answer.offset)
		case answer.kind == packetResend:
			at[answer.slot] = min(at[answer.slot], answer.offset/pieceBytes*pieceBytes)
		}
	}
	return nil
}

// servesByDatagrams has a client read and write over the ports that are attacked: long values, and requests that are nearly as long as any.
func (s *underAttack) servesByDatagrams() {
	s.t.Helper()
	for name, options := range map[string][]string{
		"readDist":             nil,
		"multiWrite_oneMaster": {"--batch", "14", "--numObjects", "14", "--warmup", "0"},
	} {
		s.measures(name, options...)
	}
}

// measures has ClusterPerf do one of its tests three times by datagrams, with values of half a megabyte.
func (s *underAttack) measures(name string, options ...string) {
	s.t.Helper()
	var lines []string
	words := append([]string{
		program(s.t, "clusterperf"), "-C", s.locator, "-L", "fast+udp:host=127.0.0.1,port=0",
		"--json", "--size", "500000", "--count", "3", name,
	}, options...)
	client := start(s.t, "clusterperf", "", func(line string) { lines = append(lines, line) }, command(words))
	s.t.Cleanup(client.kill)
	client.waitEnd()
	if !client.cmd.ProcessState.Success() {
		s.t.Errorf("clusterperf %s: %v: %s", name, client.cmd.ProcessState, client.log())
	}
	if output := strings.Join(lines, ""); !strings.Contains(output, name) {
		s.t.Errorf("clusterperf %s has measured nothing: %s", name, output)
	}
}

// enlist has the coordinator let in a shard that keeps nothing.
func (s *underAttack) enlist(from, member string, shard, shards uint64) (*talk, error) {
	c, err := dialFrom(from, s.addresses[1])
	if err != nil {
		return nil, err
	}
	_, err = c.Write(append([]byte(memberPreface), hello(member, shard, shards)...))
	if err == nil {
		_, err = io.ReadFull(c, make([]byte, len(memberPreface)))
	}
	if err == nil {
		err = c.welcomed()
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("shard %d of %q is not let in: %w", shard, member, err)
	}
	return c, nil
}

// controlMany enlists many shards that take nothing in, and has control operations be sent to all of them.
func controlMany(ctx context.Context, s *underAttack, from string, sent *atomic.Int64) error {
	// Of all addresses: few enough for one operation at a time to be let in.
	const shards, inputBytes = 32, 64 << 10
	for shard := range uint64(shards) {
		c, err := s.enlist(from, "stranger with shards "+from, shard, shards)
		if err != nil {
			return err
		}
		defer c.Close()
	}
	return repeat(ctx, func() error {
		c, err := dialFrom(from, s.addresses[0])
		if err != nil {
			return err
		}
		defer c.Close()
		defer context.AfterFunc(ctx, func() { _ = c.Close() })()
		for range 64 {
			if err := c.send(controlOfAll(inputBytes)); err != nil {
				return err
			}
		}
		for range 64 {
			sent.Add(1)
			if _, err := c.answer(); err != nil {
				return err
			}
		}
		return nil
	})
}

// appendNothing begins segments of a log that no server has at a backup, and brings nothing of them.
func appendNothing(ctx context.Context, s *underAttack, from string, sent *atomic.Int64) error {
	const segments = 500
	peers := addressOf(s.serving(s.servers["m0"].process, "serving other servers")["locator"])
	return repeat(ctx, func() error {
		c, err := dialFrom(from, peers)
		if err != nil {
			return err
		}
		defer c.Close()
		for segment := range uint64(segments) {
			answer, err := c.ask(emptyAppend(1<<40, uint64(sent.Load())<<10+segment))
			if err != nil {
				return err
			}
			if len(answer) > 0 && answer[0] == 0 {
				return mustNot("an append of nothing was taken")
			}
			sent.Add(1)
		}
		return nil
	})
}

// hasFrames fails if strangers have taken the room that is for copies.
func (s *underAttack) hasFrames() {
	s.t.Helper()
	free, err := s.metric("m0", "rcbox_backup_frames_free")
	if err != nil || free < 10 {
		s.t.Errorf("%v frames are free: %v", free, err)
	}
}

// Names that terminals would obey: of escape sequences in both forms, of a title, and of marks that turn the direction of a line.
const obeyed = "\x1b[2J\u009b31m\x1b]0;owned\x07\u202e"

// nameForTerminals makes tables, objects and members with such names.
func nameForTerminals(_ context.Context, s *underAttack, from string, sent *atomic.Int64) error {
	table := "t" + from + obeyed
	for _, words := range [][]string{{"create-table", table}, {"put", table, "key" + obeyed, "value" + obeyed}} {
		var answer any
		if err := s.ask(&answer, words...); err != nil {
			return err
		}
	}
	c, err := s.enlist(from, "stranger "+from+obeyed, 0, 1)
	if err != nil {
		return err
	}
	defer c.Close()
	sent.Add(1)
	return nil
}

// showsPlainly fails if anything that people read has a character that a terminal does not show as itself.
func (s *underAttack) showsPlainly() {
	s.t.Helper()
	table := "t" + strangersFrom[0] + obeyed
	for _, words := range [][]string{
		{"tables"},
		{"tables", "--json"},
		{"status"},
		{"status", "--json"},
		{"servers"},
		{"scan", table},
		{"scan", table, "--json"},
		{"scan", "no such table" + obeyed},
		{"get", table, "no such key" + obeyed},
	} {
		output, _ := command(append([]string{program(s.t, "rcbox"), "-C", s.locator, "--timeout", "5"}, words...)).CombinedOutput()
		if len(output) == 0 {
			s.t.Errorf("rcbox %s shows nothing", words[0])
		}
		for at, r := range string(output) {
			if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
				s.t.Errorf("rcbox %q shows %q", words, string(output[max(0, at-20):min(len(output), at+20)]))
				break
			}
		}
	}
}
