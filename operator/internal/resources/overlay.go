package resources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// maxOverlayBytes bounds an overlay: each pod carries it once more, with what the pod was made from.
const maxOverlayBytes = 16 << 10

// annotationDefaultContainer has kubectl take the store's process for the pod's, and not a sidecar.
const annotationDefaultContainer = "kubectl.kubernetes.io/default-container"

// OverlayError is an overlay that cannot be applied to a pod.
type OverlayError struct {
	// Overlay is the field of the Store that has it.
	Overlay string
	// Why says which field of the pod it is about, and what to do.
	Why string
}

func (e *OverlayError) Error() string { return e.Overlay + ": " + e.Why }

// OverlayPath is where a component's overlay is in a Store.
func OverlayPath(component string) string { return settingsPath(component) + ".overlay" }

// CheckOverlay says why the overlay of a component's pods cannot be applied; nil where it can, or there is none.
func CheckOverlay(store *v1alpha1.Store, component string, inputs Inputs) *OverlayError {
	if inputs.Pod == nil || inputs.Pod.Overlay == nil {
		return nil
	}
	member := v1alpha1.MasterMember(store.Name, 0)
	if component == v1alpha1.ComponentCoordinator {
		member = v1alpha1.CoordinatorMember(store.Name)
	}
	_, err := Pod(store, PodSpec{Component: component, Member: member, Number: 1, Inputs: inputs, Claim: ClaimName(member, component)})
	var refused *OverlayError
	errors.As(err, &refused)
	return refused
}

// overlaid is a pod with its overlay. What is refused is judged by the result: so no directive of a patch leads around it.
func overlaid(pod *coreac.PodApplyConfiguration, component string, inputs Inputs) (*coreac.PodApplyConfiguration, error) {
	if inputs.Pod == nil || inputs.Pod.Overlay == nil {
		return pod, nil
	}
	at := settingsPath(component)
	refuse := func(format string, args ...any) error {
		return &OverlayError{Overlay: OverlayPath(component), Why: fmt.Sprintf(format, args...)}
	}
	overlay := inputs.Pod.Overlay.Raw
	if len(overlay) > maxOverlayBytes {
		return nil, refuse("it has %d bytes, of which at most %d are possible: put contents of files into a ConfigMap", len(overlay),
			maxOverlayBytes)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(overlay, &fields); err != nil {
		return nil, refuse("it is not an object: %v", err)
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		switch field {
		case "spec":
		case "metadata":
			return nil, refuse("metadata must not be set there: set %s.metadata.labels and %s.metadata.annotations", at, at)
		default:
			return nil, refuse("%s is no field of a pod template: put fields of pods under spec", field)
		}
	}
	before, err := json.Marshal(pod.WithAnnotations(map[string]string{annotationDefaultContainer: component}))
	if err != nil {
		return nil, fmt.Errorf("encode a pod: %w", err)
	}
	after, err := merged(before, overlay)
	if err != nil {
		return nil, refuse("it is no patch of a pod: %v", err)
	}
	result := &coreac.PodApplyConfiguration{}
	decoder := json.NewDecoder(bytes.NewReader(after))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(result); err != nil {
		return nil, refuse("it is no patch of a pod: %v", err)
	}
	if why := refusedChange(pod.Spec, result.Spec, component); why != "" {
		return nil, refuse("%s", why)
	}
	// The store's process comes first, as for whoever names no container.
	slices.SortStableFunc(result.Spec.Containers, func(a, b coreac.ContainerApplyConfiguration) int {
		return rank(a, component) - rank(b, component)
	})
	return result, nil
}

// errDirective is a directive of a patch ($patch, $retainKeys and others) that is none.
var errDirective = errors.New("a directive in it, a field that begins with $, is malformed")

// merged is a pod with a patch. The library takes directives for well-formed, and panics where they are not.
func merged(pod, patch []byte) (result []byte, err error) {
	defer func() {
		if recover() != nil {
			err = errDirective
		}
	}()
	return strategicpatch.StrategicMergePatch(pod, patch, corev1.Pod{}) //nolint:wrapcheck // the caller says what it is about
}

func rank(container coreac.ContainerApplyConfiguration, component string) int {
	if nameOf(container) == component {
		return 0
	}
	return 1
}

func nameOf(container coreac.ContainerApplyConfiguration) string {
	if container.Name == nil {
		return ""
	}
	return *container.Name
}

// refusedChange names a field that an overlay has changed and must not, and what to do instead; empty where there is none.
func refusedChange(before, after *coreac.PodSpecApplyConfiguration, component string) string {
	if after == nil {
		return "spec must not be removed"
	}
	if why := changedField("spec.", before, after, podFields(component)); why != "" {
		return why
	}
	own := slices.IndexFunc(after.Containers, func(c coreac.ContainerApplyConfiguration) bool { return nameOf(c) == component })
	prefix := fmt.Sprintf("spec.containers[name: %s]", component)
	if own < 0 {
		return prefix + " must not be removed: it is the store's process"
	}
	ours := &before.Containers[0]
	if why := changedField(prefix+".", ours, &after.Containers[own], containerFields(component)); why != "" {
		return why
	}
	if why := refusedInContainer(prefix, ours, &after.Containers[own]); why != "" {
		return why
	}
	for i := range before.Volumes {
		isIt := func(volume coreac.VolumeApplyConfiguration) bool { return reflect.DeepEqual(volume, before.Volumes[i]) }
		if !slices.ContainsFunc(after.Volumes, isIt) {
			return fmt.Sprintf("spec.volumes[name: %s] must not be changed: it is the store's; give volumes of your own other names",
				*before.Volumes[i].Name)
		}
	}
	for i := range after.Containers {
		if i != own {
			if why := refusedSidecar("spec.containers", ours, &after.Containers[i]); why != "" {
				return why
			}
		}
	}
	for i := range after.InitContainers {
		if why := refusedSidecar("spec.initContainers", ours, &after.InitContainers[i]); why != "" {
			return why
		}
	}
	return ""
}

// protected is a field that an overlay must not change, and why, or what to do instead.
type protected struct{ field, instead string }

func podFields(component string) []protected {
	at := settingsPath(component)
	set := func(field string) protected { return protected{field, "set " + at + "." + field} }
	const account = "the rights of the pods are the operator's to give; run a program that needs others in a pod of its own"
	return []protected{
		set("affinity"), set("topologySpreadConstraints"), set("tolerations"), set("priorityClassName"), set("runtimeClassName"),
		set("schedulerName"),
		{"nodeSelector", "set spec.placement.nodeSelector, or " + at + ".affinity"},
		{"imagePullSecrets", "set spec.imagePullSecrets"},
		{"nodeName", "set " + at + ".affinity; the scheduler has to place the pod"},
		{"hostNetwork", "the store's ports are the pod's own; for ports of the node's network set spec.network"},
		{"serviceAccountName", account},
		{"serviceAccount", account},
		{"automountServiceAccountToken", account},
		{"schedulingGates", "a pod that waits for somebody else than the operator cannot replace a lost one"},
		{"readinessGates", "the operator and the store's Services take a pod's readiness for that of its process"},
		{"restartPolicy", "a process that ends is started again in its pod"},
		{"terminationGracePeriodSeconds", "it follows from backups.storage.size"},
		{"activeDeadlineSeconds", "it would end a process that serves"},
		{"resources", "set " + resourcesOf(component) + ", and resources of each container that the overlay adds"},
		{"ephemeralContainers", "kubectl debug adds these to a pod that runs"},
	}
}

func resourcesOf(component string) string {
	if component == v1alpha1.ComponentCoordinator {
		return "spec.coordinator.resources"
	}
	return "spec.masters.memory, cores or resources"
}

func containerFields(component string) []protected {
	const probe = "the operator decides by it which processes serve and which are replaced"
	const arguments = "the operator makes it from the spec; use the Store's fields"
	return []protected{
		{"image", "set spec.image"},
		{"imagePullPolicy", "set spec.imagePullPolicy"},
		{"command", arguments},
		{"args", arguments},
		{"ports", "members and clients find each other by these; add ports to containers of your own"},
		{"resources", "set " + resourcesOf(component)},
		{"readinessProbe", probe},
		{"livenessProbe", probe},
		{"startupProbe", probe},
		{"envFrom", "add variables by env, each with its name"},
		{"restartPolicy", "a process that ends is started again in its pod"},
	}
}

// changedField names the first of the fields that differs.
func changedField(prefix string, before, after any, fields []protected) string {
	had, has := jsonFields(before), jsonFields(after)
	for _, field := range fields {
		if !reflect.DeepEqual(had[field.field], has[field.field]) {
			return fmt.Sprintf("%s%s must not be changed: %s", prefix, field.field, field.instead)
		}
	}
	return ""
}

func jsonFields(of any) map[string]any {
	text, err := json.Marshal(of)
	if err != nil {
		return nil
	}
	var fields map[string]any
	if json.Unmarshal(text, &fields) != nil {
		return nil
	}
	return fields
}

// refusedInContainer is about lists of the store's container, to which an overlay may add.
func refusedInContainer(prefix string, before, after *coreac.ContainerApplyConfiguration) string {
	isOurs := map[string]bool{}
	for i := range before.Env {
		name := *before.Env[i].Name
		isOurs[name] = true
		if !slices.ContainsFunc(after.Env, func(e coreac.EnvVarApplyConfiguration) bool { return reflect.DeepEqual(e, before.Env[i]) }) {
			return fmt.Sprintf("%s.env[name: %s] must not be changed: the process is told by it where it is", prefix, name)
		}
	}
	for i := range after.Env {
		if name := after.Env[i].Name; name != nil && strings.HasPrefix(*name, "RCBOX_") && !isOurs[*name] {
			return fmt.Sprintf("%s.env[name: %s] must not be added: variables that begin with RCBOX_ are options of the process; "+
				"use the Store's fields", prefix, *name)
		}
	}
	for i := range after.VolumeMounts {
		if slices.ContainsFunc(before.VolumeMounts, func(m coreac.VolumeMountApplyConfiguration) bool {
			return reflect.DeepEqual(m, after.VolumeMounts[i])
		}) {
			continue
		}
		for _, ours := range before.VolumeMounts {
			if at := after.VolumeMounts[i].MountPath; at != nil && isWithin(*at, *ours.MountPath) {
				return fmt.Sprintf("%s.volumeMounts[mountPath: %s] must not be changed or hidden: the store keeps its files in %s",
					prefix, *at, *ours.MountPath)
			}
		}
	}
	for i := range before.VolumeMounts {
		if !slices.ContainsFunc(after.VolumeMounts, func(m coreac.VolumeMountApplyConfiguration) bool {
			return reflect.DeepEqual(m, before.VolumeMounts[i])
		}) {
			return fmt.Sprintf("%s.volumeMounts[mountPath: %s] must not be removed: the store keeps its files there", prefix,
				*before.VolumeMounts[i].MountPath)
		}
	}
	return ""
}

// isWithin says whether a path is another one, or below it, or the root of everything.
func isWithin(at, other string) bool {
	at = path.Clean(at)
	return at == "/" || at == other || strings.HasPrefix(at, other+"/")
}

// refusedSidecar is about a container that an overlay adds.
func refusedSidecar(list string, ours, added *coreac.ContainerApplyConfiguration) string {
	prefix := fmt.Sprintf("%s[name: %s]", list, nameOf(*added))
	for _, theirs := range added.Ports {
		for _, port := range ours.Ports {
			isSame := theirs.ContainerPort != nil && *theirs.ContainerPort == *port.ContainerPort &&
				(theirs.Protocol == nil || *theirs.Protocol == *port.Protocol)
			if isSame || theirs.Name != nil && *theirs.Name == *port.Name {
				return fmt.Sprintf("%s.ports has the number or the name of the store's port %d (%s): use another one", prefix,
					*port.ContainerPort, *port.Name)
			}
		}
	}
	for _, mount := range added.VolumeMounts {
		if mount.Name != nil && *mount.Name == volumeName && (mount.ReadOnly == nil || !*mount.ReadOnly) {
			return fmt.Sprintf("%s.volumeMounts[name: %s] must be readOnly: only the store's process may write to its volume", prefix,
				volumeName)
		}
	}
	if isGuaranteed(ours) && !isGuaranteed(added) {
		return fmt.Sprintf("%s.resources must have limits of cpu and memory, and no other requests: with masters.cpuPolicy: Exclusive "+
			"the pods are of the class Guaranteed, without which the masters' CPUs are not their own", prefix)
	}
	return ""
}

// isGuaranteed says whether a container lets its pod be of the class Guaranteed.
func isGuaranteed(container *coreac.ContainerApplyConfiguration) bool {
	if container.Resources == nil || container.Resources.Limits == nil {
		return false
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		limit, limited := (*container.Resources.Limits)[name]
		if !limited || limit.IsZero() {
			return false
		}
		if container.Resources.Requests == nil {
			continue
		}
		if request, requested := (*container.Resources.Requests)[name]; requested && request.Cmp(limit) != 0 {
			return false
		}
	}
	return true
}
