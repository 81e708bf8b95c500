package why

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const (
	signalled = 128
	// maxLogText bounds what of a log line is told.
	maxLogText = 300
)

// waiting is about a container that does not run.
func (e *Evidence) waiting(container *corev1.ContainerStatus) Finding {
	if state := container.State.Terminated; state != nil {
		return e.crashed(container, state)
	}
	state := container.State.Waiting
	if state == nil {
		state = &corev1.ContainerStateWaiting{}
	}
	switch state.Reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
		return e.imageTrouble(container, state)
	case "CrashLoopBackOff":
		if last := container.LastTerminationState.Terminated; last != nil {
			return e.crashed(container, last)
		}
	case "", "ContainerCreating", "PodInitializing":
		return e.creating()
	}
	return Finding{Sentence: fmt.Sprintf("Pod %s cannot start its container: %s: %s", e.Pod.Name, state.Reason, state.Message)}
}

func (e *Evidence) imageTrouble(container *corev1.ContainerStatus, state *corev1.ContainerStateWaiting) Finding {
	said := cmp.Or(e.lastWarning("Failed", "ErrImageNeverPull", "InspectFailed"), state.Message)
	finding := Finding{
		Sentence: fmt.Sprintf("Node %s cannot get the image %s of pod %s: %s.",
			e.Pod.Spec.NodeName, container.Image, e.Pod.Name, imageReason(said, state)),
	}
	if said != "" {
		finding.Details = []string{"kubelet: " + said}
	}
	if e.Store != nil {
		finding.Commands = []string{
			e.kubectl("get store " + e.Store.Name + " -o jsonpath='{.spec.image} {.status.image} {.spec.imagePullSecrets}'"),
		}
	}
	return finding
}

func imageReason(said string, state *corev1.ContainerStateWaiting) string {
	lower := strings.ToLower(said + " " + state.Message)
	for _, known := range []struct{ part, words string }{
		{"not found", "its registry has none of that name and tag"},
		{"manifest unknown", "its registry has none of that name and tag"},
		{"unauthorized", "its registry wants credentials (imagePullSecrets)"},
		{"authorization failed", "its registry wants credentials (imagePullSecrets)"},
		{"403 forbidden", "its registry wants credentials (imagePullSecrets)"},
		{"no such host", "the name of its registry cannot be resolved there"},
		{"i/o timeout", "its registry does not answer"},
		{"connection refused", "its registry does not answer"},
		{"no matching manifest", "it is not for this node's kind of processor"},
		{"never", "it is not on the node, and imagePullPolicy is Never"},
		{"invalid", "its name is not a valid one"},
		{"no space left", "the node has no space for it"},
	} {
		if strings.Contains(lower, known.part) {
			return known.words
		}
	}
	return cmp.Or(state.Reason, "it has not said why")
}

// creating is about a pod with a node whose container has yet to be made.
func (e *Evidence) creating() Finding {
	if failed := e.lastWarning("FailedMount", "FailedAttachVolume"); failed != "" {
		return Finding{Sentence: fmt.Sprintf("Pod %s waits for its volume on node %s: %s", e.Pod.Name, e.Pod.Spec.NodeName, failed)}
	}
	if failed := e.lastWarning("FailedCreatePodSandBox", "NetworkNotReady"); failed != "" {
		return Finding{Sentence: fmt.Sprintf("Node %s cannot set up the network of pod %s: %s", e.Pod.Spec.NodeName, e.Pod.Name, failed)}
	}
	if node := e.Nodes[e.Pod.Spec.NodeName]; node != nil && !nodeReady(node) {
		return e.nodeAway(node)
	}
	return Finding{Sentence: fmt.Sprintf("Pod %s is being started on node %s, for %s.",
		e.Pod.Name, e.Pod.Spec.NodeName, ago(e.Now.Sub(e.Pod.CreationTimestamp.Time)))}
}

// ended says how a container came to its end.
func ended(pod *corev1.Pod, state *corev1.ContainerStateTerminated) string {
	switch {
	case state.Reason == "OOMKilled":
		return "was killed for lack of memory (limit " + memoryLimit(pod) + ")"
	case state.ExitCode == 0:
		return "ended by itself, without an error"
	case state.Signal > 0:
		return fmt.Sprintf("was ended by signal %d", state.Signal)
	case state.ExitCode > signalled:
		return fmt.Sprintf("was ended by signal %d", state.ExitCode-signalled)
	default:
		return fmt.Sprintf("ended with exit code %d", state.ExitCode)
	}
}

func memoryLimit(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if limit, found := pod.Spec.Containers[i].Resources.Limits[corev1.ResourceMemory]; found {
			return limit.String()
		}
	}
	return "of its node"
}

// crashed is about a container that has ended.
func (e *Evidence) crashed(container *corev1.ContainerStatus, state *corev1.ContainerStateTerminated) Finding {
	finding := Finding{Commands: []string{e.kubectl("logs --previous " + e.Pod.Name)}}
	// What the log says is more than what its last lines are, which kubelet keeps.
	said := cmp.Or(lastError(e.PreviousLog), lastError(e.Log), lastError(state.Message), lastLine(state.Message))
	sentence := fmt.Sprintf("The process of pod %s %s", e.Pod.Name, ended(e.Pod, state))
	if said != "" {
		sentence += ": " + said
	}
	finding.Sentence = sentence
	if state.Reason == "OOMKilled" {
		finding.Details = append(finding.Details, "A master needs more than its logs: masters.memory is what its container may use. "+
			"A coordinator's limit is coordinator.resources.limits.memory.")
	}
	finding.Details = append(finding.Details, fmt.Sprintf("started again %d times; the last end was %s ago",
		container.RestartCount, ago(e.Now.Sub(state.FinishedAt.Time))))
	return finding
}

// notReady is about a process that runs.
func (e *Evidence) notReady() Finding {
	if e.Pod.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentCoordinator {
		return e.coordinatorNotReady()
	}
	name := e.Pod.Name
	said := cmp.Or(lastError(e.Log), lastLine(e.Log))
	logs := []string{e.kubectl("logs " + name)}
	switch reported := e.Reported; {
	case e.Pod.Labels[v1alpha1.LabelComponent] != v1alpha1.ComponentMaster:
		return Finding{
			Sentence: fmt.Sprintf("Pod %s runs, but is not ready: %s", name, cmp.Or(e.lastWarning("Unhealthy"), said)), Commands: logs,
		}
	case e.ClusterError != "":
		return Finding{
			Sentence: fmt.Sprintf("Pod %s runs, but is not ready, and the coordinator cannot be asked why: %s", name, e.ClusterError),
			Details:  labelled("its log", said), Commands: logs,
		}
	case reported == nil:
		return Finding{
			Sentence: fmt.Sprintf("The process of pod %s runs, but the coordinator does not know its member: %s",
				name, cmp.Or(said, "its log says nothing")),
			Details:  []string{"A process that was let go is never let in again; the operator replaces such a pod after five minutes."},
			Commands: logs,
		}
	case e.Pod.UID != "" && !strings.HasPrefix(reported.GetInstance(), string(e.Pod.UID)):
		return Finding{
			Sentence: fmt.Sprintf("The process of pod %s has not enlisted: its member still has the place of an older process. %s",
				name, said),
			Commands: logs,
		}
	default:
		return e.notServing(said, logs)
	}
}

// notServing is about a member that has enlisted.
func (e *Evidence) notServing(said string, logs []string) Finding {
	for _, shard := range e.Reported.GetShards() {
		if !shard.GetConnected() {
			return Finding{
				Sentence: fmt.Sprintf("The coordinator has lost its connection to the process of pod %s. %s", e.Pod.Name, said),
				Commands: logs,
			}
		}
		if !shard.GetServing() && shard.GetReplicas() > 0 {
			return Finding{
				Sentence: fmt.Sprintf("Pod %s has enlisted, but does not serve yet: it wants %d copies of its log and has %d backups "+
					"for them.", e.Pod.Name, shard.GetReplicas(), shard.GetBackupsUsable()),
				Details:  []string{"Backups are the other masters: as long as too few of them are up, it waits."},
				Commands: logs,
			}
		}
	}
	return Finding{
		Sentence: fmt.Sprintf("Pod %s has enlisted, and should be ready within seconds. %s", e.Pod.Name, e.lastWarning("Unhealthy")),
		Commands: logs,
	}
}

// isStandby: another coordinator leads.
func (e *Evidence) isStandby() bool {
	return e.Store != nil && e.Store.Spec.Coordinator.Replicas > 1 && e.Store.Status.Coordinator.Ready &&
		e.Store.Status.Coordinator.Pod != e.Pod.Name
}

func (e *Evidence) standby() Finding {
	return Finding{
		Ready: true,
		Sentence: fmt.Sprintf("Pod %s is a standby: it answers no client, and takes over when %s is gone.",
			e.Pod.Name, e.Store.Status.Coordinator.Pod),
	}
}

func (e *Evidence) coordinatorNotReady() Finding {
	logs := []string{e.kubectl("logs " + e.Pod.Name)}
	if e.isStandby() {
		return e.standby()
	}
	said := cmp.Or(lastError(e.Log), lastLine(e.Log))
	if e.Store != nil && e.Store.Status.Coordinator.StateTrouble != "" {
		return Finding{
			Sentence: fmt.Sprintf("Coordinator %s runs, but does not lead: %s", e.Pod.Name, e.Store.Status.Coordinator.StateTrouble),
			Details:  labelled("its log", said), Commands: logs,
		}
	}
	return Finding{Sentence: fmt.Sprintf("Coordinator %s runs, but does not lead yet. Its log: %s", e.Pod.Name, said), Commands: logs}
}

func labelled(label, text string) []string {
	if text == "" {
		return nil
	}
	return []string{label + ": " + text}
}

// logLine is a line of the store's logs.
type logLine struct {
	Level   string `json:"level"`
	Message string `json:"message"`
	Fields  struct {
		Message string `json:"message"`
	} `json:"fields"`
	Error  string `json:"error"`
	Reason string `json:"reason"`
}

// text is the message with why, where the line says that.
func (l *logLine) text() string {
	text := cmp.Or(l.Message, l.Fields.Message)
	if why := cmp.Or(l.Error, l.Reason); why != "" {
		text += ": " + why
	}
	return text
}

// lastError is what the last line with an error, or else a warning, says; empty where there is none.
func lastError(log string) string {
	warning := ""
	for _, written := range slices.Backward(strings.Split(strings.TrimSpace(log), "\n")) {
		line := logLine{}
		isJSON := json.Unmarshal([]byte(written), &line) == nil
		text := line.text()
		switch level := strings.ToUpper(line.Level); {
		case isJSON && level == "ERROR":
			return bounded(text)
		case isJSON && level == "WARN" && warning == "":
			warning = bounded(text)
		case !isJSON && (strings.HasPrefix(written, "error:") || strings.Contains(written, "panicked at")):
			return bounded(written)
		}
	}
	return warning
}

func lastLine(log string) string {
	log = strings.TrimSpace(log)
	return bounded(log[strings.LastIndexByte(log, '\n')+1:])
}

func bounded(text string) string {
	if len(text) > maxLogText {
		return strings.ToValidUTF8(text[:maxLogText], "") + "..."
	}
	return text
}
