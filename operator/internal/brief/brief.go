// Package brief shortens sentences for people, so that they fit where they are shown and still say what to do. It invents no words. Dots
// stand in the place of the end of a clause, and never at the end of a text.
package brief

import "strings"

// ends are what a clause or a sentence ends with.
var ends = []string{". ", "; "}

const (
	// mark stands in the place of the end of a clause.
	mark = " ..."
	// pauses lead nowhere if nothing follows.
	pauses = " ,:;"
	// shares: of a long clause at least one of so many parts of the whole is left. What fits into less is left out.
	shares = 5
)

// Fit leaves out of a message what it can do without, until it has at most so many bytes: what stands in parentheses (mostly the words of
// Kubernetes, or of a process), the longest first; then the end of the longest of the clauses between the first, which says what happened,
// and the last, which says what to do, and the whole of short ones; then the end of the first, or of all where the last fills two thirds.
func Fit(text string, most int) string {
	for len(text) > most {
		shorter := withoutParenthesis(text)
		if shorter == text {
			break
		}
		text = shorter
	}
	if len(text) <= most {
		return text
	}
	clauses := split(text)
	for excess := total(clauses) - most; excess > 0 && len(clauses) > 2; excess = total(clauses) - most {
		longest := 1
		for i := 2; i < len(clauses)-1; i++ {
			if len(clauses[i]) > len(clauses[longest]) {
				longest = i
			}
		}
		clause := clauses[longest]
		if shorter := shorten(clause, max(len(clause)-excess, most/shares)); shorter != "" && len(shorter) < len(clause) {
			clauses[longest] = shorter
			continue
		}
		clauses = append(clauses[:longest], clauses[longest+1:]...)
	}
	if total(clauses) <= most {
		return strings.TrimRight(strings.Join(clauses, ""), pauses)
	}
	if len(clauses) == 1 {
		return Head(text, most)
	}
	first, last := clauses[0], clauses[1]
	if room := most - len(last); room >= most/3 {
		return strings.TrimRight(shorten(first, room)+last, pauses)
	}
	return Head(first+last, most)
}

// shorten leaves the beginning of a clause that is followed by another one, in at most so many bytes; empty if there is no room for it.
func shorten(clause string, most int) string {
	end := clause[len(clause)-len(ends[0]):]
	separator := end
	if end == ends[0] { // dots end a sentence
		separator = " "
	}
	head := Head(strings.TrimSuffix(strings.TrimSuffix(clause, end), mark), most-len(mark)-len(separator))
	if head == "" {
		return ""
	}
	return head + mark + separator
}

// Head is the beginning of a text that others have written, in at most so many bytes: whole sentences or clauses if they fill half of
// that, else whole words.
func Head(text string, most int) string {
	text = strings.TrimSpace(text)
	if most <= 0 {
		return ""
	}
	if len(text) <= most {
		return text
	}
	head := strings.ToValidUTF8(text[:most], "")
	for _, end := range []string{". ", "; ", ", ", " "} {
		if i := strings.LastIndex(head, end); i >= most/2 {
			head = head[:i]
			break
		}
	}
	return strings.TrimRight(head, " .,;:")
}

// split cuts behind the end of each clause that is not in parentheses.
func split(text string) []string {
	var clauses []string
	depth, from := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			depth--
		case ' ':
			if depth <= 0 && i > 0 && isEnd(text[i-1:i+1]) && i+1 < len(text) {
				clauses = append(clauses, text[from:i+1])
				from = i + 1
			}
		}
	}
	return append(clauses, text[from:])
}

func isEnd(text string) bool { return text == ends[0] || text == ends[1] }

func total(clauses []string) int {
	sum := 0
	for _, clause := range clauses {
		sum += len(clause)
	}
	return sum
}

// withoutParenthesis leaves out the longest outermost parenthesis, with the blank before it.
func withoutParenthesis(text string) string {
	depth, begin, from, to := 0, 0, 0, 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			if depth == 0 {
				begin = i
			}
			depth++
		case ')':
			if depth == 0 {
				continue // it closes nothing
			}
			if depth--; depth == 0 && i+1-begin > to-from {
				from, to = begin, i+1
			}
		}
	}
	if to == 0 {
		return text
	}
	before, after := strings.TrimSuffix(text[:from], " "), text[to:]
	if after == "" || strings.ContainsRune(".,:;", rune(after[0])) {
		before = strings.TrimRight(before, pauses)
	}
	if before == "" {
		after = strings.TrimLeft(after, "."+pauses)
	}
	return before + after
}
