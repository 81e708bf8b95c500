package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterPerf is one run of RAMCloud's benchmark against a Store. A run that has ended is history: it keeps its figures until it is
// deleted, and is never run again.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusterperfs,scope=Namespaced,shortName=rcperf,categories=rcbox
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Store",type=string,JSONPath=`.spec.storeRef.name`,description="The Store that is measured"
// +kubebuilder:printcolumn:name="Tests",type=string,JSONPath=`.spec.tests`,description="What is measured"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].reason`,description="How far the run is, or how it ended"
// +kubebuilder:printcolumn:name="Progress",type=string,priority=1,JSONPath=`.status.progress.text`,description="How many tests have ended"
// +kubebuilder:printcolumn:name="Read p50",type=string,JSONPath=`.status.summary.read`,description="Median of the first latency of reads"
// +kubebuilder:printcolumn:name="Write p50",type=string,JSONPath=`.status.summary.write`,description="Median of the first latency of writes"
// +kubebuilder:printcolumn:name="Throughput",type=string,JSONPath=`.status.summary.throughput`,description="Highest throughput"
// +kubebuilder:printcolumn:name="Clients",type=integer,priority=1,JSONPath=`.spec.clients.replicas`,description="Clients that measure together"
// +kubebuilder:printcolumn:name="Compared",type=string,priority=1,JSONPath=`.status.comparedTo`,description="The run before this one that asked the same"
// +kubebuilder:printcolumn:name="Disturbed by",type=string,priority=1,JSONPath=`.status.disturbedBy`,description="What happened to the Store meanwhile"
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.status.environment.image`,description="The Store's image"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40",message="metadata.name must be at most 40 characters long: the names of the run's pods are made from it"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must start with a letter and consist of lower case letters, digits and '-': the names of the run's pods are made from it"
// +kubebuilder:validation:XValidation:rule="self.spec == oldSelf.spec",message="spec cannot be changed: a run is history; make another ClusterPerf"
type ClusterPerf struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The measurements, and their settings. They cannot be changed.
	//
	// +required
	Spec ClusterPerfSpec `json:"spec"`
	// How far the run is and what it gave, written by the operator.
	//
	// +optional
	Status ClusterPerfStatus `json:"status,omitempty"`
}

// ClusterPerfList is a list of runs.
//
// +kubebuilder:object:root=true
type ClusterPerfList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterPerf `json:"items"`
}

// PerfTest is a test of clusterperf; docs/clusterperf.md says what each one measures.
//
// +kubebuilder:validation:Enum=basic;broadcast;echo_basic;multiReadThroughput;multiRead_general;multiRead_oneMaster;multiWrite_oneMaster;readDist;readDistRandom;readInterference;readNotFound;readThroughput;readVaryingKeyLength;workloadThroughput;writeDistRandom;writeInterference;writeThroughput;writeVaryingKeyLength
type PerfTest string

// ClusterPerfSpec says what to measure.
//
// +kubebuilder:validation:XValidation:rule="self.clients.replicas > 1 || !self.tests.exists(test, test in ['broadcast', 'readInterference', 'writeInterference'])",message="broadcast, readInterference and writeInterference need clients.replicas of 2 or more: they measure one client beside others"
// +kubebuilder:validation:XValidation:rule="self.clients.replicas == 1 || self.tests.exists(test, test in ['broadcast', 'readInterference', 'writeInterference', 'readThroughput', 'writeThroughput', 'multiReadThroughput', 'workloadThroughput'])",message="clients.replicas above 1 needs a test of several clients: the throughput tests, broadcast, readInterference or writeInterference"
type ClusterPerfSpec struct {
	// The Store, in the same namespace.
	//
	// +required
	StoreRef StoreReference `json:"storeRef"`

	// Tests to run, one after the other. Tests of one client are run by the first client alone.
	//
	// +optional
	// +kubebuilder:default={basic}
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=18
	Tests []PerfTest `json:"tests,omitempty"`

	// The pods that measure.
	//
	// +optional
	// +kubebuilder:default={}
	Clients PerfClients `json:"clients,omitempty"`

	// Options of the tests, with clusterperf's defaults.
	//
	// +optional
	// +kubebuilder:default={}
	Options PerfOptions `json:"options,omitempty"`

	// Image of the clients. Left empty, it is the Store's (status.image).
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^ ]*$')",message="image must not contain spaces"
	Image string `json:"image,omitempty"`

	// Whether the run may share the Store with others. Two runs measure at the same time only if both allow it.
	//
	// +optional
	// +kubebuilder:default=Forbid
	Concurrency PerfConcurrency `json:"concurrency,omitempty"`

	// How long the run may take from its start, without the time for which it waits for its turn.
	//
	// +optional
	// +kubebuilder:default=1800
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=604800
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// How long the run is kept after its end. Without it, until somebody deletes it.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// StoreReference names a Store.
type StoreReference struct {
	// Name of the Store.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	Name string `json:"name"`
}

// PerfConcurrency says whether runs may share a Store.
//
// +kubebuilder:validation:Enum=Forbid;Allow
type PerfConcurrency string

const (
	// PerfForbid has a run wait until it has the Store for itself.
	PerfForbid PerfConcurrency = "Forbid"
	// PerfAllow lets a run measure beside others that allow it, too.
	PerfAllow PerfConcurrency = "Allow"
)

// PerfClients are the pods that measure.
type PerfClients struct {
	// How many clients, each a pod. They are spread over the nodes as far as there is room, and begin when all are there.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Replicas int32 `json:"replicas,omitempty"`

	// The resources that each client's container reserves and may use. A client polls while it waits for an answer: it takes a whole CPU if
	// it gets one.
	//
	// +optional
	// +kubebuilder:default={requests: {cpu: "100m", memory: "128Mi"}, limits: {memory: "512Mi"}}
	Resources ComputeResources `json:"resources,omitempty"`

	// Labels that a client's node must have.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Taints that the clients tolerate.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Keeps clients off the nodes of the Store's masters, with which they would share CPUs. Without other nodes, the run waits for them
	// until its time-out.
	//
	// +optional
	AwayFromMasters bool `json:"awayFromMasters,omitempty"`
}

// PerfOptions are options of clusterperf; docs/clusterperf.md.
type PerfOptions struct {
	// How long to measure each size, number of clients and so on.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	Seconds int32 `json:"seconds,omitempty"`

	// Operations of each kind to measure, instead of seconds. basic and the throughput tests go by seconds all the same.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	Count *int64 `json:"count,omitempty"`

	// Size of objects in bytes. Left out, it is 100; basic then measures 100 B to 1 MB.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	Size *int32 `json:"size,omitempty"`

	// Objects that operations are drawn from; 100000 if left out.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	NumObjects *int32 `json:"numObjects,omitempty"`

	// Tables of multiRead_general; 10 if left out.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	NumTables *int32 `json:"numTables,omitempty"`

	// Objects in each multi-op. Left out, 1 to 500, and 20 in multiReadThroughput.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Batch *int32 `json:"batch,omitempty"`

	// Operations before each measurement that are not counted; 100 if left out. None in basic and the throughput tests.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Warmup *int32 `json:"warmup,omitempty"`

	// The mix of operations of workloadThroughput's clients; YCSB-A if left out.
	//
	// +optional
	// +kubebuilder:validation:Enum=YCSB-A;YCSB-B;YCSB-C;WRITE-ONLY
	Workload string `json:"workload,omitempty"`

	// Objects per second that each client of a throughput test keeps to; as many as it can if left out.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	TargetOps *int32 `json:"targetOps,omitempty"`

	// How much data basic fills its table with, in MB; 200 if left out, and less if the Store has no room.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	FillMB *int32 `json:"fillMb,omitempty"`
}

// ClusterPerfStatus is how far a run is, and what it gave.
type ClusterPerfStatus struct {
	// Complete, Failed and Progressing. All of them are there once the operator has looked at the run.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// When it was the run's turn and its pods were made.
	//
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// When all clients' processes ran. From then on a pod that is gone fails the run.
	//
	// +optional
	RunningTime *metav1.Time `json:"runningTime,omitempty"`

	// When the run was complete or had failed.
	//
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// The settings that the run was started with; figures of runs with the same ones can be compared.
	//
	// +optional
	Environment *PerfEnvironment `json:"environment,omitempty"`

	// How far it is.
	//
	// +optional
	Progress *PerfProgress `json:"progress,omitempty"`

	// The figures that kubectl get shows.
	//
	// +optional
	Summary *PerfSummary `json:"summary,omitempty"`

	// The figures of the tests that have ended, under RAMCloud's names.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Results []PerfResult `json:"results,omitempty"`

	// Figures beyond those in results. The ConfigMap has all.
	//
	// +optional
	ResultsOmitted int32 `json:"resultsOmitted,omitempty"`

	// The ConfigMap with results.json, table.txt and plot.svg. It goes when the run is deleted.
	//
	// +optional
	ResultsConfigMap string `json:"resultsConfigMap,omitempty"`

	// The last complete run before this one against the same Store with the same tests, clients and options that nothing disturbed.
	//
	// +optional
	ComparedTo string `json:"comparedTo,omitempty"`

	// The first thing that happened to the Store while the run measured: the run's figures are not those of a Store at rest.
	//
	// +optional
	DisturbedBy string `json:"disturbedBy,omitempty"`

	// The prefix of the names of the run's tables.
	//
	// +optional
	TablePrefix string `json:"tablePrefix,omitempty"`

	// Whether the run's tables are gone.
	//
	// +optional
	TablesDropped bool `json:"tablesDropped,omitempty"`
}

// PerfEnvironment is what a run was started with.
type PerfEnvironment struct {
	// Uid of the Store.
	//
	// +optional
	StoreUID string `json:"storeUid,omitempty"`
	// The Store's image.
	//
	// +optional
	Image string `json:"image,omitempty"`
	// The image of the clients.
	//
	// +optional
	ClientImage string `json:"clientImage,omitempty"`
	// Masters that served.
	//
	// +optional
	Masters int32 `json:"masters,omitempty"`
	// Cores of each master.
	//
	// +optional
	Cores int32 `json:"cores,omitempty"`
	// Copies of each object, in force.
	//
	// +optional
	Copies int32 `json:"copies"`
	// Durability in force.
	//
	// +optional
	Durability Durability `json:"durability,omitempty"`
	// How RPCs travelled.
	//
	// +optional
	Transport Transport `json:"transport,omitempty"`
	// Nodes of the masters.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	MasterNodes []string `json:"masterNodes,omitempty"`
	// Nodes of the clients, the first client's first.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	ClientNodes []string `json:"clientNodes,omitempty"`
	// Kernel of the first client's node.
	//
	// +optional
	Kernel string `json:"kernel,omitempty"`
	// CPU of the first client's node.
	//
	// +optional
	CPU string `json:"cpu,omitempty"`
	// How many CPUs the first client could use.
	//
	// +optional
	CPUs int32 `json:"cpus,omitempty"`
	// Load of the first client's node in the minute before the first test.
	//
	// +optional
	Load string `json:"load,omitempty"`
}

// PerfProgress is how far a run is.
type PerfProgress struct {
	// Tests that have ended.
	//
	// +optional
	TestsDone int32 `json:"testsDone"`
	// Tests in all.
	//
	// +optional
	Tests int32 `json:"tests"`
	// The same in words, such as "1 of 3 tests, 33 %".
	//
	// +optional
	Text string `json:"text,omitempty"`
}

// PerfSummary is what kubectl get shows of the figures.
type PerfSummary struct {
	// Median of the first latency of reads, such as "13.0 us".
	//
	// +optional
	Read string `json:"read,omitempty"`
	// Median of the first latency of writes.
	//
	// +optional
	Write string `json:"write,omitempty"`
	// Highest throughput, such as "210.4 k/s".
	//
	// +optional
	Throughput string `json:"throughput,omitempty"`
}

// PerfResult is a line of RAMCloud's table.
type PerfResult struct {
	// Name of the figure, such as basic.read100.
	//
	// +required
	Name string `json:"name"`
	// The figure; of latencies, the median.
	//
	// +required
	Value string `json:"value"`
	// Unit of all figures of the line: us, MB/s (of 2^20 bytes) or k/s (thousand objects per second).
	//
	// +required
	Unit string `json:"unit"`
	// The measurement, in words.
	//
	// +optional
	Description string `json:"description,omitempty"`
	// Of latencies: the shortest.
	//
	// +optional
	Best string `json:"best,omitempty"`
	// Of latencies: 99 % took no longer.
	//
	// +optional
	P99 string `json:"p99,omitempty"`
	// Of latencies: the longest.
	//
	// +optional
	Worst string `json:"worst,omitempty"`
	// How much the value differs from that of comparedTo, such as "-3.1 %".
	//
	// +optional
	Change string `json:"change,omitempty"`
}
