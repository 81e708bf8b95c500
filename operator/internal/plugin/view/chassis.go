package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// The picture of failure domains and their slots: a line for each slot, or, where there are many, a character.

const (
	// maxLines is how many slots have a line each.
	maxLines = 48
	// slotsInRow is how many slots a row has where nodes are the failure domains.
	slotsInRow = 64
	// maxNotes is how many members with something to say are named below the compact picture.
	maxNotes = 20
)

// mark is a state's character in the compact picture.
func mark(state State) string {
	switch state {
	case StateUp:
		return "o"
	case StateDraining:
		return "d"
	case StateDrained:
		return "D"
	case StateRecovering:
		return "r"
	case StateDown:
		return "X"
	case StateStarting:
		return "s"
	case StatePending:
		return "p"
	case StateNoPod:
		return "-"
	case StateAsleep:
		return "z"
	case StateFree:
		return "."
	case StateNotReady:
		return "N"
	case StateCordoned:
		return "c"
	case StateIsolated:
		return "i"
	default:
		return "?"
	}
}

// states in the order of the legend: what is good first.
var states = []State{
	StateUp, StateDraining, StateDrained, StateStarting, StatePending, StateNoPod, StateAsleep, StateRecovering, StateDown,
	StateUnknown,
	StateFree, StateNotReady, StateCordoned, StateIsolated,
}

// Domain is what fails together, with its slots: members, and nodes that have none.
type Domain struct {
	Name  string
	Slots []Member
}

// Domains are by name, and in each the slots by node. Members without a node come last.
func (s *Snapshot) Domains() []Domain {
	slots := s.Members()
	taken := map[string]bool{}
	for i := range slots {
		taken[slots[i].Node] = true
	}
	label := cmp.Or(s.Store.Spec.Placement.FailureDomain, corev1.LabelHostname)
	for name, node := range s.Nodes {
		if taken[name] || !s.couldHaveMember(node) {
			continue
		}
		slot := Member{State: StateFree, Node: name, Domain: cmp.Or(node.Labels[label], name)}
		switch {
		case !isReady(node):
			slot.State = StateNotReady
		case node.Spec.Unschedulable:
			slot.State = StateCordoned
		case s.isIsolated(name):
			slot.State = StateIsolated
		}
		slots = append(slots, slot)
	}
	slices.SortFunc(slots, func(a, b Member) int {
		return cmp.Or(byNumbers(a.Domain, b.Domain), byNumbers(a.Node, b.Node), byNumbers(a.Name, b.Name))
	})
	var domains, last []Domain
	for _, group := range chunks(slots) {
		if group.Name == "" {
			last = append(last, group)
			continue
		}
		domains = append(domains, group)
	}
	return append(domains, last...)
}

// chunks cuts sorted slots where the domain changes.
func chunks(slots []Member) []Domain {
	var domains []Domain
	for _, slot := range slots {
		if n := len(domains); n == 0 || domains[n-1].Name != slot.Domain {
			domains = append(domains, Domain{Name: slot.Domain})
		}
		last := &domains[len(domains)-1]
		last.Slots = append(last.Slots, slot)
	}
	return domains
}

// couldHaveMember says whether the scheduler would put a master there, as far as selectors and taints go.
func (s *Snapshot) couldHaveMember(node *corev1.Node) bool {
	placement := s.Store.Spec.Placement
	for key, value := range placement.NodeSelector {
		if node.Labels[key] != value {
			return false
		}
	}
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule || strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			continue // these come and go by themselves; whether it is ready is shown
		}
		if !slices.ContainsFunc(placement.Tolerations, func(t corev1.Toleration) bool { return tolerates(&t, taint) }) {
			return false
		}
	}
	return true
}

func tolerates(toleration *corev1.Toleration, taint *corev1.Taint) bool {
	switch {
	case toleration.Effect != "" && toleration.Effect != taint.Effect:
		return false
	case toleration.Key != "" && toleration.Key != taint.Key:
		return false
	case toleration.Operator == corev1.TolerationOpExists:
		return true
	default:
		return toleration.Key != "" && toleration.Value == taint.Value
	}
}

func isReady(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return node.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}

// byNumbers compares names so that node-2 is before node-10.
func byNumbers(a, b string) int {
	for a != "" && b != "" {
		if unicode.IsDigit(rune(a[0])) && unicode.IsDigit(rune(b[0])) {
			digitsA, digitsB := leadingDigits(a), leadingDigits(b)
			numberA, _ := strconv.ParseUint(digitsA, 10, 64)
			numberB, _ := strconv.ParseUint(digitsB, 10, 64)
			if c := cmp.Or(cmp.Compare(numberA, numberB), cmp.Compare(len(digitsA), len(digitsB))); c != 0 {
				return c
			}
			a, b = a[len(digitsA):], b[len(digitsB):]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func leadingDigits(text string) string {
	end := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsDigit(r) })
	if end < 0 {
		return text
	}
	return text[:end]
}

func (s *Snapshot) drawMembers(out *strings.Builder, style Style, compact bool) {
	domains := s.Domains()
	slots := 0
	for _, domain := range domains {
		slots += len(domain.Slots)
	}
	label := cmp.Or(s.Store.Spec.Placement.FailureDomain, corev1.LabelHostname)
	title := "MEMBERS"
	if label != corev1.LabelHostname {
		title += " by " + label
	}
	out.WriteString("\n" + style.paint(bold, title) + "\n")
	if compact || slots > maxLines {
		drawCompact(out, style, domains)
		return
	}
	drawLines(out, style, domains, label != corev1.LabelHostname)
}

func drawLines(out *strings.Builder, style Style, domains []Domain, named bool) {
	lines := table{}
	header := heads("NODE", "MEMBER", "STATE", "TABLETS", "OBJECTS", "IN USE", "OF", "KEPT FOR OTHERS", "")
	if named {
		header = append(heads("DOMAIN"), header...)
	}
	lines.add(header...)
	for _, domain := range domains {
		name := cmp.Or(domain.Name, "(no node)")
		for i := range domain.Slots {
			row := lineOf(&domain.Slots[i])
			if named {
				row = append([]cell{plain(name)}, row...)
			}
			lines.add(row...)
			name = ""
		}
	}
	lines.write(out, style, "  ")
}

func lineOf(slot *Member) []cell {
	state := cell{text: string(slot.State), colour: colourOf(slot.State)}
	if slot.Name == "" {
		return []cell{plain(slot.Node), plain("-"), state}
	}
	kept := "-"
	if slot.BackupBytes > 0 {
		kept = fmt.Sprintf("%d%% of %s", percentOf(slot.BackupUsedBytes, slot.BackupBytes), Bytes(slot.BackupBytes))
	}
	return []cell{
		plain(cmp.Or(slot.Node, "-")), plain(slot.Name), state, number(strconv.FormatUint(slot.Tablets, 10)),
		number(Quantity(slot.Objects)),
		plain(fmt.Sprintf("%s %3d%%", bar(slot.LiveBytes, slot.CapacityBytes), percentOf(slot.LiveBytes, slot.CapacityBytes))),
		number(Bytes(slot.CapacityBytes)), number(kept), plain(slot.Note),
	}
}

// drawCompact has a row for each failure domain; where these are nodes, for as many nodes as fit.
func drawCompact(out *strings.Builder, style Style, domains []Domain) {
	rows := domains
	if len(domains) > maxLines {
		rows = foldDomains(domains)
	}
	lines := table{}
	seen := map[State]bool{}
	var noted []*Member
	for _, row := range rows {
		marks, tally := strings.Builder{}, map[State]int{}
		var live, capacity, tablets uint64
		for i := range row.Slots {
			slot := &row.Slots[i]
			marks.WriteString(mark(slot.State))
			seen[slot.State] = true
			tally[slot.State]++
			live, capacity, tablets = live+slot.LiveBytes, capacity+slot.CapacityBytes, tablets+slot.Tablets
			if slot.Note != "" {
				noted = append(noted, slot)
			}
		}
		lines.add(plain(cmp.Or(row.Name, "(no node)")), cell{text: marks.String(), colour: colourOf(worst(tally))},
			number(fmt.Sprintf("%d%% of %s", percentOf(live, capacity), Bytes(capacity))),
			number(count(tablets, "tablet")), plain(tallyText(tally)))
	}
	lines.write(out, style, "  ")
	out.WriteString("\n  " + legend(seen) + "\n")
	drawNotes(out, style, noted)
}

// foldDomains puts domains of one slot into rows.
func foldDomains(domains []Domain) []Domain {
	var slots []Member
	for _, domain := range domains {
		slots = append(slots, domain.Slots...)
	}
	var rows []Domain
	for group := range slices.Chunk(slots, slotsInRow) {
		first, last := group[0].Domain, group[len(group)-1].Domain
		rows = append(rows, Domain{Name: cmp.Or(first, "?") + " .. " + cmp.Or(last, "?"), Slots: group})
	}
	return rows
}

func worst(tally map[State]int) State {
	for _, state := range []State{
		StateDown, StateRecovering, StateNotReady, StateNoPod, StatePending, StateStarting, StateDraining, StateDrained, StateAsleep,
		StateUp,
	} {
		if tally[state] > 0 {
			return state
		}
	}
	return StateUnknown
}

func tallyText(tally map[State]int) string {
	var parts []string
	for _, state := range states {
		if tally[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", tally[state], state))
		}
	}
	return strings.Join(parts, ", ")
}

func legend(seen map[State]bool) string {
	var parts []string
	for _, state := range states {
		if seen[state] {
			parts = append(parts, mark(state)+" "+string(state))
		}
	}
	return strings.Join(parts, "   ")
}

func drawNotes(out *strings.Builder, style Style, noted []*Member) {
	if len(noted) == 0 {
		return
	}
	// Those that are up have less to say.
	slices.SortStableFunc(noted, func(a, b *Member) int {
		return cmp.Compare(boolToInt(a.State == StateUp), boolToInt(b.State == StateUp))
	})
	lines := table{}
	for _, member := range noted[:min(len(noted), maxNotes)] {
		state := cell{text: string(member.State), colour: colourOf(member.State)}
		lines.add(plain(member.Name), state, plain(cmp.Or(member.Node, "-")), plain(member.Note))
	}
	out.WriteString("\n")
	lines.write(out, style, "  ")
	if more := len(noted) - maxNotes; more > 0 {
		fmt.Fprintf(out, "  and %d more: -o json has all\n", more)
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// isIsolated says whether the operator keeps the Store's pods away from a node.
func (s *Snapshot) isIsolated(node string) bool {
	return slices.ContainsFunc(s.Store.Status.Isolations, func(i v1alpha1.IsolationStatus) bool { return i.Node == node })
}
