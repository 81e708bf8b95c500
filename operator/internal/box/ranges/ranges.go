// Package ranges reads and prints lists of servers, slots and addresses in the notation of administrators: 1,5-7,10+3 or atom002-005 or
// 192.168.5.1+44. It does not know which of them exist.
package ranges

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
)

// MaxItems bounds the servers or addresses of one list: more than five racks have.
const MaxItems = 4096

// MaxText bounds the text of a list, in bytes.
const MaxText = 8192

// Kind is the notation of an element.
type Kind int

// Kinds of elements.
const (
	// Number is a number alone: a server or a slot.
	Number Kind = iota
	// Name is a host name with a number in it: atom002, atom002m, mercury1cmm.
	Name
	// Address is an IPv4 address.
	Address
)

// Element is one part of a list: one item, or items that follow each other.
type Element struct {
	Kind Kind
	// Prefix and Suffix surround the number of a name; Width is the least number of its digits.
	Prefix, Suffix string
	Width          int
	// First is a number, or an address as one.
	First uint32
	// Count is how many items follow each other, with the first; at least 1.
	Count uint32
	// Plus: written as M+D, not as M-N.
	Plus bool

	network netip.Prefix
}

// List is what somebody has typed, in that order.
type List []Element

// Item is one server, slot or address.
type Item struct {
	Kind   Kind
	Number uint32
	// Prefix and Suffix surround the number of a name.
	Prefix, Suffix string
	// Text is the item as somebody would type it.
	Text string
	// Address is that of an item of this kind.
	Address netip.Addr
}

// Error says which element is not understood, and what to write instead.
type Error struct {
	Element, Reason, Hint string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%q %s: %s", e.Element, e.Reason, e.Hint)
}

func refuse(element, reason, hint string, values ...any) error {
	return &Error{Element: element, Reason: reason, Hint: fmt.Sprintf(hint, values...)}
}

// Parse reads a list. Addresses may leave out the first three numbers of the network (.2); they stay inside that network, or, if they are
// outside of it, inside their own /24, and never end in .0 or .255.
func Parse(text string, network netip.Prefix) (List, error) {
	switch {
	case text == "":
		return nil, refuse(text, "is empty", "write a list such as 1,5-7,10+3")
	case len(text) > MaxText:
		return nil, refuse(text[:16]+"...", fmt.Sprintf("has %d bytes, more than %d", len(text), MaxText), "write ranges such as 1-44")
	case strings.ContainsAny(text, " \t\r\n"):
		return nil, refuse(text, "has a space", "write %s", strings.Join(strings.Fields(strings.ReplaceAll(text, ",", " ")), ","))
	}
	parts := strings.Split(text, ",")
	list, items := make(List, 0, len(parts)), uint64(0)
	for i, part := range parts {
		if part == "" {
			reason := fmt.Sprintf("has nothing at place %d", i+1)
			return nil, refuse(text, reason, "write one comma between two elements, and none at an end")
		}
		element, err := parseElement(part, network)
		if err != nil {
			return nil, err
		}
		if items += uint64(element.Count); items > MaxItems {
			return nil, refuse(part, fmt.Sprintf("makes the list longer than %d", MaxItems), "write fewer at a time")
		}
		list = append(list, element)
	}
	return list, nil
}

// ParseNumbers reads a list in which only numbers make sense, such as one of slots.
func ParseNumbers(text string) (List, error) {
	list, err := Parse(text, netip.Prefix{})
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Kind != Number {
			return nil, refuse(list[i].String(), "is not a number", "write numbers, such as 1-44")
		}
	}
	return list, nil
}

// ParseAddresses reads a list in which only addresses make sense.
func ParseAddresses(text string, network netip.Prefix) (List, error) {
	list, err := Parse(text, network)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Kind != Address {
			return nil, refuse(list[i].String(), "is not an address", "write addresses, such as 192.168.5.1+44")
		}
	}
	return list, nil
}

// OfAddresses makes the shortest list that has these IPv4 addresses in this order. A range ends where its /24 ends.
func OfAddresses(addresses []netip.Addr) List {
	var list List
	for i, one := range addresses {
		number := toNumber(one)
		if i > 0 && number == toNumber(addresses[i-1])+1 && !isHole(number) && !isHole(number-1) {
			list[len(list)-1].Count++
			continue
		}
		list = append(list, Element{Kind: Address, First: number, Count: 1, Plus: true})
	}
	return list
}

// Items gives each item once, in the order of the list.
func (l List) Items() []Item {
	var items []Item
	seen := map[string]bool{}
	for i := range l {
		for item := range l[i].all() {
			if !seen[item.Text] {
				seen[item.Text] = true
				items = append(items, item)
			}
		}
	}
	return items
}

func (l List) String() string {
	texts := make([]string, len(l))
	for i := range l {
		texts[i] = l[i].String()
	}
	return strings.Join(texts, ",")
}

func (e *Element) String() string {
	first := e.text(e.First)
	switch {
	case e.Count == 1:
		return first
	case e.Plus:
		return first + "+" + strconv.FormatUint(uint64(e.Count), 10)
	}
	return first + "-" + e.text(e.last())
}

// text is an item's.
func (e *Element) text(number uint32) string {
	switch e.Kind {
	case Name:
		return e.Prefix + pad(number, e.Width) + e.Suffix
	case Address:
		return address(number).String()
	case Number:
	}
	return pad(number, e.Width)
}

func pad(number uint32, width int) string { return fmt.Sprintf("%0*d", width, number) }

func (e *Element) last() uint32 {
	last := e.First
	for item := range e.all() {
		last = item.Number
	}
	return last
}

// all gives the items one after the other.
func (e *Element) all() func(yield func(Item) bool) {
	return func(yield func(Item) bool) {
		number := e.First
		for left := e.Count; left > 0; left-- {
			item := Item{Kind: e.Kind, Number: number, Prefix: e.Prefix, Suffix: e.Suffix, Text: e.text(number)}
			if e.Kind == Address {
				item.Address = address(number)
			}
			if !yield(item) || left == 1 {
				return
			}
			number++
			for e.Kind == Address && isHole(number) {
				number++
			}
		}
	}
}

// isHole: addresses that end in .0 or .255 belong to no host, whatever the network's size: old tools refuse them.
func isHole(number uint32) bool {
	return number&math.MaxUint8 == 0 || number&math.MaxUint8 == math.MaxUint8
}
