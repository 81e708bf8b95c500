// Package why says in a sentence why a pod of a Store does not run, or is not ready. It is pure: what it knows is in the Evidence.
package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/view"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// maxEvents is how many of the last warnings are told.
const maxEvents = 3

// Evidence is what was seen of a pod, and of what it needs.
type Evidence struct {
	Now time.Time
	// Store that the pod is of; nil for another pod.
	Store *v1alpha1.Store
	// Member that the pod is of, or that has none.
	Member string
	// Pod is nil for a member that has none.
	Pod *corev1.Pod
	// Events about the pod and its claims, the oldest first.
	Events []corev1.Event
	// Claims that the pod uses, by name; one that is not there is nil.
	Claims map[string]*corev1.PersistentVolumeClaim
	// Nodes by name; nil where they may not be read.
	Nodes map[string]*corev1.Node
	// Log and PreviousLog are the last lines of the container, and of the one before.
	Log, PreviousLog string
	// Reported is what the coordinator knows of the member.
	Reported *adminv1.Member
	// ClusterError says why the coordinator gave no answer.
	ClusterError string
}

// Finding is why.
type Finding struct {
	// Ready: nothing is the matter.
	Ready bool `json:"ready"`
	// Sentence is the reason, in one.
	Sentence string `json:"sentence"`
	// Details are what else is known.
	Details []string `json:"details"`
	// Commands to go on with.
	Commands []string `json:"commands"`
}

// Explain finds the reason.
func Explain(e *Evidence) Finding {
	finding := e.explain()
	finding.Details = append([]string{}, finding.Details...)
	finding.Commands = append([]string{}, finding.Commands...)
	if finding.Ready {
		return finding
	}
	if lost := e.lost(); lost != nil {
		finding.Details = append(finding.Details, "Its member is "+view.LostText(lost)+".")
	}
	for _, event := range e.warnings() {
		text := strings.TrimSpace(event.Message)
		if !slices.ContainsFunc(finding.Details, func(detail string) bool { return strings.Contains(detail, text) }) {
			age := ago(e.Now.Sub(timeOf(&event)))
			finding.Details = append(finding.Details, fmt.Sprintf("event %s, %s ago: %s", event.Reason, age, text))
		}
	}
	return finding
}

func (e *Evidence) explain() Finding {
	pod := e.Pod
	switch {
	case pod == nil:
		return e.noPod()
	case pod.DeletionTimestamp != nil:
		return e.ending()
	case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		if finding, is := e.refused(); is {
			return finding
		}
		return Finding{
			Sentence: fmt.Sprintf("Pod %s has ended (%s): %s", pod.Name, cmp.Or(pod.Status.Reason, string(pod.Status.Phase)),
				cmp.Or(pod.Status.Message, "Kubernetes says no more")),
			Details: []string{"The operator replaces it, at most every 10 seconds."},
		}
	case pod.Spec.NodeName == "":
		return e.unscheduled()
	}
	if container := waiting(pod); container != nil {
		return e.waiting(container)
	}
	if node := e.Nodes[pod.Spec.NodeName]; node != nil && !nodeReady(node) {
		return e.nodeAway(node)
	}
	if podReady(pod) {
		return e.ready()
	}
	if process := resources.ProcessStatus(pod); process != nil && process.Ready {
		if sidecar := notReadyBeside(pod); sidecar != nil {
			return e.sidecarNotReady(sidecar)
		}
	}
	return e.notReady()
}

// waiting is the container of the process, if that does not run.
func waiting(pod *corev1.Pod) *corev1.ContainerStatus {
	if process := resources.ProcessStatus(pod); process != nil && process.State.Running == nil {
		return process
	}
	return nil
}

// notReadyBeside is the first container that is not ready besides the one of the process; nil if there is none such.
func notReadyBeside(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if container := &pod.Status.ContainerStatuses[i]; container.Name != resources.ContainerName(pod) && !container.Ready {
			return container
		}
	}
	return nil
}

// sidecarNotReady is about a process that is ready in a pod that is not.
func (e *Evidence) sidecarNotReady(sidecar *corev1.ContainerStatus) Finding {
	sentence := fmt.Sprintf("The process of pod %s is ready, and its container %s is not", e.Pod.Name, sidecar.Name)
	if waiting := sidecar.State.Waiting; waiting != nil && waiting.Reason != "" {
		sentence += ": " + waiting.Reason
	}
	return Finding{
		Sentence: sentence + ".",
		Details:  []string{"An overlay (masters.pod.overlay, coordinator.pod.overlay) or a webhook has added that container."},
		Commands: []string{e.kubectl("logs " + e.Pod.Name + " -c " + sidecar.Name)},
	}
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// noPod is about a member without any.
func (e *Evidence) noPod() Finding {
	if e.Store == nil {
		return Finding{Sentence: "There is no such pod, and no member of that name."}
	}
	name := e.Member + " has no pod"
	if e.Store.DeletionTimestamp != nil {
		return Finding{Sentence: name + ": its Store is being deleted."}
	}
	if ordinal, isMaster := v1alpha1.MasterOrdinal(e.Store.Name, e.Member); isMaster && ordinal >= int(e.Store.Spec.Masters.Replicas) {
		return Finding{Sentence: fmt.Sprintf("%s: masters.replicas is %d, so that the Store has no place for it.",
			name, e.Store.Spec.Masters.Replicas)}
	}
	if e.Store.Spec.Hibernated {
		return Finding{Sentence: name + ": the Store sleeps (spec.hibernated)."}
	}
	if e.Store.Spec.Paused {
		return Finding{Sentence: name + ", and gets none: the operator changes nothing of this Store (spec.paused)."}
	}
	for claimName, claim := range e.Claims {
		if claim != nil && claim.DeletionTimestamp != nil {
			return Finding{
				Sentence: fmt.Sprintf("%s: its claim %s is being deleted, and the next one is made when that is gone.", name, claimName),
				Commands: []string{e.kubectl("describe pvc " + claimName)},
			}
		}
	}
	if waits := e.waitsForAddress(); waits != "" {
		return Finding{Sentence: name + ": " + waits, Commands: []string{"kubectl rcbox net -n " + e.Store.Namespace + " " + e.Store.Name}}
	}
	for i := range e.Store.Status.Conditions {
		condition := &e.Store.Status.Conditions[i]
		switch condition.Reason {
		case v1alpha1.ReasonNameTaken, v1alpha1.ReasonNotAllowed, v1alpha1.ReasonApplyFailed:
			return Finding{Sentence: name + ": the operator cannot make it: " + condition.Message}
		}
	}
	return Finding{
		Sentence: name + ": the operator has not made one yet.",
		Details:  []string{"It does within seconds. If not, look whether the operator runs, and what it says."},
		Commands: []string{
			"kubectl get pods -A -l app.kubernetes.io/name=rcbox-operator",
			e.kubectl("describe store " + e.Store.Name),
		},
	}
}

func (e *Evidence) ending() Finding {
	pod := e.Pod
	since := e.Now.Sub(pod.DeletionTimestamp.Time)
	by := clock(pod.DeletionTimestamp.Time)
	finding := Finding{Sentence: fmt.Sprintf("Pod %s was told to end, and has until %s for it.", pod.Name, by)}
	if slices.Contains(pod.Finalizers, v1alpha1.FinalizerAddresses) {
		finding.Details = []string{"It stays until it is known that it sends nothing any more under its addresses " +
			pod.Annotations[v1alpha1.AnnotationAddresses] + "; the member's next pod waits for that for 15 s more at most."}
	}
	if since <= 0 {
		return finding
	}
	finding.Sentence = fmt.Sprintf("Pod %s was told to end, and should have by %s, %s ago.", pod.Name, by, ago(since))
	if node := e.Nodes[pod.Spec.NodeName]; node != nil && !nodeReady(node) {
		finding.Sentence = fmt.Sprintf("Pod %s was told to end, but its node %s does not answer.", pod.Name, node.Name)
		finding.Details = []string{"Nobody waits for it: the operator makes the member's next pod elsewhere."}
		finding.Commands = []string{"kubectl describe node " + node.Name}
	}
	if len(pod.Finalizers) > 0 {
		finding.Details = append(finding.Details, "It has finalizers: "+strings.Join(pod.Finalizers, ", "))
	}
	return finding
}

func (e *Evidence) nodeAway(node *corev1.Node) Finding {
	reason := "its kubelet does not answer"
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			reason = fmt.Sprintf("%s, for %s: %s", condition.Reason, ago(e.Now.Sub(condition.LastTransitionTime.Time)), condition.Message)
		}
	}
	return Finding{
		Sentence: fmt.Sprintf("Node %s of pod %s is not ready (%s).", node.Name, e.Pod.Name, reason),
		Details: []string{
			"Kubernetes gives its pods up after 300 s, unless their tolerations say otherwise; then the operator makes the next one.",
		},
		Commands: []string{"kubectl describe node " + node.Name},
	}
}

func (e *Evidence) ready() Finding {
	finding := Finding{Ready: true, Sentence: fmt.Sprintf("Pod %s runs and is ready.", e.Pod.Name)}
	if e.Pod.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentCoordinator && e.isStandby() {
		finding = e.standby()
	}
	if pending := e.pending(); pending != "" {
		finding.Details = append(finding.Details, "It is outdated: "+pending+". What to do is in the Store's condition Progressing.")
	}
	if draining := e.Reported.GetDraining(); draining != nil {
		finding.Details = append(finding.Details, "Its member is drained, or on its way there.")
	}
	if container := resources.ProcessStatus(e.Pod); container != nil {
		if last := container.LastTerminationState.Terminated; last != nil {
			finding.Details = append(finding.Details, fmt.Sprintf("It was started again %d times; the last time it %s, %s ago.",
				container.RestartCount, ended(e.Pod, last), ago(e.Now.Sub(last.FinishedAt.Time))))
		}
	}
	return finding
}

// lost is what the operator has on record of a member that was lost with its node.
func (e *Evidence) lost() *v1alpha1.LostStatus {
	if e.Store == nil {
		return nil
	}
	for i := range e.Store.Status.Masters.Members {
		if member := &e.Store.Status.Masters.Members[i]; member.Name == e.Member {
			return member.Lost
		}
	}
	return nil
}

// pending is how the pod differs from the Store's spec.
func (e *Evidence) pending() string {
	if e.Store == nil {
		return ""
	}
	status := &e.Store.Status
	for i := range status.Masters.Members {
		if member := &status.Masters.Members[i]; member.Pod == e.Pod.Name {
			return member.Pending
		}
	}
	if status.Coordinator.Pod == e.Pod.Name {
		return status.Coordinator.Pending
	}
	return ""
}

// warnings are the last events that are none of a normal life, each reason once.
func (e *Evidence) warnings() []corev1.Event {
	var list []corev1.Event
	for _, event := range slices.Backward(e.Events) {
		same := func(other corev1.Event) bool { return other.Reason == event.Reason }
		if event.Type == corev1.EventTypeWarning && len(list) < maxEvents && !slices.ContainsFunc(list, same) {
			list = append(list, event)
		}
	}
	return list
}

// lastWarning is the text of the last warning with one of the reasons.
func (e *Evidence) lastWarning(reasons ...string) string {
	for _, event := range slices.Backward(e.Events) {
		if event.Type == corev1.EventTypeWarning && slices.Contains(reasons, event.Reason) {
			return strings.TrimSpace(event.Message)
		}
	}
	return ""
}

// timeOf an event: there are three fields for it.
func timeOf(event *corev1.Event) time.Time {
	switch {
	case event.Series != nil && !event.Series.LastObservedTime.IsZero():
		return event.Series.LastObservedTime.Time
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp.Time
	case !event.EventTime.IsZero():
		return event.EventTime.Time
	default:
		return event.CreationTimestamp.Time
	}
}

// Sort orders events by time.
func Sort(events []corev1.Event) {
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return timeOf(&a).Compare(timeOf(&b)) })
}

func (e *Evidence) kubectl(command string) string {
	namespace := ""
	switch {
	case e.Pod != nil:
		namespace = e.Pod.Namespace
	case e.Store != nil:
		namespace = e.Store.Namespace
	}
	return "kubectl -n " + namespace + " " + command
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

func ago(d time.Duration) string { return max(d, 0).Round(time.Second).String() }
