// Package facts has what one reconcile of a Store saw, and what follows from that alone. Nothing here plans a step.
package facts

import (
	"net/netip"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// Observed is everything that one reconcile of a Store saw.
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
	// Operations are the StoreOperations about this Store, oldest first, without those that are being deleted.
	Operations []Operation
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
	// Trials are what the API server said of pods that were made for trial, by TrialKey.
	Trials map[string]Trial
	// LockState is how far the disruption lock that is on record holds; of no meaning without one.
	LockState LockState
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

// Allowed is what whoever installed the operator lets every Store have, beyond an ordinary restricted pod.
type Allowed struct {
	// Capabilities, by name.
	Capabilities []string
	// EALArguments, whole or by their name: what is before "=".
	EALArguments []string
	// NetworkProfiles, by name. Only WholePort has to be named.
	NetworkProfiles []string
	// Overlays of pods.
	Overlays bool
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

// Foreign is what another Store has of addresses.
type Foreign struct {
	// Store as namespace/name.
	Store string
	// IsOlder: it was made before this one, and so has the word on addresses that are in pools of both.
	IsOlder bool
	Ranges  []netip.Prefix
	// Addresses that its members have, and quarantined ones.
	Addresses []netip.Addr
}

// LockState is how the disruption lock on record compares with the pod that it names, by the API server's word.
type LockState int

const (
	// LockUnknown means that nobody has looked, or the API server did not answer.
	LockUnknown LockState = iota
	// LockStands means that the pod has the resource version that is on record: an operator that has read the lock may still end the pod.
	LockStands
	// LockVoid means that the pod has another version, or is gone: nobody can end it by this lock any more.
	LockVoid
)
