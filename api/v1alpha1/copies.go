package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// DefaultCopies is how many copies of each object a new Store has whose spec does not say, where it has masters enough.
	DefaultCopies = 2
	// DefaultStorageShare is how many times the least that it can do with a member's storage for copies has by default. Once for the
	// copies of logs that are full, and as much again for what the cleaner has replaced meanwhile and for a lost member's log that is
	// being brought back.
	DefaultStorageShare = 2
)

// DefaultFactor is the number of copies of a new Store with so many masters: each copy is on another member than its master.
func DefaultFactor(masters int32) int32 { return max(min(DefaultCopies, masters-1), 0) }

// LeastStorage is the least size, in bytes, of each member's storage for copies: the masters' logs, factor times.
func LeastStorage(factor int32, masterMemory resource.Quantity) resource.Quantity {
	return *resource.NewQuantity(int64(factor)*masterMemory.Value(), resource.BinarySI)
}

// DefaultStorage is the size of each member's storage for copies where the spec does not say: DefaultStorageShare times the least.
func DefaultStorage(factor int32, masterMemory resource.Quantity) resource.Quantity {
	least := LeastStorage(factor, masterMemory)
	return *resource.NewQuantity(DefaultStorageShare*least.Value(), resource.BinarySI)
}

// Copies is the number of copies of each object that the Store should have: the spec's or, where that says nothing, what was decided
// when the Store was first seen. Nobody has decided yet on a Store that no operator has seen; it has none.
func (s *Store) Copies() int32 {
	switch decided := s.Status.Replication.Decided; {
	case s.Spec.Replication.Factor != nil:
		return *s.Spec.Replication.Factor
	case decided != nil:
		return decided.Factor
	default:
		return 0
	}
}

// LeastCopies is the number of copies with which writes go on; 0 without copies.
func (s *Store) LeastCopies() int32 {
	factor := s.Copies()
	switch {
	case factor == 0:
		return 0
	case s.Spec.Replication.Min != nil:
		return min(*s.Spec.Replication.Min, factor)
	default:
		return max(factor-1, 1)
	}
}

// CopiesStorage is the size of each member's storage for copies: the spec's or, where that says nothing, the one that was decided when
// the Store was first seen with copies.
func (s *Store) CopiesStorage() resource.Quantity {
	switch decided := s.Status.Replication.Decided; {
	case s.Spec.Backups.Storage.Size != nil:
		return *s.Spec.Backups.Storage.Size
	case decided != nil && decided.StorageSize != nil:
		return *decided.StorageSize
	default:
		return DefaultStorage(s.Copies(), s.Spec.Masters.Memory)
	}
}

// FormerState is where the coordinator of a Store of the time before StateKubernetes keeps what it knows.
func (s *Store) FormerState() StateType {
	switch {
	case s.Spec.Coordinator.State.Type != "":
		return s.Spec.Coordinator.State.Type
	case s.Copies() > 0:
		return StateVolume
	default:
		return StateMemory
	}
}

// LosesTables says whether the end of the coordinator's process is the end of every table: its state is in memory. The spec alone says so
// only until the status does; a change of it does not bring what is in memory elsewhere.
func (s *Store) LosesTables() bool {
	state := s.Status.Coordinator.State
	if state == "" {
		state = s.Spec.Coordinator.State.Type
	}
	return state == StateMemory
}
