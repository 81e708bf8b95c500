// Package record has where the operator's knowledge of a Store is kept: most of it in the Store's status, and that of each master in
// a StoreMember of the master's name. Join makes one status of these parts, in which MastersStatus.Members has all masters; Split takes
// such a status apart again. What decides and what shows knows only the joined status. The package reads and writes nothing by itself.
//
// Two objects cannot be written at once. The Store is written before its StoreMembers, and StoreMembers of masters that have left are
// deleted last: whatever a master gives up (its pods' numbers, addresses under which somebody may still send) is in the Store's status
// before its StoreMember has it no more. What a master acquires counts once its StoreMember has it.
package record

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// Parts are what is to be written of a joined status.
type Parts struct {
	// Store is the Store's own status.
	Store v1alpha1.StoreStatus
	// Members are the StoreMembers' contents, by name.
	Members map[string]v1alpha1.MemberStatus
}

// IsFormer says whether an earlier operator wrote a status, which had everything in the Store.
func IsFormer(status *v1alpha1.StoreStatus) bool {
	if status.Record != nil {
		return false
	}
	return len(status.Masters.Members) > 0 || status.DisruptionLock != nil ||
		!equality.Semantic.DeepEqual(status.DrillNotes, v1alpha1.DrillNotes{}) ||
		status.OrdersCarriedOver || status.LossesSeen > 0 || status.Coordinator.PodNumber > 0 || status.Masters.RetiredPodNumber > 0
}

// Join adds to a Store's status what its StoreMembers have; those of another Store are left out. A status that an earlier operator wrote
// has everything, and StoreMembers that there may be are not complete: they are left out, too.
func Join(store *v1alpha1.Store, members []v1alpha1.StoreMember) {
	status := &store.Status
	if IsFormer(status) {
		return
	}
	status.Masters.Members = nil
	for i := range members {
		if member := &members[i]; IsOf(member, store) {
			status.Masters.Members = append(status.Masters.Members, statusOf(member.DeepCopy()))
		}
	}
	slices.SortFunc(status.Masters.Members, func(a, b v1alpha1.MemberStatus) int { return byOrdinal(store.Name, a.Name, b.Name) })
	if record := status.Record; record != nil {
		status.DisruptionLock, status.DrillNotes = record.DisruptionLock.DeepCopy(), *record.Drills.DeepCopy()
		status.OrdersCarriedOver = record.OrdersCarriedOver
		status.LossesSeen = record.LossesSeen
		status.Coordinator.PodNumber, status.Masters.RetiredPodNumber = record.CoordinatorPodNumber, record.RetiredPodNumber
	}
}

// Part takes out of a joined status what Join has added: the Store's own part is left, as it was read.
func Part(status *v1alpha1.StoreStatus) {
	if status.Record == nil {
		return
	}
	status.DisruptionLock, status.DrillNotes, status.OrdersCarriedOver, status.LossesSeen = nil, v1alpha1.DrillNotes{}, false, 0
	status.Coordinator.PodNumber, status.Masters.RetiredPodNumber, status.Masters.Members = 0, 0, nil
}

// IsOf says whether a StoreMember is this very Store's, and not of one of the same name that was deleted before.
func IsOf(member *v1alpha1.StoreMember, store *v1alpha1.Store) bool {
	return member.Namespace == store.Namespace && member.DeletionTimestamp == nil && metav1.IsControlledBy(member, store)
}

// Split takes a joined status apart.
func Split(store string, joined *v1alpha1.StoreStatus) Parts {
	parts := Parts{Store: *joined.DeepCopy(), Members: map[string]v1alpha1.MemberStatus{}}
	own := &parts.Store
	record := v1alpha1.StoreRecord{
		DisruptionLock: own.DisruptionLock, Drills: own.DrillNotes, OrdersCarriedOver: own.OrdersCarriedOver, LossesSeen: own.LossesSeen,
		CoordinatorPodNumber: own.Coordinator.PodNumber, RetiredPodNumber: own.Masters.RetiredPodNumber,
		HighestPodNumber: own.Masters.RetiredPodNumber,
	}
	if before := own.Record; before != nil {
		record.HighestPodNumber = max(record.HighestPodNumber, before.HighestPodNumber)
	}
	var ordinals []int32
	for i := range own.Masters.Members {
		member := own.Masters.Members[i]
		parts.Members[member.Name] = member
		record.HighestPodNumber = max(record.HighestPodNumber, member.PodNumber)
		if ordinal, isMaster := v1alpha1.MasterOrdinal(store, member.Name); isMaster {
			ordinals = append(ordinals, int32(ordinal)) //nolint:gosec // bounded by the schema
		}
	}
	record.Members = rangesOf(ordinals)
	own.Record = &record
	Part(own)
	return parts
}

// Fill has a StoreMember say what a status of its master does. The number of a pod goes on record before there is such a pod, and stays
// there if nobody knows what became of the pod.
func Fill(member *v1alpha1.StoreMember, status v1alpha1.MemberStatus) {
	number := max(member.Record.PodNumber, status.PodNumber)
	member.Record, member.Status = *status.MemberRecord.DeepCopy(), *status.MemberFigures.DeepCopy()
	member.Record.PodNumber = number
}

// New is a StoreMember of a Store, with what is known of its master.
func New(store *v1alpha1.Store, status v1alpha1.MemberStatus) *v1alpha1.StoreMember {
	member := &v1alpha1.StoreMember{
		ObjectMeta: metav1.ObjectMeta{
			Name: status.Name, Namespace: store.Namespace,
			Labels: map[string]string{v1alpha1.LabelStore: store.Name, v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(store, v1alpha1.GroupVersion.WithKind("Store")),
			},
		},
		Spec: v1alpha1.StoreMemberSpec{StoreRef: v1alpha1.StoreReference{Name: store.Name}},
	}
	Fill(member, status)
	return member
}

// IsMissing says whether the Store has a StoreMember on record that was not seen. Somebody has deleted it, or it has yet to be made.
func IsMissing(store *v1alpha1.Store, name string) bool {
	ordinal, isMaster := v1alpha1.MasterOrdinal(store.Name, name)
	if !isMaster || store.Status.Record == nil {
		return false
	}
	isIn := func(r v1alpha1.OrdinalRange) bool { return int(r.First) <= ordinal && ordinal <= int(r.Last) }
	isIt := func(m v1alpha1.MemberStatus) bool { return m.Name == name }
	return slices.ContainsFunc(store.Status.Record.Members, isIn) && !slices.ContainsFunc(store.Status.Masters.Members, isIt)
}

// Missing are the members whose StoreMembers are on record and were not seen.
func Missing(store *v1alpha1.Store) []string {
	if store.Status.Record == nil {
		return nil
	}
	var names []string
	for _, ordinals := range store.Status.Record.Members {
		for ordinal := ordinals.First; ordinal <= ordinals.Last; ordinal++ {
			if name := v1alpha1.MasterMember(store.Name, int(ordinal)); IsMissing(store, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// statusOf is what a StoreMember has, under its name.
func statusOf(member *v1alpha1.StoreMember) v1alpha1.MemberStatus {
	return v1alpha1.MemberStatus{Name: member.Name, MemberFigures: member.Status, MemberRecord: member.Record}
}

// rangesOf ordinals, the least first.
func rangesOf(ordinals []int32) []v1alpha1.OrdinalRange {
	slices.Sort(ordinals)
	var ranges []v1alpha1.OrdinalRange
	for _, ordinal := range slices.Compact(ordinals) {
		if last := len(ranges) - 1; last >= 0 && ranges[last].Last+1 == ordinal {
			ranges[last].Last = ordinal
			continue
		}
		ranges = append(ranges, v1alpha1.OrdinalRange{First: ordinal, Last: ordinal})
	}
	return ranges
}

// byOrdinal orders masters as the operator counts them.
func byOrdinal(store, a, b string) int {
	first, isMaster := v1alpha1.MasterOrdinal(store, a)
	second, isOther := v1alpha1.MasterOrdinal(store, b)
	if isMaster && isOther {
		return cmp.Compare(first, second)
	}
	return cmp.Compare(a, b)
}
