package view

import (
	"fmt"
	"strings"
	"time"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
)

// Trace is what shards have done last.
type Trace struct {
	// Asked is how many shards were asked; those that did not answer are missing.
	Asked  uint32       `json:"asked"`
	Shards []ShardTrace `json:"shards"`
}

// ShardTrace is what one shard has done last, or why nobody knows.
type ShardTrace struct {
	Member   string       `json:"member"`
	Shard    uint32       `json:"shard"`
	ServerID string       `json:"serverId"`
	Refusal  string       `json:"refusal"`
	Events   []TraceEvent `json:"events"`
}

// TraceEvent is one event; the time is of the server's machine.
type TraceEvent struct {
	TimeNanoseconds        uint64 `json:"timeNs"`
	SinceBeforeNanoseconds uint64 `json:"sinceBeforeNs"`
	Name                   string `json:"name"`
	Description            string `json:"description"`
	Place                  uint32 `json:"place"`
	Argument               uint32 `json:"argument"`
}

// TraceOf is the coordinator's answer.
func TraceOf(response *adminv1.GetTimeTraceResponse) Trace {
	trace := Trace{Asked: response.GetAsked(), Shards: []ShardTrace{}}
	for _, shard := range response.GetShards() {
		shown := ShardTrace{
			Member: shard.GetMember(), Shard: shard.GetShardIndex(), ServerID: serverID(shard.GetServerId()), Refusal: shard.GetRefusal(),
			Events: []TraceEvent{},
		}
		var before uint64
		for i, event := range shard.GetEvents() {
			if i == 0 {
				before = event.GetTimeNs()
			}
			var gap uint64
			if event.GetTimeNs() > before {
				gap = event.GetTimeNs() - before
			}
			before = event.GetTimeNs()
			shown.Events = append(shown.Events, TraceEvent{
				TimeNanoseconds: event.GetTimeNs(), SinceBeforeNanoseconds: gap, Name: event.GetName(), Description: event.GetDescription(),
				Place: event.GetPlace(), Argument: event.GetArgument(),
			})
		}
		trace.Shards = append(trace.Shards, shown)
	}
	return trace
}

// Text is a table for each shard: time since the event before, name, and what happened.
func (t Trace) Text(style Style) string {
	var out strings.Builder
	for i, shard := range t.Shards {
		if i > 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintf(&out, "%s\n", style.Bold(fmt.Sprintf("%s shard %d, server %s: %s", shard.Member, shard.Shard, shard.ServerID,
			count(uint64(len(shard.Events)), "event"))))
		if shard.Refusal != "" {
			fmt.Fprintf(&out, "  %s\n", shard.Refusal)
			continue
		}
		events := table{}
		for _, event := range shard.Events {
			events.add(number("+"+gapText(event.SinceBeforeNanoseconds)), plain(event.Name), plain(event.Description))
		}
		events.write(&out, style, "  ")
	}
	if answered := uint32(len(t.Shards)); answered < t.Asked { //nolint:gosec // one for each shard of a store
		fmt.Fprintf(&out, "%d of %d shards did not answer\n", t.Asked-answered, t.Asked)
	}
	return out.String()
}

// gapText is a time with three to five digits.
func gapText(nanoseconds uint64) string {
	const inMicroseconds, inMilliseconds = 10_000, 10_000_000
	switch {
	case nanoseconds < inMicroseconds:
		return fmt.Sprintf("%d ns", nanoseconds)
	case nanoseconds < inMilliseconds:
		return fmt.Sprintf("%.1f us", float64(nanoseconds)/float64(time.Microsecond))
	default:
		return fmt.Sprintf("%.1f ms", float64(nanoseconds)/float64(time.Millisecond))
	}
}
