package box_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// somebody runs a command as a user whose datagrams are counted, and who may read this test's files all the same.
const somebody = "setpriv --reuid=4242 --clear-groups --inh-caps=+dac_override --ambient-caps=+dac_override "

// filter loses datagrams between the box controller and BMCs, and counts who logs in. It is nftables in this test's own network namespace.
type filter struct {
	*testing.T

	table string
}

// A BMC in the set silent gets nothing; of what goes to and from one in the set lossy, 30 of 100 datagrams get lost. A login is RAKP
// message 1, by the byte after RMCP's header and the authentication type. A datagram that is sent again has the random number of the first,
// and is no other login.
const rules = `table ip TABLE {
	set silent { type ipv4_addr; }
	set lossy { type ipv4_addr; }
	set logins { typeof ip daddr . @th,256,32; flags dynamic; size 8192; }
	counter typed { }
	chain out {
		type filter hook output priority 0; policy accept;
		meta skuid 4242 udp dport 623 counter name typed
	}
	chain in {
		type filter hook input priority 0; policy accept;
		ip daddr @silent udp dport 623 drop
		ip daddr @lossy udp dport 623 numgen random mod 100 < 30 drop
		ip saddr @lossy udp sport 623 numgen random mod 100 < 30 drop
		ip daddr NETWORK.0/24 udp dport 623 @th,104,8 0x12 update @logins { ip daddr . @th,256,32 }
	}
}
`

// newFilter makes a table for the BMCs of a network, such as 192.168.5.
func newFilter(t *testing.T, network string) *filter {
	t.Helper()
	f := &filter{t, "faults-" + strings.ReplaceAll(network, ".", "-")}
	f.nft(strings.NewReplacer("TABLE", f.table, "NETWORK", network).Replace(rules), "-f", "-")
	return f
}

func (f *filter) nft(input string, arguments ...string) string {
	f.Helper()
	command := exec.CommandContext(f.Context(), "nft", arguments...)
	command.Stdin = strings.NewReader(input)
	output, err := command.CombinedOutput()
	if err != nil {
		f.Fatalf("nft %v: %v\n%s", arguments, err, output)
	}
	return string(output)
}

// put and take change which addresses are in a set.
func (f *filter) put(set string, addresses ...string) {
	f.Helper()
	f.change("add", set, addresses)
}

func (f *filter) take(set string, addresses ...string) {
	f.Helper()
	f.change("delete", set, addresses)
}

func (f *filter) change(verb, set string, addresses []string) {
	f.Helper()
	f.nft("", verb, "element", "ip", f.table, set, "{ "+strings.Join(addresses, ", ")+" }")
}

// typed counts the datagrams to BMCs of the user somebody since the beginning.
func (f *filter) typed() int {
	f.Helper()
	var answer struct {
		Nftables []struct{ Counter *struct{ Packets int } }
	}
	if err := json.Unmarshal([]byte(f.nft("", "-j", "list", "counter", "ip", f.table, "typed")), &answer); err != nil {
		f.Fatal(err)
	}
	for _, object := range answer.Nftables {
		if object.Counter != nil {
			return object.Counter.Packets
		}
	}
	f.Fatal("there is no counter")
	return 0
}

// logins of each address since the last call.
func (f *filter) logins() map[string]int {
	f.Helper()
	var answer struct {
		Nftables []struct {
			Set *struct {
				Elem []struct {
					Concat [2]any // address and random number
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(f.nft("", "-j", "list", "set", "ip", f.table, "logins")), &answer); err != nil {
		f.Fatal(err)
	}
	counts := map[string]int{}
	for _, object := range answer.Nftables {
		if object.Set == nil {
			continue
		}
		for _, element := range object.Set.Elem {
			if address, isText := element.Concat[0].(string); isText {
				counts[address]++
			}
		}
	}
	f.nft("", "flush", "set", "ip", f.table, "logins")
	return counts
}
