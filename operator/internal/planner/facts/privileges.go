package facts

import (
	"fmt"
	"slices"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// Privileges are those that the status has of the Store. A Store that was there before this was kept gets all that it has; a new one none.
func (o *Observed) Privileges() *v1alpha1.PrivilegesStatus {
	status := &o.Store.Status
	if status.Privileges != nil {
		return status.Privileges
	}
	had := &v1alpha1.PrivilegesStatus{}
	if status.ObservedGeneration == 0 {
		return had
	}
	note := func(network *resources.Network) {
		if network == nil {
			return
		}
		had.Capabilities = union(had.Capabilities, network.Capabilities)
		had.EALArguments = union(had.EALArguments, network.EALArguments)
		had.WholePort = had.WholePort || network.Profile == v1alpha1.NetworkWholePort
	}
	for i := range o.Pods {
		note(o.Pods[i].Inputs.Network)
	}
	if status.ObservedGeneration == o.Store.Generation { // its operator has seen this spec, and has made pods from it
		note(o.wantedNetwork())
	}
	return had
}

func (o *Observed) wantedNetwork() *resources.Network {
	return resources.InputsFor(o.Store, v1alpha1.ComponentMaster, "", o.StateType()).Network
}

// NotAllowed says what of the spec the Store may not have, and how it could; empty if it may have everything.
func (o *Observed) NotAllowed(had *v1alpha1.PrivilegesStatus) string {
	if refused := o.overlayNotAllowed(); refused != "" {
		return refused
	}
	network := o.wantedNetwork()
	if network == nil {
		return ""
	}
	if network.Profile == v1alpha1.NetworkWholePort && !had.WholePort &&
		!slices.Contains(o.Allowed.NetworkProfiles, string(network.Profile)) {
		return refuse("network.profile", string(network.Profile), "allow.networkProfiles")
	}
	for _, capability := range network.Capabilities {
		if !slices.Contains(had.Capabilities, capability) && !slices.Contains(o.Allowed.Capabilities, string(capability)) {
			return refuse("network.capabilities", string(capability), "allow.capabilities")
		}
	}
	for _, argument := range network.EALArguments {
		name, _, _ := strings.Cut(argument, "=")
		if !slices.Contains(had.EALArguments, argument) && !slices.Contains(o.Allowed.EALArguments, argument) &&
			!slices.Contains(o.Allowed.EALArguments, name) {
			return refuse("network.ealArguments", shortened(argument), "allow.ealArguments")
		}
	}
	return ""
}

// refuse says who can allow a field.
func refuse(field, what, value string) string {
	return fmt.Sprintf("spec.%s: the installation of the operator does not allow %s. Allow it to all Stores with the chart's value "+
		"%s (manager run --%s), or take it from the spec; until then nothing of the Store is made or changed",
		field, what, value, flagOf[value])
}

// overlayNotAllowed says which overlay of pods the Store may not have, or which cannot be applied; empty if there is none such.
func (o *Observed) overlayNotAllowed() string {
	for _, component := range []string{v1alpha1.ComponentCoordinator, v1alpha1.ComponentMaster} {
		inputs := resources.InputsFor(o.Store, component, "", o.StateType())
		if inputs.Pod == nil || inputs.Pod.Overlay == nil {
			continue
		}
		if !o.Allowed.Overlays {
			return refuse(strings.TrimPrefix(resources.OverlayPath(component), "spec."), "overlays of pods", "allow.overlays")
		}
		if refused := resources.CheckOverlay(o.Store, component, inputs); refused != nil {
			return refused.Error() + ". Until then nothing of the Store is made or changed"
		}
	}
	return ""
}

var flagOf = map[string]string{
	"allow.networkProfiles": "allow-network-profiles",
	"allow.capabilities":    "allow-capabilities",
	"allow.ealArguments":    "allow-eal-arguments",
	"allow.overlays":        "allow-overlays",
}

// shortened keeps a condition's message short.
func shortened(argument string) string {
	const most = 40
	if len(argument) > most {
		return argument[:most] + "..."
	}
	return argument
}

func union[Name ~string](a, b []Name) []Name {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
