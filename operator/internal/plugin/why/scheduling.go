package why

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// reason is one part of what the scheduler says: how many nodes, and what is the matter with them.
type reason struct {
	nodes int
	text  string
}

// reasons takes apart what the scheduler says, such as
// "0/4 nodes are available: 1 node(s) had untolerated taint(s), 3 Insufficient memory. preemption: ...".
func reasons(message string) []reason {
	_, list, found := strings.Cut(message, "nodes are available: ")
	if !found {
		return nil
	}
	list, _, _ = strings.Cut(list, ". ") // what follows is about preemption
	var all []reason
	for part := range strings.SplitSeq(strings.TrimRight(list, ". "), ", ") {
		number, text, _ := strings.Cut(part, " ")
		nodes, err := strconv.Atoi(number)
		switch {
		case err == nil:
			all = append(all, reason{nodes, strings.TrimPrefix(text, "node(s) ")})
		case len(all) > 0:
			all[len(all)-1].text += ", " + part // a comma within a reason
		default:
			all = append(all, reason{0, part})
		}
	}
	return all
}

var taint = regexp.MustCompile(`untolerated taint[s()]* ?(\{.*\})?`)

// words says a reason in terms of the Store.
func (e *Evidence) words(r reason) string {
	text := r.text
	switch resource, isResource := strings.CutPrefix(text, "Insufficient "); {
	case isResource && e.portWords(resource) != "":
		return e.portWords(resource)
	case isResource:
		return fmt.Sprintf("has not enough %s left (it asks for %s)", resource, e.request(corev1.ResourceName(resource)))
	case strings.Contains(text, "anti-affinity"):
		return "has a master of this Store already: with copies, each needs a node of its own"
	case strings.Contains(text, "volume node affinity conflict"), strings.Contains(text, "PersistentVolume's node affinity"):
		return "is not where its volume is" + e.volumePlace()
	case taint.MatchString(text):
		which := taint.FindStringSubmatch(text)[1]
		return strings.TrimSpace("has a taint that the Store does not tolerate (placement.tolerations) " + which)
	case strings.Contains(text, "node affinity/selector"), strings.Contains(text, "node selector"):
		return "has not the labels that placement.nodeSelector asks for"
	case strings.Contains(text, "were unschedulable"), strings.Contains(text, "was unschedulable"):
		return "is cordoned (kubectl uncordon)"
	case strings.Contains(text, "didn't find available persistent volumes"):
		return "has no volume for its claim"
	case strings.Contains(text, "Too many pods"):
		return "has as many pods as it may have"
	default:
		return text
	}
}

// request is how much of a resource the pod asks for.
func (e *Evidence) request(resource corev1.ResourceName) string {
	for i := range e.Pod.Spec.Containers {
		if quantity, found := e.Pod.Spec.Containers[i].Resources.Requests[resource]; found {
			return quantity.String()
		}
	}
	return "some"
}

// volumePlace is the node that a claim's volume was made on.
func (e *Evidence) volumePlace() string {
	for _, name := range e.claimNames() {
		if claim := e.Claims[name]; claim != nil && claim.Annotations["volume.kubernetes.io/selected-node"] != "" {
			return fmt.Sprintf(" (claim %s, made on node %s)", name, claim.Annotations["volume.kubernetes.io/selected-node"])
		}
	}
	return ""
}

func (e *Evidence) claimNames() []string {
	var names []string
	for name := range e.Claims {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// unscheduled is about a pod without a node.
func (e *Evidence) unscheduled() Finding {
	if finding := e.claimTrouble(); finding.Sentence != "" {
		return finding
	}
	message := ""
	for _, condition := range e.Pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			message = condition.Message
		}
	}
	if message == "" {
		message = e.lastWarning("FailedScheduling")
	}
	if message == "" {
		return Finding{
			Sentence: fmt.Sprintf("Pod %s has no node, and the scheduler has not said why: it has not looked at it yet.", e.Pod.Name),
			Commands: []string{"kubectl -n kube-system get pods -l component=kube-scheduler"},
		}
	}
	return e.refusedByNodes(message)
}

func (e *Evidence) refusedByNodes(message string) Finding {
	list := reasons(message)
	if len(list) == 0 {
		return Finding{Sentence: fmt.Sprintf("Pod %s has no node: %s", e.Pod.Name, message)}
	}
	slices.SortStableFunc(list, func(a, b reason) int { return b.nodes - a.nodes })
	parts := make([]string, 0, len(list))
	stranded := false
	for _, r := range list {
		words := e.words(r)
		stranded = stranded || strings.Contains(words, "is not where its volume is")
		switch r.nodes {
		case 0:
			parts = append(parts, words)
		case 1:
			parts = append(parts, "1 node "+words)
		default:
			parts = append(parts, fmt.Sprintf("%d nodes, each %s", r.nodes, words))
		}
	}
	finding := Finding{
		Sentence: fmt.Sprintf("No node takes pod %s: %s.", e.Pod.Name, strings.Join(parts, "; ")),
		Details:  []string{"the scheduler: " + message},
	}
	if stranded {
		finding.Details = append(finding.Details, "It goes on by itself when that node is back. If the node is lost, the operator "+
			"moves the member after recovery.rescheduleAfter; by hand, while the Store's condition Recovering is False, deleting claim "+
			"and pod gives the member a new volume, and what the old one held is copied anew.")
	}
	return finding
}

// claimTrouble is about claims that keep a pod from having a node; no sentence where none does.
func (e *Evidence) claimTrouble() Finding {
	for _, name := range e.claimNames() {
		switch claim := e.Claims[name]; {
		case claim == nil:
			return Finding{
				Sentence: fmt.Sprintf("Pod %s uses the volume claim %s, which does not exist.", e.Pod.Name, name),
				Details:  []string{"The operator makes it again when this pod is gone."},
				Commands: []string{e.kubectl("delete pod " + e.Pod.Name)},
			}
		case claim.DeletionTimestamp != nil:
			return Finding{
				Sentence: fmt.Sprintf("Pod %s uses the volume claim %s, which is being deleted: a pod cannot start with it any more.",
					e.Pod.Name, name),
				Details:  []string{"The claim is gone when this pod is; then the operator makes both again."},
				Commands: []string{e.kubectl("delete pod " + e.Pod.Name)},
			}
		case claim.Status.Phase == corev1.ClaimLost:
			return Finding{
				Sentence: fmt.Sprintf("The volume of claim %s of pod %s is lost: its PersistentVolume does not exist any more.",
					name, e.Pod.Name),
			}
		case claim.Status.Phase == corev1.ClaimPending:
			if failed := e.lastWarning("ProvisioningFailed", "FailedBinding"); failed != "" {
				return Finding{
					Sentence: fmt.Sprintf("Pod %s waits for a volume for claim %s: %s", e.Pod.Name, name, failed),
					Details:  []string{"storage class: " + storageClass(claim)},
					Commands: []string{e.kubectl("describe pvc " + name)},
				}
			}
		}
	}
	return Finding{}
}

func storageClass(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "" {
		return "none named, and the cluster has no default"
	}
	return *claim.Spec.StorageClassName
}
