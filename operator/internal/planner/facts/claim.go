package facts

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Claim is a member's claim of a volume.
type Claim struct {
	Name string
	// Terminating: it was told to go, and does when no pod uses it any more.
	Terminating bool
	// Volume is the name of the volume that it is bound to; empty while it is bound to none.
	Volume string
	// Node is where its volume was made, as far as the claim says; a local volume is there and nowhere else.
	Node string
	// TiedTo is the one node on which its volume can be used; empty if there may be others, or nobody looked.
	TiedTo string
	// IsHomeUnknown: it could not be read where its volume can be used.
	IsHomeUnknown bool
	// AskedFor is the size that it asks for, Size that of its volume; zero while that is not known.
	AskedFor, Size resource.Quantity
	// GrowsWithPod: the volume has grown, and its file system does when a pod is started with it.
	GrowsWithPod bool
	// HasNoClass: it waits for a volume, and no StorageClass says where from; the cluster has no default one.
	HasNoClass bool
	// Class is the StorageClass that it names, while it waits for a volume; ClassMissing: there is none of that name. BindsLate: its
	// volumes are made where the scheduler puts the pod.
	Class                   string
	ClassMissing, BindsLate bool
	// TouchedAt is when it was last changed so that the scheduler looks at it.
	TouchedAt time.Time
}
