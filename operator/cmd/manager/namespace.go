package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/operator/internal/finalizers"
)

// farewellTimeout bounds what is done after the controllers have stopped; with shutdownTimeout it fits into the pod's grace period.
const farewellTimeout = 8 * time.Second

// +kubebuilder:rbac:groups="",namespace=rcbox-system,resources=namespaces,verbs=get

// leaveNamespace is the operator's last deed where its own namespace is being deleted: without an operator, finalizers would keep the
// namespace for ever. Everything in it goes, whatever reclaimPolicy says; volumes go or stay by the policy of their PersistentVolumes.
func leaveNamespace(config *rest.Config, namespace string) error {
	if namespace == "" {
		return nil // it runs outside of the cluster
	}
	// The command's context has ended: that is why the operator ends.
	ctx, cancel := context.WithTimeout(context.Background(), farewellTimeout)
	defer cancel()
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	own := &corev1.Namespace{}
	switch err := c.Get(ctx, client.ObjectKey{Name: namespace}, own); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("look whether the operator's namespace %s is being deleted: %w", namespace, err)
	case own.DeletionTimestamp == nil:
		return nil
	}
	released, err := finalizers.Release(ctx, c, namespace)
	for _, object := range released {
		ctrl.Log.Info("released: the operator's namespace is being deleted", "object", object)
	}
	if err != nil {
		return fmt.Errorf("release what the operator keeps in its namespace %s, which is being deleted: %w", namespace, err)
	}
	return nil
}
