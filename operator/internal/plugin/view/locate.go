package view

import (
	"fmt"
	"strconv"
	"strings"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/operator/internal/plugin/keyhash"
)

// Location is where a key is. Ids and hashes are strings with 0x, so that no reader rounds them.
type Location struct {
	Table        string `json:"table"`
	TableID      string `json:"tableId"`
	KeyHash      string `json:"keyHash"`
	StartKeyHash string `json:"startKeyHash"`
	EndKeyHash   string `json:"endKeyHash"`
	// State of its tablet: normal or recovering.
	State    string `json:"state"`
	ServerID string `json:"serverId"`
	Member   string `json:"member"`
	Locator  string `json:"locator"`
	Pod      string `json:"pod"`
	Node     string `json:"node"`
	// MemberState is what the member is at the moment.
	MemberState State `json:"memberState"`
}

func hexadecimal(n uint64) string { return fmt.Sprintf("0x%016x", n) }

// Locate finds the tablet that a key is in, of a table by its name or its id.
func (s *Snapshot) Locate(table string, key []byte) (Location, error) {
	found := findTable(s.Tables, table)
	if found == nil {
		return Location{}, fmt.Errorf("there is no table %q", table)
	}
	if !keyhash.Known(found.GetTableId()) {
		return Location{}, fmt.Errorf("the keys of table %q are hashed in a way that this kubectl-rcbox does not know: "+
			"use the one of the store's version", table)
	}
	hash := keyhash.Of(found.GetTableId(), key)
	for _, tablet := range found.GetTablets() {
		if tablet.GetStartKeyHash() <= hash && hash <= tablet.GetEndKeyHash() {
			return s.location(found, tablet, hash), nil
		}
	}
	return Location{}, fmt.Errorf("table %q has no tablet for key hash %s at the moment: it is about to be dropped, or was split just now",
		table, hexadecimal(hash))
}

func findTable(tables []*adminv1.Table, name string) *adminv1.Table {
	for _, table := range tables {
		if table.GetName() == name {
			return table
		}
	}
	id, err := strconv.ParseUint(name, 0, 64)
	if err != nil {
		return nil
	}
	for _, table := range tables {
		if table.GetTableId() == id {
			return table
		}
	}
	return nil
}

func (s *Snapshot) location(table *adminv1.Table, tablet *adminv1.Tablet, hash uint64) Location {
	at := Location{
		Table: table.GetName(), TableID: hexadecimal(table.GetTableId()), KeyHash: hexadecimal(hash),
		StartKeyHash: hexadecimal(tablet.GetStartKeyHash()), EndKeyHash: hexadecimal(tablet.GetEndKeyHash()),
		State: "normal", ServerID: serverID(tablet.GetServerId()), Member: tablet.GetMember(), MemberState: StateUnknown,
	}
	if tablet.GetState() == adminv1.TabletState_TABLET_STATE_RECOVERING {
		at.State = "recovering"
	}
	for _, member := range s.Cluster.GetMembers() {
		for _, shard := range member.GetShards() {
			if shard.GetServerId() == tablet.GetServerId() {
				at.Locator = shard.GetLocator()
			}
		}
	}
	for _, member := range s.Members() {
		if member.Name == at.Member {
			at.Pod, at.Node, at.MemberState = member.Pod, member.Node, member.State
		}
	}
	return at
}

// Text is the location for people.
func (l Location) Text(style Style) string {
	out := &strings.Builder{}
	lines := table{}
	row := func(name, text string) { lines.add(cell{text: name, colour: bold}, plain(text)) }
	tablet := l.StartKeyHash + " to " + l.EndKeyHash
	if l.State != "normal" {
		tablet += ", " + l.State
	}
	row("Table", l.Table+" ("+l.TableID+")")
	row("Key hash", l.KeyHash)
	row("Tablet", tablet)
	row("Server", l.ServerID+" of "+l.Member+" ("+string(l.MemberState)+")")
	row("Pod", orDash(l.Pod)+" on "+orDash(l.Node))
	row("Locator", orDash(l.Locator))
	lines.write(out, style, "")
	return out.String()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
