package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// indexNode is an index of the cache: pods, claims, Stores and StoreMembers by the nodes that they are on, or name.
const indexNode = "rcbox.dev/node"

// indexByNode has the cache find what a node concerns without looking at everything that there is.
func indexByNode(ctx context.Context, indexer client.FieldIndexer) error {
	for object, nodes := range nodeIndexes() {
		if err := indexer.IndexField(ctx, object, indexNode, nodes); err != nil {
			return fmt.Errorf("index %T by nodes: %w", object, err)
		}
	}
	return nil
}

func nodeIndexes() map[client.Object]client.IndexerFunc {
	return map[client.Object]client.IndexerFunc{
		&corev1.Pod{}: func(object client.Object) []string {
			pod, isPod := object.(*corev1.Pod)
			if !isPod || pod.Spec.NodeName == "" {
				return nil
			}
			return []string{pod.Spec.NodeName}
		},
		&corev1.PersistentVolumeClaim{}: func(object client.Object) []string {
			node := object.GetAnnotations()[annotationSelectedNode]
			if node == "" {
				return nil
			}
			return []string{node}
		},
		&v1alpha1.Store{}: func(object client.Object) []string {
			store, isStore := object.(*v1alpha1.Store)
			if !isStore {
				return nil
			}
			return recordedNodes(store)
		},
		&v1alpha1.StoreMember{}: func(object client.Object) []string {
			member, isMember := object.(*v1alpha1.StoreMember)
			if !isMember {
				return nil
			}
			return leftNodes(&member.Record)
		},
	}
}

// recordedNodes are those that a Store's status names though no pod of the Store may be there any more.
func recordedNodes(store *v1alpha1.Store) []string {
	nodes := quarantinedNodes(store)
	for i := range store.Status.Fences {
		nodes = append(nodes, store.Status.Fences[i].Node)
	}
	for i := range store.Status.Isolations {
		nodes = append(nodes, store.Status.Isolations[i].Node)
	}
	return nodes
}

// leftNodes are those that a master was lost with, or leaves.
func leftNodes(record *v1alpha1.MemberRecord) []string {
	var nodes []string
	if record.Lost != nil {
		nodes = append(nodes, record.Lost.Node)
	}
	if record.Evacuation != nil {
		nodes = append(nodes, record.Evacuation.Node)
	}
	return nodes
}

// storesOnNode are the Stores that a change of a node concerns.
func (r *Reconciler) storesOnNode(ctx context.Context, node string) []reconcile.Request {
	var requests []reconcile.Request
	seen := map[types.NamespacedName]bool{}
	add := func(namespace, store string) {
		key := types.NamespacedName{Namespace: namespace, Name: store}
		if store != "" && !seen[key] {
			seen[key] = true
			requests = append(requests, reconcile.Request{NamespacedName: key})
		}
	}
	onNode := client.MatchingFields{indexNode: node}
	pods, claims, stores := &corev1.PodList{}, &corev1.PersistentVolumeClaimList{}, &v1alpha1.StoreList{}
	members := &v1alpha1.StoreMemberList{}
	for _, list := range []client.ObjectList{pods, claims, stores, members} {
		// Read-only: the lists are the cache's own objects.
		if err := r.Client.List(ctx, list, onNode, client.UnsafeDisableDeepCopy); err != nil {
			log.FromContext(ctx).Error(err, "it is not known which Stores a node concerns; they are reconciled later", "node", node)
		}
	}
	for i := range pods.Items {
		add(pods.Items[i].Namespace, pods.Items[i].Labels[v1alpha1.LabelStore])
	}
	for i := range claims.Items {
		add(claims.Items[i].Namespace, claims.Items[i].Labels[v1alpha1.LabelStore])
	}
	for i := range stores.Items {
		add(stores.Items[i].Namespace, stores.Items[i].Name)
	}
	for i := range members.Items {
		add(members.Items[i].Namespace, members.Items[i].Spec.StoreRef.Name)
	}
	return requests
}
