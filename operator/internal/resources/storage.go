package resources

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const (
	// volumeName is that of a pod's volume, volumePath where it is.
	volumeName = "data"
	volumePath = "/var/lib/rcbox"
	// framesFile, of a master with several shards, is the beginning of the files' names.
	framesFile = volumePath + "/frames"
	// stateDirectory of the coordinator.
	stateDirectory = volumePath + "/state"

	mib = 1 << 20
	// A frame is a segment and three blocks that describe it.
	frameOverheadBytes = 3 * 4096
	// One part in so many of a volume is for its file system.
	fileSystemShare = 20
)

// Claim is a volume claim of a member, under this name. It has no owner: what deletes it is the operator, if the Store's reclaim
// policy says so or the member has another one, and never the garbage collector.
func Claim(store *v1alpha1.Store, member, component, name string) *coreac.PersistentVolumeClaimApplyConfiguration {
	size, class := store.CopiesStorage(), store.Spec.Backups.Storage.StorageClassName
	if component == v1alpha1.ComponentCoordinator {
		size, class = store.Spec.Coordinator.State.Size, store.Spec.Coordinator.State.StorageClassName
	}
	spec := coreac.PersistentVolumeClaimSpec().
		WithAccessModes(corev1.ReadWriteOnce).
		WithResources(coreac.VolumeResourceRequirements().WithRequests(corev1.ResourceList{corev1.ResourceStorage: size}))
	if class != nil {
		spec.WithStorageClassName(*class)
	}
	labels := StoreLabels(store.Name)
	labels[v1alpha1.LabelComponent] = component
	labels[v1alpha1.LabelMember] = member
	return coreac.PersistentVolumeClaim(name, store.Namespace).
		WithLabels(labels).
		WithSpec(spec)
}

// SegmentMiB is the size of a log's segments, which is the same in the whole store and for ever: it comes from what never changes,
// the room that each shard has for copies. Large ones are better as long as a log has enough of them.
func SegmentMiB(storage resource.Quantity, cores int32) int64 {
	const enough = 384 // of a log that takes a sixth of the room
	for _, size := range []int64{8, 4} {
		if storage.Value()/int64(max(cores, 1)) >= enough*size*mib {
			return size
		}
	}
	return 2
}

// FramesPerShard is how many copies of segments each shard of a master has room for.
func FramesPerShard(replication *Replication, cores int32) int64 {
	room := replication.StorageSize.Value()
	if replication.Storage == v1alpha1.StorageVolume {
		room -= room / fileSystemShare
	}
	frame := SegmentMiB(replication.StorageSize, cores)*mib + frameOverheadBytes
	return max((room/int64(max(cores, 1))-frameOverheadBytes)/frame, 1)
}

// replicationArgs are what a server needs to know of copies.
func replicationArgs(inputs Inputs) []string {
	replication := inputs.Replication
	if replication == nil {
		return nil
	}
	durability := "buffered"
	if replication.Durability == v1alpha1.Flushed {
		durability = "flushed"
	}
	args := []string{
		"--replicas", strconv.Itoa(int(replication.Factor)),
		"--minReplicas", strconv.Itoa(int(replication.Min)),
		"--durability", durability,
		"--segmentMB", strconv.FormatInt(SegmentMiB(replication.StorageSize, inputs.Cores), 10),
		"--segmentFrames", strconv.FormatInt(FramesPerShard(replication, inputs.Cores), 10),
	}
	if replication.Storage == v1alpha1.StorageVolume {
		args = append(args, "--file", framesFile)
	}
	return args
}

// addClaim gives a pod the volume of its member, which the image's group may write to: each time anew, for whoever wrote it may have been
// another user (network.transport), and the files are few.
func addClaim(pod *coreac.PodSpecApplyConfiguration, claim string) {
	pod.WithVolumes(coreac.Volume().WithName(volumeName).
		WithPersistentVolumeClaim(coreac.PersistentVolumeClaimVolumeSource().WithClaimName(claim)))
	pod.SecurityContext.
		WithFSGroup(nonRoot).
		WithFSGroupChangePolicy(corev1.FSGroupChangeAlways)
}

// graceSeconds is how long a process may take to end. What it has to write out is at most what it has for copies; a slow disk
// takes 32 MiB a second.
func graceSeconds(inputs Inputs) int64 {
	const (
		least, most   = 10, 600
		withVolume    = 30
		slowDiskMiBps = 32
	)
	switch {
	case !inputs.InVolume():
		return least
	case inputs.Replication == nil:
		return withVolume
	default:
		return min(withVolume+inputs.Replication.StorageSize.Value()/mib/slowDiskMiBps, most)
	}
}
