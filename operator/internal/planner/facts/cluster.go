package facts

import (
	"strings"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// Cluster is the coordinator's answer.
type Cluster struct {
	ID            string
	BuildVersion  string
	Tables        int64
	Members       []MemberReport
	Losses        []Loss
	LossesDropped int64
	// State is where the coordinator keeps what it knows; empty if it does not say.
	State v1alpha1.StateType
	// Term counts the processes that have led the store; 0 where nobody counts.
	Term int64
	// StateWait is why the coordinator cannot persist what it does; empty while it can. Then nothing may be done that relies on its word.
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
	// Stalled is what its device takes too long for.
	Stalled string
}

// MemberReport is one that the coordinator knows.
type MemberReport struct {
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
	// Backup is nil if none of its shards has reported one.
	Backup *Backup
	// Domain is what its process said.
	Domain string
	// Draining is set while it is to leave the store.
	Draining *Draining
	// Ports beside TCP on the pod network, as its process tells of them.
	Ports []Port
}

// Runs says whether the process that the coordinator knows under this member's name is the pod's.
func (m *MemberReport) Runs(pod *Pod) bool {
	return m != nil && pod != nil && pod.UID != "" && strings.HasPrefix(m.Instance, pod.UID)
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

// Settings are what the coordinator changes while the store runs. What is nil, or empty, is as programs were started.
type Settings struct {
	// Replicas is set in a store that has copies, and Min with it.
	Replicas           *int32
	Min                *int32
	RepairMBps         *int32
	PollMicros         *int32
	CleanerFreePercent *int32
	MaxConnections     *int32
	LogLevel           v1alpha1.LogLevel
	// RebalanceMBps is 0 where tablets do not move by themselves.
	RebalanceMBps *int32
}
