package facts

import (
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// Node is one that a master is or was on.
type Node struct {
	// Deleted: there is no such node any more.
	Deleted bool
	// OutOfService: somebody has said so, by its taint.
	OutOfService bool
	Ready        bool
	// SilentFrom is when its kubelet counts as silent unless it is heard before; zero where nobody has looked.
	SilentFrom time.Time
	// Drained says who has it drained; empty if nobody has.
	Drained v1alpha1.NodeDrain
}

// Cause says how the node is lost; empty if it is not.
func (n Node) Cause() v1alpha1.NodeLoss {
	switch {
	case n.Deleted:
		return v1alpha1.NodeDeleted
	case n.OutOfService:
		return v1alpha1.NodeOutOfService
	case !n.Ready:
		return v1alpha1.NodeNotReady
	default:
		return ""
	}
}

// FenceState is how far the fencing of a node is.
type FenceState struct {
	// Requested by this Store, and Done, by whomever.
	Requested bool
	Done      bool
	// Message is what whoever does it says.
	Message string
}
