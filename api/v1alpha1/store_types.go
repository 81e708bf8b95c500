package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Store is a RAMCloud store: a coordinator, and masters that hold objects in memory.
//
// By default every object has copies on other nodes: two, with two masters one, with a single master none (spec.replication.factor).
// The data of a lost master is recovered from them. Without copies an object is in the memory of one master only: whatever ends that
// master's process loses what it held. The condition DataSafe says which of the two is so.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=stores,scope=Namespaced,shortName=rcs,categories=rcbox
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.masters.replicas,statuspath=.status.masters.replicas,selectorpath=.status.masters.selector
// +kubebuilder:printcolumn:name="Masters",type=integer,JSONPath=`.spec.masters.replicas`,description="Masters asked for"
// +kubebuilder:printcolumn:name="Up",type=integer,JSONPath=`.status.masters.ready`,description="Masters that serve"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the Store serves everything, has all copies, and is as its spec says"
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`,description="Whether every key can be read and written"
// +kubebuilder:printcolumn:name="DataSafe",type=string,JSONPath=`.status.conditions[?(@.type=="DataSafe")].reason`,description="What the durability of the data is"
// +kubebuilder:printcolumn:name="Copies",type=integer,priority=1,JSONPath=`.status.replication.factor`,description="Copies of each object on other nodes, in force"
// +kubebuilder:printcolumn:name="Recovering",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Recovering")].status`,description="Whether tablets of a lost master are on their way to others"
// +kubebuilder:printcolumn:name="Locator",type=string,JSONPath=`.status.locator`,description="What a client connects to"
// +kubebuilder:printcolumn:name="Progressing",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Progressing")].reason`,description="What the operator is doing"
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.status.image`,description="The image of new pods"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40",message="metadata.name must be at most 40 characters long: the names of the Store's pods and Services are made from it"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must start with a letter and consist of lower case letters, digits and '-': clients connect to a Service of that name"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.hibernated) || !self.spec.hibernated || ((has(self.spec.replication) && has(self.spec.replication.factor) ? self.spec.replication.factor : has(self.status) && has(self.status.replication) && has(self.status.replication.decided) ? self.status.replication.decided.factor : has(self.status) && has(self.status.observedGeneration) ? 0 : self.spec.masters.replicas > 2 ? 2 : self.spec.masters.replicas - 1) > 0 && self.spec.backups.storage.type == 'Volume' && (!has(self.spec.coordinator.state.type) || self.spec.coordinator.state.type != 'Memory'))",message="hibernated needs replication.factor above 0, backups.storage.type: Volume, and a coordinator.state that is not Memory: what is in memory alone would be lost",fieldPath=".spec.hibernated"
// +kubebuilder:validation:XValidation:rule="[(has(self.spec.replication) && has(self.spec.replication.factor) ? self.spec.replication.factor : has(self.status) && has(self.status.replication) && has(self.status.replication.decided) ? self.status.replication.decided.factor : has(self.status) && has(self.status.observedGeneration) ? 0 : self.spec.masters.replicas > 2 ? 2 : self.spec.masters.replicas - 1)].all(copies, copies == 0 || copies < self.spec.masters.replicas)",message="masters.replicas must be greater than the number of copies, which is replication.factor or, where that is not set, status.replication.decided.factor: each copy is on another member than its master, and no two are on one",fieldPath=".spec.masters.replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.replication) || !has(self.spec.replication.min) || (self.spec.replication.min >= 1 && self.spec.replication.min <= (has(self.spec.replication) && has(self.spec.replication.factor) ? self.spec.replication.factor : has(self.status) && has(self.status.replication) && has(self.status.replication.decided) ? self.status.replication.decided.factor : has(self.status) && has(self.status.observedGeneration) ? 0 : self.spec.masters.replicas > 2 ? 2 : self.spec.masters.replicas - 1))",message="replication.min must be from 1 to replication.factor: writes wait while there are fewer copies than that",fieldPath=".spec.replication.min"
// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self.spec.masters.memory)) || (has(self.spec.backups.storage.size) ? [string(self.spec.backups.storage.size)] : has(self.status) && has(self.status.replication) && has(self.status.replication.decided) && has(self.status.replication.decided.storageSize) ? [string(self.status.replication.decided.storageSize)] : []).all(size, !isQuantity(size) || quantity(size).asApproximateFloat() >= quantity(string(self.spec.masters.memory)).asApproximateFloat() * double((has(self.spec.replication) && has(self.spec.replication.factor) ? self.spec.replication.factor : has(self.status) && has(self.status.replication) && has(self.status.replication.decided) ? self.status.replication.decided.factor : has(self.status) && has(self.status.observedGeneration) ? 0 : self.spec.masters.replicas > 2 ? 2 : self.spec.masters.replicas - 1)))",message="backups.storage.size must be at least replication.factor times masters.memory: each member keeps that many copies of what a master holds",fieldPath=".spec.backups.storage.size"
// +kubebuilder:validation:XValidation:rule="(has(oldSelf.spec.replication) && has(oldSelf.spec.replication.factor) ? oldSelf.spec.replication.factor : has(oldSelf.status) && has(oldSelf.status.replication) && has(oldSelf.status.replication.decided) ? oldSelf.status.replication.decided.factor : 0) == 0 || (has(self.spec.replication) && has(self.spec.replication.factor) ? self.spec.replication.factor : has(self.status) && has(self.status.replication) && has(self.status.replication.decided) ? self.status.replication.decided.factor : has(self.status) && has(self.status.observedGeneration) ? 0 : self.spec.masters.replicas > 2 ? 2 : self.spec.masters.replicas - 1) > 0",message="replication.factor cannot become 0 again: what only copies hold would be lost; make another Store",fieldPath=".spec.replication.factor"
// +kubebuilder:validation:XValidation:rule="(has(oldSelf.spec.replication) && has(oldSelf.spec.replication.factor) ? oldSelf.spec.replication.factor : has(oldSelf.status) && has(oldSelf.status.replication) && has(oldSelf.status.replication.decided) ? oldSelf.status.replication.decided.factor : 0) == 0 || (self.spec.backups.storage.type == oldSelf.spec.backups.storage.type && has(self.spec.backups.storage.storageClassName) == has(oldSelf.spec.backups.storage.storageClassName) && (!has(self.spec.backups.storage.storageClassName) || self.spec.backups.storage.storageClassName == oldSelf.spec.backups.storage.storageClassName))",message="backups.storage.type and backups.storage.storageClassName cannot be changed while there are copies: a member's room for them is laid out once; make another Store",fieldPath=".spec.backups.storage"
// +kubebuilder:validation:XValidation:rule="(has(oldSelf.spec.replication) && has(oldSelf.spec.replication.factor) ? oldSelf.spec.replication.factor : has(oldSelf.status) && has(oldSelf.status.replication) && has(oldSelf.status.replication.decided) ? oldSelf.status.replication.decided.factor : 0) == 0 || (has(self.spec.backups.storage.size) ? [string(self.spec.backups.storage.size)] : has(self.status) && has(self.status.replication) && has(self.status.replication.decided) && has(self.status.replication.decided.storageSize) ? [string(self.status.replication.decided.storageSize)] : []).all(size, (has(oldSelf.spec.backups.storage.size) ? [string(oldSelf.spec.backups.storage.size)] : has(oldSelf.status) && has(oldSelf.status.replication) && has(oldSelf.status.replication.decided) && has(oldSelf.status.replication.decided.storageSize) ? [string(oldSelf.status.replication.decided.storageSize)] : []).all(before, !isQuantity(size) || quantity(size).compareTo(quantity(before)) >= 0))",message="backups.storage.size cannot become less while there are copies: volumes do not shrink; make another Store",fieldPath=".spec.backups.storage.size"
// +kubebuilder:validation:XValidation:rule="(has(oldSelf.spec.replication) && has(oldSelf.spec.replication.factor) ? oldSelf.spec.replication.factor : has(oldSelf.status) && has(oldSelf.status.replication) && has(oldSelf.status.replication.decided) ? oldSelf.status.replication.decided.factor : 0) == 0 || (has(self.spec.backups.storage.size) ? [string(self.spec.backups.storage.size)] : has(self.status) && has(self.status.replication) && has(self.status.replication.decided) && has(self.status.replication.decided.storageSize) ? [string(self.status.replication.decided.storageSize)] : []).all(size, (has(oldSelf.spec.backups.storage.size) ? [string(oldSelf.spec.backups.storage.size)] : has(oldSelf.status) && has(oldSelf.status.replication) && has(oldSelf.status.replication.decided) && has(oldSelf.status.replication.decided.storageSize) ? [string(oldSelf.status.replication.decided.storageSize)] : []).all(before, !isQuantity(size) || [1610612736.0, 3221225472.0].all(least, quantity(size).asApproximateFloat() < least * double(self.spec.masters.cores) || quantity(before).asApproximateFloat() >= least * double(self.spec.masters.cores))))",message="backups.storage.size cannot grow past 1536Mi or 3Gi for each of masters.cores while there are copies: pieces of logs are larger from there on, and those that there are keep theirs; make another Store",fieldPath=".spec.backups.storage.size"
// +kubebuilder:validation:XValidation:rule="(has(oldSelf.spec.replication) && has(oldSelf.spec.replication.factor) ? oldSelf.spec.replication.factor : has(oldSelf.status) && has(oldSelf.status.replication) && has(oldSelf.status.replication.decided) ? oldSelf.status.replication.decided.factor : 0) == 0 || self.spec.masters.cores == oldSelf.spec.masters.cores",message="masters.cores cannot be changed while there are copies: each core has a file of its own for them; make another Store",fieldPath=".spec.masters.cores"
// +kubebuilder:validation:XValidation:rule="(has(oldSelf.spec.coordinator.state.type) ? oldSelf.spec.coordinator.state.type == 'Memory' : (has(oldSelf.spec.replication) && has(oldSelf.spec.replication.factor) ? oldSelf.spec.replication.factor : has(oldSelf.status) && has(oldSelf.status.replication) && has(oldSelf.status.replication.decided) ? oldSelf.status.replication.decided.factor : 0) == 0) || ((!has(self.spec.coordinator.state.type) || (has(oldSelf.spec.coordinator.state.type) ? self.spec.coordinator.state.type == oldSelf.spec.coordinator.state.type : self.spec.coordinator.state.type != 'Memory')) && (!isQuantity(string(self.spec.coordinator.state.size)) || quantity(string(self.spec.coordinator.state.size)).compareTo(quantity(string(oldSelf.spec.coordinator.state.size))) >= 0) && has(self.spec.coordinator.state.storageClassName) == has(oldSelf.spec.coordinator.state.storageClassName) && (!has(self.spec.coordinator.state.storageClassName) || self.spec.coordinator.state.storageClassName == oldSelf.spec.coordinator.state.storageClassName))",message="coordinator.state cannot be changed once it outlives the coordinator, but for a size that grows: the tables are there; make another Store",fieldPath=".spec.coordinator.state"
type Store struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The settings of the Store. Every field has a default.
	//
	// +optional
	// +kubebuilder:default={}
	Spec StoreSpec `json:"spec,omitempty"`
	// The state that the operator saw last, and wrote.
	//
	// +optional
	Status StoreStatus `json:"status,omitempty"`
}

// StoreList is a list of Stores.
//
// +kubebuilder:object:root=true
type StoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Store `json:"items"`
}

// StoreSpec says what a Store should be.
//
// +kubebuilder:validation:XValidation:rule="!has(self.replication) || self.replication.durability != 'Flushed' || self.backups.storage.type != 'Memory'",message="replication.durability: Flushed needs backups.storage.type: Volume: what is in memory does not survive a loss of power"
// +kubebuilder:validation:XValidation:rule="!has(self.network) || !has(self.network.transport) || self.network.transport != 'DPDK' || (has(self.masters.cpuPolicy) && self.masters.cpuPolicy == 'Exclusive')",message="network.transport: DPDK needs masters.cpuPolicy: Exclusive: its cores never sleep, and kubelets align devices, memory and CPUs for pods of the class Guaranteed only"
type StoreSpec struct {
	// Image of the store's programs. Left empty, it is the one that the operator had as its default when the Store was
	// first seen (status.image), so that an upgrade of the operator restarts nothing. A Store of which no process has run yet gets
	// the operator's present default.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^ ]*$')",message="image must not contain spaces"
	Image string `json:"image,omitempty"`

	// When kubelet pulls the image.
	//
	// +optional
	// +kubebuilder:default=IfNotPresent
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// Secrets of this namespace for pulling the image, and those of containers that an overlay adds.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// The process that knows who owns which keys.
	//
	// +optional
	// +kubebuilder:default={}
	Coordinator CoordinatorSpec `json:"coordinator,omitempty"`

	// The processes that hold the objects.
	//
	// +optional
	// +kubebuilder:default={}
	Masters MastersSpec `json:"masters,omitempty"`

	// Where copies of objects are kept.
	//
	// +optional
	// +kubebuilder:default={}
	Backups BackupsSpec `json:"backups,omitempty"`

	// How many copies there are, and what they survive.
	//
	// +optional
	// +kubebuilder:default={}
	Replication ReplicationSpec `json:"replication,omitempty"`

	// How the coordinator moves tablets by itself, so that masters have about as much each. Without it only members that are
	// drained are emptied.
	//
	// +optional
	// +kubebuilder:default={}
	Rebalancing RebalancingSpec `json:"rebalancing,omitempty"`

	// The fate of the volume claims, and of the coordinator's state in ConfigMaps, when the Store is deleted. A Store that
	// is made anew under the same name takes what was retained, and with it the tables and objects. A claim stays in any case
	// while the Store is there, also when its pod goes or its member is scaled in.
	//
	// +optional
	// +kubebuilder:default=Retain
	ReclaimPolicy ReclaimPolicy `json:"reclaimPolicy,omitempty"`

	// How clients and members talk, and over which ports.
	//
	// +optional
	// +kubebuilder:default={transport: "TCP", provider: "Kernel"}
	Network NetworkSpec `json:"network,omitempty"`

	// Where all pods of the Store may run.
	//
	// +optional
	// +kubebuilder:default={}
	Placement PlacementSpec `json:"placement,omitempty"`

	// While set, the operator changes nothing of this Store; it looks, and says in the condition Progressing what it would do. The
	// store itself goes on: it serves, elects leaders, and recovers what lost masters held. Deleting the Store works as ever.
	//
	// +optional
	Paused bool `json:"paused,omitempty"`

	// While set, nothing of the Store runs: all its pods are ended, as soon as everything has its copies, and its volumes and the
	// coordinator's state are kept. It comes back with everything when this is taken back.
	//
	// +optional
	Hibernated bool `json:"hibernated,omitempty"`

	// The treatment of pods that were made from another spec than the present one, if they hold data that copies bring back.
	// RollingUpdate: they are restarted one after the other, each only while everything has its copies. OnDelete: nothing, until
	// somebody deletes them. Without copies, a restart loses data and is always yours.
	//
	// +optional
	// +kubebuilder:default=RollingUpdate
	UpdateStrategy UpdateStrategy `json:"updateStrategy,omitempty"`

	// What masters and coordinators log: this and what is worse. Left empty, it is Info. It is changed while they run.
	//
	// +optional
	LogLevel LogLevel `json:"logLevel,omitempty"`

	// The treatment of members whose nodes are lost or drained. The data comes back by itself within seconds; this brings capacity
	// back.
	//
	// +optional
	// +kubebuilder:default={}
	Recovery RecoverySpec `json:"recovery,omitempty"`
}

// LogLevel is the least that is logged.
//
// +kubebuilder:validation:Enum=Error;Warn;Info;Debug;Trace
type LogLevel string

// UpdateStrategy says who restarts outdated pods that hold data.
//
// +kubebuilder:validation:Enum=RollingUpdate;OnDelete
type UpdateStrategy string

const (
	// UpdateRolling means that the operator does, one after the other.
	UpdateRolling UpdateStrategy = "RollingUpdate"
	// UpdateOnDelete means that somebody deletes them.
	UpdateOnDelete UpdateStrategy = "OnDelete"
)

// CoordinatorSpec describes the coordinator's pods.
//
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || self.replicas == 1 || !has(self.state) || !has(self.state.type) || self.state.type == 'Kubernetes'",message="coordinator.replicas above 1 needs coordinator.state.type: Kubernetes: memory and a volume are one process's only"
type CoordinatorSpec struct {
	// How many coordinators. One leads; the others are standbys, on other nodes if there are any, one of which leads seconds
	// after the leader is gone: three coordinators survive the loss of any two. A standby is Ready if it could lead; who leads is in
	// status.coordinator.pod.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3
	Replicas int32 `json:"replicas,omitempty"`

	// The resources that the coordinator's container reserves and may use.
	//
	// +optional
	// +kubebuilder:default={requests: {cpu: "100m", memory: "256Mi"}, limits: {memory: "256Mi"}}
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !('memory' in self.limits) || !isQuantity(string(self.limits['memory'])) || quantity(string(self.limits['memory'])).compareTo(quantity('64Mi')) >= 0",message="coordinator.resources.limits.memory must be at least 64Mi: a coordinator that is killed for lack of memory is of no use"
	Resources ComputeResources `json:"resources,omitempty"`

	// Where the coordinator keeps what it knows: members, tables, and which logs hold what.
	//
	// +optional
	// +kubebuilder:default={}
	State StateSpec `json:"state,omitempty"`

	// The way to go on if there is no state. FromVolumes: make the store again from the copies of the state in the members' volumes, and
	// wait for these; while there is any state, it means nothing. Left empty, a coordinator without state begins a new, empty store, which
	// takes no volume of another. It counts for coordinators that are started from then on.
	//
	// +optional
	Rebuild RebuildSource `json:"rebuild,omitempty"`

	// Settings of the coordinators' pods beyond those that the whole Store has in placement.
	//
	// +optional
	Pod PodSettings `json:"pod,omitzero"`
}

// RebuildSource is what a store without state is made again from.
//
// +kubebuilder:validation:Enum=FromVolumes
type RebuildSource string

// RebuildFromVolumes is the copies of the coordinator's state in the volumes of members.
const RebuildFromVolumes RebuildSource = "FromVolumes"

// RebalancingSpec is how tablets move by themselves.
type RebalancingSpec struct {
	// Whether masters are to have about as much each: bytes after their memory, and operations.
	//
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// How much of each tablet is copied in a second, at most, in megabytes. Two tablets move at a time.
	//
	// +optional
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxMBps int32 `json:"maxMBps,omitempty"`
}

// StorageType is what something is kept in.
//
// +kubebuilder:validation:Enum=Memory;Volume
type StorageType string

const (
	// StorageMemory is the memory of the process: it survives no end of it.
	StorageMemory StorageType = "Memory"
	// StorageVolume is a file in a volume of its own, by a volume claim.
	StorageVolume StorageType = "Volume"
)

// StateType is where the coordinator keeps what it knows.
//
// +kubebuilder:validation:Enum=Memory;Volume;Kubernetes
type StateType string

const (
	// StateMemory is the memory of its process: the end of that is the end of every table.
	StateMemory StateType = "Memory"
	// StateVolume is a file in a volume, by a volume claim.
	StateVolume StateType = "Volume"
	// StateKubernetes are ConfigMaps of the Store's namespace.
	StateKubernetes StateType = "Kubernetes"
)

// ReclaimPolicy says what becomes of volume claims when the Store is deleted.
//
// +kubebuilder:validation:Enum=Retain;Delete
type ReclaimPolicy string

const (
	// ReclaimRetain keeps them, and the coordinator's state.
	ReclaimRetain ReclaimPolicy = "Retain"
	// ReclaimDelete deletes them, and with them everything that the Store held.
	ReclaimDelete ReclaimPolicy = "Delete"
)

// StateSpec says where the coordinator keeps what it knows.
//
// +kubebuilder:validation:XValidation:rule="!has(self.storageClassName) || !has(self.type) || self.type == 'Volume'",message="coordinator.state.storageClassName is for type: Volume"
type StateSpec struct {
	// Kubernetes: in ConfigMaps of the Store's namespace; any coordinator goes on where the one before was, on any node, and
	// there can be standbys. Volume: in a file; a coordinator that restarts goes on where it was, once its volume can be used
	// again. Memory: nowhere; its end loses every table. Left empty, it is Kubernetes for a new Store; one that there is
	// keeps what it has (status.coordinator.state).
	//
	// +optional
	Type StateType `json:"type,omitempty"`

	// Size of the volume, with type: Volume. It can grow, and not become less.
	//
	// +optional
	// +kubebuilder:default="1Gi"
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="coordinator.state.size must be an amount of bytes such as 1Gi (2^30) or 1G (10^9)"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('64Mi')) >= 0",message="coordinator.state.size must be at least 64Mi"
	Size resource.Quantity `json:"size,omitempty"`

	// StorageClass of the volume; the cluster's default if there is none here.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`
}

// BackupsSpec describes the backups: each master's process has one, which keeps copies for masters on other nodes.
type BackupsSpec struct {
	// The storage that the copies are kept in. Of no effect without copies (replication.factor).
	//
	// +optional
	// +kubebuilder:default={}
	Storage BackupStorage `json:"storage,omitempty"`
}

// BackupStorage is what each member keeps copies in. While there are copies, only its size can be changed, and only upwards.
//
// +kubebuilder:validation:XValidation:rule="!has(self.storageClassName) || self.type == 'Volume'",message="backups.storage.storageClassName is for type: Volume"
type BackupStorage struct {
	// Volume: a file in a volume of the member's own, which outlives its pods. Memory: the memory of the member's process;
	// objects then survive the loss of single members, but not of all.
	//
	// +optional
	// +kubebuilder:default=Volume
	Type StorageType `json:"type,omitempty"`

	// How much each member has for copies: the size of its volume, or memory of its container on top of masters.memory. At least
	// replication.factor times masters.memory, which is room for the copies of full logs. Left empty, it is twice that, as of when the
	// Store was first seen with copies (status.replication.decided): room also for what the cleaner has replaced, and for the copies of
	// a lost member that is being recovered.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="backups.storage.size must be an amount of bytes such as 1Gi (2^30) or 1G (10^9)"
	Size *resource.Quantity `json:"size,omitempty"`

	// StorageClass of the volumes; the cluster's default if there is none here. A class of local volumes is the fastest, and
	// ties each member to its node.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`
}

// DurabilityMode says when a copy counts.
//
// +kubebuilder:validation:Enum=Buffered;Flushed
type DurabilityMode string

const (
	// Buffered copies count when they are in the page cache of their nodes.
	Buffered DurabilityMode = "Buffered"
	// Flushed copies count when they are on stable storage.
	Flushed DurabilityMode = "Flushed"
)

// ReplicationSpec says how many copies there are besides the one in a master's memory, and what they survive.
type ReplicationSpec struct {
	// Copies of each object besides the one in its master's memory, each on a node of its own. 0: none, and what a master holds ends with
	// its process. Left empty, it is 2, or masters.replicas - 1 if that is less, as of when the Store was first seen
	// (status.replication.decided); scaling does not change it. More, and fewer, take
	// effect while masters run; the first copies take a restart of each master, which loses what it holds.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=8
	Factor *int32 `json:"factor,omitempty"`

	// The least number of copies with which writes go on while a member is away. Left empty, it is the number of copies - 1, and at least
	// 1.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	Min *int32 `json:"min,omitempty"`

	// Buffered: a write is acknowledged when all copies are in the page caches of their nodes; it survives the end of any
	// processes and pods, and the loss of power of all but one of these nodes. Flushed: when all are on stable storage; it
	// survives the loss of power everywhere, and takes longer.
	//
	// +optional
	// +kubebuilder:default=Buffered
	Durability DurabilityMode `json:"durability,omitempty"`

	// How fast each core makes copies again that were lost, in megabytes per second. Left empty, it is 200. It is changed while masters
	// run.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	RepairMBps *int32 `json:"repairMBps,omitempty"`
}

// MastersSpec describes the masters, which are all alike.
//
// +kubebuilder:validation:XValidation:rule="!has(self.memory) || !has(self.cores) || !isQuantity(string(self.memory)) || quantity(string(self.memory)).asApproximateFloat() >= 268435456.0 * double(self.cores)",message="masters.memory must be at least 256Mi for each of masters.cores: below that the process itself leaves no room for objects"
// +kubebuilder:validation:XValidation:rule="!has(self.cpuPolicy) || self.cpuPolicy != 'Exclusive' || !has(self.resources) || ((!has(self.resources.requests) || !('cpu' in self.resources.requests)) && (!has(self.resources.limits) || !('cpu' in self.resources.limits)))",message="masters.resources must not name cpu with masters.cpuPolicy: Exclusive: it is masters.cores, request and limit alike"
type MastersSpec struct {
	// How many masters; more than there are copies (replication.factor), and no more than one coordinator is built for (1000).
	// `kubectl scale` sets this field. Scaling out adds masters: new
	// tables spread over them, and with rebalancing.enabled parts of the others move to them by and by. Scaling in removes the masters
	// with the highest numbers, one at a time. Each first gives its parts of tables to others, with copies or without, and the copies
	// that it keeps for others are made elsewhere.
	//
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Replicas int32 `json:"replicas,omitempty"`

	// Memory of each master's container, request and limit alike. Most of it is the log that holds the objects
	// (status.masters.members[].capacityBytes); the rest is the hash table, buffers and the process itself.
	//
	// +optional
	// +kubebuilder:default="1Gi"
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="masters.memory must be an amount of bytes such as 1Gi (2^30) or 1G (10^9)"
	Memory resource.Quantity `json:"memory,omitempty"`

	// Cores of each master. Each core is a shard with its own port, log and thread, and a master has 64 ports. The CPU request is this
	// many CPUs unless masters.resources.requests.cpu says otherwise.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Cores int32 `json:"cores,omitempty"`

	// Exclusive: request and limit are masters.cores CPUs, so that the pods are of the class Guaranteed, and a kubelet with the static CPU
	// manager gives each of them CPUs that nobody else has. Shared: there is a request only.
	//
	// +optional
	// +kubebuilder:default=Shared
	CPUPolicy CPUPolicy `json:"cpuPolicy,omitempty"`

	// Of what pages the log and the hash table are made. Transparent: huge ones, where the node's kernel finds some. Reserved: huge ones of
	// 2 MiB that were reserved on the node (hugepages-2Mi), for which the pod waits; masters.memory is the sum of those and of the memory
	// limit of the container. What masters.resources names of hugepages-2Mi comes on top, for the ports of DPDK.
	//
	// +optional
	// +kubebuilder:default=Transparent
	HugePages HugePages `json:"hugePages,omitempty"`

	// Overrides of what each master's container reserves and may use besides memory. There is no CPU limit by default,
	// because throttling shows as latency.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="(!has(self.requests) || !('memory' in self.requests)) && (!has(self.limits) || !('memory' in self.limits))",message="masters.resources must not name memory: set masters.memory, from which the size of the log is derived"
	Resources *ComputeResources `json:"resources,omitempty"`

	// How long a core polls after its last request before it sleeps, in microseconds. More saves wake-ups, 0 saves power. Left empty, it is
	// 100. It is changed while masters run.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000000
	PollMicros *int32 `json:"pollMicros,omitempty"`

	// The cleaner runs while no more of a log's memory than this is free, in percent. The more the sooner it runs, and the more often it
	// copies what is still needed. Left empty, it is one part in 64. It is changed while masters run.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=50
	CleanerFreePercent *int32 `json:"cleanerFreePercent,omitempty"`

	// Connections of clients to each core at one time; more are refused. Left empty, it is 4096. It is changed while masters run.
	//
	// +optional
	// +kubebuilder:validation:Minimum=16
	// +kubebuilder:validation:Maximum=1000000
	MaxConnections *int32 `json:"maxConnections,omitempty"`

	// Settings of the masters' pods beyond those that the whole Store has in placement.
	//
	// +optional
	Pod PodSettings `json:"pod,omitzero"`
}

// CPUPolicy says whose CPUs the cores of a master are.
//
// +kubebuilder:validation:Enum=Shared;Exclusive
type CPUPolicy string

const (
	// CPUShared means that others may use them, too.
	CPUShared CPUPolicy = "Shared"
	// CPUExclusive means that they are the master's alone, where kubelets do that.
	CPUExclusive CPUPolicy = "Exclusive"
)

// HugePages says of what pages the memory for objects is made.
//
// +kubebuilder:validation:Enum=Transparent;Reserved
type HugePages string

const (
	// HugePagesTransparent means those that the kernel finds.
	HugePagesTransparent HugePages = "Transparent"
	// HugePagesReserved means those that were reserved on the node.
	HugePagesReserved HugePages = "Reserved"
)

// ComputeResources is what a container reserves and may use.
//
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || ['cpu', 'memory'].all(name, !(name in self.requests) || !(name in self.limits) || !isQuantity(string(self.requests[name])) || !isQuantity(string(self.limits[name])) || quantity(string(self.requests[name])).compareTo(quantity(string(self.limits[name]))) <= 0)",message="resources.requests must not be greater than resources.limits"
type ComputeResources struct {
	// The amounts that the scheduler reserves.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(name, isQuantity(string(self[name])))",message="resources.requests must be amounts such as 500m of cpu, or 1Gi (2^30) or 1G (10^9) of memory"
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// The most that the container may use.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(name, isQuantity(string(self[name])))",message="resources.limits must be amounts such as 500m of cpu, or 1Gi (2^30) or 1G (10^9) of memory"
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// PlacementSpec says where all pods of the Store may run. Settings of one component's pods alone are in masters.pod and coordinator.pod.
type PlacementSpec struct {
	// Labels that a node must have.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Taints that the pods tolerate. Kubernetes gives up on a node that does not answer after 300 s; a toleration of
	// node.kubernetes.io/unreachable with another tolerationSeconds changes that.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Label of nodes that fail together. Masters are spread evenly over its values as far as there is room, and the copies of
	// an object are in different ones as far as there are any.
	//
	// +optional
	// +kubebuilder:default="kubernetes.io/hostname"
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="placement.failureDomain must be the name of a node label, such as kubernetes.io/hostname or topology.kubernetes.io/zone"
	FailureDomain string `json:"failureDomain,omitempty"`

	// PriorityClass of the pods whose component names none (masters.pod.priorityClassName, coordinator.pod.priorityClassName).
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`
}
