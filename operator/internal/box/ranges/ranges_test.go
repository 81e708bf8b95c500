package ranges_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"rcbox.dev/rcbox/operator/internal/box/ranges"
)

var management = netip.MustParsePrefix("192.168.5.0/24")

func texts(list ranges.List) []string {
	var all []string
	for _, item := range list.Items() {
		all = append(all, item.Text)
	}
	return all
}

// The examples of the machines' own documents, and lists that people type.
func TestLists(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"1,5-7,10+3,20,25-27,50+2,60", "1 5 6 7 10 11 12 20 25 26 27 50 51 60"},
		{".1,5-7,10+3", "192.168.5.1 5 6 7 10 11 12"},
		{".1,5-7,10+3,20", "192.168.5.1 5 6 7 10 11 12 20"},
		{"1,2,3-10", "1 2 3 4 5 6 7 8 9 10"},
		{"192.168.5.3", "192.168.5.3"},
		{".2", "192.168.5.2"},
		{"atom002", "atom002"},
		{"atom002-005", "atom002 atom003 atom004 atom005"},
		{"atom002-atom004", "atom002 atom003 atom004"},
		{"atom009m+3", "atom009m atom010m atom011m"},
		{"atom009m-011m", "atom009m atom010m atom011m"},
		{"atom099+2", "atom099 atom100"},
		{"mercury1cmm-mercury3cmm", "mercury1cmm mercury2cmm mercury3cmm"},
		{"micro-blade7-9", "micro-blade7 micro-blade8 micro-blade9"},
		{".9-11", "192.168.5.9 192.168.5.10 192.168.5.11"},
		{".9-.10", "192.168.5.9 192.168.5.10"},
		{"10.0.0.1-10.0.0.2", "10.0.0.1 10.0.0.2"},
		{"3+1", "3"},
		{"3-3", "3"},
		{"007", "007"},
		{"1,1,1-2", "1 2"},
	} {
		list, err := ranges.Parse(test.text, management)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		if got := strings.Join(texts(list), " "); got != test.want {
			t.Errorf("%s: %s, not %s", test.text, got, test.want)
		}
	}
	list, err := ranges.Parse("192.168.5.1+44", management)
	if err != nil {
		t.Fatal(err)
	}
	if got := texts(list); len(got) != 44 || got[43] != "192.168.5.44" {
		t.Errorf("192.168.5.1+44: %v", got)
	}
}

// No address ends in .0 or .255, whatever the size of the network.
func TestHoles(t *testing.T) {
	wide := netip.MustParsePrefix("192.168.4.0/22")
	list, err := ranges.Parse("192.168.4.253+4", wide)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := texts(list), "192.168.4.253 192.168.4.254 192.168.5.1 192.168.5.2"; strings.Join(got, " ") != want {
		t.Errorf("%v, not %s", got, want)
	}
	same, err := ranges.Parse("192.168.4.253-192.168.5.2", wide)
	if err != nil || !slices.Equal(texts(same), texts(list)) {
		t.Errorf("%v: %v", same, err)
	}
}

// Each text says what to write instead.
func TestRefusals(t *testing.T) {
	for _, test := range []struct{ text, says string }{
		{"", "write a list such as"},
		{"5-", "5-6, or 5 alone"},
		{"-5", "write one such as 2, atom002"},
		{"+5", "write a first element"},
		{"5+", "5+3"},
		{"5+x", "5+3"},
		{"5+0", "5+1"},
		{"7-3", "write 3-7"},
		{"atom007-003", "write atom003-atom007"},
		{"1,,2", "one comma"},
		{"1,", "one comma"},
		{",1", "one comma"},
		{".256", "from 0 to 255"},
		{".0", "from 1 to 254"},
		{".255", "from 1 to 254"},
		{".5-255", "from 1 to 254"},
		{"192.168.5", "four numbers"},
		{"192.168.5.250+10", "write 192.168.5.250+5, and the other 5"},
		{"192.168.5.250-192.168.6.3", "write 192.168.5.250+5"},
		{"1, 2", "write 1,2"},
		{"1 2", "write 1,2"},
		{"1+1000000000", "smaller number"},
		{"1+999999999", "fewer"},
		{"1-999999999", "fewer"},
		{"1+4096,1+4096", "fewer"},
		{"ATOM002", "atom002"},
		{"atom", "atom002"},
		{"atom002-mercury3", "atom002-atom003"},
		{"atom002m-atom003a", "atom002m-atom003m"},
		{"5-.7", "5-6"},
		{"1;reboot", "write one such as"},
		{"fe80::1", "write one such as"},
		{strings.Repeat("1,", 5000), "write ranges"},
	} {
		list, err := ranges.Parse(test.text, management)
		if err == nil {
			t.Errorf("%q: taken for %v", test.text, list)
			continue
		}
		if text := err.Error(); !strings.Contains(text, test.says) || len(text) > 300+len(test.text) {
			t.Errorf("%q: %s; it does not say %q", test.text, text, test.says)
		}
	}
	if _, err := ranges.Parse(".7", netip.Prefix{}); err == nil || !strings.Contains(err.Error(), "192.168.5.7") {
		t.Errorf("an address without a network: %v", err)
	}
	if _, err := ranges.ParseNumbers("1-3,atom004"); err == nil || !strings.Contains(err.Error(), "1-44") {
		t.Errorf("a name among slots: %v", err)
	}
	if _, err := ranges.ParseAddresses("192.168.5.1,4", management); err == nil || !strings.Contains(err.Error(), "192.168.5.1+44") {
		t.Errorf("a number among addresses: %v", err)
	}
}

// seeds are lists as people type them, well and badly.
var seeds = []string{
	"1,5-7,10+3,20,25-27,50+2,60", ".1,5-7,10+3", "192.168.5.1+44", "atom002", "atom009m-011m", "5-", "7-3", "1,,2", ".256",
	"192.168.5.250+10", "1, 2", "1+1000000000", "micro-blade7-9", "mercury1cmm-mercury3cmm", "10.0.0.1-10.0.1.9", "00-007", "a0-1",
}

// check: whatever is typed is refused with a text, or is printed as something that is read in the same way.
func check(t *testing.T, text string, network netip.Prefix) (isList bool) {
	t.Helper()
	list, err := ranges.Parse(text, network)
	if err != nil {
		if err.Error() == "" {
			t.Errorf("%q is refused without a text", text)
		}
		return false
	}
	items := list.Items()
	if len(items) == 0 || len(items) > ranges.MaxItems {
		t.Errorf("%q has %d items", text, len(items))
	}
	printed := list.String()
	again, err := ranges.Parse(printed, network)
	if err != nil || again.String() != printed || !slices.Equal(again.Items(), items) {
		t.Errorf("%q is printed as %q, which is read as %q: %v", text, printed, again, err)
	}
	return true
}

func networks() []netip.Prefix {
	return []netip.Prefix{management, netip.MustParsePrefix("10.0.0.0/16"), {}}
}

// FuzzParse searches, guided by what the parser does: go test -fuzz FuzzParse ./operator/internal/box/ranges
func FuzzParse(f *testing.F) {
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, network := range networks() {
			check(t, text, network)
		}
	})
}

// TestMillionLists tries a million lists, each made from seeds by a few changes. They are others in each run: add one that fails to seeds.
func TestMillionLists(t *testing.T) {
	t.Parallel()
	const million, workers = 1_000_000, 4
	var tried, lists atomic.Int64
	var trying sync.WaitGroup
	for range workers {
		trying.Go(func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
			for range million / workers {
				text, network := typed(random), networks()[random.IntN(3)]
				if check(t, text, network) {
					lists.Add(1)
				}
				if tried.Add(1); t.Failed() {
					return
				}
			}
		})
	}
	trying.Wait()
	t.Logf("%d of %d texts were lists", lists.Load(), tried.Load())
	if !t.Failed() && (tried.Load() != million || lists.Load() < million/100 || lists.Load() > million*99/100) {
		t.Errorf("%d of %d texts were lists: they do not try both sides of the parser", lists.Load(), tried.Load())
	}
}

// typed is a seed that somebody has changed at up to six places.
func typed(random *rand.Rand) string {
	const signs, changes = "0123456789-+,. atomcsn", 6
	text := []byte(seeds[random.IntN(len(seeds))])
	for range random.IntN(changes + 1) {
		at := random.IntN(len(text) + 1)
		sign := signs[random.IntN(len(signs))]
		switch other := seeds[random.IntN(len(seeds))]; random.IntN(6) {
		case 0:
			text = slices.Insert(text, at, sign)
		case 1:
			text = slices.Delete(text, min(at, len(text)), min(at+1+random.IntN(3), len(text)))
		case 2:
			text = append(text[:at], other[random.IntN(len(other)):]...)
		case 3:
			text = slices.Insert(text, at, byte(random.IntN(256)))
		case 4:
			text = append(append(text, ','), other...)
		case 5:
			if at < len(text) {
				text[at] = sign
			}
		}
	}
	return string(text)
}
