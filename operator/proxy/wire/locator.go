package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Address at which somebody listens over TCP.
type Address struct {
	Host string
	Port uint16
}

// Locator is the address in the protocol's words.
func (a Address) Locator() string { return fmt.Sprintf("tcp:host=%s,port=%d", a.Host, a.Port) }

var errLocator = errors.New("expected something like tcp:host=10.0.0.1,port=11100")

// ParseLocators finds the address over TCP in a list of alternatives; the zero Address where none of them is over TCP.
func ParseLocators(list string) (Address, error) {
	for rest := list; ; {
		protocol, options, found := strings.Cut(rest, ":")
		protocol = strings.Trim(protocol, " ")
		if !found || !isWord(protocol, "_+") {
			return Address{}, fmt.Errorf("service locator %q: %w", list, errLocator)
		}
		values, after, err := parseOptions(options)
		if err != nil {
			return Address{}, fmt.Errorf("service locator %q: %w", list, err)
		}
		if protocol == "tcp" {
			port, err := strconv.ParseUint(values["port"], 10, 16)
			if err != nil || values["host"] == "" {
				return Address{}, fmt.Errorf("service locator %q: %w", list, errLocator)
			}
			return Address{Host: values["host"], Port: uint16(port)}, nil
		}
		if after == "" {
			return Address{}, nil
		}
		rest = after[1:]
	}
}

// parseOptions reads key=value, separated by commas, up to the end or a semicolon, with which what is left begins.
func parseOptions(text string) (values map[string]string, left string, err error) {
	values = map[string]string{}
	if left = strings.TrimLeft(text, " "); left == "" || left[0] == ';' {
		return values, left, nil
	}
	for {
		key, rest, found := strings.Cut(left, "=")
		key = strings.Trim(key, " ")
		if !found || !isWord(key, "_") {
			return nil, "", errLocator
		}
		var value string
		if value, left, err = parseValue(strings.TrimLeft(rest, " ")); err != nil {
			return nil, "", err
		}
		values[key] = value
		if left == "" || left[0] == ';' {
			return values, left, nil
		}
		left = left[1:] // a comma
	}
}

// parseValue reads a value, in double quotes or not, up to the end, a comma or a semicolon, with which what is left begins.
func parseValue(text string) (value, left string, err error) {
	quoted := strings.HasPrefix(text, `"`)
	escaped := `",;` // the characters from which a backslash goes away
	if quoted {
		text, escaped = text[1:], `"`
	}
	read := strings.Builder{}
	for at := 0; at < len(text); at++ {
		switch c := text[at]; {
		case c == '\\' && at+1 < len(text):
			at++
			if !strings.ContainsRune(escaped, rune(text[at])) {
				read.WriteByte(c)
			}
			read.WriteByte(text[at])
		case quoted && c == '"':
			left = strings.TrimLeft(text[at+1:], " ")
			if left != "" && left[0] != ',' && left[0] != ';' {
				return "", "", errLocator
			}
			return read.String(), left, nil
		case !quoted && (c == ',' || c == ';'):
			return strings.TrimRight(read.String(), " "), text[at:], nil
		case c == '\\' || !quoted && c == '"':
			return "", "", errLocator
		default:
			read.WriteByte(c)
		}
	}
	if quoted {
		return "", "", errLocator
	}
	return strings.TrimRight(read.String(), " "), "", nil
}

// isWord: letters, digits and some more, at least one.
func isWord(text, more string) bool {
	for _, c := range text {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.ContainsRune(more, c):
		default:
			return false
		}
	}
	return text != ""
}
