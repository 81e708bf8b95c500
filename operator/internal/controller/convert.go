package controller

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin"
	"rcbox.dev/rcbox/operator/internal/brief"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// maxTroubleText bounds what of a container's last words is shown.
const maxTroubleText = 200

// maxMessage is how many bytes a condition's message has at most.
const maxMessage = 300

func processOf(pod *corev1.Pod) facts.Process {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return facts.ProcessEnded
	}
	if container := resources.ProcessStatus(pod); container != nil && container.State.Running != nil {
		return facts.ProcessRunning
	}
	return facts.ProcessAbsent
}

// crashedAt is when a process of the pod last ended by itself; zero if none has.
func crashedAt(pod *corev1.Pod) time.Time {
	container := resources.ProcessStatus(pod)
	if container == nil || container.LastTerminationState.Terminated == nil {
		return time.Time{}
	}
	return container.LastTerminationState.Terminated.FinishedAt.Time
}

// restartsOf is how often kubelet has started a container of the pod anew.
func restartsOf(pod *corev1.Pod) (restarts int32) {
	for i := range pod.Status.ContainerStatuses {
		restarts += pod.Status.ContainerStatuses[i].RestartCount
	}
	return restarts
}

// readiness says whether a pod is ready and, if it is not, since when.
func readiness(pod *corev1.Pod) (ready bool, notSince time.Time) {
	for i := range pod.Status.Conditions {
		condition := &pod.Status.Conditions[i]
		if condition.Type != corev1.PodReady {
			continue
		}
		if condition.Status == corev1.ConditionTrue {
			return true, time.Time{}
		}
		return false, condition.LastTransitionTime.Time
	}
	return false, pod.CreationTimestamp.Time
}

// troubleOf says why a pod does not run, in Kubernetes' words; empty when it does, or is on its way.
func troubleOf(pod *corev1.Pod) string {
	if processOf(pod) == facts.ProcessEnded {
		return reasonAndMessage(orElse(pod.Status.Reason, string(pod.Status.Phase)), pod.Status.Message)
	}
	for i := range pod.Status.Conditions {
		condition := &pod.Status.Conditions[i]
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return reasonAndMessage(condition.Reason, condition.Message)
		}
	}
	container := waitingContainer(pod)
	switch {
	case container == nil:
		return ""
	case isImageUnusable(container):
		return imageTrouble(pod, container)
	}
	trouble := reasonAndMessage(container.State.Waiting.Reason, container.State.Waiting.Message)
	if last := container.LastTerminationState.Terminated; last != nil {
		trouble = reasonAndMessage(container.State.Waiting.Reason,
			fmt.Sprintf("exit code %d (%s) %s", last.ExitCode, last.Reason, lastLine(last.Message)))
	}
	if container.Name != resources.ContainerName(pod) {
		trouble = "init container " + container.Name + ": " + trouble
	}
	return trouble
}

// waitingContainer is that of the process, if there is a reason for which it does not run; while init containers are to run before it, the
// first of them that waits for such a reason. Other containers keep no process from running.
func waitingContainer(pod *corev1.Pod) *corev1.ContainerStatus {
	process := resources.ProcessStatus(pod)
	if process == nil || process.State.Waiting == nil {
		return nil
	}
	switch process.State.Waiting.Reason {
	case "", "ContainerCreating":
		return nil
	case "PodInitializing":
	default:
		return process
	}
	for i := range pod.Status.InitContainerStatuses {
		container := &pod.Status.InitContainerStatuses[i]
		if waiting := container.State.Waiting; waiting != nil && waiting.Reason != "" && waiting.Reason != "ContainerCreating" &&
			waiting.Reason != "PodInitializing" {
			return container
		}
	}
	return nil
}

// hasUnusableImage says whether a pod does not run because of an image.
func hasUnusableImage(pod *corev1.Pod) bool {
	container := waitingContainer(pod)
	return container != nil && isImageUnusable(container)
}

// isImageUnusable says whether a container waits because its image cannot be pulled, or has not the program that is to be started.
func isImageUnusable(container *corev1.ContainerStatus) bool {
	waiting, last := container.State.Waiting, container.LastTerminationState.Terminated
	// Started again and again, it waits for that under another reason.
	return waiting != nil && (slices.Contains(imageReasons, waiting.Reason) || last != nil && last.Reason == "StartError")
}

// imageReasons are those of a kubelet that has no use for an image.
var imageReasons = []string{
	"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RunContainerError",
}

// imageTrouble leaves out what the kubelet says: reasons alternate, and texts are long and of the container runtime's inside.
func imageTrouble(pod *corev1.Pod, container *corev1.ContainerStatus) string {
	what := "cannot be pulled"
	if waiting := container.State.Waiting; waiting.Reason == "RunContainerError" || waiting.Reason == "CrashLoopBackOff" {
		what = "has no program that can be started"
	}
	if container.Name != resources.ContainerName(pod) {
		return fmt.Sprintf("image %s of init container %s %s: set another one in the overlay that adds the container "+
			"(kubectl describe pod %s)", container.Image, container.Name, what, pod.Name)
	}
	return fmt.Sprintf("image %s %s: set spec.image, or the operator's storeImage, to an image of the store (kubectl describe pod %s)",
		container.Image, what, pod.Name)
}

// unschedulable is what the scheduler says of a pod for which it finds no node.
func unschedulable(pod *corev1.Pod) string {
	for i := range pod.Status.Conditions {
		condition := &pod.Status.Conditions[i]
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse &&
			condition.Reason == corev1.PodReasonUnschedulable {
			return orElse(condition.Message, condition.Reason)
		}
	}
	return ""
}

func orNothing(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func reasonAndMessage(reason, message string) string {
	if message = brief.Head(message, maxTroubleText); message == "" {
		return reason
	}
	return reason + ": " + message
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func clusterOf(response *adminv1.GetClusterStatusResponse) facts.Cluster {
	cluster := facts.Cluster{
		ID:            admin.ClusterID(response.GetClusterId()),
		BuildVersion:  response.GetBuildVersion(),
		Tables:        count(response.GetTableCount()),
		LossesDropped: count(response.GetLossesDropped()),
		State:         stateOf(response.GetStateKind()),
		Term:          count(response.GetLeader().GetTerm()),
		StateWait:     response.GetLeader().GetStateWait().GetWhy(),
		Format: facts.Format{
			Active:     int64(response.GetFormatVersion()),
			Newest:     int64(response.GetUpgrade().GetNewestFormat()),
			Hindrances: response.GetUpgrade().GetHindrances(),
		},
		Settings: settingsOf(response.GetSettings()),
		IsNew:    isNewLeader(response.GetLeader()),
	}
	for _, member := range response.GetMembers() {
		cluster.Members = append(cluster.Members, memberOf(member))
	}
	for _, recovery := range response.GetRecoveries() {
		cluster.Recoveries = append(cluster.Recoveries, recoveryOf(recovery, response.GetClusterTimeNs()))
	}
	for _, loss := range response.GetLosses() {
		seen := facts.Loss{
			Member:     loss.GetMember(),
			Tables:     loss.GetTables(),
			TableCount: int64(len(loss.GetTables())) + count(loss.GetTablesDropped()),
			Tablets:    count(loss.GetTabletCount()),
			Objects:    count(loss.GetObjectCount()),
			Bytes:      count(loss.GetLiveBytes()),
			Missing:    loss.GetMissing(),
			Uncounted:  loss.GetUncounted(),
			Instance:   loss.GetInstance(),
		}
		for _, id := range loss.GetServerIds() {
			seen.ServerIDs = append(seen.ServerIDs, admin.ServerID(id))
		}
		cluster.Losses = append(cluster.Losses, seen)
	}
	return cluster
}

// isNewLeader: it still waits for members. Not known of an older build.
func isNewLeader(leader *adminv1.Leader) bool {
	return leader != nil && leader.LeadingMs != nil && leader.PatienceMs != nil && leader.GetLeadingMs() < leader.GetPatienceMs()
}

func stateOf(kind adminv1.StateKind) v1alpha1.StateType {
	switch kind {
	case adminv1.StateKind_STATE_KIND_MEMORY:
		return v1alpha1.StateMemory
	case adminv1.StateKind_STATE_KIND_FILE:
		return v1alpha1.StateVolume
	case adminv1.StateKind_STATE_KIND_KUBERNETES:
		return v1alpha1.StateKubernetes
	default:
		return "" // another build's, or one that does not say
	}
}

func memberOf(member *adminv1.Member) facts.MemberReport {
	seen := facts.MemberReport{
		Name:      member.GetName(),
		Connected: member.GetState() == adminv1.MemberState_MEMBER_STATE_UP,
		Instance:  member.GetInstance(),
		Domain:    member.GetDomain(),
		Serving:   true,
		NotHeard:  member.GetContact() == adminv1.MemberContact_MEMBER_CONTACT_NOT_YET,
		Dead:      member.GetContact() == adminv1.MemberContact_MEMBER_CONTACT_DEAD,
	}
	if draining := member.GetDraining(); draining != nil {
		seen.Draining = &facts.Draining{
			Drained:  draining.GetDrained(),
			Tablets:  count(draining.GetTablets()),
			Copies:   count(draining.GetCopies()),
			WaitsFor: draining.GetWaitsFor(),
		}
	}
	for i, shard := range member.GetShards() {
		seen.ServerIDs = append(seen.ServerIDs, admin.ServerID(shard.GetServerId()))
		seen.Tablets += count(shard.GetTabletCount())
		seen.CapacityBytes += count(shard.GetLogCapacityBytes())
		seen.LiveBytes += count(shard.GetLogLiveBytes())
		seen.Segments += count(shard.GetSegments())
		seen.SegmentsShort += count(shard.GetSegmentsShort())
		seen.Serving = seen.Serving && shard.GetServing()
		seen.IsFull = seen.IsFull || shard.GetLogRoom().GetFull() != nil
		if copies := int32(min(shard.GetReplicas(), math.MaxInt32)); i == 0 || copies < seen.Copies {
			seen.Copies = copies
		}
		if shard.GetBackup() != nil {
			seen.Backup = addBackup(seen.Backup, shard.GetBackup())
		}
	}
	for _, port := range member.GetNetwork() {
		seen.Ports = append(seen.Ports, portOf(port))
	}
	return seen
}

func portOf(port *adminv1.NetworkPort) facts.Port {
	seen := facts.Port{IP: port.GetIp(), LinkDown: port.LinkUp != nil && !port.GetLinkUp()}
	for _, ping := range port.GetPings() {
		if ping.GetRoundTripNs() == 0 {
			seen.Unreached = append(seen.Unreached, ping.GetMember())
		}
	}
	return seen
}

// addBackup adds a shard's backup to those of its member.
func addBackup(sum *facts.Backup, backup *adminv1.BackupStorage) *facts.Backup {
	if sum == nil {
		sum = &facts.Backup{}
	}
	sum.Frames += int64(backup.GetFrames())
	sum.Free += int64(backup.GetFramesFree())
	sum.Damaged += int64(backup.GetFramesDamaged())
	sum.SegmentBytes = int64(backup.GetSegmentBytes())
	sum.Retired = orElse(sum.Retired, backup.GetRetiredReason())
	sum.Stalled = orElse(sum.Stalled, backup.GetStalledReason())
	return sum
}

func recoveryOf(recovery *adminv1.Recovery, clusterTimeNs uint64) facts.Recovery {
	age := clusterTimeNs - min(recovery.GetStartedNs(), clusterTimeNs)
	return facts.Recovery{
		ServerID:     admin.ServerID(recovery.GetServerId()),
		Member:       recovery.GetMember(),
		Age:          time.Duration(count(age)),
		TabletsLeft:  count(recovery.GetTabletsLeft()),
		WaitsFor:     recovery.GetWaitsFor(),
		CanBeGivenUp: recovery.GetLossToken() != "",
		Bytes:        count(recovery.GetBytes()),
		PromisedMs:   count(recovery.GetPromisedMs()),
		MeasuredMs:   count(recovery.GetMeasuredMs()),
	}
}

// count turns a count off the wire into one for the status, which has no unsigned numbers.
func count(n uint64) int64 {
	const most = 1<<63 - 1
	return int64(min(n, most))
}
