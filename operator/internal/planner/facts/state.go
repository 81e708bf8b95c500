package facts

import (
	"fmt"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// StateType is where the Store's coordinator keeps what it knows. It is chosen when the Store is made: what one kind of state holds
// comes to no other by itself.
func (o *Observed) StateType() v1alpha1.StateType {
	had, asked := o.formerState(), o.Store.Spec.Coordinator.State.Type
	switch {
	case had == "" && asked != "":
		return asked
	case had == "":
		return v1alpha1.StateKubernetes
	case had == v1alpha1.StateMemory && asked == v1alpha1.StateVolume:
		return asked // what memory holds ends with the process in any case
	default:
		return had
	}
}

// formerState is the one that the Store has; empty for a new Store. The status may have been lost, or be of the time before there
// was a choice.
func (o *Observed) formerState() v1alpha1.StateType {
	if state := o.Store.Status.Coordinator.State; state != "" {
		return state
	}
	for i := range o.Pods {
		pod := &o.Pods[i]
		if pod.Component != v1alpha1.ComponentCoordinator || pod.Inputs.Image == "" {
			continue
		}
		if pod.Inputs.State == "" {
			return v1alpha1.StateMemory
		}
		return pod.Inputs.State
	}
	claim := resources.ClaimName(v1alpha1.CoordinatorMember(o.Store.Name), v1alpha1.ComponentCoordinator)
	if _, found := o.Claims[claim]; found {
		return v1alpha1.StateVolume
	}
	if o.Store.Status.ClusterID != "" {
		return o.Store.FormerState()
	}
	return ""
}

// StateRefused says that the spec asks for another state than the Store has, and what to do; empty where it does not.
func (o *Observed) StateRefused() string {
	spec, state := o.Store.Spec.Coordinator, o.StateType()
	const why = "rcbox does not move the state. For the other type, make another Store and copy the data with a client; " +
		"to keep this Store as it is, take the field out of the spec"
	switch {
	case spec.State.Type != "" && spec.State.Type != state:
		return fmt.Sprintf("coordinator.state.type: %s has no effect, because this Store keeps its state in %s: %s",
			spec.State.Type, state, why)
	case spec.Replicas > 1 && state != v1alpha1.StateKubernetes:
		return fmt.Sprintf("coordinator.replicas: %d has no effect, because this Store keeps its state in %s, where only one process "+
			"can use it: %s", spec.Replicas, state, why)
	default:
		return ""
	}
}

// WantedCoordinators is how many there should be.
func (o *Observed) WantedCoordinators() int {
	if o.StateType() != v1alpha1.StateKubernetes {
		return 1
	}
	return max(int(o.Store.Spec.Coordinator.Replicas), 1)
}
