package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/operator/internal/admin"
)

// Style is how much a writer can show.
type Style struct {
	// Colour: it is a terminal that wants it.
	Colour bool
}

// Codes of terminals.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	bold   = "1"
)

func (s Style) paint(code, text string) string {
	if !s.Colour || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold text.
func (s Style) Bold(text string) string { return s.paint(bold, text) }

// colourOf a member's state.
func colourOf(state State) string {
	switch state {
	case StateUp:
		return green
	case StateDown, StateRecovering, StateNotReady:
		return red
	case StateFree, StateUnknown, StateAsleep:
		return ""
	default:
		return yellow
	}
}

func serverID(id uint64) string { return admin.ServerID(id) }

// count is a number with its noun.
func count(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Bytes in the greatest unit that leaves a digit before the point.
func Bytes(n uint64) string {
	const step = 1024
	if n < step {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n), -1
	for value >= step && unit < len("KMGTPE")-1 {
		value /= step
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTPE"[unit])
}

// Quantity is a number in thousands, so that it fits into a column.
func Quantity(n uint64) string {
	const exact, step = 10_000, 1000
	if n < exact {
		return strconv.FormatUint(n, 10)
	}
	value, unit := float64(n), -1
	for value >= step && unit < len("kMGTPE")-1 {
		value /= step
		unit++
	}
	return fmt.Sprintf("%.1f%c", value, "kMGTPE"[unit])
}

func percentOf(part, whole uint64) uint64 {
	const percent = 100
	if whole == 0 {
		return 0
	}
	return uint64(float64(part) / float64(whole) * percent)
}

// bar shows a share in ten characters.
func bar(part, whole uint64) string {
	const width = 10
	filled := 0
	if whole > 0 {
		filled = int(float64(min(part, whole)) / float64(whole) * width)
	}
	return "[" + strings.Repeat("#", filled) + strings.Repeat("-", width-filled) + "]"
}

// Ago is a duration as kubectl shows ages.
func Ago(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 2*day:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d/day))
	}
}

// Milliseconds are shown as seconds from one on.
func milliseconds(ms uint64) string {
	const second = 1000
	if ms < second {
		return fmt.Sprintf("%d ms", ms)
	}
	return fmt.Sprintf("%.1f s", float64(ms)/second)
}

func drainingText(draining *adminv1.Draining) string {
	text := fmt.Sprintf("%s and %d copies left", count(draining.GetTablets(), "tablet"), draining.GetCopies())
	if waits := draining.GetWaitsFor(); len(waits) > 0 {
		text += "; " + strings.Join(waits, "; ")
	}
	return text
}

// table lays out rows in columns; what is in the last column is never padded. Painting comes last, for it has no width.
type table struct {
	rows [][]cell
}

type cell struct {
	text   string
	colour string
	right  bool
}

func plain(text string) cell { return cell{text: text} }

func number(text string) cell { return cell{text: text, right: true} }

func heads(names ...string) []cell {
	cells := make([]cell, 0, len(names))
	for _, name := range names {
		cells = append(cells, cell{text: name, colour: bold})
	}
	return cells
}

func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

func (t *table) write(out *strings.Builder, style Style, indent string) {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], len([]rune(cell.text)))
		}
	}
	for _, row := range t.rows {
		parts := make([]string, 0, len(row))
		for i, cell := range row {
			padding := strings.Repeat(" ", widths[i]-len([]rune(cell.text)))
			painted := style.paint(cell.colour, cell.text)
			if cell.right {
				parts = append(parts, padding+painted)
			} else {
				parts = append(parts, painted+padding)
			}
		}
		out.WriteString(strings.TrimRight(indent+strings.Join(parts, "  "), " ") + "\n")
	}
}
