package resources_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

const hugePages = corev1.ResourceName("hugepages-2Mi")

func amounts(t *testing.T, store *v1alpha1.Store, component string) (memory, pages int64, args []string) {
	t.Helper()
	container := pod(t, store, component).Spec.Containers[0]
	requests, limits := *container.Resources.Requests, *container.Resources.Limits
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, hugePages} {
		request, requested := requests[name]
		limit, limited := limits[name]
		if requested != limited || request.Cmp(limit) != 0 {
			t.Errorf("%s: a request of %v, a limit of %v", name, request.String(), limit.String())
		}
	}
	return requests.Memory().Value(), requests.Name(hugePages, resource.BinarySI).Value(), container.Args
}

// What was one amount of memory becomes two, of the same sum.
func TestReservedHugePages(t *testing.T) {
	const mib, page = 1 << 20, 2 << 20
	for _, memory := range []string{"512Mi", "1Gi", "1000M", "3Gi", "64Gi"} {
		for _, copies := range []int32{0, 2} {
			store := newStore()
			store.Spec.Masters.Memory = resource.MustParse(memory)
			if copies > 0 {
				store.Spec.Replication = v1alpha1.ReplicationSpec{Factor: new(copies)}
				store.Spec.Backups.Storage = v1alpha1.BackupStorage{Type: v1alpha1.StorageMemory, Size: new(resource.MustParse("200Gi"))}
			}
			before, none, args := amounts(t, store, v1alpha1.ComponentMaster)
			if none != 0 || slices.Contains(args, "--hugePages") {
				t.Errorf("%s: pages nobody has asked for: %d, %v", memory, none, args)
			}
			store.Spec.Masters.HugePages = v1alpha1.HugePagesReserved
			rest, pages, args := amounts(t, store, v1alpha1.ComponentMaster)
			if rest+pages != before || pages%page != 0 {
				t.Errorf("%s: %d of memory and %d of pages, where there were %d", memory, rest, pages, before)
			}
			inputs := resources.InputsFor(store, v1alpha1.ComponentMaster, "i", "")
			objects := resources.StoreMemoryMiB(inputs) * mib
			// But for the results of RPCs, which are not in them.
			if pages < objects-objects/64 || pages > objects-objects/64+2*page {
				t.Errorf("%s: %d of pages for %d of objects", memory, pages, objects)
			}
			if at := slices.Index(args, "--hugePages"); at < 0 || args[at+1] != "reserved" {
				t.Errorf("%s: the server is not told: %v", memory, args)
			}
			if volumes := pod(t, store, v1alpha1.ComponentMaster).Spec.Volumes; len(volumes) != 0 {
				t.Errorf("%s: volumes nobody needs: %v", memory, volumes)
			}
		}
	}
}

// A port of DPDK has pages for its packets, which the log must not take.
func TestPagesForOthersComeOnTop(t *testing.T) {
	store := newStore()
	store.Spec.Masters.HugePages = v1alpha1.HugePagesReserved
	memory, alone, _ := amounts(t, store, v1alpha1.ComponentMaster)
	half := corev1.ResourceList{hugePages: resource.MustParse("512Mi")}
	for _, others := range []*v1alpha1.ComputeResources{{Limits: half}, {Requests: half}, {Requests: half, Limits: half}} {
		store.Spec.Masters.Resources = others
		rest, pages, _ := amounts(t, store, v1alpha1.ComponentMaster)
		if rest != memory || pages != alone+512<<20 {
			t.Errorf("%d of memory and %d of pages, where there were %d and %d", rest, pages, memory, alone)
		}
	}
	if amount := half[hugePages]; amount.Value() != 512<<20 {
		t.Errorf("the spec has become %v", amount.String())
	}
}

// A field of its default outdates nobody, another does; coordinators have none.
func TestHugePagesOutdatePods(t *testing.T) {
	store := newStore()
	before := resources.InputsFor(store, v1alpha1.ComponentMaster, "i", "")
	store.Spec.Masters.HugePages = v1alpha1.HugePagesTransparent
	same := resources.InputsFor(store, v1alpha1.ComponentMaster, "i", "")
	if got := resources.Diff(before, same); got != "" {
		t.Errorf("the default differs by %q", got)
	}
	store.Spec.Masters.HugePages = v1alpha1.HugePagesReserved
	after := resources.InputsFor(store, v1alpha1.ComponentMaster, "i", "")
	if got := resources.Diff(before, after); got != "hugePages: none -> Reserved" {
		t.Errorf("it differs by %q", got)
	}
	if _, pages, args := amounts(t, store, v1alpha1.ComponentCoordinator); pages != 0 || slices.Contains(args, "--hugePages") {
		t.Errorf("a coordinator has %d of pages: %v", pages, args)
	}
}
