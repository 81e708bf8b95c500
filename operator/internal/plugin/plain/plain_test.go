package plain_test

import (
	"testing"

	"rcbox.dev/rcbox/operator/internal/plugin/plain"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		"box-master-0: é, 表, ±1": "box-master-0: é, 表, ±1",
		"\x1b[2J\x1b]0;owned\a":  `\x1b[2J\x1b]0;owned\x07`,
		"over\rwritten\b":        `over\x0dwritten\x08`,
		"a\tb\n":                 `a\x09b\x0a`,
		"\u009b31m":              `\x9b31m`,
		"a\u202eb\u2066c":        `a\u202eb\u2066c`,
		"zero\u200bwidth\ufeff":  `zero\u200bwidth\ufeff`,
		"\u2028 \u00a0":          `\u2028 \xa0`,
		"tag \U000e0041":         `tag \U000e0041`,
		"bytes \xff\x9b":         `bytes \xff\x9b`,
		"replaced \ufffd":        "replaced \ufffd",
	} {
		if got := plain.Text(text); got != want {
			t.Errorf("%q: %q, not %q", text, got, want)
		}
	}
	if got := plain.Lines("one\n\ttwo\x1b\r\n"); got != "one\n\ttwo\\x1b\\x0d\n" {
		t.Errorf("lines: %q", got)
	}
}

func TestClean(t *testing.T) {
	type inner struct{ Name string }
	type kind string
	value := struct {
		Text    string
		Kind    kind
		Pointer *inner
		List    []inner
		Strings map[string]string
		Structs map[string]inner
		Any     any
		Nil     *inner
		Bytes   []byte
		number  string
	}{
		Text: "\x1b", Kind: "\x1b", Pointer: &inner{"\x1b"}, List: []inner{{"\x1b"}}, Strings: map[string]string{"k": "\x1b"},
		Structs: map[string]inner{"k": {"\x1b"}}, Any: []any{map[string]any{"k": "\x1b"}}, Bytes: []byte("\x1b"), number: "\x1b",
	}
	plain.Clean(&value, plain.Text)
	const want = `\x1b`
	within, _ := value.Any.([]any)[0].(map[string]any)
	for what, got := range map[string]string{
		"text": value.Text, "kind": string(value.Kind), "pointer": value.Pointer.Name, "list": value.List[0].Name,
		"strings": value.Strings["k"], "structs": value.Structs["k"].Name, "any": within["k"].(string), //nolint:forcetypeassert // it is
	} {
		if got != want {
			t.Errorf("%s: %q", what, got)
		}
	}
	if value.number != "\x1b" || string(value.Bytes) != "\x1b" {
		t.Error("what is no text of others was changed")
	}
}
