package escape_test

import (
	"testing"

	"rcbox.dev/rcbox/operator/internal/plugin/escape"
)

func TestKeys(t *testing.T) {
	for _, test := range []struct {
		typed, send string
		action      escape.Action
		rest        string
	}{
		{"ls\r", "ls\r", escape.None, ""},
		{"~.", "", escape.Quit, ""},
		{"ls\r~.more", "ls\r", escape.Quit, "more"},
		{"ls\n~.", "ls\n", escape.Quit, ""},
		{"ls ~.\r", "ls ~.\r", escape.None, ""},
		{"~\x1ax", "", escape.Suspend, "x"},
		{"~?x", "", escape.Help, "x"},
		{"~~.", "~.", escape.None, ""},
		{"~~.\r~.", "~.\r", escape.Quit, ""},
		{"~a~.", "~a~.", escape.None, ""},
		{"~\r~.", "~\r", escape.Quit, ""},
		{"\r\r~~\r~~", "\r\r~\r~", escape.None, ""},
	} {
		// Whole, and key by key, as a terminal may give it.
		for _, isWhole := range []bool{true, false} {
			var keys escape.Keys
			var sent []byte
			var action escape.Action
			rest := []byte(test.typed)
			for step := len(rest); len(rest) > 0 && action == escape.None; {
				if !isWhole {
					step = 1
				}
				send, found, after := keys.Feed(rest[:step])
				sent, action = append(sent, send...), found
				rest = append(append([]byte{}, after...), rest[step:]...)
			}
			if string(sent) != test.send || action != test.action || string(rest) != test.rest {
				t.Errorf("%q (whole: %t): sent %q, action %d, rest %q", test.typed, isWhole, sent, action, rest)
			}
		}
	}
}
