package status

import (
	"fmt"
	"strings"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

const (
	// schedulingPatience is how long the scheduler may find no node for a pod before that is taken for more than a race.
	schedulingPatience = 4 * time.Second
	// attachingPatience is how long Multus may say nothing of a pod's ports.
	attachingPatience = 10 * time.Second
	// maxCause is how much of what Kubernetes says goes into a message.
	maxCause = 100
)

// blocked is what keeps members from coming up until somebody does something, with the field to look at; an empty reason where nothing
// does.
func blocked(o facts.Observed, plan planner.Plan) (reason, message string) {
	views := append(append([]planner.MemberView{}, plan.Coordinators...), plan.Masters...)
	waiting := filter(views, func(v planner.MemberView) bool {
		return v.Wanted && !v.Up && v.Pod != nil && !v.Pod.Terminating() && v.Lost == nil && v.Evacuation == nil
	})
	for i := range waiting {
		if claim, found := o.Claims[waiting[i].Claim]; found && (claim.HasNoClass || claim.ClassMissing) {
			return v1alpha1.ReasonNoStorageClass, noStorageClass(o.Store.Name, claim, waiting[i].Pod.Component)
		}
	}
	for i := range waiting {
		if pod := waiting[i].Pod; pod.ImageUnusable {
			return v1alpha1.ReasonImageUnusable, fmt.Sprintf("%s does not start: %s", waiting[i].Name, pod.Trouble)
		}
	}
	for i := range waiting {
		view := &waiting[i]
		pod, claim := view.Pod, o.Claims[view.Claim]
		if pod.Unschedulable == "" || claim.Node != "" || o.Now.Sub(pod.CreatedAt) < schedulingPatience {
			continue
		}
		return v1alpha1.ReasonTooFewNodes, tooFewNodes(o.Store, plan, view)
	}
	return "", ""
}

// noStorageClass: claims outlive the Store, so that they have to go as well where it is made again.
func noStorageClass(store string, claim facts.Claim, component string) string {
	field, otherwise := "backups.storage.storageClassName", " or replication.factor: 0"
	if component == v1alpha1.ComponentCoordinator {
		field, otherwise = "coordinator.state.storageClassName", ""
	}
	again := fmt.Sprintf("; or delete the Store and its claims (kubectl delete pvc -l %s=%s), and make it again with ",
		v1alpha1.LabelStore, store)
	if claim.ClassMissing {
		return fmt.Sprintf("volume claim %s waits for StorageClass %s (%s), which does not exist. Make one of that name%sanother%s",
			claim.Name, claim.Class, field, again, otherwise)
	}
	return fmt.Sprintf("volume claim %s has no StorageClass, because the cluster has no default one. Make one the default, and the "+
		"claim takes it%s%s%s", claim.Name, again, field, otherwise)
}

func tooFewNodes(store *v1alpha1.Store, plan planner.Plan, view *planner.MemberView) string {
	cause, _, _ := strings.Cut(view.Pod.Unschedulable, ". ")
	cause = strings.TrimSuffix(cause, ".")
	if len(cause) > maxCause {
		cause = "kubectl describe pod " + view.Pod.Name
	}
	if store.Copies() == 0 || view.Pod.Component == v1alpha1.ComponentCoordinator {
		return fmt.Sprintf("no node has room for %s (%s). Add a node, or ask for less in masters.memory, masters.resources and placement",
			view.Name, cause)
	}
	placed := len(filter(plan.Masters, func(v planner.MemberView) bool { return v.Wanted && v.Pod != nil && v.Pod.Node != "" }))
	less := "make the Store again with replication.factor: 0"
	if placed > 1 {
		less = fmt.Sprintf("set masters.replicas: %d and replication.factor: %d", placed, min(int(store.Copies()), placed-1))
	}
	return fmt.Sprintf("no node for %s: with copies each master has a node of its own, and %d of %d have one (%s). Add a node; or %s",
		view.Name, placed, store.Spec.Masters.Replicas, cause, less)
}

// noDomains says that no node of the masters has the label that placement.failureDomain names; empty if one does, or nobody knows.
func noDomains(o facts.Observed, plan planner.Plan) string {
	label, known := o.Store.Spec.Placement.FailureDomain, 0
	for i := range plan.Masters {
		pod := plan.Masters[i].Pod
		if pod == nil || pod.Terminating() {
			continue
		}
		domain, isKnown := domainOf(o, pod)
		if !isKnown || domain != "" || pod.Inputs.FailureDomain != label {
			return ""
		}
		known++
	}
	if known == 0 {
		return ""
	}
	consequence := "copies are on different nodes, and may all be in one failure domain"
	if o.Store.Copies() == 0 {
		consequence = "masters are not spread by it"
	}
	return fmt.Sprintf("none of the masters' nodes has the label %s, which placement.failureDomain names: %s. Label the nodes, or set "+
		"placement.failureDomain to a label that they have", label, consequence)
}

// domainOf is what a pod was told or, where it is not told, what its node's label says.
func domainOf(o facts.Observed, pod *facts.Pod) (domain string, isKnown bool) {
	if pod.Inputs.NeedsDomain() {
		return pod.Domain, pod.DomainKnown
	}
	domain, isKnown = o.Domains[pod.Node]
	return domain, isKnown && pod.Inputs.NamesDomain()
}

// notAttached names the definition by which Multus should have attached a port, and has not; empty if it may still do so.
func notAttached(o facts.Observed, waiting []planner.MemberView) string {
	for i := range waiting {
		pod := waiting[i].Pod
		if pod == nil || pod.Node == "" || o.Now.Sub(pod.CreatedAt) < attachingPatience || len(o.Store.Spec.Network.Attachments) == 0 {
			continue
		}
		name := o.Store.Spec.Network.Attachments[0].NetworkAttachmentDefinition
		if !strings.Contains(name, "/") {
			name = o.Store.Namespace + "/" + name
		}
		return fmt.Sprintf("Multus has attached no port to pod %s on node %s. See whether the NetworkAttachmentDefinition %s "+
			"(network.attachments[0].networkAttachmentDefinition) is there, and whether Multus runs on that node", pod.Name, pod.Node, name)
	}
	return ""
}
