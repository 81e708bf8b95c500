package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// observeDomains looks at the nodes of pods that have yet to be told their failure domain, once in a pod's life. Where the
// operator may not read nodes (it has rights in some namespaces only), masters do without.
func (r *Reconciler) observeDomains(ctx context.Context, v *reconcileState) {
	v.observed.Domains = map[string]string{}
	for i := range v.observed.Pods {
		pod := &v.observed.Pods[i]
		if pod.Node == "" || pod.DomainKnown || !pod.Inputs.NeedsDomain() {
			continue
		}
		labels, err := r.labelsOf(ctx, pod.Node)
		if err != nil {
			log.FromContext(ctx).Info("a failure domain is not known", "pod", pod.Name, "node", pod.Node, "error", err.Error())
			continue
		}
		v.observed.Domains[pod.Node] = labels[pod.Inputs.FailureDomain]
	}
	r.observeUntoldDomains(v)
}

// observeUntoldDomains looks at nodes of masters that are not told their failure domain, because they keep no copies, until one has the
// label: otherwise somebody has mistyped it.
func (r *Reconciler) observeUntoldDomains(v *reconcileState) {
	for i := range v.observed.Pods {
		pod := &v.observed.Pods[i]
		if pod.Node == "" || !pod.Inputs.NamesDomain() || pod.Inputs.NeedsDomain() {
			continue
		}
		node := r.Nodes.Node(pod.Node)
		if node == nil {
			continue // it is not known, or gone
		}
		v.observed.Domains[pod.Node] = node.Labels[pod.Inputs.FailureDomain]
		if v.observed.Domains[pod.Node] != "" {
			return
		}
	}
}

// labelsOf asks the API server for a node that the watch of nodes does not have: it may be behind that of pods.
func (r *Reconciler) labelsOf(ctx context.Context, name string) (map[string]string, error) {
	if node := r.Nodes.Node(name); node != nil {
		return node.Labels, nil
	}
	node := &corev1.Node{}
	if err := r.Live.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	return node.Labels, nil
}

// observeClasses finds out whether the StorageClasses exist that claims wait for, while the scheduler finds no node for their pods. Where
// the operator may not read them, the scheduler's words are all there is to say.
func (r *Reconciler) observeClasses(ctx context.Context, v *reconcileState) {
	type found struct{ isMissing, bindsLate bool }
	classes := map[string]found{}
	for i := range v.observed.Pods {
		pod := &v.observed.Pods[i]
		claim := v.observed.Claims[pod.Claim]
		if pod.Unschedulable == "" || claim.Class == "" {
			continue
		}
		if _, known := classes[claim.Class]; !known {
			class := &storagev1.StorageClass{}
			err := r.Live.Get(ctx, client.ObjectKey{Name: claim.Class}, class)
			if err != nil && !apierrors.IsNotFound(err) {
				log.FromContext(ctx).Info("it is not known whether a StorageClass exists", "class", claim.Class, "error", err.Error())
			}
			mode := class.VolumeBindingMode
			classes[claim.Class] = found{apierrors.IsNotFound(err), mode != nil && *mode == storagev1.VolumeBindingWaitForFirstConsumer}
		}
		claim.ClassMissing, claim.BindsLate = classes[claim.Class].isMissing, classes[claim.Class].bindsLate
		v.observed.Claims[claim.Name] = claim
	}
}
