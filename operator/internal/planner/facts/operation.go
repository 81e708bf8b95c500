package facts

import (
	"slices"
	"strings"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// Operation is a StoreOperation about the Store.
type Operation struct {
	Name       string
	UID        string
	Generation int64
	CreatedAt  time.Time
	Spec       v1alpha1.StoreOperationSpec
	// Status as it is on record.
	Status v1alpha1.StoreOperationStatus
}

// Restarts says whether an operation orders the restart of a master: of all, unless it names some.
func (o *Operation) Restarts(member string) bool {
	return o.Spec.Type == v1alpha1.OperationRestart &&
		(o.Spec.Restart == nil || len(o.Spec.Restart.Members) == 0 || slices.Contains(o.Spec.Restart.Members, member))
}

// IsBefore says whether a pod is from before the operation. Times are the API server's, in whole seconds: a pod of the same second counts
// as from before.
func (o *Operation) IsBefore(pod *Pod) bool { return !pod.CreatedAt.After(o.CreatedAt) }

// SortOperations by age; those of the same second by name.
func SortOperations(operations []Operation) {
	slices.SortFunc(operations, func(a, b Operation) int {
		if order := a.CreatedAt.Compare(b.CreatedAt); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
}
