package ranges

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

const (
	// maxDigits: every number of so many digits fits into 32 bits.
	maxDigits = 9
	// bitsOfClassC is the size of the network of an address that is in no other.
	bitsOfClassC = 24
)

var (
	nameForm = regexp.MustCompile(`^([a-z][a-z-]*)([0-9]+)([a-z]*)$`)
	digits   = regexp.MustCompile(`^[0-9]+$`)
)

// parseElement reads M, M-N or M+D.
func parseElement(text string, network netip.Prefix) (Element, error) {
	at := strings.LastIndexByte(text, '+')
	if at < 0 {
		at = separator(text)
	}
	if at < 0 {
		return parseItem(text, text, network)
	}
	element, err := parseItem(text, text[:at], network)
	if err != nil {
		return Element{}, err
	}
	rest := text[at+1:]
	if text[at] == '+' {
		return element, element.extendBy(text, rest)
	}
	return element, element.extendTo(text, rest, network)
}

// separator is where the dash between two items is; a name may have one, too, before its number.
func separator(text string) int {
	for at := len(text) - 1; at > 0; at-- {
		if text[at] != '-' {
			continue
		}
		if before := text[at-1]; before >= '0' && before <= '9' || nameForm.MatchString(text[:at]) {
			return at
		}
	}
	return -1
}

func parseItem(whole, text string, network netip.Prefix) (Element, error) {
	switch {
	case text == "":
		return Element{}, refuse(whole, "has no beginning", "write a first element, such as 5-7 or 5+3")
	case digits.MatchString(text):
		number, err := parseNumber(whole, text)
		return Element{Kind: Number, First: number, Count: 1, Width: width(text)}, err
	case strings.ContainsRune(text, '.'):
		return parseAddress(whole, text, network)
	}
	parts := nameForm.FindStringSubmatch(text)
	if parts == nil {
		return Element{}, refuse(whole, "is neither a number nor a host name nor an address", "write one such as 2, atom002 or 192.168.5.2")
	}
	number, err := parseNumber(whole, parts[2])
	return Element{Kind: Name, Prefix: parts[1], Suffix: parts[3], Width: width(parts[2]), First: number, Count: 1}, err
}

// width is the least number of digits that the text stands for: 002 has three, 12 any.
func width(text string) int {
	if text[0] != '0' || len(text) == 1 {
		return 1
	}
	return len(text)
}

func parseNumber(whole, text string) (uint32, error) {
	if len(text) > maxDigits {
		return 0, refuse(whole, fmt.Sprintf("has a number of more than %d digits", maxDigits), "write a smaller number")
	}
	number, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, refuse(whole, "has no number where one belongs", "write one such as 5-7 or 5+3")
	}
	return uint32(number), nil
}

func parseAddress(whole, text string, network netip.Prefix) (Element, error) {
	full := text
	if text[0] == '.' {
		if !network.Addr().Is4() || network.Bits() < bitsOfClassC {
			return Element{}, refuse(whole, "lacks the first numbers of the address", "write all four, such as 192.168.5%s", text)
		}
		base := network.Addr().As4()
		full = fmt.Sprintf("%d.%d.%d%s", base[0], base[1], base[2], text)
	}
	parsed, err := netip.ParseAddr(full)
	if err != nil || !parsed.Is4() {
		return Element{}, refuse(whole, "is no IPv4 address",
			"write four numbers from 0 to 255, the last not 0 or 255, such as 192.168.5.2")
	}
	number := toNumber(parsed)
	if isHole(number) {
		return Element{}, refuse(whole, "ends in .0 or .255, which no host has", "write a last number from 1 to 254")
	}
	if !network.IsValid() || !network.Contains(parsed) {
		network = netip.PrefixFrom(parsed, bitsOfClassC).Masked()
	}
	return Element{Kind: Address, First: number, Count: 1, network: network}, nil
}

// extendBy reads D of M+D.
func (e *Element) extendBy(whole, text string) error {
	if text == "" || !digits.MatchString(text) {
		return refuse(whole, "has no count after +", "write how many, such as %s+3", e.text(e.First))
	}
	count, err := parseNumber(whole, text)
	if err != nil {
		return err
	}
	if count == 0 {
		return refuse(whole, "stands for no element", "write %s+1, or leave it out", e.text(e.First))
	}
	e.Count, e.Plus = count, count > 1
	return e.check(whole)
}

// extendTo reads N of M-N; the end may leave out what the beginning has said already.
func (e *Element) extendTo(whole, text string, network netip.Prefix) error {
	if text == "" {
		return refuse(whole, "has no end", "write one, such as %s-%s, or %s alone", e.text(e.First), e.text(e.First+1), e.text(e.First))
	}
	last, err := e.parseEnd(whole, text, network)
	if err != nil {
		return err
	}
	if last < e.First {
		return refuse(whole, "counts down", "write %s-%s", e.text(last), e.text(e.First))
	}
	if e.Kind == Address {
		e.Count = countAddresses(e.First, last)
	} else {
		e.Count = last - e.First + 1
	}
	return e.check(whole)
}

func (e *Element) parseEnd(whole, text string, network netip.Prefix) (uint32, error) {
	if digits.MatchString(text) {
		last, err := parseNumber(whole, text)
		if e.Kind != Address || err != nil {
			return last, err
		}
		if last == 0 || last >= math.MaxUint8 {
			return 0, refuse(whole, "ends in a number that no host has", "write a last number from 1 to 254")
		}
		return e.First&^math.MaxUint8 | last, nil
	}
	if e.Kind == Name && text[len(text)-1] >= 'a' && digits.MatchString(strings.TrimSuffix(text, e.Suffix)) {
		return parseNumber(whole, strings.TrimSuffix(text, e.Suffix))
	}
	end, err := parseItem(whole, text, network)
	if err != nil {
		return 0, err
	}
	if end.Kind != e.Kind || end.Prefix != e.Prefix || end.Suffix != e.Suffix {
		return 0, refuse(whole, "begins and ends with different kinds of names", "write %s-%s", e.text(e.First), e.text(e.First+1))
	}
	return end.First, nil
}

// check holds an element against what there can be.
func (e *Element) check(whole string) error {
	if e.Count > MaxItems {
		return refuse(whole, fmt.Sprintf("has %d elements, more than %d", e.Count, MaxItems), "write fewer at a time")
	}
	if e.Kind != Address {
		return nil
	}
	fits := uint32(0)
	for item := range e.all() {
		if !e.network.Contains(item.Address) {
			break
		}
		fits++
	}
	if fits < e.Count {
		return refuse(whole, fmt.Sprintf("goes beyond the end of the network %s", e.network),
			"write %s+%d, and the other %d as a list of the next network", e.text(e.First), fits, e.Count-fits)
	}
	return nil
}

// countAddresses counts those that a host may have.
func countAddresses(first, last uint32) uint32 {
	count := uint32(1)
	for number := first; number < last && count <= MaxItems; {
		number++
		if !isHole(number) {
			count++
		}
	}
	return count
}

func toNumber(of netip.Addr) uint32 {
	bytes := of.As4()
	return binary.BigEndian.Uint32(bytes[:])
}

func address(number uint32) netip.Addr {
	var bytes [4]byte
	binary.BigEndian.PutUint32(bytes[:], number)
	return netip.AddrFrom4(bytes)
}
