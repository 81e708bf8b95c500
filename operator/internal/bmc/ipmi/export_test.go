package ipmi

import (
	"testing"
	"time"
)

// KeepConsole has signs of life be sent more often.
func KeepConsole(t *testing.T, every time.Duration) {
	t.Helper()
	before := keepConsole
	keepConsole = every
	t.Cleanup(func() { keepConsole = before })
}
