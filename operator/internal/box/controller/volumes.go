package controller

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/blade/hardware"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// volumeSuffix follows the name of a server in that of its volume.
const volumeSuffix = "-backups"

// writeVolumes makes the volumes that are missing, and deletes those of servers that are not in the Chassis any more, unless somebody has
// claimed them. One that is there is never changed: a claim may have it.
func (r *Reconciler) writeVolumes(ctx context.Context, chassis *v1alpha1.Chassis, made *plan.Plan) error {
	list := &corev1.PersistentVolumeList{}
	ours := client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue, v1alpha1.LabelChassis: chassis.Name}
	if len(made.Volumes) == 0 && chassis.Spec.Boot.StorageClassName == "" {
		return nil
	}
	if err := r.Client.List(ctx, list, ours); err != nil {
		return fmt.Errorf("list the volumes of Chassis %s: %w", chassis.Name, err)
	}
	isThere := map[string]bool{}
	var errs []error
	for i := range list.Items {
		volume := &list.Items[i]
		isThere[volume.Name] = true
		_, isServer := made.Servers[volume.Labels[v1alpha1.LabelServer]]
		isClaimed := volume.Spec.ClaimRef != nil || volume.Status.Phase != corev1.VolumeAvailable
		if isServer || isClaimed || volume.DeletionTimestamp != nil {
			continue
		}
		// With the version that was observed: a claim may have got it.
		err := r.Client.Delete(ctx, volume, client.Preconditions{ResourceVersion: &volume.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("delete volume %s: %w", volume.Name, err))
		}
	}
	for i := range made.Volumes {
		if name := made.Volumes[i].Server + volumeSuffix; !isThere[name] {
			errs = append(errs, r.makeVolume(ctx, chassis, &made.Volumes[i], name))
		}
	}
	return errors.Join(errs...)
}

func (r *Reconciler) makeVolume(ctx context.Context, chassis *v1alpha1.Chassis, of *plan.Volume, name string) error {
	fileSystem := "ext4"
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue, v1alpha1.LabelChassis: chassis.Name, v1alpha1.LabelServer: of.Server,
				v1alpha1.LabelSlot: strconv.Itoa(int(of.Slot)),
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:         corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(of.Bytes, resource.BinarySI)},
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: of.Class,
			// What a Store has written is never given to another claim.
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				// The kubelet makes a file system on it, if it has none.
				Local: &corev1.LocalVolumeSource{Path: hardware.BackupsDevice, FSType: &fileSystem},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{of.Node}},
				},
			}}}},
		},
	}
	err := r.Client.Create(ctx, volume, FieldManager)
	switch {
	case apierrors.IsAlreadyExists(err): // somebody else's, or of a look a moment ago
		log.FromContext(ctx).Info("there is a volume of this name already, which does not belong to this Chassis", "volume", name)
		return nil
	case err != nil:
		return fmt.Errorf("make volume %s: %w", name, err)
	}
	log.FromContext(ctx).Info("made the volume of a server's backup partition", "volume", name, "bytes", of.Bytes, "class", of.Class)
	return nil
}
