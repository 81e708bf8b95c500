package steps

import (
	"fmt"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// KindOperation is the kind of StoreOperations.
const KindOperation = "StoreOperation"

// CreateOperation makes a StoreOperation, unless there is one of that name.
type CreateOperation struct {
	Name string
	Spec v1alpha1.StoreOperationSpec
	Why  string
}

func (s CreateOperation) row() Row {
	return Row{
		Text:  fmt.Sprintf("create StoreOperation %s (%s): %s", s.Name, s.Spec.Type, s.Why),
		Event: "OperationCreated", Object: Object{KindOperation, s.Name}, Look: Store, StopsRest: true,
	}
}

// DeleteOperation deletes a StoreOperation that has ended, or whose Store is deleted.
type DeleteOperation struct {
	Name string
	UID  string
	Why  string
}

func (s DeleteOperation) row() Row {
	return Row{
		Text:   fmt.Sprintf("delete StoreOperation %s: %s", s.Name, s.Why),
		Object: Object{KindOperation, s.Name}, StopsRest: true,
	}
}

// DropOrders removes annotations of the Store that were orders, and that StoreOperations have taken the place of.
type DropOrders struct {
	Annotations []string
	Why         string
}

func (s DropOrders) row() Row {
	return Row{
		Text:      fmt.Sprintf("remove annotations %s of the Store: %s", strings.Join(s.Annotations, ", "), s.Why),
		StopsRest: true,
	}
}

// FinalizeUpgrade has the coordinator put a format in force, for ever.
type FinalizeUpgrade struct {
	Format int32
	Why    string
}

func (s FinalizeUpgrade) row() Row {
	return Row{
		Text:  fmt.Sprintf("put format %d in force: %s", s.Format, s.Why),
		Event: "UpgradeFinalized", Look: Everything,
	}
}

// SplitTable has the coordinator see to it that a table has boundaries at even distances. They are not taken back, so the order is looked
// for once more; to give it twice does no harm.
type SplitTable struct {
	// Operation is the uid of the StoreOperation that orders it.
	Operation string
	Table     string
	Parts     int32
	Why       string
}

func (s SplitTable) row() Row {
	return Row{
		Text:  fmt.Sprintf("split table %q into %d parts: %s", s.Table, s.Parts, s.Why),
		Event: "TableSplit", Look: StoreOnce,
	}
}
