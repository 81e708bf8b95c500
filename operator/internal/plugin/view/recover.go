package view

import (
	"fmt"
	"strings"
	"time"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
)

// RecoveriesUnderWay says how many recoveries have tablets left.
func (s *Snapshot) RecoveriesUnderWay() int {
	n := 0
	for _, recovery := range s.Cluster.GetRecoveries() {
		if recovery.GetTabletsLeft() > 0 {
			n++
		}
	}
	return n
}

// drawRecoveries shows those under way, and the last one that has ended.
func (s *Snapshot) drawRecoveries(out *strings.Builder, style Style) {
	var lines []string
	var ended *adminv1.Recovery
	for _, recovery := range s.Cluster.GetRecoveries() {
		if recovery.GetTabletsLeft() == 0 {
			ended = recovery
			continue
		}
		lines = append(lines, s.recoveryText(recovery))
	}
	if ended != nil {
		lines = append(lines, "the last one: "+s.recoveryText(ended))
	}
	writeList(out, style, "RECOVERIES", lines)
}

// recoveryText is one recovery in a line.
func (s *Snapshot) recoveryText(recovery *adminv1.Recovery) string {
	name := fmt.Sprintf("%s (server %s)", recovery.GetMember(), serverID(recovery.GetServerId()))
	age := s.sinceStart(recovery.GetStartedNs())
	if recovery.GetTabletsLeft() == 0 {
		text := fmt.Sprintf("%s ended, begun %s ago: %s in %s",
			name, Ago(age), Bytes(recovery.GetBytes()), milliseconds(recovery.GetMeasuredMs()))
		if rate := bytesPerSecond(recovery.GetBytes(), recovery.GetMeasuredMs()); rate > 0 {
			text += fmt.Sprintf(" (%s/s)", Bytes(rate))
		}
		return text + promised(recovery)
	}
	text := name + ": "
	if all := recovery.GetTabletCount(); all > 0 {
		done := all - min(recovery.GetTabletsLeft(), all)
		text += fmt.Sprintf("%s %d%%, %d of %s back", bar(done, all), percentOf(done, all), done, count(all, "tablet"))
	} else {
		text += count(recovery.GetTabletsLeft(), "tablet") + " left"
	}
	text += fmt.Sprintf(", %s to read, for %s", Bytes(recovery.GetBytes()), milliseconds(uint64(max(age.Milliseconds(), 0))))
	text += promised(recovery)
	if recovery.GetWaitsFor() != "" {
		text += "; waits: " + recovery.GetWaitsFor()
	}
	return text
}

func promised(recovery *adminv1.Recovery) string {
	if recovery.GetPromisedMs() == 0 {
		return ""
	}
	return fmt.Sprintf(", %s were expected", milliseconds(recovery.GetPromisedMs()))
}

func (s *Snapshot) sinceStart(startedNs uint64) time.Duration {
	now := s.Cluster.GetClusterTimeNs()
	return time.Duration(now - min(startedNs, now)) //nolint:gosec // nanoseconds of a store's life fit
}

func bytesPerSecond(bytes, ms uint64) uint64 {
	const second = 1000
	if ms == 0 {
		return 0
	}
	return uint64(float64(bytes) / float64(ms) * second)
}

// Recoveries shows all of them, and what is missing with the command that gives it up.
func (s *Snapshot) Recoveries(style Style) string {
	out := &strings.Builder{}
	if len(s.Cluster.GetRecoveries()) == 0 {
		out.WriteString("No master was lost since the coordinator keeps count.\n")
	}
	for _, recovery := range s.Cluster.GetRecoveries() {
		colour := green
		switch {
		case recovery.GetTabletsLeft() > 0 && recovery.GetWaitsFor() != "":
			colour = red
		case recovery.GetTabletsLeft() > 0:
			colour = yellow
		}
		out.WriteString(style.paint(colour, s.recoveryText(recovery)) + "\n")
		s.drawMissing(out, recovery)
	}
	s.drawLosses(out, style)
	return out.String()
}

// drawMissing says what of a log no backup has, and how to go on without it.
func (s *Snapshot) drawMissing(out *strings.Builder, recovery *adminv1.Recovery) {
	for _, missing := range recovery.GetMissing() {
		text := missing.GetText()
		if text == "" {
			text = count(missing.GetSegmentCount(), "segment") + " missing"
		}
		fmt.Fprintf(out, "  log of server %s: %s\n", serverID(missing.GetServerId()), text)
		if missing.GetLacksHead() {
			out.WriteString("    its newest segment, which names all others, is among what is missing\n")
		}
		fmt.Fprintf(out, "    left to read: %s, %s\n", count(missing.GetSegmentsLeft(), "segment"), Bytes(missing.GetBytesLeft()))
	}
	if recovery.GetLossToken() == "" || recovery.GetTabletsLeft() == 0 {
		return
	}
	out.WriteString("  It goes on by itself when the disks that have it return. If they are gone for ever, accept the loss, for ever:\n")
	fmt.Fprintf(out, "    %s\n", s.rcbox(fmt.Sprintf("recovery accept-loss %s --token %s",
		serverID(recovery.GetServerId()), recovery.GetLossToken())))
}
