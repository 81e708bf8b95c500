package bmc

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
)

// redacted stands for a secret wherever something is printed.
const redacted = "***"

// Secret is a password that no format, log or encoder prints. The text is behind a function, so that printing by reflection, which asks no
// method of an unexported field, finds nothing either.
type Secret struct{ reveal func() string }

// NewSecret returns text as a secret.
func NewSecret(text string) Secret { return Secret{reveal: func() string { return text }} }

// Reveal returns the text, for those who send it to a controller.
func (s Secret) Reveal() string {
	if s.reveal == nil {
		return ""
	}
	return s.reveal()
}

// IsEmpty says whether there is none.
func (s Secret) IsEmpty() bool { return s.Reveal() == "" }

// Equal compares without telling by its time how much is equal.
func (s Secret) Equal(other Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

// String hides the text.
func (Secret) String() string { return redacted }

// GoString hides the text.
func (Secret) GoString() string { return redacted }

// Format hides the text from each verb of fmt, %x and %d included.
func (Secret) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, redacted) }

// LogValue hides the text.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the text from encoders of JSON, YAML and XML.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON hides the text.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
