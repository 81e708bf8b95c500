package resources_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"pgregory.net/rapid"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// replicated is a Store of four masters with two copies in volumes.
func replicated(change func(*v1alpha1.StoreSpec)) *v1alpha1.Store {
	store := newStore()
	store.Spec.Masters.Replicas, store.Spec.Masters.Cores = 4, 1
	store.Spec.Replication = v1alpha1.ReplicationSpec{Factor: new(int32(2)), Durability: v1alpha1.Buffered}
	store.Spec.Backups.Storage = v1alpha1.BackupStorage{Type: v1alpha1.StorageVolume, Size: new(resource.MustParse("4Gi"))}
	store.Spec.Coordinator.State.Size = resource.MustParse("1Gi")
	if change != nil {
		change(&store.Spec)
	}
	return store
}

// The schema's rule on how far a size may grow is made of the same figures.
func TestSegmentsOfSizes(t *testing.T) {
	for _, test := range []struct {
		size  string
		cores int32
		want  int64
	}{
		{"1535Mi", 1, 2}, {"1536Mi", 1, 4}, {"3071Mi", 1, 4}, {"3Gi", 1, 8}, {"1Ti", 1, 8}, {"6143Mi", 2, 4}, {"6Gi", 2, 8},
	} {
		if got := resources.SegmentMiB(resource.MustParse(test.size), test.cores); got != test.want {
			t.Errorf("%s for %d cores: %d MiB", test.size, test.cores, got)
		}
	}
}

func TestReplicatedMaster(t *testing.T) {
	built := pod(t, replicated(nil), v1alpha1.ComponentMaster)
	container := built.Spec.Containers[0]
	want := "--totalMasterMemory 832 --logFormat json --replicas 2 --minReplicas 1 --durability buffered --segmentMB 8 " +
		"--segmentFrames 485 --file /var/lib/rcbox/frames"
	if got := strings.Join(container.Args, " "); !strings.HasSuffix(got, want) {
		t.Errorf("arguments are\n%s, and do not end with\n%s", got, want)
	}
	if mounts := container.VolumeMounts; len(mounts) != 1 || *mounts[0].MountPath != "/var/lib/rcbox" {
		t.Errorf("mounts are %+v", mounts)
	}
	volumes := built.Spec.Volumes
	if len(volumes) != 1 || *volumes[0].PersistentVolumeClaim.ClaimName != "box-master-0-copies" ||
		*volumes[0].Name != *container.VolumeMounts[0].Name {
		t.Errorf("volumes are %+v", volumes)
	}
	if security := built.Spec.SecurityContext; *security.FSGroup != 65532 || *security.RunAsUser != 65532 {
		t.Errorf("the security context is %+v", security)
	}
	// 4 GiB at 32 MiB a second.
	if grace := *built.Spec.TerminationGracePeriodSeconds; grace != 158 {
		t.Errorf("it has %d seconds to end", grace)
	}
	term := built.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
	if *term.TopologyKey != corev1.LabelHostname || term.LabelSelector.MatchLabels[v1alpha1.LabelComponent] != "master" ||
		term.LabelSelector.MatchLabels[v1alpha1.LabelStore] != "box" {
		t.Errorf("masters are kept apart by %+v", term)
	}
	if !slices.ContainsFunc(container.Ports, func(p coreac.ContainerPortApplyConfiguration) bool {
		return *p.Name == "peer-0" && *p.ContainerPort == 12200
	}) {
		t.Errorf("ports are %+v", container.Ports)
	}
	if container.Resources.Limits.Memory().String() != "1Gi" {
		t.Errorf("memory is %s: copies are in a volume", container.Resources.Limits.Memory())
	}
}

func TestReplicationVariants(t *testing.T) {
	three := int32(3)
	for name, test := range map[string]struct {
		change    func(*v1alpha1.StoreSpec)
		want, not string
		memory    string
	}{
		"flushed, all three": {
			func(s *v1alpha1.StoreSpec) {
				s.Replication = v1alpha1.ReplicationSpec{Factor: new(int32(3)), Min: &three, Durability: v1alpha1.Flushed}
			}, "--replicas 3 --minReplicas 3 --durability flushed", "", "1Gi",
		},
		"in memory": {
			func(s *v1alpha1.StoreSpec) { s.Backups.Storage.Type = v1alpha1.StorageMemory },
			"--durability buffered --segmentMB 8 --segmentFrames 511", "--file", "5Gi",
		},
		"two shards share the room": {
			func(s *v1alpha1.StoreSpec) { s.Masters.Cores = 2 }, "--segmentMB 4 --segmentFrames 484 --file", "", "1Gi",
		},
	} {
		container := pod(t, replicated(test.change), v1alpha1.ComponentMaster).Spec.Containers[0]
		args := strings.Join(container.Args, " ")
		if !strings.Contains(args, test.want) || (test.not != "" && strings.Contains(args, test.not)) {
			t.Errorf("%s: arguments are %s", name, args)
		}
		if got := container.Resources.Limits.Memory().String(); got != test.memory {
			t.Errorf("%s: memory is %s", name, got)
		}
	}
	if volumes := pod(t, replicated(func(s *v1alpha1.StoreSpec) { s.Backups.Storage.Type = v1alpha1.StorageMemory }),
		v1alpha1.ComponentMaster).Spec.Volumes; len(volumes) != 0 {
		t.Errorf("copies in memory need no volume: %+v", volumes)
	}
}

func TestCoordinatorState(t *testing.T) {
	built := pod(t, replicated(nil), v1alpha1.ComponentCoordinator)
	if args := strings.Join(built.Spec.Containers[0].Args, " "); !strings.HasSuffix(args, "--state file:/var/lib/rcbox/state") {
		t.Errorf("arguments are %s", args)
	}
	if claim := *built.Spec.Volumes[0].PersistentVolumeClaim.ClaimName; claim != "box-coordinator-state" {
		t.Errorf("the claim is %s", claim)
	}
	if built.Spec.Affinity != nil {
		t.Error("the coordinator may share a node with a master")
	}
	for name, store := range map[string]*v1alpha1.Store{
		"no copies": newStore(),
		"in memory": replicated(func(s *v1alpha1.StoreSpec) { s.Coordinator.State.Type = v1alpha1.StateMemory }),
	} {
		built := pod(t, store, v1alpha1.ComponentCoordinator)
		if args := strings.Join(built.Spec.Containers[0].Args, " "); strings.Contains(args, "--state") || len(built.Spec.Volumes) != 0 {
			t.Errorf("%s: arguments are %s, volumes %+v", name, args, built.Spec.Volumes)
		}
	}
}

// It is no input of the pod: a coordinator with a state need not begin anew for it.
func TestCoordinatorThatRebuilds(t *testing.T) {
	rebuilds := func(store *v1alpha1.Store) bool {
		env := pod(t, store, v1alpha1.ComponentCoordinator).Spec.Containers[0].Env
		return slices.ContainsFunc(env, func(e coreac.EnvVarApplyConfiguration) bool {
			return *e.Name == "RCBOX_REBUILD" && e.Value != nil && *e.Value == "true"
		})
	}
	store := replicated(nil)
	if rebuilds(store) {
		t.Error("it is to be asked for")
	}
	store.Spec.Coordinator.Rebuild = v1alpha1.RebuildFromVolumes
	if !rebuilds(store) {
		t.Error("it is asked for, and the coordinator is not told")
	}
}

// Nodes know their own names; anything else the operator tells, by an annotation.
func TestDomainIsToldWhereItIsNotTheNode(t *testing.T) {
	domain := func(store *v1alpha1.Store) string {
		for _, env := range pod(t, store, v1alpha1.ComponentMaster).Spec.Containers[0].Env {
			if *env.Name == "RCBOX_DOMAIN" {
				return *env.ValueFrom.FieldRef.FieldPath
			}
		}
		return ""
	}
	rack := func(s *v1alpha1.StoreSpec) { s.Placement.FailureDomain = "example.com/rack" }
	if got := domain(replicated(rack)); got != "metadata.annotations['rcbox.dev/domain']" {
		t.Errorf("the domain comes from %q", got)
	}
	alone := newStore()
	rack(&alone.Spec)
	if got := domain(replicated(nil)) + domain(alone); got != "" {
		t.Errorf("nobody needs a domain, and it comes from %q", got)
	}
}

func TestClaims(t *testing.T) {
	fast := "fast"
	store := replicated(func(s *v1alpha1.StoreSpec) { s.Backups.Storage.StorageClassName = &fast })
	claim := resources.Claim(store, "box-master-1", v1alpha1.ComponentMaster, "box-master-1-copies")
	storage := (*claim.Spec.Resources.Requests)[corev1.ResourceStorage]
	if *claim.Name != "box-master-1-copies" || storage.String() != "4Gi" || *claim.Spec.StorageClassName != "fast" ||
		claim.Spec.AccessModes[0] != corev1.ReadWriteOnce {
		t.Errorf("the claim is %+v", claim.Spec)
	}
	if len(claim.OwnerReferences) != 0 {
		t.Error("the garbage collector would delete the claim with the Store")
	}
	if claim.Labels[v1alpha1.LabelStore] != "box" || claim.Labels[v1alpha1.LabelMember] != "box-master-1" {
		t.Errorf("labels are %v", claim.Labels)
	}
	claim = resources.Claim(store, "box-coordinator", v1alpha1.ComponentCoordinator, "box-coordinator-state")
	storage = (*claim.Spec.Resources.Requests)[corev1.ResourceStorage]
	if *claim.Name != "box-coordinator-state" || storage.String() != "1Gi" || claim.Spec.StorageClassName != nil {
		t.Errorf("the claim is %+v", claim.Spec)
	}
}

// Whatever the API lets through: the files fit into the volume, and hold what the masters' logs do.
func TestFramesFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cores := rapid.Int32Range(1, resources.MaxShards).Draw(t, "cores")
		factor := rapid.Int32Range(1, 8).Draw(t, "factor")
		memoryMiB := rapid.Int64Range(256*int64(cores), 1<<18).Draw(t, "memory MiB")
		sizeMiB := memoryMiB*int64(factor) + rapid.Int64Range(0, 1<<20).Draw(t, "more MiB")
		kind := rapid.SampledFrom([]v1alpha1.StorageType{v1alpha1.StorageMemory, v1alpha1.StorageVolume}).Draw(t, "type")
		replication := &resources.Replication{
			Factor: factor, Storage: kind, StorageSize: *resource.NewQuantity(sizeMiB<<20, resource.BinarySI),
		}
		frames := resources.FramesPerShard(replication, cores)
		segment := resources.SegmentMiB(replication.StorageSize, cores) << 20
		used := int64(cores) * (frames*(segment+3*4096) + 3*4096)
		room := sizeMiB << 20
		if kind == v1alpha1.StorageVolume {
			room -= room / 20
		}
		if used > room {
			t.Fatalf("%d shards with %d frames of %d bytes do not fit into %d MiB", cores, frames, segment, sizeMiB)
		}
		memory := resource.NewQuantity(memoryMiB<<20, resource.BinarySI)
		// A tenth of it is hash tables, and then some.
		logs := resources.StoreMemoryMiB(resources.Inputs{Memory: memory, Cores: cores, Replication: replication}) << 20 * 88 / 100
		if logs <= 0 {
			t.Fatalf("of %d MiB, %d cores get no log", memoryMiB, cores)
		}
		if held := int64(cores) * frames * segment; held < int64(factor)*logs {
			t.Fatalf("%d copies of %d bytes of logs do not fit into %d bytes of frames", factor, logs, held)
		}
	})
}

// By default there is room for the copies of full logs, for half as much that the cleaner has replaced, and for a quarter more: the share
// of a lost member's log that is being recovered.
func TestDefaultRoomSuffices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cores := rapid.Int32Range(1, resources.MaxShards).Draw(t, "cores")
		factor := rapid.Int32Range(1, 8).Draw(t, "factor")
		memory := *resource.NewQuantity(rapid.Int64Range(256*int64(cores), 1<<22).Draw(t, "memory MiB")<<20, resource.BinarySI)
		replication := &resources.Replication{
			Factor: factor, Storage: v1alpha1.StorageVolume, StorageSize: v1alpha1.DefaultStorage(factor, memory),
		}
		segment := resources.SegmentMiB(replication.StorageSize, cores) << 20
		room := int64(cores) * resources.FramesPerShard(replication, cores) * segment
		logs := resources.StoreMemoryMiB(resources.Inputs{Memory: &memory, Cores: cores, Replication: replication}) << 20 * 88 / 100
		if needed := int64(factor) * (logs + logs/2 + logs/4); room < needed {
			t.Fatalf("%d copies of logs of %d bytes take %d bytes, and there are %d by default", factor, logs, needed, room)
		}
	})
}

// Masters talk to each other at ports that nobody else may reach.
func TestPeerPorts(t *testing.T) {
	// Without copies as well: tablets that leave a master are read there.
	for _, store := range []*v1alpha1.Store{replicated(nil), newStore()} {
		checkPeerPorts(t, store)
	}
}

func checkPeerPorts(t *testing.T, store *v1alpha1.Store) {
	t.Helper()
	found := false
	for _, policy := range resources.NetworkPolicies(store, "") {
		for _, rule := range policy.Spec.Ingress {
			for _, port := range rule.Ports {
				if port.Port.IntVal != 12200 {
					continue
				}
				found = true
				if *policy.Name != "box-master" || *port.EndPort != 12263 || len(rule.From) != 1 ||
					rule.From[0].PodSelector.MatchLabels[v1alpha1.LabelComponent] != "master" || rule.From[0].NamespaceSelector != nil {
					t.Errorf("policy %s: %+v", *policy.Name, rule)
				}
			}
		}
	}
	if !found {
		t.Errorf("no policy opens the peer ports with %d copies", store.Copies())
	}
}

// With datagrams, clients and masters have UDP ports of their own: everybody reaches the first, masters alone the second.
func TestDatagramPorts(t *testing.T) {
	store := replicated(nil)
	store.Spec.Network.Transport = v1alpha1.TransportFastUDP
	reached := map[int32]int{}
	for _, policy := range resources.NetworkPolicies(store, "") {
		for _, rule := range policy.Spec.Ingress {
			for _, port := range rule.Ports {
				if *port.Protocol != corev1.ProtocolUDP {
					continue
				}
				if *policy.Name != "box-master" || *port.EndPort != port.Port.IntVal+63 {
					t.Errorf("policy %s: %+v", *policy.Name, rule)
				}
				reached[port.Port.IntVal] = len(rule.From)
			}
		}
	}
	if from, isOpen := reached[12300]; !isOpen || from != 0 {
		t.Errorf("clients: %v", reached)
	}
	if reached[12400] != 1 || len(reached) != 2 {
		t.Errorf("masters: %v", reached)
	}
	// Without copies nobody listens at the second.
	store.Spec.Replication.Factor = new(int32(0))
	for _, policy := range resources.NetworkPolicies(store, "") {
		for _, rule := range policy.Spec.Ingress {
			for _, port := range rule.Ports {
				if port.Port.IntVal == 12400 && *port.Protocol == corev1.ProtocolUDP {
					t.Errorf("without copies: %+v", rule)
				}
			}
		}
	}
}

func TestDurabilityOfInputs(t *testing.T) {
	memory := func(s *v1alpha1.StoreSpec) { s.Backups.Storage.Type = v1alpha1.StorageMemory }
	flushed := func(s *v1alpha1.StoreSpec) { s.Replication.Durability = v1alpha1.Flushed }
	for want, store := range map[v1alpha1.Durability]*v1alpha1.Store{
		v1alpha1.DurabilityUnreplicated: newStore(), v1alpha1.DurabilityInMemory: replicated(memory),
		v1alpha1.DurabilityBuffered: replicated(nil), v1alpha1.DurabilityFlushed: replicated(flushed),
	} {
		if got := resources.InputsFor(store, v1alpha1.ComponentMaster, "i", state(store)).Durability(); got != want {
			t.Errorf("%s instead of %s", got, want)
		}
	}
}

func TestNamesOfClaims(t *testing.T) {
	for name, want := range map[string]struct {
		member string
		number int
	}{
		"box-master-1-copies":           {"box-master-1", 1},
		"box-master-1-copies-2":         {"box-master-1", 2},
		"box-master-10-copies-30":       {"box-master-10", 30},
		"a-copies-3-master-0-copies":    {"a-copies-3-master-0", 1},
		"a-copies-3-master-0-copies-12": {"a-copies-3-master-0", 12},
		"box-coordinator-state":         {},
		"box-master-1-copies-1":         {},
		"box-master-1-copies-02":        {},
		"box-master-1-copies-x":         {},
		"box-master-1-copiesque":        {},
		"-copies":                       {},
	} {
		member, number, ok := resources.ParseMasterClaim(name)
		if ok != (want.number > 0) || ok && (member != want.member || number != want.number) {
			t.Errorf("%s is claim %d of %s: %v", name, number, member, ok)
		}
		if ok && resources.MasterClaimAt(member, number) != name {
			t.Errorf("%s is also %s", name, resources.MasterClaimAt(member, number))
		}
	}
}
