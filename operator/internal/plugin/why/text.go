package why

import (
	"strings"

	"rcbox.dev/rcbox/operator/internal/plugin/view"
)

// Text is the finding for people.
func (f Finding) Text(style view.Style) string {
	out := &strings.Builder{}
	out.WriteString(style.Bold(f.Sentence) + "\n")
	for _, detail := range f.Details {
		out.WriteString("  " + detail + "\n")
	}
	for _, command := range f.Commands {
		out.WriteString("  $ " + command + "\n")
	}
	return out.String()
}
