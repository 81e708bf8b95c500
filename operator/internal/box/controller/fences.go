package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// taintValue tells the taints of this controller from those of Stores and of users.
const taintValue = "rcbox.dev-box"

// fences are the NodeFences that a look at one Chassis has to do with.
type fences struct {
	// requests are those that the plan decides on, in the order of plan.Observed.Requests.
	requests []*v1alpha1.NodeFence
	// fresh are for servers of this Chassis, and are put on record as accepted first: what was seen before proves nothing.
	fresh []*v1alpha1.NodeFence
	// homeless are for nodes that run on no Server.
	homeless []*v1alpha1.NodeFence
	// doubted are the servers on which a node of a homeless request may run, and the servers of fresh requests: their BMCs are asked for
	// their identity once more.
	doubted []string
}

// observeFences finds the NodeFences for nodes of this Chassis: a node is that of the server whose BMC has its systemUUID.
func (r *Reconciler) observeFences(ctx context.Context, from client.Reader, seen *round, observed *plan.Observed) (*fences, error) {
	found := &fences{}
	for i := range seen.fences {
		fence := &seen.fences[i]
		switch {
		case fence.DeletionTimestamp != nil:
		case !slices.ContainsFunc(observed.Servers, func(s plan.Server) bool { return isMachine(&s, fence.Spec.SystemUUID) }):
			r.noteHomeless(seen, observed, found, fence)
		case fence.Status.AcceptedAt == nil:
			found.fresh = append(found.fresh, fence)
		default:
			found.requests = append(found.requests, fence)
			request := plan.FenceRequest{
				Namespace: fence.Namespace, Store: fence.Spec.StoreName, Node: fence.Spec.Node, SystemUUID: fence.Spec.SystemUUID,
				Since: fence.Status.AcceptedAt.Time,
			}
			var err error
			if request.ProvedDead, err = r.isProvedDead(ctx, from, observed, fence); err != nil {
				return nil, err
			}
			observed.Requests = append(observed.Requests, request)
		}
	}
	for _, fence := range found.fresh { // the identity is needed before power is cut, so ask for it while the request is being recorded
		for i := range observed.Servers {
			if of := &observed.Servers[i]; isMachine(of, fence.Spec.SystemUUID) {
				found.doubted = append(found.doubted, of.Object.Name)
			}
		}
	}
	return found, nil
}

// isMachine: a server's BMC says that it is this machine, or has said so last.
func isMachine(server *plan.Server, systemUUID string) bool {
	guid := server.Object.Status.MMC.SystemGUID
	if server.Identity != nil {
		guid = server.Identity.SystemGUID
	}
	return bmc.SameSystem(guid, systemUUID)
}

// noteHomeless takes down a NodeFence if no Server is its machine. The first Chassis answers for all.
func (r *Reconciler) noteHomeless(seen *round, observed *plan.Observed, found *fences, fence *v1alpha1.NodeFence) {
	isIt := func(s v1alpha1.Server) bool { return bmc.SameSystem(s.Status.MMC.SystemGUID, fence.Spec.SystemUUID) }
	if slices.ContainsFunc(seen.servers, isIt) {
		return
	}
	found.doubted = nil
	for i := range observed.Servers {
		if of := &observed.Servers[i]; of.Object.Status.Node == "" && r.Clock.Now().Sub(of.IdentityAt) > r.Times.Fresh {
			found.doubted = append(found.doubted, of.Object.Name)
		}
	}
	if !slices.ContainsFunc(seen.chassis, func(other v1alpha1.Chassis) bool { return other.Name < observed.Chassis.Name }) {
		found.homeless = append(found.homeless, fence)
	}
}

// writeFences puts on record what becomes of each NodeFence, if the status of its server is on record, too. It is written at the version
// that was seen: for another loss it is another object.
func (r *Reconciler) writeFences(ctx context.Context, found *fences, made *plan.Plan, isWritten map[string]bool) error {
	var errs []error
	for _, fence := range found.fresh {
		// The next full second: a time on record has no fractions, and what was seen in this second may have been seen before.
		at := metav1.NewTime(r.Clock.Now().Truncate(time.Second).Add(time.Second))
		errs = append(errs, r.writeFence(ctx, fence, v1alpha1.NodeFenceStatus{
			State: v1alpha1.NodeFenceWaiting, Message: "the box controller looks at the server", AcceptedAt: &at,
		}))
	}
	for _, fence := range found.homeless {
		errs = append(errs, r.writeFence(ctx, fence, v1alpha1.NodeFenceStatus{
			State: v1alpha1.NodeFenceWaiting,
			Message: fmt.Sprintf("no Server's BMC reports %s, the systemUUID of node %s. "+
				"If a Chassis has this machine, see why its BMC does not answer: kubectl get servers. "+
				"If not, switch the machine off yourself, and give the node the taint %s",
				fence.Spec.SystemUUID, fence.Spec.Node, corev1.TaintNodeOutOfService),
		}))
	}
	for i, verdict := range made.Fences {
		if verdict.NotYet || verdict.Server != "" && !isWritten[verdict.Server] {
			continue
		}
		errs = append(errs, r.writeFence(ctx, found.requests[i], v1alpha1.NodeFenceStatus{
			State: v1alpha1.NodeFenceState(verdict.State), Message: verdict.Message, Server: verdict.Server,
			AcceptedAt: acceptedAt(found.requests[i], &verdict), Off: verdict.Proof, SystemGUID: verdict.SystemGUID,
		}))
	}
	return errors.Join(errs...)
}

// acceptedAt is the recorded time, unless the plan has corrected it because the clock was set back since.
func acceptedAt(fence *v1alpha1.NodeFence, verdict *plan.FenceVerdict) *metav1.Time {
	if fence.Status.AcceptedAt.Time.Equal(verdict.Request.Since) {
		return fence.Status.AcceptedAt
	}
	return &metav1.Time{Time: verdict.Request.Since}
}

func (r *Reconciler) writeFence(ctx context.Context, fence *v1alpha1.NodeFence, next v1alpha1.NodeFenceStatus) error {
	if equality.Semantic.DeepEqual(fence.Status, next) {
		return nil
	}
	written := fence.DeepCopy()
	written.Status = next
	switch err := r.Client.Status().Update(ctx, written, FieldManager); {
	case apierrors.IsNotFound(err):
		return nil // it was taken back
	case err != nil:
		return fmt.Errorf("write the status of NodeFence %s/%s: %w", fence.Namespace, fence.Name, err)
	}
	before := fence.Status.State
	fence.Status = next
	if before != next.State {
		r.Recorder.Eventf(written, nil, corev1.EventTypeNormal, "Fence"+string(next.State), "Fence", "%s", next.Message)
	}
	return nil
}

// setTaints tells Kubernetes by a taint which nodes are proved to be off, so that Kubernetes removes their pods and detaches their volumes.
// It removes the taint once no Store keeps the node off. It reads the NodeFences from this round, which has the statuses that were just
// written; the cache does not have them yet.
func (r *Reconciler) setTaints(ctx context.Context, seen *round) error {
	var errs []error
	for i := range seen.nodes {
		node := &seen.nodes[i]
		isOff, isAsked := false, false
		for j := range seen.fences {
			fence := &seen.fences[j]
			isAbout := fence.DeletionTimestamp == nil && fence.Spec.Node == node.Name &&
				strings.EqualFold(fence.Spec.SystemUUID, node.Status.NodeInfo.SystemUUID)
			isOff = isOff || isAbout && fence.Status.State == v1alpha1.NodeFenceDone
			// The cache may have the taint, and not yet the status that was written right before it.
			isAsked = isAsked || isAbout && fence.Status.State == v1alpha1.NodeFenceRunning
		}
		errs = append(errs, r.setTaint(ctx, node, isOff, isAsked))
	}
	return errors.Join(errs...)
}

// setTaint leaves a taint alone that somebody else has set.
func (r *Reconciler) setTaint(ctx context.Context, node *corev1.Node, isOff, isAsked bool) error {
	isIt := func(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeOutOfService }
	isOurs := func(taint corev1.Taint) bool { return isIt(taint) && taint.Value == taintValue }
	taints := slices.Clone(node.Spec.Taints)
	switch {
	case isOff && (!isReady(node) || r.isSilent(node.Name)) && !slices.ContainsFunc(taints, isIt):
		taints = append(taints, corev1.Taint{
			Key: corev1.TaintNodeOutOfService, Value: taintValue, Effect: corev1.TaintEffectNoExecute,
		})
	case !isOff && isReady(node) && r.isSilent(node.Name):
		return nil // its kubelet has not started yet: no pod may come to it
	case !isOff && !isAsked && slices.ContainsFunc(taints, isOurs):
		taints = slices.DeleteFunc(taints, isOurs)
	default:
		return nil
	}
	written := node.DeepCopy()
	written.Spec.Taints = taints
	// With the version that was seen: a list of taints is replaced as a whole.
	patch := client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, written, patch, FieldManager); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("change the taints of node %s: %w", node.Name, err)
	}
	return nil
}
