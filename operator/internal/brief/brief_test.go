package brief_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"rcbox.dev/rcbox/operator/internal/brief"
)

func TestFit(t *testing.T) {
	for _, test := range []struct {
		text, want string
		most       int
	}{
		{"no node for a. Add a node", "no node for a. Add a node", 25},
		{"no node for a (0/3 nodes (of all)). Add a node", "no node for a. Add a node", 25},
		{"a (b) is down (because of c); d", "a (b) is down; d", 20},
		{"a is down; b is down, too; set c", "a is down; set c", 20},
		{"it failed: one two three four five. See the log", "it failed: one two ... See the log", 35},
		// What was left out leaves no comma, colon or dash that leads nowhere.
		{"node a is lost, (since noon and for a while)", "node a is lost", 20},
		{"node a is lost, (since noon and for a while); b moves", "node a is lost; b moves", 30},
		{"it waits for: (a long list of what is waited for). See the log", "it waits for. See the log", 40},
		// A long part between the first and the last clause is shortened, and says so.
		{
			"node a is lost; fencing waits: no BMC of any Server reports its number, which is 12345: describe its Chassis; run this",
			"node a is lost; fencing waits: no BMC of any Server reports its number ...; run this", 90,
		},
		{"it failed: one, two, three, four, five", "it failed: one, two", 25},
		{"(never closed and long enough", "(never closed and", 20},
		{"a) is down; and what follows", "a) is down", 16},
		{strings.Repeat("a", 30), strings.Repeat("a", 20), 20},
		{strings.Repeat("ä", 30), strings.Repeat("ä", 10), 21},
	} {
		if got := brief.Fit(test.text, test.most); got != test.want {
			t.Errorf("of %q in %d bytes, %q is left, not %q", test.text, test.most, got, test.want)
		}
	}
}

func TestHead(t *testing.T) {
	for _, test := range []struct {
		text, want string
		most       int
	}{
		{" short ", "short", 10},
		{"one sentence. Another one", "one sentence", 20},
		{"one clause, another one", "one clause", 18},
		{"one word and another", "one word and", 14},
		{"nothing.but.dots.in.here", "nothing.but.dots", 17},
	} {
		if got := brief.Head(test.text, test.most); got != test.want {
			t.Errorf("of %q in %d bytes, %q is left, not %q", test.text, test.most, got, test.want)
		}
	}
}

// Whatever the text, what is left out is said or leaves nothing behind: no punctuation that leads nowhere at the end or before the next
// clause, no dots at the end, and of a long clause between the first and the last a part is left as long as there is room for it.
func TestWhatIsLeftOut(t *testing.T) {
	word := rapid.StringMatching("[a-z]{1,9}")
	words := func(t *rapid.T, name string, least, most int) string {
		separators := []string{" ", " ", " ", ", ", ": "}
		var text strings.Builder
		text.WriteString(word.Draw(t, name))
		for range rapid.IntRange(least, most).Draw(t, name+" words") {
			text.WriteString(rapid.SampledFrom(separators).Draw(t, "separator") + word.Draw(t, name))
			if rapid.IntRange(0, 9).Draw(t, "parenthesis") == 0 {
				text.WriteString(rapid.SampledFrom([]string{" ", ", "}).Draw(t, "before") + "(" + word.Draw(t, "inner") + ")")
			}
		}
		return text.String()
	}
	rapid.Check(t, func(t *rapid.T) {
		clauses := []string{words(t, "first", 0, 6)}
		for range rapid.IntRange(0, 4).Draw(t, "clauses") {
			clauses = append(clauses, words(t, "middle", 0, 40))
		}
		clauses = append(clauses, words(t, "last", 0, 6))
		text := strings.Join(clauses, rapid.SampledFrom([]string{"; ", ". "}).Draw(t, "end"))
		const most = 300
		got := brief.Fit(text, most)
		if len(got) > most {
			t.Fatalf("%d bytes are left: %q", len(got), got)
		}
		for _, dangling := range []string{",;", ",.", ":;", ":.", ", ;", " ;", ";;", ", ,"} {
			if strings.Contains(strings.ReplaceAll(got, " ...", ""), dangling) {
				t.Fatalf("%q is left, with %q", got, dangling)
			}
		}
		if strings.HasSuffix(got, "...") || strings.TrimRight(got, " ,:;") != got {
			t.Fatalf("it ends in the middle: %q", got)
		}
		const part = 40
		if len(clauses) == 3 && len(clauses[0])+len(clauses[2])+part+20 < most && !strings.Contains(clauses[1], "(") {
			if beginning := strings.Fields(clauses[1])[0]; !strings.Contains(got, beginning) {
				t.Fatalf("nothing is left of %q: %q", clauses[1], got)
			}
		}
	})
}

// Whatever the text, it fits, is whole where it fits already, and has no half letter.
func TestAnyTextFits(t *testing.T) {
	piece := rapid.SampledFrom([]string{"a", "word", "ä", " ", ". ", "; ", "(", ")", ", ", "\xff", strings.Repeat("x", 50)})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(piece, 0, 80).Draw(t, "text"), "")
		most := rapid.IntRange(20, 300).Draw(t, "most")
		for name, shorten := range map[string]func(string, int) string{"Fit": brief.Fit, "Head": brief.Head} {
			got := shorten(text, most)
			if len(got) > most {
				t.Fatalf("%s leaves %d bytes, not %d: %q", name, len(got), most, got)
			}
			if len(text) <= most && got != text && got != strings.TrimSpace(text) {
				t.Fatalf("%s changes %q to %q, and it fits", name, text, got)
			}
			if utf8.ValidString(text) && !utf8.ValidString(got) {
				t.Fatalf("%s leaves half a letter: %q", name, got)
			}
		}
	})
}
