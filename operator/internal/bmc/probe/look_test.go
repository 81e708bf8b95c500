package probe

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// network is a stand-in for BMCs and the network: each address answers each question after a time of its own, or never.
type network struct {
	delays map[netip.Addr]time.Duration
	// loses is how many questions to an address get lost before one arrives.
	loses     map[netip.Addr]int
	questions map[netip.Addr]int
	answers   chan netip.AddrPort
	ended     chan struct{}
	// reply is what each answer says, and sender who sends it in place of the address that was asked.
	reply  []byte
	sender netip.AddrPort
}

// capable is an answer of a BMC that speaks IPMI 2.0.
func capable() []byte {
	return []byte{6, 0, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0x81, 0x1c, 0x63, 0x20, 0, 0x38, 0, 1, 0x84, 4, 3, 0, 0, 0, 0, 0x1c}
}

func newNetwork() *network {
	return &network{
		delays: map[netip.Addr]time.Duration{}, loses: map[netip.Addr]int{}, questions: map[netip.Addr]int{},
		answers: make(chan netip.AddrPort, 1000), ended: make(chan struct{}),
		reply: capable(),
	}
}

func (n *network) WriteToUDPAddrPort(message []byte, to netip.AddrPort) (int, error) {
	n.questions[to.Addr()]++
	if delay, answers := n.delays[to.Addr()]; answers && n.questions[to.Addr()] > n.loses[to.Addr()] {
		time.AfterFunc(delay, func() { n.answers <- to })
	}
	return len(message), nil
}

func (n *network) ReadFromUDPAddrPort(into []byte) (int, netip.AddrPort, error) {
	select {
	case from := <-n.answers:
		if n.sender.IsValid() {
			from = n.sender
		}
		return copy(into, n.reply), from, nil
	case <-n.ended:
		return 0, netip.AddrPort{}, os.ErrDeadlineExceeded
	}
}

func (n *network) SetReadDeadline(time.Time) error {
	close(n.ended)
	return nil
}

func nth(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, 5, byte(i + 1)}) }

func (n *network) lookAt(t *testing.T, addresses int) (found map[netip.Addr]string, took time.Duration) {
	t.Helper()
	all := make([]netip.Addr, addresses)
	for i := range all {
		all[i] = nth(i)
	}
	begun := time.Now()
	found, err := lookFor(context.Background(), n, all, 623)
	if err != nil {
		t.Fatal(err)
	}
	took = time.Since(begun)
	<-time.After(time.Minute) // late answers; in this bubble a minute takes no time
	return found, took
}

// A BMC on a busy machine is found, though its answer takes much longer than the shortest wait: the others are slow, too.
func TestSlowIsNotSilent(t *testing.T) {
	for name, test := range map[string]struct {
		others, slow time.Duration
		loses        int
		isFound      bool
	}{
		"quick":                              {time.Millisecond, time.Millisecond, 0, true},
		"slower than all patience but one":   {900 * time.Millisecond, 4 * time.Second, 0, true},
		"slow, and two questions get lost":   {900 * time.Millisecond, 3 * time.Second, 2, true},
		"quick, and two questions get lost":  {time.Millisecond, time.Millisecond, 2, true},
		"quick, and all questions get lost":  {time.Millisecond, time.Millisecond, rounds, false},
		"slower than the longest of waits":   {time.Millisecond, time.Minute, 0, false},
		"much slower than all others, twice": {10 * time.Millisecond, time.Second, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				for i := range 44 {
					n.delays[nth(i)] = test.others
				}
				n.delays[nth(7)], n.loses[nth(7)] = test.slow, test.loses
				found, took := n.lookAt(t, 44)
				if _, isFound := found[nth(7)]; isFound != test.isFound || len(found) < 43 {
					t.Errorf("%d of 44 are found, the slow one: %v, after %s", len(found), isFound, took)
				}
			})
		})
	}
}

// Whatever takes how long: the look ends in time, at once if all have answered, and finds each BMC that answers within the time that
// follows from the others.
func TestLookIsBounded(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			chance := rand.New(rand.NewPCG(seed, 1))
			n := newNetwork()
			const addresses = 60
			pace := time.Duration(1+chance.IntN(2000)) * time.Millisecond
			answering, slowest := 0, time.Duration(0)
			isSilent := chance.IntN(2) == 0
			for i := range addresses {
				if isSilent && chance.IntN(3) == 0 {
					continue
				}
				answering++
				n.delays[nth(i)] = pace + time.Duration(chance.Int64N(int64(pace)))
				slowest = max(slowest, n.delays[nth(i)])
			}
			found, took := n.lookAt(t, addresses)
			if len(found) != answering {
				t.Errorf("seed %d: answers take %s to %s, and %d of %d are found", seed, pace, slowest, len(found), answering)
			}
			if most := rounds * (mostPatience + addresses*between); took > most {
				t.Errorf("seed %d: it took %s, more than %s", seed, took, most)
			}
			if !isSilent && took > slowest+rounds*addresses*between {
				t.Errorf("seed %d: all have answered after %s, and it took %s", seed, slowest, took)
			}
		})
	}
}

// Only who was asked, at the port that was asked, is heard, and only what is an answer.
func TestIPMIBelievesNoStrangers(t *testing.T) {
	for name, test := range map[string]struct {
		change func(b []byte) []byte
		sender string
		want   string
	}{
		"IPMI 2.0":        {func(b []byte) []byte { return b }, "", "IPMI 2.0"},
		"IPMI 1.5":        {func(b []byte) []byte { b[22], b[24] = 4, 0; return b }, "", "IPMI 1.5"},
		"short":           {func(b []byte) []byte { return b[:24] }, "", ""},
		"refused":         {func(b []byte) []byte { b[20] = 0xc1; return b }, "", ""},
		"another port":    {func(b []byte) []byte { return b }, "192.168.5.1:624", ""},
		"another address": {func(b []byte) []byte { return b }, "192.168.5.2:623", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				n.delays[nth(0)], n.reply = time.Millisecond, test.change(capable())
				if test.sender != "" {
					n.sender = netip.MustParseAddrPort(test.sender)
				}
				if found, _ := n.lookAt(t, 1); found[nth(0)] != test.want || len(found) > 1 || test.want == "" && len(found) > 0 {
					t.Errorf("found: %v", found)
				}
			})
		})
	}
}
