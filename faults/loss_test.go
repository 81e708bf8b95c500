package faults

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// recovery is what the coordinator tells of one.
type recovery struct {
	ServerID    string `json:"serverId"`
	TabletsLeft int    `json:"tabletsLeft"`
	WaitsFor    string `json:"waitsFor"`
	LossToken   string `json:"lossToken"`
	Missing     []struct {
		SegmentCount int  `json:"segmentCount"`
		LacksHead    bool `json:"lacksHead"`
	} `json:"missing"`
}

// loss is what the coordinator has recorded of one.
type loss struct {
	Member      string   `json:"member"`
	Tables      []string `json:"tables"`
	TabletCount int      `json:"tabletCount"`
	Missing     string   `json:"missing"`
}

func (s *store) troubles() (recoveries []recovery, losses []loss, err error) {
	var status struct {
		Recoveries []recovery `json:"recoveries"`
		Losses     []loss     `json:"losses"`
	}
	err = s.ask(&status, "status")
	return status.Recoveries, status.Losses, err
}

// tell is what the command line tool prints for people.
func (s *store) tell(words ...string) (string, error) {
	words = append([]string{program(s.t, "rcbox"), "-C", s.locator, "--timeout", "5"}, words...)
	output, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	return string(output), err
}

// TestAcceptedLoss: both disks are gone for ever that have what a master held. The recovery waits, and names what is missing; whoever
// accepts something else is refused; once just that is accepted the store serves again, the loss is in the status, and stays there.
func TestAcceptedLoss(t *testing.T) {
	s := startStore(t, onLoopback)
	s.addServers("b", 2, "-B")
	s.add("m0", append([]string{"-M"}, replicated...)...)
	s.waitReady("m0")
	put := func(key string) {
		t.Helper()
		waitFor(t, "a write of "+key, func() error {
			output, err := s.tell("put", "t", key, strings.Repeat(key, 1000))
			if err != nil {
				err = fmt.Errorf("%w: %s", err, output)
			}
			return err
		})
	}
	if output, err := s.tell("create-table", "t"); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	put("before")
	s.waitCopies("m0")
	known, err := s.member("m0")
	if err != nil {
		t.Fatal(err)
	}
	dead := known.Shards[0].ServerID

	for _, member := range []string{"m0", "b0", "b1"} {
		s.servers[member].kill()
	}
	for _, member := range []string{"b0", "b1"} {
		if err := os.Remove(s.file(member)); err != nil {
			t.Fatal(err)
		}
		s.restart(member)
	}
	s.restart("m0")
	var waiting recovery
	// Something is missing already while the backups are away, or open their disks: once all have answered, it is gone for good.
	waitFor(t, "all backups to say what they have", func() error {
		recoveries, _, err := s.troubles()
		for _, recovery := range recoveries {
			all := strings.HasSuffix(recovery.WaitsFor, "; all members are connected")
			if recovery.ServerID == dead && recovery.LossToken != "" && all {
				waiting = recovery
				return nil
			}
		}
		return fmt.Errorf("%+v, %w", recoveries, err)
	})
	lacksHead := len(waiting.Missing) == 1 && waiting.Missing[0].LacksHead
	if !lacksHead || !strings.Contains(waiting.WaitsFor, "the head of the log of server "+dead) {
		t.Fatalf("it does not say that the head is missing: %+v", waiting)
	}
	shown, err := s.tell("recovery", "accept-loss", dead)
	command := "recovery accept-loss " + dead + " --token " + waiting.LossToken
	if err != nil || !strings.Contains(shown, command) || !strings.Contains(shown, "Nothing was changed") {
		t.Fatalf("%v: %s", err, shown)
	}
	refused, err := s.tell("recovery", "accept-loss", dead, "--token", "0badf00d")
	if err == nil || !strings.Contains(refused, "is not what you have seen") {
		t.Fatalf("another token was taken: %s", refused)
	}
	refused, err = s.tell("member", "remove", "b0")
	if err == nil || !strings.Contains(refused, "rcbox recovery accept-loss "+dead) {
		t.Fatalf("a member was removed that may have what is missing: %s", refused)
	}
	if _, losses, err := s.troubles(); err != nil || len(losses) > 0 {
		t.Fatalf("there is a loss before anybody has accepted it: %+v %v", losses, err)
	}
	if output, err := s.tell("recovery", "accept-loss", dead, "--token", waiting.LossToken); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	put("after")
	got, err := s.tell("get", "t", "before")
	if err == nil || !strings.Contains(got, "no object") {
		t.Errorf("an object without a copy has come back: %v %.20s", err, got)
	}
	s.servers["m0"].kill() // What was written since has copies again.
	s.coordinator.kill()
	s.restartCoordinator()
	s.restart("m0")
	waitFor(t, "what was written afterwards", func() error {
		got, err := s.tell("get", "t", "after")
		if err == nil && !strings.HasPrefix(got, "after") {
			err = fmt.Errorf("it is %.20q", got)
		}
		return err
	})
	_, losses, err := s.troubles()
	if err != nil || len(losses) != 1 {
		t.Fatalf("%+v %v", losses, err)
	}
	if one := losses[0]; one.Member != "m0" || one.TabletCount != 1 || one.Tables[0] != "t" || !strings.Contains(one.Missing, dead) {
		t.Errorf("the loss is %+v", one)
	}
	status, err := s.tell("status")
	if err != nil || !strings.Contains(status, "may lack objects: missing of the log of server "+dead) {
		t.Errorf("%v: %s", err, status)
	}
}
