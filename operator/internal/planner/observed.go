// Package planner decides what to do next for a Store: Plan is a pure function from what was observed to an ordered list of
// steps, each with its reason. There is no client and no clock in it.
package planner

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/network"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// Observed is everything that one visit to a Store saw.
type Observed struct {
	Now time.Time
	// Store as it is on record, but for status.replication.decided, which has what DecideCopies gave.
	Store *v1alpha1.Store
	// CopiesUnrecorded is set while that is not on record, and the spec leaves it open.
	CopiesUnrecorded bool
	// DefaultImage is what a Store gets that names no image and has none yet.
	DefaultImage string
	// NamespaceEnds: the Store's namespace is being deleted, which may take pods before the Store.
	NamespaceEnds bool
	// Allowed is what Stores may have beyond an ordinary pod.
	Allowed Allowed
	// OtherOperator would manage the Store, too, and waits: the operator's namespace. Empty: there is none.
	OtherOperator string
	// Pods that this Store controls.
	Pods []Pod
	// Objects are those of fixed name that the Store needs, in the order in which they are applied.
	Objects []Object
	// Claims of volumes that carry the Store's labels, by name. They outlive pods, members and, if they are retained, the Store.
	Claims map[string]Claim
	// Domains are failure domains of nodes, by the node's name: as far as a pod has yet to be told one, and of all masters' nodes where
	// none is told. Empty for a node that has no such label; a node that could not be read is missing.
	Domains map[string]string
	// Nodes are those that masters are or were on, as far as they could be read.
	Nodes map[string]Node
	// Fences are how far nodes on record in status.fences are fenced, as far as that could be seen.
	Fences map[string]FenceState
	// Turn is how far what status.turn says holds; of no meaning without.
	Turn TurnState
	// Cluster is the coordinator's answer; nil when there was none.
	Cluster *Cluster
	// ClusterError says why there was no answer.
	ClusterError string
	// LeaderPod is the name of the coordinator's pod that answered.
	LeaderPod string
	// Refusal is why a coordinator that was elected must not lead; empty where there is none such.
	Refusal string
	// Foreign are the other Stores whose members have ports of their own, by name.
	Foreign []Foreign
	// StateObjects are the ConfigMaps that the coordinator's state is in; only of a Store that is being deleted.
	StateObjects []StateObject
}

// Process is what is known of the process in a pod.
type Process int

const (
	// ProcessAbsent means that no process runs in the pod now (it never has, or the container is waiting to be started
	// again), so that the pod holds no data.
	ProcessAbsent Process = iota
	// ProcessRunning means that the container runs, as far as its kubelet has said.
	ProcessRunning
	// ProcessEnded means that the pod has ended for good: it was evicted, or its node refused it.
	ProcessEnded
)

// Pod is the part of a pod that matters here.
type Pod struct {
	Name            string
	UID             string
	ResourceVersion string
	// Component and Member as its labels say.
	Component string
	Member    string
	// Number counts the member's pods from 1.
	Number    int64
	CreatedAt time.Time
	// EndsAt is when it was told to have ended; zero for a pod that was not told to end.
	EndsAt  time.Time
	Process Process
	Ready   bool
	// NotReadySince is when it ceased to be ready, or never was; zero for one that is.
	NotReadySince time.Time
	IP            string
	Node          string
	// Inputs are what it was made from.
	Inputs resources.Inputs
	// Claim is the name of its volume claim; empty if it has none.
	Claim string
	// Domain is the failure domain that its process is told; DomainKnown is whether it was written to the pod already.
	Domain      string
	DomainKnown bool
	// CrashedAt is when its process last ended by itself; zero if it never has.
	CrashedAt time.Time
	// Addresses of its ports; none for a pod on the pod network alone.
	Addresses []netip.Addr
	// Ended: its kubelet says that all has ended that ran in it, or it never was on a node.
	Ended bool
	// IsHeld: it stays until it is let go, though it was told to end.
	IsHeld bool
	// Recalled is what its annotation says of an end that was taken back; empty without one.
	Recalled string
	// Gated: it gets no node, and so sends nothing, before it is ungated.
	Gated bool
	// Attached is what Multus says of its ports; AttachedKnown is whether it has.
	Attached      []network.Attached
	AttachedKnown bool
	// Refused is why its kubelet did not admit it, in Kubernetes' words; empty if it did.
	Refused string
	// Trouble is why it does not run, in Kubernetes' words; empty when it does, or is on its way.
	Trouble string
	// Unschedulable is what the scheduler says while it finds no node; empty if it has one, or has not looked.
	Unschedulable string
	// Avoids are nodes that were isolated when it was made, and on which it may not run.
	Avoids []string
	// NeverRan: no container of it was ever started.
	NeverRan bool
	// Misplaced is why it can never start where it is, for a pod that never ran; empty if it can, or nobody looked.
	Misplaced string
	// ImageUnusable: its image cannot be pulled, or has no such program; Trouble says what.
	ImageUnusable bool
}

// Terminating says whether the pod was told to end. Such a pod blocks nothing: on a dead node it may stay for ever.
func (p *Pod) Terminating() bool { return !p.EndsAt.IsZero() }

// Ref names this very pod, in the state in which it was seen.
func (p *Pod) Ref() PodRef {
	return PodRef{Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}
}

// ObjectState says how an object of fixed name compares with what the Store needs.
type ObjectState int

const (
	// ObjectCurrent is as it should be.
	ObjectCurrent ObjectState = iota
	// ObjectMissing is not there, or not this Store's.
	ObjectMissing
	// ObjectDifferent is this Store's, with other contents.
	ObjectDifferent
)

// Object is one of fixed name.
type Object struct {
	Kind  string
	Name  string
	State ObjectState
}

// StateObject is a ConfigMap of the coordinator's state.
type StateObject struct {
	Name string
	// Held: a finalizer keeps it from being deleted.
	Held bool
}

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

// Node is one that a master is or was on.
type Node struct {
	// Deleted: there is no such node any more.
	Deleted bool
	// OutOfService: somebody has said so, by its taint.
	OutOfService bool
	Ready        bool
	// SilentFrom is when its kubelet counts as silent unless it is heard before; zero where nobody has looked.
	SilentFrom time.Time
	// Drained says who has it drained; empty if nobody has.
	Drained v1alpha1.NodeDrain
}

// cause says how the node is lost; empty if it is not.
func (n Node) cause() v1alpha1.NodeLoss {
	switch {
	case n.Deleted:
		return v1alpha1.NodeDeleted
	case n.OutOfService:
		return v1alpha1.NodeOutOfService
	case !n.Ready:
		return v1alpha1.NodeNotReady
	default:
		return ""
	}
}

// isSilent says whether a node's kubelet has missed a renewal of the node's Lease, though Kubernetes still says that the node is ready.
func (o *Observed) isSilent(name string) bool {
	node := o.Nodes[name]
	return node.Ready && !node.SilentFrom.IsZero() && !o.Now.Before(node.SilentFrom)
}

// Cluster is the coordinator's answer.
type Cluster struct {
	ID            string
	BuildVersion  string
	Tables        int64
	Members       []Member
	Losses        []Loss
	LossesDropped int64
	// State is where the coordinator keeps what it knows; empty if it does not say.
	State v1alpha1.StateType
	// Term counts the processes that have led the store; 0 where nobody counts.
	Term int64
	// StateWait is why what the coordinator does cannot be noted; empty while it can. Then nothing may be done that relies on its word.
	StateWait string
	// Recoveries under way and the last ones that have ended.
	Recoveries []Recovery
	Format     Format
	// Settings in force; nil if its build takes none.
	Settings *Settings
	// IsNew: it has begun to lead a moment ago, and waits for members that it knows from the state.
	IsNew bool
}

// Format is the format in force, the newest that the coordinator reads, and who does not read that one.
type Format struct {
	Active, Newest int64
	Hindrances     []string
}

// CanBeFinalized says that everybody reads a newer format than the one in force.
func (f Format) CanBeFinalized() bool { return f.Newest > f.Active && len(f.Hindrances) == 0 }

// Recovery is how the tablets of a dead server come to others.
type Recovery struct {
	// ServerID of the dead one; a server dies once.
	ServerID string
	Member   string
	// Age is the time since the server was found dead.
	Age time.Duration
	// TabletsLeft cannot be read or written yet; 0 once it has ended.
	TabletsLeft int64
	WaitsFor    string
	// CanBeGivenUp: it misses what may be gone for ever; somebody may say so.
	CanBeGivenUp bool
	Bytes        int64
	PromisedMs   int64
	MeasuredMs   int64
}

// Backup is what a member has for copies of what others hold.
type Backup struct {
	Frames  int64
	Free    int64
	Damaged int64
	// SegmentBytes is what a frame holds.
	SegmentBytes int64
	Retired      string
}

// Member is one that the coordinator knows.
type Member struct {
	Name string
	// Connected is whether all its shards are.
	Connected bool
	// Instance starts with the uid of the pod whose process enlisted.
	Instance      string
	ServerIDs     []string
	Tablets       int64
	CapacityBytes int64
	LiveBytes     int64
	// Copies that each of its shards keeps: the least.
	Copies int32
	// Segments of its shards' logs, and those with fewer copies than they should have.
	Segments      int64
	SegmentsShort int64
	// Serving is whether all its shards answer requests.
	Serving bool
	// NotHeard: the coordinator that answers has not heard from some shard since it leads. Dead: its process was declared dead.
	NotHeard, Dead bool
	// IsFull: some shard refuses writes for want of memory, or has within the last minute.
	IsFull bool
	// Backup is nil if none of its shards has told of one.
	Backup *Backup
	// Domain is what its process said.
	Domain string
	// Draining is set while it is to leave the store.
	Draining *Draining
	// Ports beside TCP on the pod network, as its process tells of them.
	Ports []Port
}

// Port of a member, as its process tells of it.
type Port struct {
	IP string
	// LinkDown is false, too, where the process does not know.
	LinkDown bool
	// Unreached are the members whose ports it should reach and does not: they are spoken to over the pod network.
	Unreached []string
}

// Draining is how far a member is with leaving the store.
type Draining struct {
	// Drained: nobody needs anything that it has, and it gets nothing.
	Drained bool
	// Tablets that it serves, and copies that it keeps for others and that are to be made elsewhere.
	Tablets int64
	Copies  int64
	// WaitsFor says why it is not drained, a sentence for each reason.
	WaitsFor []string
}

// Loss is the death of a member's process that held data, as the coordinator tells it.
type Loss struct {
	Member     string
	ServerIDs  []string
	Tables     []string
	TableCount int64
	Tablets    int64
	Objects    int64
	Bytes      int64
	// Missing is what was given up; empty where a process ended with the only copy.
	Missing string
	// Uncounted: nobody knows how many objects and bytes these were.
	Uncounted bool
	// Instance is the uid of the pod whose process ended; empty where something was given up, and from older coordinators.
	Instance string
}

// member is what was observed of one member.
type member struct {
	name    string
	ordinal int
	// live pods, the one that counts first.
	live     []*Pod
	reported *Member
	// claims of volumes that it has or had, the newest last; of a master.
	claims []Claim
	// highest number of any of its pods.
	highest int64
	// known is whether it has been a member before.
	known bool
}

// Coordinators are the pods to ask, but for those that were told to end: first the one that led when somebody looked last, then the oldest.
func Coordinators(pods []Pod, lastLeader string) []*Pod {
	var list []*Pod
	for i := range pods {
		pod := &pods[i]
		if pod.Component == v1alpha1.ComponentCoordinator && !pod.Terminating() && pod.Process == ProcessRunning && pod.IP != "" {
			list = append(list, pod)
		}
	}
	slices.SortStableFunc(list, func(a, b *Pod) int {
		if led := a.Name == lastLeader; led != (b.Name == lastLeader) {
			if led {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Number, b.Number)
	})
	return list
}

// Runs says whether the process that the coordinator knows under this member's name is the pod's.
func (m *Member) Runs(pod *Pod) bool {
	return m != nil && pod != nil && pod.UID != "" && strings.HasPrefix(m.Instance, pod.UID)
}

// masters are all that should be there, have a pod, or are known to the coordinator; by ordinal.
func (o *Observed) masters() []*member {
	ordinals := map[int]*Member{}
	for ordinal := range int(o.Store.Spec.Masters.Replicas) {
		ordinals[ordinal] = nil
	}
	for i := range o.Pods {
		pod := &o.Pods[i]
		ordinal, ok := v1alpha1.MasterOrdinal(o.Store.Name, pod.Member)
		if ok && !pod.Terminating() {
			ordinals[ordinal] = nil
		}
	}
	if o.Cluster != nil {
		for i := range o.Cluster.Members {
			reported := &o.Cluster.Members[i]
			if ordinal, ok := v1alpha1.MasterOrdinal(o.Store.Name, reported.Name); ok {
				ordinals[ordinal] = reported
			}
		}
	}
	members := make([]*member, 0, len(ordinals))
	claims := o.claimsByMember()
	for ordinal, reported := range ordinals {
		m := o.gather(v1alpha1.MasterMember(o.Store.Name, ordinal), ordinal, reported)
		m.claims = claims[m.name]
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b *member) int { return cmp.Compare(a.ordinal, b.ordinal) })
	return members
}

// claimsByMember are the claims of each master, the newest last.
func (o *Observed) claimsByMember() map[string][]Claim {
	number := func(claim Claim) int {
		_, number, _ := resources.ParseMasterClaim(claim.Name)
		return number
	}
	byMember := map[string][]Claim{}
	for name, claim := range o.Claims {
		if member, _, ok := resources.ParseMasterClaim(name); ok {
			claim.Name = name
			byMember[member] = append(byMember[member], claim)
		}
	}
	for _, claims := range byMember {
		slices.SortFunc(claims, func(a, b Claim) int { return cmp.Compare(number(a), number(b)) })
	}
	return byMember
}

func (o *Observed) gather(name string, ordinal int, reported *Member) *member {
	m := &member{name: name, ordinal: ordinal, reported: reported}
	m.highest, m.known = o.recordedPodNumber(name)
	for i := range o.Pods {
		pod := &o.Pods[i]
		if pod.Member != name {
			continue
		}
		m.highest, m.known = max(m.highest, pod.Number), true
		if !pod.Terminating() {
			m.live = append(m.live, pod)
		}
	}
	// The one whose process has enlisted counts, else the oldest.
	slices.SortStableFunc(m.live, func(a, b *Pod) int {
		if reported.Runs(a) != reported.Runs(b) {
			if reported.Runs(a) {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Number, b.Number)
	})
	return m
}

// recordedPodNumber is what the status has: the member's, or that from which a new member goes on.
func (o *Observed) recordedPodNumber(name string) (number int64, known bool) {
	status := &o.Store.Status
	if _, ok := v1alpha1.CoordinatorOrdinal(o.Store.Name, name); ok {
		return status.Coordinator.PodNumber, status.Coordinator.PodNumber > 0
	}
	for i := range status.Masters.Members {
		if status.Masters.Members[i].Name == name {
			return status.Masters.Members[i].PodNumber, true
		}
	}
	return status.Masters.RetiredPodNumber, false
}

func (m *member) pod() *Pod {
	if len(m.live) == 0 {
		return nil
	}
	return m.live[0]
}

func (m *member) tablets() int64 {
	if m.reported == nil {
		return 0
	}
	return m.reported.Tablets
}

// claim is the member's present one, and how many it has had at least; false if it has none.
func (m *member) claim() (claim Claim, number int, found bool) {
	if len(m.claims) == 0 {
		return Claim{}, 0, false
	}
	claim = m.claims[len(m.claims)-1]
	_, number, _ = resources.ParseMasterClaim(claim.Name)
	return claim, number, true
}

// up says whether the member's present process serves.
func (m *member) up() bool {
	return m.reported != nil && m.reported.Connected && m.reported.Runs(m.pod())
}
