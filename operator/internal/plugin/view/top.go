package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
)

// Load is what members and tablets do.
type Load struct {
	Members []MemberLoad `json:"members"`
	// Tablets that do the most, first.
	Tablets []TabletLoad `json:"tablets"`
}

// MemberLoad is what a member has and does.
type MemberLoad struct {
	Member
	// OperationsPerSecond of its tablets, of late.
	OperationsPerSecond uint64 `json:"operationsPerSecond"`
	// CPUMillicores that its pod uses; null where nobody measures.
	CPUMillicores *int64 `json:"cpuMillicores"`
}

// TabletLoad is what a tablet has and does, as its server has estimated it.
type TabletLoad struct {
	Table               string `json:"table"`
	StartKeyHash        string `json:"startKeyHash"`
	EndKeyHash          string `json:"endKeyHash"`
	Member              string `json:"member"`
	ServerID            string `json:"serverId"`
	Bytes               uint64 `json:"bytes"`
	Objects             uint64 `json:"objects"`
	OperationsPerSecond uint64 `json:"operationsPerSecond"`
}

// Load with so many tablets at most; members with the most operations, then the most bytes, first.
func (s *Snapshot) Load(tablets int) Load {
	operations := map[string]uint64{}
	load := Load{Members: []MemberLoad{}, Tablets: []TabletLoad{}}
	for _, table := range s.Tables {
		for _, tablet := range table.GetTablets() {
			operations[tablet.GetMember()] += tablet.GetOperationsPerSecond()
			load.Tablets = append(load.Tablets, tabletLoad(table, tablet))
		}
	}
	for _, member := range s.Members() {
		entry := MemberLoad{Member: member, OperationsPerSecond: operations[member.Name]}
		if cpu, measured := s.PodCPU[member.Pod]; measured {
			entry.CPUMillicores = &cpu
		}
		load.Members = append(load.Members, entry)
	}
	slices.SortStableFunc(load.Members, func(a, b MemberLoad) int {
		return cmp.Or(cmp.Compare(b.OperationsPerSecond, a.OperationsPerSecond), cmp.Compare(b.LiveBytes, a.LiveBytes))
	})
	slices.SortStableFunc(load.Tablets, func(a, b TabletLoad) int {
		return cmp.Or(cmp.Compare(b.OperationsPerSecond, a.OperationsPerSecond), cmp.Compare(b.Bytes, a.Bytes))
	})
	load.Tablets = load.Tablets[:min(max(tablets, 0), len(load.Tablets))]
	return load
}

func tabletLoad(table *adminv1.Table, tablet *adminv1.Tablet) TabletLoad {
	return TabletLoad{
		Table: table.GetName(), StartKeyHash: hexadecimal(tablet.GetStartKeyHash()), EndKeyHash: hexadecimal(tablet.GetEndKeyHash()),
		Member: tablet.GetMember(), ServerID: serverID(tablet.GetServerId()), Bytes: tablet.GetBytes(),
		Objects: tablet.GetObjects(), OperationsPerSecond: tablet.GetOperationsPerSecond(),
	}
}

// Text is the load for people.
func (l Load) Text(style Style) string {
	out := &strings.Builder{}
	members := table{}
	measured := slices.ContainsFunc(l.Members, func(m MemberLoad) bool { return m.CPUMillicores != nil })
	header := heads("MEMBER", "STATE", "OPS/S", "TABLETS", "OBJECTS", "IN USE", "OF")
	if measured {
		header = append(header, cell{text: "CPU", colour: bold})
	}
	members.add(header...)
	for i := range l.Members {
		members.add(loadRow(&l.Members[i], measured)...)
	}
	members.write(out, style, "")
	if len(l.Tablets) == 0 {
		return out.String()
	}
	out.WriteString("\n")
	tablets := table{}
	tablets.add(heads("TABLE", "TABLET FROM", "MEMBER", "OPS/S", "OBJECTS", "BYTES")...)
	for i := range l.Tablets {
		tablet := &l.Tablets[i]
		tablets.add(plain(tablet.Table), plain(tablet.StartKeyHash), plain(tablet.Member),
			number(Quantity(tablet.OperationsPerSecond)), number(Quantity(tablet.Objects)), number(Bytes(tablet.Bytes)))
	}
	tablets.write(out, style, "")
	return out.String()
}

func loadRow(member *MemberLoad, measured bool) []cell {
	row := []cell{
		plain(member.Name),
		{text: string(member.State), colour: colourOf(member.State)},
		number(Quantity(member.OperationsPerSecond)), number(strconv.FormatUint(member.Tablets, 10)), number(Quantity(member.Objects)),
		plain(fmt.Sprintf("%s %3d%%", bar(member.LiveBytes, member.CapacityBytes), percentOf(member.LiveBytes, member.CapacityBytes))),
		number(Bytes(member.CapacityBytes)),
	}
	switch {
	case !measured:
	case member.CPUMillicores == nil:
		row = append(row, number("-"))
	default:
		row = append(row, number(fmt.Sprintf("%dm", *member.CPUMillicores)))
	}
	return row
}
