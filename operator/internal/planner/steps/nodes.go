package steps

import (
	"fmt"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// IsolateNode makes a StoreOperation by which a node gets no more pods of the Store.
type IsolateNode struct {
	Node   string
	Member string
	Why    string
}

func (s IsolateNode) row() Row {
	return Row{
		Text:  fmt.Sprintf("isolate node %s: %s", s.Node, s.Why),
		Event: "NodeIsolated", Object: Object{"Node", s.Node}, Look: Everything,
	}
}

// FenceNode has a node be fenced that is lost.
type FenceNode struct {
	Fence v1alpha1.FenceStatus
	Why   string
}

func (s FenceNode) row() Row {
	return Row{
		Text:  fmt.Sprintf("fence node %s (%s): %s", s.Fence.Node, s.Fence.Type, s.Why),
		Event: "NodeFenced", Object: Object{"Node", s.Fence.Node}, Look: Everything,
	}
}

// UnfenceNode takes that back.
type UnfenceNode struct {
	Fence v1alpha1.FenceStatus
	Why   string
}

func (s UnfenceNode) row() Row {
	return Row{
		Text:  fmt.Sprintf("release node %s (%s): %s", s.Fence.Node, s.Fence.Type, s.Why),
		Event: "NodeReleased", Object: Object{"Node", s.Fence.Node},
	}
}
