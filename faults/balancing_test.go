package faults

import (
	"fmt"
	"testing"
)

// TestServersThatAreAddedGetTheirPart: nobody moves anything, and all the same each server holds about as much in the end, while
// clients read and write. One of those that were added is killed then: what it got is not lost.
func TestServersThatAreAddedGetTheirPart(t *testing.T) {
	s := (&store{t: t, hosts: onLoopback, evensOut: true}).start()
	s.addServers("m", 2, "-r", "1")
	load := usual
	load.ballast = 2500 // 20 MiB
	clients := record(t, s.locator, load)
	clients.waitProgress(load.keys, 20)
	s.addServers("n", 2, "-r", "1")
	waitFor(t, "each server to have its part", s.isEven)
	clients.waitProgress(load.keys, 20)
	s.servers["n0"].kill()
	s.waitMoved("n0")
	clients.waitProgress(load.keys, 20)
	judge(t, load.keys, clients)
}

// isEven says which server has more than a quarter above its share, by what they say of their tablets. They move at 25 %, and estimate.
func (s *store) isEven() error {
	bytes, all := map[string]int{}, 0
	for _, one := range s.tablets() {
		bytes[one.Member] += one.Bytes
		all += one.Bytes
	}
	if all < 15<<20 {
		return fmt.Errorf("%d bytes are known of: %v", all, bytes)
	}
	share := all / len(s.servers)
	for member := range s.servers {
		if has := bytes[member]; has > share*130/100 || has < share/2 {
			return fmt.Errorf("%s has %d bytes, and its share is %d: %v", member, has, share, bytes)
		}
	}
	return nil
}
