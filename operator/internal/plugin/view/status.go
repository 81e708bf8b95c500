package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
)

// maxShown is how many entries of a list are shown; -o json has all.
const maxShown = 10

// Available says whether every key can be read and written, as far as the operator knows.
func (s *Snapshot) Available() bool {
	return meta.IsStatusConditionTrue(s.Store.Status.Conditions, v1alpha1.ConditionAvailable)
}

// Picture is the Store for people. With compact, a slot is a character also where there are few.
func (s *Snapshot) Picture(style Style, compact bool) string {
	out := &strings.Builder{}
	s.drawHeader(out, style)
	s.drawConditions(out, style)
	s.drawMembers(out, style, compact)
	s.drawRecoveries(out, style)
	s.drawWaits(out, style)
	s.drawLosses(out, style)
	s.drawAdvice(out, style)
	return out.String()
}

func (s *Snapshot) drawHeader(out *strings.Builder, style Style) {
	store := s.Store
	lines := table{}
	row := func(name, text string) { lines.add(cell{text: name, colour: bold}, plain(text)) }
	row("Store", fmt.Sprintf("%s/%s, made %s ago", store.Namespace, store.Name, Ago(s.Now.Sub(store.CreationTimestamp.Time))))
	row("Image", s.imageText())
	row("Clients", s.clientsText())
	row("Masters", s.mastersText())
	row("Copies", s.copiesText())
	row("Coordinator", s.coordinatorText())
	row("Data", s.dataText())
	row("Operator", s.lookText())
	lines.write(out, style, "")
	if s.Cluster == nil {
		text := "Without the coordinator's word, this is what the operator has seen last (" + s.lookAge() + " ago): " + s.ClusterError
		out.WriteString("\n" + style.paint(yellow, text) + "\n")
	}
	if s.isStale() {
		text := "The operator has not looked for " + s.lookAge() + ": conditions are as they were then, whatever the rest shows. " +
			"Its pod may be on a node that is gone: kubectl get pods -A -l app.kubernetes.io/name=rcbox-operator -o wide"
		out.WriteString("\n" + style.paint(yellow, text) + "\n")
	}
}

func (s *Snapshot) clientsText() string {
	if s.Store.Status.Locator == "" {
		return "no address yet"
	}
	return fmt.Sprintf("%s in the cluster; from your machine: %s", s.Store.Status.Locator, s.with("proxy", s.Store.Name))
}

func (s *Snapshot) imageText() string {
	text := cmp.Or(s.Store.Status.Image, "not chosen yet")
	if version := s.Cluster.GetFormatVersion(); version > 0 {
		text += fmt.Sprintf(" (format %d in force", version)
		if newest := s.Cluster.GetUpgrade().GetNewestFormat(); newest > version {
			text += fmt.Sprintf(", %d is possible", newest)
		}
		text += ")"
	}
	return text
}

func (s *Snapshot) mastersText() string {
	up, unknown, total := 0, 0, 0
	for _, member := range s.Members() {
		total++
		switch member.State {
		case StateUp, StateDraining, StateDrained:
			up++
		case StateUnknown:
			unknown++
		default:
		}
	}
	text := fmt.Sprintf("%d of %d up", up, total)
	if unknown > 0 {
		text += fmt.Sprintf(", %d not known", unknown)
	}
	if wanted := int(s.Store.Spec.Masters.Replicas); wanted != total {
		text += fmt.Sprintf(", %d wanted", wanted)
	}
	if outdated := s.Store.Status.Masters.Outdated; outdated > 0 {
		text += fmt.Sprintf(", %d outdated", outdated)
	}
	return text
}

func (s *Snapshot) copiesText() string {
	status := &s.Store.Status
	factor, short := uint64(max(status.Replication.Factor, 0)), uint64(max(status.Replication.SegmentsShort, 0))
	if s.Cluster != nil {
		factor, short = uint64(s.Cluster.GetDurability().GetReplicas()), 0
		for _, member := range s.Cluster.GetMembers() {
			for _, shard := range member.GetShards() {
				short += shard.GetSegmentsShort()
			}
		}
	}
	text := "none besides the one in a master's memory"
	if factor > 0 {
		text = fmt.Sprintf("%d besides the one in a master's memory", factor)
	}
	if status.Durability != "" {
		text += fmt.Sprintf(" (%s)", status.Durability)
	}
	if wanted := s.Store.Copies(); uint64(max(wanted, 0)) != factor {
		text += fmt.Sprintf(", %d wanted", wanted)
	}
	if short > 0 {
		text += fmt.Sprintf("; %s of logs short of them", count(short, "piece"))
	}
	return text
}

func (s *Snapshot) coordinatorText() string {
	status := &s.Store.Status.Coordinator
	pod := cmp.Or(s.LeaderPod, status.Pod)
	if pod == "" {
		return "none yet"
	}
	text := pod
	if node := s.nodeOf(pod, status.Node); node != "" {
		text += " on " + node
	}
	if term := s.Cluster.GetLeader().GetTerm(); term > 0 {
		text += fmt.Sprintf(", term %d", term)
	}
	if status.State != "" {
		text += ", state in " + map[v1alpha1.StateType]string{
			v1alpha1.StateKubernetes: "Kubernetes", v1alpha1.StateVolume: "a volume", v1alpha1.StateMemory: "memory",
		}[status.State]
	}
	if wait := s.Cluster.GetLeader().GetStateWait(); wait != nil {
		text += ", which it cannot note: " + wait.GetWhy()
	}
	var standbys []string
	for i := range status.Standbys {
		standby := &status.Standbys[i]
		if standby.Pod == pod {
			continue
		}
		word := "ready to lead"
		if !standby.Running {
			word = cmp.Or(standby.Message, "not running")
		}
		standbys = append(standbys, fmt.Sprintf("%s on %s (%s)", cmp.Or(standby.Pod, standby.Name), cmp.Or(standby.Node, "no node"), word))
	}
	if len(standbys) > 0 {
		text += "; standbys: " + strings.Join(standbys, ", ")
	}
	return text
}

func (s *Snapshot) nodeOf(pod, otherwise string) string {
	for i := range s.Pods {
		if s.Pods[i].Name == pod {
			return s.Pods[i].Spec.NodeName
		}
	}
	return otherwise
}

func (s *Snapshot) dataText() string {
	var tablets, objects, live, capacity uint64
	for _, member := range s.Members() {
		tablets, objects = tablets+member.Tablets, objects+member.Objects
		live, capacity = live+member.LiveBytes, capacity+member.CapacityBytes
	}
	tables := uint64(max(s.Store.Status.Tables, 0))
	if s.Cluster == nil {
		return fmt.Sprintf("%s, %s, about %s of %s in use", count(tables, "table"), count(tablets, "tablet"), Bytes(live), Bytes(capacity))
	}
	return fmt.Sprintf("%s, %s, %s objects; %s of %s in use (%d%%)", count(s.Cluster.GetTableCount(), "table"),
		count(tablets, "tablet"), Quantity(objects), Bytes(live), Bytes(capacity), percentOf(live, capacity))
}

func (s *Snapshot) drawConditions(out *strings.Builder, style Style) {
	lines := table{}
	for _, name := range []string{
		v1alpha1.ConditionAvailable, v1alpha1.ConditionDataSafe, v1alpha1.ConditionRecovering, v1alpha1.ConditionDegraded,
		v1alpha1.ConditionProgressing, v1alpha1.ConditionRecoveryOnTarget, v1alpha1.ConditionNetworkReady,
	} {
		if name == v1alpha1.ConditionNetworkReady && !s.Store.Spec.HasPorts() {
			continue // it has nothing to say
		}
		condition := meta.FindStatusCondition(s.Store.Status.Conditions, name)
		if condition == nil {
			lines.add(plain(name), plain("-"), plain("the operator has not said yet"))
			continue
		}
		lines.add(plain(name), cell{text: conditionWord(condition), colour: conditionColour(condition)},
			plain(condition.Reason+", for "+Ago(s.Now.Sub(condition.LastTransitionTime.Time))+": "+condition.Message))
	}
	title := "CONDITIONS"
	if s.isStale() {
		title += ", as the operator saw them " + s.lookAge() + " ago"
	}
	out.WriteString("\n" + style.paint(bold, title) + "\n")
	lines.write(out, style, "  ")
}

func conditionWord(condition *metav1.Condition) string {
	switch condition.Status {
	case metav1.ConditionTrue:
		return "yes"
	case metav1.ConditionFalse:
		return "no"
	default:
		return "unknown"
	}
}

// conditionColour: three of the conditions are good news, two are bad, and one is neither.
func conditionColour(condition *metav1.Condition) string {
	isTrue := condition.Status == metav1.ConditionTrue
	switch condition.Type {
	case v1alpha1.ConditionAvailable, v1alpha1.ConditionDataSafe:
		switch {
		case isTrue:
			return green
		case condition.Reason == v1alpha1.ReasonUnreplicated:
			return yellow
		default:
			return red
		}
	case v1alpha1.ConditionRecoveryOnTarget:
		if isTrue {
			return green
		}
		return yellow
	case v1alpha1.ConditionNetworkReady:
		switch {
		case condition.Reason == v1alpha1.ReasonAddressesLow, condition.Reason == v1alpha1.ReasonAttaching:
			return yellow
		case isTrue:
			return green
		default:
			return red
		}
	case v1alpha1.ConditionProgressing:
		switch {
		case isTrue:
			return yellow
		case condition.Reason == v1alpha1.ReasonAsSpecified, condition.Reason == v1alpha1.ReasonHibernated:
			return green
		case condition.Reason == v1alpha1.ReasonPaused, condition.Reason == v1alpha1.ReasonCanBeFinalized:
			return yellow
		default:
			return red
		}
	default:
		if isTrue {
			return red
		}
		return green
	}
}

// drawWaits shows what moves and what waits, and why.
func (s *Snapshot) drawWaits(out *strings.Builder, style Style) {
	var lines []string
	for _, migration := range s.Cluster.GetMigrations() {
		if migration.GetEndedNs() == 0 {
			lines = append(lines, migrationText(migration))
		}
	}
	if balance := s.Cluster.GetBalance(); balance.GetDoing() != "" {
		lines = append(lines, "balancing: "+balance.GetDoing())
	}
	if waits := s.Cluster.GetBalance().GetWaitsFor(); waits != "" {
		lines = append(lines, "balancing waits: "+waits)
	}
	if wait := s.Cluster.GetLeader().GetStateWait(); wait != nil {
		lines = append(lines, fmt.Sprintf("the coordinator has not been able to write its state for %s: %s; %d requests and replies wait",
			milliseconds(wait.GetWaitedMs()), wait.GetWhy(), wait.GetHeld()))
	}
	for _, hindrance := range s.Cluster.GetUpgrade().GetHindrances() {
		lines = append(lines, "upgrade: "+hindrance)
	}
	writeList(out, style, "MOVING AND WAITING", lines)
}

func migrationText(migration *adminv1.Migration) string {
	text := fmt.Sprintf("tablet of %s: %s -> %s", migration.GetTable(), migration.GetSourceMember(), migration.GetTargetMember())
	if migration.GetWaitsFor() != "" {
		return text + ", waits: " + migration.GetWaitsFor()
	}
	text += fmt.Sprintf(", %s and %s objects so far", Bytes(migration.GetBytes()), Quantity(migration.GetObjects()))
	if migration.GetFrozen() {
		text += ", its writes wait"
	}
	if migration.GetReason() != "" {
		text += " (" + migration.GetReason() + ")"
	}
	return text
}

func writeList(out *strings.Builder, style Style, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	out.WriteString("\n" + style.paint(bold, title) + "\n")
	for _, line := range lines[:min(len(lines), maxShown)] {
		out.WriteString("  " + line + "\n")
	}
	if more := len(lines) - maxShown; more > 0 {
		fmt.Fprintf(out, "  and %d more: -o json has all\n", more)
	}
}

func (s *Snapshot) drawLosses(out *strings.Builder, style Style) {
	var lines []string
	acknowledged := acknowledgedLosses(s.Store)
	for i := range s.Store.Status.Losses {
		loss := &s.Store.Status.Losses[i]
		text := fmt.Sprintf("%d  %s  %s: %s", loss.Number, loss.Time.UTC().Format(time.DateTime), loss.Member, lossText(loss))
		if loss.Number > acknowledged {
			text = style.paint(red, text+" (not acknowledged)")
		}
		lines = append(lines, text)
	}
	writeList(out, style, "LOSSES", lines)
}

func lossText(loss *v1alpha1.Loss) string {
	switch loss.Cause {
	case v1alpha1.LossOfCoordinator:
		return fmt.Sprintf("every table is gone (%s)", count(uint64(max(loss.TableCount, 0)), "table"))
	case v1alpha1.LossAccepted:
		return "a user gave up copies (rcbox recovery accept-loss): " + loss.Missing
	default:
		if loss.Uncounted {
			return fmt.Sprintf("%s of %s lost, with an unknown number of objects: %s", count(uint64(max(loss.Tablets, 0)), "tablet"),
				count(uint64(max(loss.TableCount, 0)), "table"), strings.Join(loss.Tables, ", "))
		}
		return fmt.Sprintf("%s of %s with %s objects (%s) lost: %s", count(uint64(max(loss.Tablets, 0)), "tablet"),
			count(uint64(max(loss.TableCount, 0)), "table"), Quantity(uint64(max(loss.Objects, 0))),
			Bytes(uint64(max(loss.Bytes, 0))), strings.Join(loss.Tables, ", "))
	}
}
