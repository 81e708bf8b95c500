package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coordinationac "k8s.io/client-go/applyconfigurations/coordination/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	discoveryac "k8s.io/client-go/applyconfigurations/discovery/v1"
	networkingac "k8s.io/client-go/applyconfigurations/networking/v1"
	policyac "k8s.io/client-go/applyconfigurations/policy/v1"
	rbacac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
	"rcbox.dev/rcbox/operator/internal/status"
)

// annotationSelectedNode is what the scheduler writes to a claim whose volume is made where its first pod runs.
const annotationSelectedNode = "volume.kubernetes.io/selected-node"

// reconcileState is one look at one Store, with what is needed to act on it.
type reconcileState struct {
	observed facts.Observed
	// coordinator that answered in this reconcile; nil when none did.
	coordinator admin.Client
	// isRemembered: observed.Cluster is what was last seen of the coordinator, which was not asked in this reconcile.
	isRemembered bool
	// isUnknown: nobody knows yet how the coordinator is; nothing can be planned.
	isUnknown bool
	// recorded is the status that the API server has, with what StoreMembers have.
	recorded *v1alpha1.StoreStatus
	// members are the Store's StoreMembers, as they were seen or as this reconcile has written them; writing guards the map.
	members map[string]*v1alpha1.StoreMember
	writing sync.Mutex
	// membersAreFresh is set once it was found that the API server has the StoreMembers that were seen.
	membersAreFresh bool
	fixed           []fixedObject
	// operations as the API server has them, by name.
	operations map[string]*v1alpha1.StoreOperation
	// fresh is set once it was found that the Store had not changed since it was observed.
	fresh bool
	// ungates are the pods that may be ungated, by a look without the cache; nil before it.
	ungates map[steps.UngatePod]bool
	// splits is what came of tables that StoreOperations order to be split, by uid of the StoreOperation.
	splits map[string]status.Split
	// namespaceEnds is set once the API server has refused to make something for that.
	namespaceEnds bool
	// gone is set once the finalizer was removed.
	gone bool
}

func (v *reconcileState) close() {
	if v.coordinator != nil {
		_ = v.coordinator.Close() // nothing is lost with a connection
	}
}

// fixedObject is one whose name does not change.
type fixedObject struct {
	kind    string
	name    string
	desired runtime.ApplyConfiguration
	// object of the kind, to read a live one into.
	object client.Object
	state  facts.ObjectState
}

func (r *Reconciler) observe(ctx context.Context, store *v1alpha1.Store) (*reconcileState, error) {
	v := &reconcileState{observed: facts.Observed{
		Now: r.Now(), Store: store, DefaultImage: r.DefaultImage, Allowed: r.Allowed, Trials: r.trials.of(store),
	}}
	var err error
	if v.members, err = listMembers(ctx, r.Client, store); err != nil {
		return nil, err
	}
	if err := observePods(ctx, r.podReader(store), v); err != nil {
		return nil, err
	}
	if err := observeClaims(ctx, r.Client, v); err != nil {
		return nil, err
	}
	if err := r.observeOperations(ctx, v); err != nil {
		return nil, err
	}
	v.decideCopies()
	if err := r.observeForeign(ctx, v); err != nil {
		return nil, err
	}
	if store.DeletionTimestamp != nil {
		return v, r.observeState(ctx, v)
	}
	r.observeClasses(ctx, v)
	r.observeDomains(ctx, v)
	r.observeMisplaced(ctx, v)
	r.observeMemberNodes(ctx, v)
	if err := r.observeFixed(ctx, v); err != nil {
		return nil, err
	}
	switch {
	case r.Statuses == nil:
		r.askCoordinator(ctx, v)
	case !r.remember(ctx, v):
		v.isUnknown = true
		return v, nil
	}
	r.observeByCluster(ctx, v)
	return v, nil
}

// decideCopies has the whole reconcile go by the number of copies that the status is to have.
func (v *reconcileState) decideCopies() {
	store := v.observed.Store
	v.recorded = store.Status.DeepCopy()
	decided := facts.DecideCopies(&v.observed)
	v.observed.CopiesUnrecorded = facts.CopiesUnrecorded(store, decided)
	store.Status.Replication.Decided = decided
}

// podReader is the API server itself while a Store wakes up, else the cache. The record of the sleep goes once no pod is left that another
// operator may still end for that sleep, and a cache that is behind may lack just that pod.
func (r *Reconciler) podReader(store *v1alpha1.Store) client.Reader {
	if store.Status.HibernatedSince != nil && !store.Spec.Hibernated {
		return r.Live
	}
	return r.Client
}

func observePods(ctx context.Context, reader client.Reader, v *reconcileState) error {
	store := v.observed.Store
	pods := &corev1.PodList{}
	if err := reader.List(ctx, pods, client.InNamespace(store.Namespace),
		client.MatchingLabels{v1alpha1.LabelStore: store.Name}); err != nil {
		return fmt.Errorf("list the Store's pods: %w", err)
	}
	v.observed.Pods = nil
	for i := range pods.Items {
		if pod := &pods.Items[i]; metav1.IsControlledBy(pod, store) {
			v.observed.Pods = append(v.observed.Pods, podOf(pod))
		}
	}
	return nil
}

// observeClaims finds claims by label: they have no owner, so that they can outlive the Store.
func observeClaims(ctx context.Context, reader client.Reader, v *reconcileState) error {
	store := v.observed.Store
	claims := &corev1.PersistentVolumeClaimList{}
	if err := reader.List(ctx, claims, client.InNamespace(store.Namespace),
		client.MatchingLabels{v1alpha1.LabelStore: store.Name}); err != nil {
		return fmt.Errorf("list the Store's volume claims: %w", err)
	}
	v.observed.Claims = map[string]facts.Claim{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		waits := claim.Status.Phase != corev1.ClaimBound && claim.Spec.VolumeName == ""
		v.observed.Claims[claim.Name] = facts.Claim{
			Name: claim.Name, Terminating: claim.DeletionTimestamp != nil, Node: claim.Annotations[annotationSelectedNode],
			Volume:   claim.Spec.VolumeName,
			AskedFor: claim.Spec.Resources.Requests[corev1.ResourceStorage], Size: claim.Status.Capacity[corev1.ResourceStorage],
			HasNoClass: waits && orNothing(claim.Spec.StorageClassName) == "",
			GrowsWithPod: slices.ContainsFunc(claim.Status.Conditions, func(condition corev1.PersistentVolumeClaimCondition) bool {
				return condition.Type == corev1.PersistentVolumeClaimFileSystemResizePending && condition.Status == corev1.ConditionTrue
			}),
		}
		if waits {
			seen := v.observed.Claims[claim.Name]
			seen.Class = orNothing(claim.Spec.StorageClassName)
			seen.TouchedAt, _ = time.Parse(time.RFC3339, claim.Annotations[v1alpha1.AnnotationTouched]) // else it never was
			v.observed.Claims[claim.Name] = seen
		}
	}
	return nil
}

func (r *Reconciler) observeFixed(ctx context.Context, v *reconcileState) error {
	store := v.observed.Store
	state := v.observed.StateType()
	if state == v1alpha1.StateKubernetes {
		if err := r.observeRights(ctx, v); err != nil {
			return err
		}
	}
	for _, service := range resources.Services(store, state) {
		if err := compare(ctx, r, v, "Service", *service.Name, &corev1.Service{}, service, coreac.ExtractService); err != nil {
			return err
		}
	}
	for _, policy := range resources.NetworkPolicies(store, r.Namespace) {
		if err := compare(ctx, r, v, "NetworkPolicy", *policy.Name, &networkingv1.NetworkPolicy{}, policy,
			networkingac.ExtractNetworkPolicy); err != nil {
			return err
		}
	}
	budget := resources.DisruptionBudget(store, store.MovesFromDrained() && !r.Nodes.AreHidden())
	return compare(ctx, r, v, "PodDisruptionBudget", *budget.Name, &policyv1.PodDisruptionBudget{}, budget,
		policyac.ExtractPodDisruptionBudget)
}

// observeRights looks at what coordinators need that keep their state in the API server.
func (r *Reconciler) observeRights(ctx context.Context, v *reconcileState) error {
	store := v.observed.Store
	name := resources.CoordinatorAccount(store)
	errs := []error{
		compare(ctx, r, v, "ServiceAccount", name, &corev1.ServiceAccount{}, resources.ServiceAccount(store), coreac.ExtractServiceAccount),
		compare(ctx, r, v, "Role", name, &rbacv1.Role{}, resources.Role(store), rbacac.ExtractRole),
		compare(ctx, r, v, "RoleBinding", name, &rbacv1.RoleBinding{}, resources.RoleBinding(store), rbacac.ExtractRoleBinding),
		compare(ctx, r, v, "Lease", resources.LeaderLease(store), &coordinationv1.Lease{}, resources.Lease(store),
			coordinationac.ExtractLease),
	}
	for _, slice := range resources.EndpointSlices(store) {
		errs = append(errs, compare(ctx, r, v, "EndpointSlice", *slice.Name, &discoveryv1.EndpointSlice{}, slice,
			discoveryac.ExtractEndpointSlice))
	}
	return errors.Join(errs...)
}

// compare finds out whether an object has all the fields that the operator wants in it and owns no others, without asking the API server:
// the fields that it owns are extracted from the cached object and compared with those that it would apply.
func compare[Object client.Object, Configuration runtime.ApplyConfiguration](
	ctx context.Context, r *Reconciler, v *reconcileState, kind, name string, object Object, desired Configuration,
	extract func(Object, string) (Configuration, error),
) error {
	store := v.observed.Store
	fixed := fixedObject{kind: kind, name: name, desired: desired, object: object}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: store.Namespace, Name: name}, object)
	switch {
	case apierrors.IsNotFound(err):
		fixed.state = facts.ObjectMissing
	case err != nil:
		return fmt.Errorf("read %s %s: %w", kind, name, err)
	case !metav1.IsControlledBy(object, store):
		fixed.state = facts.ObjectMissing
	default:
		owned, err := extract(object, string(FieldManager))
		if err != nil {
			return fmt.Errorf("read the owned fields of %s %s: %w", kind, name, err)
		}
		current, err := same(owned, desired)
		if err != nil {
			return err
		}
		if !current {
			fixed.state = facts.ObjectDifferent
		}
	}
	v.fixed = append(v.fixed, fixed)
	v.observed.Objects = append(v.observed.Objects, facts.Object{Kind: kind, Name: name, State: fixed.state})
	return nil
}

// same compares all but the status, which is never the operator's.
func same(a, b runtime.ApplyConfiguration) (bool, error) {
	left, err := fieldsOf(a)
	if err != nil {
		return false, err
	}
	right, err := fieldsOf(b)
	if err != nil {
		return false, err
	}
	return reflect.DeepEqual(left, right), nil
}

func fieldsOf(configuration runtime.ApplyConfiguration) (map[string]any, error) {
	text, err := json.Marshal(configuration)
	if err != nil {
		return nil, fmt.Errorf("encode an object: %w", err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("decode an object: %w", err)
	}
	delete(fields, "status")
	return fields, nil
}

func podOf(pod *corev1.Pod) facts.Pod {
	number, err := strconv.ParseInt(pod.Annotations[v1alpha1.AnnotationPodNumber], 10, 64)
	if err != nil {
		number = 0 // somebody has edited it; the status still has the number
	}
	inputs, err := resources.DecodeInputs(pod.Annotations[v1alpha1.AnnotationMadeFrom])
	if err != nil {
		inputs = resources.Inputs{} // likewise; the pod then counts as outdated
	}
	ready, notReadySince := readiness(pod)
	domain, domainKnown := pod.Annotations[v1alpha1.AnnotationDomain]
	seen := facts.Pod{
		Name:            pod.Name,
		UID:             string(pod.UID),
		ResourceVersion: pod.ResourceVersion,
		Component:       pod.Labels[v1alpha1.LabelComponent],
		Member:          pod.Labels[v1alpha1.LabelMember],
		Number:          number,
		CreatedAt:       pod.CreationTimestamp.Time,
		Process:         processOf(pod),
		Ready:           ready,
		NotReadySince:   notReadySince,
		IP:              pod.Status.PodIP,
		Node:            pod.Spec.NodeName,
		Inputs:          inputs,
		Claim:           claimOf(pod),
		Domain:          domain,
		DomainKnown:     domainKnown,
		Trouble:         troubleOf(pod),
		Unschedulable:   unschedulable(pod),
		ImageUnusable:   hasUnusableImage(pod),
		CrashedAt:       crashedAt(pod),
		Restarts:        restartsOf(pod),
		NeverRan:        hasNeverRun(pod),
		Avoids:          resources.Avoided(pod),
		EndCancelled:    pod.Annotations[v1alpha1.AnnotationEndCancelled],
	}
	if pod.DeletionTimestamp != nil {
		seen.EndsAt = pod.DeletionTimestamp.Time
	}
	seePorts(&seen, pod)
	return seen
}
