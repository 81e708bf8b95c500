package controller

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/blade/hardware"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// TestVolumes: there is one for each partition, which is never changed. An unclaimed volume goes with its server; a claimed one stays, and
// so do those of others.
func TestVolumes(t *testing.T) {
	t.Parallel()
	other := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "atom009-backups"}}
	api := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(other).WithStatusSubresource(&corev1.PersistentVolume{}).Build()
	r := &Reconciler{Client: api}
	chassis := &v1alpha1.Chassis{ObjectMeta: metav1.ObjectMeta{Name: "mercury1"}}
	chassis.Spec.Boot.StorageClassName = "rcbox-blades"
	made := &plan.Plan{Servers: map[string]*v1alpha1.ServerStatus{}}
	for i, name := range []string{"atom001", "atom002", "atom003", "atom004", "atom009"} {
		made.Servers[name] = &v1alpha1.ServerStatus{}
		made.Volumes = append(made.Volumes, plan.Volume{
			Server: name, Node: name, Class: chassis.Spec.Boot.StorageClassName, Slot: int32(i + 1), Bytes: 14 << 30,
		})
	}
	write := func() {
		t.Helper()
		if err := r.writeVolumes(t.Context(), chassis, made); err != nil {
			t.Fatal(err)
		}
	}
	write()
	volume := &corev1.PersistentVolume{}
	if err := api.Get(t.Context(), client.ObjectKey{Name: "atom002-backups"}, volume); err != nil {
		t.Fatal(err)
	}
	terms := volume.Spec.NodeAffinity.Required.NodeSelectorTerms
	policy := volume.Spec.PersistentVolumeReclaimPolicy
	if size := volume.Spec.Capacity[corev1.ResourceStorage]; size.Value() != 14<<30 || volume.Spec.Local.Path != hardware.BackupsDevice ||
		volume.Spec.StorageClassName != "rcbox-blades" || policy != corev1.PersistentVolumeReclaimRetain || len(terms) != 1 ||
		!slices.Equal(terms[0].MatchExpressions[0].Values, []string{"atom002"}) {
		t.Errorf("%+v", volume.Spec)
	}
	// A blade that is installed again may report another size: the claim keeps what it has.
	made.Volumes[1].Bytes = 1 << 30
	write()
	version := volume.ResourceVersion
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(volume), volume); err != nil || volume.ResourceVersion != version {
		t.Errorf("a volume was written again: %v", err)
	}
	for name, phase := range map[string]corev1.PersistentVolumePhase{
		"atom001-backups": corev1.VolumeAvailable, "atom002-backups": corev1.VolumeBound, "atom003-backups": corev1.VolumeReleased,
		"atom004-backups": corev1.VolumeAvailable,
	} {
		of := &corev1.PersistentVolume{}
		if err := api.Get(t.Context(), client.ObjectKey{Name: name}, of); err != nil {
			t.Fatal(err)
		}
		of.Status.Phase = phase
		if err := api.Status().Update(t.Context(), of); err != nil {
			t.Fatal(err)
		}
	}
	// The scheduler has just given it to a claim.
	claimed := &corev1.PersistentVolume{}
	if err := api.Get(t.Context(), client.ObjectKey{Name: "atom004-backups"}, claimed); err != nil {
		t.Fatal(err)
	}
	claimed.Spec.ClaimRef = &corev1.ObjectReference{Name: "box-master-0-copies"}
	if err := api.Update(t.Context(), claimed); err != nil {
		t.Fatal(err)
	}
	made.Servers, made.Volumes = nil, nil // the slots are not in the Chassis any more
	write()
	list := &corev1.PersistentVolumeList{}
	if err := api.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var left []string
	for i := range list.Items {
		left = append(left, list.Items[i].Name)
	}
	if got := strings.Join(left, " "); got != "atom002-backups atom003-backups atom004-backups atom009-backups" {
		t.Errorf("left are %s", got)
	}
}

// TestInstallOrdersGiveWay: an order is written only on the Server that was observed, and only if its status stays.
func TestInstallOrdersGiveWay(t *testing.T) {
	t.Parallel()
	known := events.NewFakeRecorder(10)
	for _, of := range []struct {
		what      string
		interfere func(*v1alpha1.Server)
		status    v1alpha1.ServerStatus
		want      string
		isStale   bool
	}{
		{what: "nothing happens", want: "install-1"},
		{what: "somebody orders meanwhile", want: "person", isStale: true, interfere: func(server *v1alpha1.Server) {
			server.Spec.Boot = &v1alpha1.BootOrder{ID: "person", Device: v1alpha1.BootDisk}
		}},
		{what: "its status changes", status: v1alpha1.ServerStatus{Node: "atom001"}},
	} {
		server := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: "atom001"}}
		api := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(server).WithStatusSubresource(server).Build()
		observed := &v1alpha1.Server{}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(server), observed); err != nil {
			t.Fatal(err)
		}
		if of.interfere != nil {
			changed := observed.DeepCopy()
			of.interfere(changed)
			if err := api.Update(t.Context(), changed); err != nil {
				t.Fatal(err)
			}
		}
		r := &Reconciler{Client: api, Recorder: known}
		err := r.order(t.Context(), &plan.Observed{Chassis: &v1alpha1.Chassis{}, Servers: []plan.Server{{Object: observed}}},
			&plan.Plan{Servers: map[string]*v1alpha1.ServerStatus{"atom001": &of.status}},
			&plan.ServerOrder{Server: "atom001", Boot: &v1alpha1.BootOrder{ID: "install-1", Device: v1alpha1.BootNetwork}})
		if apierrors.IsConflict(err) != of.isStale || err != nil && !of.isStale {
			t.Errorf("%s: %v", of.what, err)
		}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(server), observed); err != nil {
			t.Fatal(err)
		}
		got := ""
		if observed.Spec.Boot != nil {
			got = observed.Spec.Boot.ID
		}
		if got != of.want {
			t.Errorf("%s: the order is %q", of.what, got)
		}
	}
}
