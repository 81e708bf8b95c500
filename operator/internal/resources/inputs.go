package resources

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// Inputs are the fields of a Store's spec that a pod is made from, and nothing else. A pod carries its own as an
// annotation; it is outdated when they differ from the spec's. What the operator's version adds to a pod (probes, security
// context, arguments) is not in here, so that another version of the operator finds no pod outdated. A field added here
// later must be omitted from the JSON when it has its default, for the same reason.
type Inputs struct {
	Image  string             `json:"image"`
	Memory *resource.Quantity `json:"memory,omitempty"`
	Cores  int32              `json:"cores,omitempty"`
	// HugePages is empty for what servers do by default.
	HugePages         v1alpha1.HugePages  `json:"hugePages,omitempty"`
	Requests          corev1.ResourceList `json:"requests,omitempty"`
	Limits            corev1.ResourceList `json:"limits,omitempty"`
	NodeSelector      map[string]string   `json:"nodeSelector,omitempty"`
	Tolerations       []corev1.Toleration `json:"tolerations,omitempty"`
	FailureDomain     string              `json:"failureDomain,omitempty"`
	PriorityClassName string              `json:"priorityClassName,omitempty"`
	// Replication is nil for a master that keeps no copies, and for coordinators.
	Replication *Replication `json:"replication,omitempty"`
	// State is empty for a coordinator that keeps its state in memory, and for masters.
	State v1alpha1.StateType `json:"state,omitempty"`
	// Rebalancing holds what a coordinator does otherwise than by default: "off", or megabytes in a second.
	Rebalancing string `json:"rebalancing,omitempty"`
	// Network is nil for a master that talks over the pod network's TCP alone, and for coordinators.
	Network *Network `json:"network,omitempty"`
	// Pod is nil where the component has no settings of pods but tolerations and a PriorityClass, which are in the fields above.
	Pod *v1alpha1.PodSettings `json:"pod,omitempty"`
}

// Replication is what a master needs to know of copies.
type Replication struct {
	Factor      int32                   `json:"factor"`
	Min         int32                   `json:"min"`
	Durability  v1alpha1.DurabilityMode `json:"durability"`
	Storage     v1alpha1.StorageType    `json:"storage"`
	StorageSize resource.Quantity       `json:"storageSize"`
}

// InVolume says whether the pod has a volume of its own, by a claim.
func (i Inputs) InVolume() bool {
	return i.State == v1alpha1.StateVolume || i.Replication != nil && i.Replication.Storage == v1alpha1.StorageVolume
}

// NeedsDomain says whether the pod's process has a use for the failure domain of its node. Nodes themselves it knows by name.
func (i Inputs) NeedsDomain() bool { return i.Replication != nil && i.NamesDomain() }

// NamesDomain says whether the pod was made with a label for what fails together, other than that of single nodes.
func (i Inputs) NamesDomain() bool {
	return i.FailureDomain != "" && i.FailureDomain != corev1.LabelHostname
}

// Durability is what a master's pod of these inputs promises.
func (i Inputs) Durability() v1alpha1.Durability {
	switch {
	case i.Replication == nil:
		return v1alpha1.DurabilityUnreplicated
	case i.Replication.Storage == v1alpha1.StorageMemory:
		return v1alpha1.DurabilityInMemory
	case i.Replication.Durability == v1alpha1.Flushed:
		return v1alpha1.DurabilityFlushed
	default:
		return v1alpha1.DurabilityBuffered
	}
}

// InputsFor reads the inputs of a pod of the component from the Store's spec. Image and state are the resolved ones.
func InputsFor(store *v1alpha1.Store, component, image string, state v1alpha1.StateType) Inputs {
	placement := store.Spec.Placement
	inputs := Inputs{
		Image:             image,
		NodeSelector:      placement.NodeSelector,
		Tolerations:       tolerationsOf(store, component),
		PriorityClassName: cmp.Or(settingsOf(store, component).PriorityClassName, placement.PriorityClassName),
		Pod:               podInputs(settingsOf(store, component)),
	}
	if component == v1alpha1.ComponentCoordinator {
		inputs.Requests = store.Spec.Coordinator.Resources.Requests
		inputs.Limits = store.Spec.Coordinator.Resources.Limits
		if state != v1alpha1.StateMemory {
			inputs.State = state
		}
		inputs.Rebalancing = rebalancing(store.Spec.Rebalancing)
		return inputs
	}
	masters := store.Spec.Masters
	inputs.Memory = &masters.Memory
	inputs.Cores = masters.Cores
	inputs.FailureDomain = placement.FailureDomain
	if masters.HugePages == v1alpha1.HugePagesReserved {
		inputs.HugePages = masters.HugePages
	}
	if masters.Resources != nil {
		inputs.Requests = masters.Resources.Requests
		inputs.Limits = masters.Resources.Limits
	}
	if masters.CPUPolicy == v1alpha1.CPUExclusive {
		inputs.Requests, inputs.Limits = withCPUs(inputs.Requests, masters.Cores), withCPUs(inputs.Limits, masters.Cores)
	}
	if factor := store.Copies(); factor > 0 {
		inputs.Replication = &Replication{
			Factor:      factor,
			Min:         store.LeastCopies(),
			Durability:  store.Spec.Replication.Durability,
			Storage:     store.Spec.Backups.Storage.Type,
			StorageSize: store.CopiesStorage(),
		}
	}
	inputs.Network = networkOf(&store.Spec)
	return inputs
}

// withCPUs is the list with so many CPUs in it.
func withCPUs(list corev1.ResourceList, cores int32) corev1.ResourceList {
	list = maps.Clone(list)
	if list == nil {
		list = corev1.ResourceList{}
	}
	list[corev1.ResourceCPU] = *resource.NewQuantity(int64(cores), resource.DecimalSI)
	return list
}

// DefaultRebalanceMBps is what coordinators do by default.
const DefaultRebalanceMBps = 50

// rebalancing is empty for what coordinators do by default, so that those that run are not outdated.
func rebalancing(spec v1alpha1.RebalancingSpec) string {
	switch {
	case spec.Enabled != nil && !*spec.Enabled:
		return "off"
	case spec.MaxMBps != 0 && spec.MaxMBps != DefaultRebalanceMBps:
		return strconv.Itoa(int(spec.MaxMBps))
	default:
		return ""
	}
}

// Encode is the text of the annotation.
func (i Inputs) Encode() (string, error) {
	text, err := json.Marshal(i)
	if err != nil {
		return "", fmt.Errorf("encode a pod's inputs: %w", err)
	}
	return string(text), nil
}

// DecodeInputs reads the annotation's text.
func DecodeInputs(text string) (Inputs, error) {
	var inputs Inputs
	if err := json.Unmarshal([]byte(text), &inputs); err != nil {
		return Inputs{}, fmt.Errorf("decode a pod's inputs: %w", err)
	}
	return inputs, nil
}

// Diff names what differs, such as "image: a -> b, memory: 1Gi -> 2Gi"; empty when nothing does.
func Diff(have, want Inputs) string {
	var parts []string
	note := func(name string, equal bool, from, to string) {
		switch {
		case equal:
		case from == "" && to == "":
			parts = append(parts, name)
		default:
			parts = append(parts, fmt.Sprintf("%s: %s -> %s", name, orNone(from), orNone(to)))
		}
	}
	equal := equality.Semantic.DeepEqual
	note("image", have.Image == want.Image, have.Image, want.Image)
	note("memory", equal(have.Memory, want.Memory), quantity(have.Memory), quantity(want.Memory))
	note("cores", have.Cores == want.Cores, number(have.Cores), number(want.Cores))
	note("hugePages", have.HugePages == want.HugePages, string(have.HugePages), string(want.HugePages))
	note("resources.requests", equal(have.Requests, want.Requests), list(have.Requests), list(want.Requests))
	note("resources.limits", equal(have.Limits, want.Limits), list(have.Limits), list(want.Limits))
	note("nodeSelector", equal(have.NodeSelector, want.NodeSelector), "", "")
	note("tolerations", equal(have.Tolerations, want.Tolerations), "", "")
	note("failureDomain", have.FailureDomain == want.FailureDomain, have.FailureDomain, want.FailureDomain)
	note("priorityClassName", have.PriorityClassName == want.PriorityClassName, have.PriorityClassName, want.PriorityClassName)
	note("replication", equal(have.Replication, want.Replication), have.Replication.String(), want.Replication.String())
	note("network", equal(have.Network, want.Network), have.Network.String(), want.Network.String())
	if !equal(have.Pod, want.Pod) {
		noteSettings(note, have.Pod, want.Pod)
	}
	note("coordinator.state", have.State == want.State, string(have.State), string(want.State))
	return strings.Join(parts, ", ")
}

// String is "2 copies (min 1) Buffered in a Volume of 4Gi"; empty for none.
func (r *Replication) String() string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%d copies (min %d) %s in a %s of %s", r.Factor, r.Min, r.Durability, r.Storage, r.StorageSize.String())
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func number(n int32) string { return strconv.Itoa(int(n)) }

func quantity(q *resource.Quantity) string {
	if q == nil {
		return ""
	}
	return q.String()
}

func list(l corev1.ResourceList) string {
	parts := make([]string, 0, len(l))
	for name, amount := range l {
		parts = append(parts, fmt.Sprintf("%s=%s", name, amount.String()))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}
