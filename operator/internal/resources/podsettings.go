package resources

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// settingsOf are a component's settings of pods.
func settingsOf(store *v1alpha1.Store, component string) *v1alpha1.PodSettings {
	if component == v1alpha1.ComponentCoordinator {
		return &store.Spec.Coordinator.Pod
	}
	return &store.Spec.Masters.Pod
}

// settingsPath is where a component's settings of pods are in a Store.
func settingsPath(component string) string {
	if component == v1alpha1.ComponentCoordinator {
		return "spec.coordinator.pod"
	}
	return "spec.masters.pod"
}

// podInputs are the settings that have no field of their own in Inputs; nil where there are none, so that pods from before these settings
// are not outdated. A toleration or a PriorityClass is the same to a pod, wherever the spec has it.
func podInputs(from *v1alpha1.PodSettings) *v1alpha1.PodSettings {
	settings := *from
	settings.Tolerations, settings.PriorityClassName = nil, ""
	settings.Overlay = canonical(from.Overlay)
	if len(settings.Metadata.Labels)+len(settings.Metadata.Annotations)+len(settings.TopologySpreadConstraints) == 0 &&
		settings.Affinity == nil && settings.RuntimeClassName == "" && settings.SchedulerName == "" && settings.Overlay == nil {
		return nil
	}
	return &settings
}

// canonical is an overlay with its keys in order, and as it is when it was encoded and decoded with a pod's inputs: two that say the same
// are the same. It is nil for one that says nothing.
func canonical(overlay *runtime.RawExtension) *runtime.RawExtension {
	if overlay == nil || len(overlay.Raw) == 0 {
		return nil
	}
	var fields map[string]any
	if err := json.Unmarshal(overlay.Raw, &fields); err != nil {
		return overlay // the schema lets nothing through that is no object
	}
	text, err := json.Marshal(fields)
	if err != nil || len(fields) == 0 {
		return nil
	}
	return &runtime.RawExtension{Raw: text}
}

// configure gives a pod the settings of its component. The operator's own labels and annotations stay.
func configure(pod *coreac.PodApplyConfiguration, settings *v1alpha1.PodSettings) {
	if settings == nil {
		return
	}
	pod.Labels = withOwn(settings.Metadata.Labels, pod.Labels)
	pod.Annotations = withOwn(settings.Metadata.Annotations, pod.Annotations)
	if settings.RuntimeClassName != "" {
		pod.Spec.WithRuntimeClassName(settings.RuntimeClassName)
	}
	if settings.SchedulerName != "" {
		pod.Spec.WithSchedulerName(settings.SchedulerName)
	}
}

func withOwn(theirs, own map[string]string) map[string]string {
	all := maps.Clone(theirs)
	if all == nil {
		return own
	}
	maps.Copy(all, own)
	return all
}

// spreadBesides adds the constraints of a component's settings to the operator's.
func spreadBesides(
	own []*coreac.TopologySpreadConstraintApplyConfiguration, store *v1alpha1.Store, spec PodSpec,
) ([]*coreac.TopologySpreadConstraintApplyConfiguration, error) {
	if spec.Inputs.Pod == nil {
		return own, nil
	}
	for i := range spec.Inputs.Pod.TopologySpreadConstraints {
		theirs := &spec.Inputs.Pod.TopologySpreadConstraints[i]
		constraint, err := converted[coreac.TopologySpreadConstraintApplyConfiguration](theirs)
		if err != nil {
			return nil, err
		}
		if theirs.LabelSelector == nil {
			constraint.LabelSelector = spread(store, spec.Component, theirs.TopologyKey).LabelSelector
		}
		// The API server takes one constraint of a kind for a key.
		own = slices.DeleteFunc(own, func(o *coreac.TopologySpreadConstraintApplyConfiguration) bool {
			return *o.TopologyKey == theirs.TopologyKey && *o.WhenUnsatisfiable == theirs.WhenUnsatisfiable
		})
		own = append(own, constraint)
	}
	return own, nil
}

// affinityBesides adds the affinity of a component's settings to the operator's, which is nil where there is none. Terms of nodes are
// alternatives, so that each of them gets the operator's conditions.
func affinityBesides(own *coreac.AffinityApplyConfiguration, settings *v1alpha1.PodSettings) (*coreac.AffinityApplyConfiguration, error) {
	if settings == nil || settings.Affinity == nil {
		return own, nil
	}
	all, err := converted[coreac.AffinityApplyConfiguration](settings.Affinity)
	if err != nil || own == nil {
		return all, err
	}
	if own.PodAntiAffinity != nil {
		if all.PodAntiAffinity == nil {
			all.PodAntiAffinity = coreac.PodAntiAffinity()
		}
		all.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = slices.Concat(
			own.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			all.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	if own.NodeAffinity == nil {
		return all, nil
	}
	if all.NodeAffinity == nil {
		all.NodeAffinity = coreac.NodeAffinity()
	}
	ours := own.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	theirs := all.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if theirs == nil || len(theirs.NodeSelectorTerms) == 0 {
		all.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = ours
		return all, nil
	}
	for i := range theirs.NodeSelectorTerms {
		term := &theirs.NodeSelectorTerms[i]
		term.MatchFields = slices.Concat(term.MatchFields, ours.NodeSelectorTerms[0].MatchFields)
	}
	return all, nil
}

// converted is one of the API's objects as what is applied.
func converted[To any](from any) (*To, error) {
	text, err := json.Marshal(from)
	if err != nil {
		return nil, fmt.Errorf("encode settings of pods: %w", err)
	}
	to := new(To)
	if err := json.Unmarshal(text, to); err != nil {
		return nil, fmt.Errorf("decode settings of pods: %w", err)
	}
	return to, nil
}

// tolerationsOf are those of all pods of the Store, and those of the component's.
func tolerationsOf(store *v1alpha1.Store, component string) []corev1.Toleration {
	all, its := store.Spec.Placement.Tolerations, settingsOf(store, component).Tolerations
	if len(its) == 0 {
		return all
	}
	return slices.Concat(all, its)
}

// noteSettings names the settings of pods that differ.
func noteSettings(note func(name string, equal bool, from, to string), have, want *v1alpha1.PodSettings) {
	if have == nil {
		have = &v1alpha1.PodSettings{}
	}
	if want == nil {
		want = &v1alpha1.PodSettings{}
	}
	equal := equality.Semantic.DeepEqual
	note("pod.metadata", equal(have.Metadata, want.Metadata), "", "")
	note("pod.affinity", equal(have.Affinity, want.Affinity), "", "")
	note("pod.topologySpreadConstraints", equal(have.TopologySpreadConstraints, want.TopologySpreadConstraints), "", "")
	note("pod.runtimeClassName", have.RuntimeClassName == want.RuntimeClassName, have.RuntimeClassName, want.RuntimeClassName)
	note("pod.schedulerName", have.SchedulerName == want.SchedulerName, have.SchedulerName, want.SchedulerName)
	note("pod.overlay", equal(have.Overlay, want.Overlay), "", "")
}
