// Package plain makes text from the network safe to show: what a terminal would obey, or would not show, becomes visible.
//
// Whoever runs a store's processes chooses the texts in their answers, and in a cluster many may write messages of pods and events.
package plain

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text is the same text in one line, with each character escaped, as in Go's strings, that a terminal does not show as itself:
// controls, marks of direction, characters without a width, and bytes that are no UTF-8.
func Text(text string) string { return escape(text, unicode.IsPrint) }

// Lines is the same with ends of lines and tabs as they are.
func Lines(text string) string {
	return escape(text, func(r rune) bool { return r == '\n' || r == '\t' || unicode.IsPrint(r) })
}

// escape all but what isShown. unicode.IsPrint is true of letters, marks, numbers, punctuation, symbols and the space; formats, such as
// marks of direction and joiners, other spaces, private and unassigned characters are not among them.
func escape(text string, isShown func(rune) bool) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !isShown(r) }) < 0 {
		return text
	}
	var plain strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			fmt.Fprintf(&plain, `\x%02x`, text[i])
		case isShown(r):
			plain.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&plain, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&plain, `\u%04x`, r)
		default:
			fmt.Fprintf(&plain, `\U%08x`, r)
		}
	}
	return plain.String()
}

// Clean makes every string plain, by Text or Lines, that can be reached from a pointer. Keys of maps stay as they are: they are looked up.
func Clean(pointer any, plain func(string) string) {
	cleaner(plain).clean(reflect.ValueOf(pointer))
}

type cleaner func(string) string

func (c cleaner) clean(value reflect.Value) {
	switch value.Kind() {
	case reflect.String:
		if value.CanSet() {
			value.SetString(c(value.String()))
		}
	case reflect.Pointer:
		if !value.IsNil() {
			c.clean(value.Elem())
		}
	case reflect.Interface:
		c.cleanInterface(value)
	case reflect.Struct:
		for i := range value.NumField() {
			if value.Type().Field(i).IsExported() {
				c.clean(value.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		if isFlat(value.Type().Elem().Kind()) {
			return
		}
		for i := range value.Len() {
			c.clean(value.Index(i))
		}
	case reflect.Map:
		c.cleanMap(value)
	default:
		// Numbers and truth values.
	}
}

// cleanInterface: what is in an interface is a copy if it is no pointer.
func (c cleaner) cleanInterface(value reflect.Value) {
	if value.IsNil() {
		return
	}
	within := value.Elem()
	if within.Kind() == reflect.Pointer {
		c.clean(within)
		return
	}
	if value.CanSet() {
		value.Set(c.cleaned(within))
	}
}

func (c cleaner) cleanMap(value reflect.Value) {
	for _, key := range value.MapKeys() {
		within := value.MapIndex(key)
		if within.Kind() == reflect.Pointer {
			c.clean(within)
			continue
		}
		if !isFlat(within.Kind()) {
			value.SetMapIndex(key, c.cleaned(within))
		}
	}
}

func (c cleaner) cleaned(value reflect.Value) reflect.Value {
	copied := reflect.New(value.Type()).Elem()
	copied.Set(value)
	c.clean(copied)
	return copied
}

func isFlat(kind reflect.Kind) bool {
	return kind >= reflect.Bool && kind <= reflect.Complex128
}
