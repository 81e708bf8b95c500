package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// StoreOperation is an order to the operator about one Store, such as a drill. The spec of a Store says what the Store is; a StoreOperation
// says what is to happen to it once. Deleting a StoreOperation that has not begun withdraws it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=storeoperations,scope=Namespaced,shortName=sop,categories=rcbox
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Store",type=string,JSONPath=`.spec.storeRef.name`,description="The Store that the operation is about"
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`,description="What is to happen"
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.status.target`,description="The member, node, format or table that the operation is about"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="How far the operation is"
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].message`,description="What the operation waits for, or how it ended"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.spec == oldSelf.spec",message="spec cannot be changed: an operation is carried out as it was ordered; delete it and make another StoreOperation"
type StoreOperation struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The order. It cannot be changed.
	//
	// +required
	Spec StoreOperationSpec `json:"spec"`
	// How far the operation is and what came of it, written by the operator.
	//
	// +optional
	Status StoreOperationStatus `json:"status,omitempty"`
}

// StoreOperationList is a list of operations.
//
// +kubebuilder:object:root=true
type StoreOperationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StoreOperation `json:"items"`
}

// OperationType says what is to happen. The rights to create StoreOperations name the types in lower case: docs/store-operations.md.
//
// +kubebuilder:validation:Enum=Drill;Drain;Isolate;Restart;Finalize;Split
type OperationType string

const (
	// OperationDrill ends the process of a master, to measure its recovery.
	OperationDrill OperationType = "Drill"
	// OperationDrain has everything that a master has go to others, and keeps it drained while the StoreOperation is there.
	OperationDrain OperationType = "Drain"
	// OperationIsolate keeps a Store's pods away from a node while the StoreOperation is there.
	OperationIsolate OperationType = "Isolate"
	// OperationRestart restarts masters, one at a time, while everything has its copies.
	OperationRestart OperationType = "Restart"
	// OperationFinalize puts a newer format in force, for ever.
	OperationFinalize OperationType = "Finalize"
	// OperationSplit sees to it that a table has boundaries between tablets at even distances, for ever.
	OperationSplit OperationType = "Split"
)

// OperationTypes are all that there are.
func OperationTypes() []OperationType {
	return []OperationType{OperationDrill, OperationDrain, OperationIsolate, OperationRestart, OperationFinalize, OperationSplit}
}

// StoreOperationSpec is the order: a type, and the parameters of this type under its name.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'Drill' || !has(self.drill)",message="spec.drill is for type Drill only"
// +kubebuilder:validation:XValidation:rule="(self.type == 'Drain') == has(self.drain)",message="type Drain needs spec.drain, which is for this type only"
// +kubebuilder:validation:XValidation:rule="(self.type == 'Isolate') == has(self.isolate)",message="type Isolate needs spec.isolate, which is for this type only"
// +kubebuilder:validation:XValidation:rule="self.type == 'Restart' || !has(self.restart)",message="spec.restart is for type Restart only"
// +kubebuilder:validation:XValidation:rule="(self.type == 'Finalize') == has(self.finalize)",message="type Finalize needs spec.finalize, which is for this type only"
// +kubebuilder:validation:XValidation:rule="(self.type == 'Split') == has(self.split)",message="type Split needs spec.split, which is for this type only"
type StoreOperationSpec struct {
	// The Store, in the same namespace.
	//
	// +required
	StoreRef StoreReference `json:"storeRef"`

	// What is to happen.
	//
	// +required
	Type OperationType `json:"type"`

	// Parameters of a drill.
	//
	// +optional
	Drill *DrillOperation `json:"drill,omitempty"`

	// Parameters of a drain.
	//
	// +optional
	Drain *DrainOperation `json:"drain,omitempty"`

	// Parameters of an isolation.
	//
	// +optional
	Isolate *IsolateOperation `json:"isolate,omitempty"`

	// Parameters of a rolling restart.
	//
	// +optional
	Restart *RestartOperation `json:"restart,omitempty"`

	// Parameters of the end of an upgrade.
	//
	// +optional
	Finalize *FinalizeOperation `json:"finalize,omitempty"`

	// Parameters of a split.
	//
	// +optional
	Split *SplitOperation `json:"split,omitempty"`
}

// SplitOperation has the parameters of a split.
type SplitOperation struct {
	// The table's name.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Table string `json:"table"`
	// In how many parts of equal width of its key hashes the table is to lie, at least. Afterwards there is a boundary between tablets at
	// each of these distances, until the table is dropped; boundaries that it has besides stay.
	//
	// +required
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=4096
	Parts int32 `json:"parts"`
}

// RestartOperation has the parameters of a rolling restart.
type RestartOperation struct {
	// The masters that are to be restarted; all of them if none is named.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Members []string `json:"members,omitempty"`
}

// FinalizeOperation has the parameters of the end of an upgrade.
type FinalizeOperation struct {
	// The format that is to be in force. Afterwards there is no way back to versions that do not read it.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	Format int32 `json:"format"`
}

// IsolateOperation has the parameters of an isolation.
type IsolateOperation struct {
	// The node that is to get no more pods of the Store, and that its masters leave.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// Why; the operator writes here what has failed on a node that it isolates by itself.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason,omitempty"`
	// Who has ordered it: Ordered for a person, Failures for the operator (recovery.isolation).
	//
	// +optional
	// +kubebuilder:default=Ordered
	Cause IsolationCause `json:"cause,omitempty"`
}

// DrainOperation has the parameters of a drain.
type DrainOperation struct {
	// The master that is to hold nothing that anybody needs.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Member string `json:"member"`
}

// DrillOperation has the parameters of a drill.
type DrillOperation struct {
	// The master whose process is to end. Left out, the operator chooses the next one in turn that holds something.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Member string `json:"member,omitempty"`
}

// OperationPhase is how far an operation is.
//
// +kubebuilder:validation:Enum=Pending;Running;InForce;Succeeded;Failed
type OperationPhase string

const (
	// OperationPending means that nothing was done yet: deleting the StoreOperation withdraws it.
	OperationPending OperationPhase = "Pending"
	// OperationRunning means that it has begun.
	OperationRunning OperationPhase = "Running"
	// OperationInForce means that what was ordered was done, and is kept so while the StoreOperation is there: deleting it takes the order
	// back.
	OperationInForce OperationPhase = "InForce"
	// OperationSucceeded means that what was ordered was done.
	OperationSucceeded OperationPhase = "Succeeded"
	// OperationFailed means that it was not, or not as well as was asked for, and that the operator does not try again.
	OperationFailed OperationPhase = "Failed"
)

// StoreOperationStatus is how far an operation is, and what came of it.
type StoreOperationStatus struct {
	// The generation of the spec that this status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// How far the operation is.
	//
	// +optional
	Phase OperationPhase `json:"phase,omitempty"`

	// Complete is True once what was ordered was done; Failed is True once it is certain that it will not be. Both have the same reason
	// and message.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The member, node, format or table that the operation is about, once that is settled.
	//
	// +optional
	Target string `json:"target,omitempty"`

	// When the operation began.
	//
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// When it ended, as Succeeded or Failed.
	//
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`

	// What a drill measured.
	//
	// +optional
	Drill *DrillResult `json:"drill,omitempty"`

	// What a split has made of the table.
	//
	// +optional
	Split *SplitResult `json:"split,omitempty"`
}

// SplitResult is what a split has made of a table.
type SplitResult struct {
	// Tablets of the whole table when it was split; more than the parts if it had other boundaries, too.
	Tablets int64 `json:"tablets"`
	// Boundaries that were made; 0: the table was split so already.
	//
	// +optional
	BoundariesMade int64 `json:"boundariesMade,omitempty"`
	// Boundaries that the store had made for itself, and would have removed some time: they stay now.
	//
	// +optional
	BoundariesKept int64 `json:"boundariesKept,omitempty"`
}

// DrillResult is what a drill measured.
type DrillResult struct {
	// The drill's number in status.drills of the Store.
	Number int64 `json:"number"`
	// Bytes of the logs of the process that was ended.
	//
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// How long replay should have taken, how long it took until the last tablet was served, and how long it may take
	// (recovery.target), in milliseconds.
	//
	// +optional
	PromisedMs int64 `json:"promisedMs,omitempty"`
	// +optional
	MeasuredMs int64 `json:"measuredMs,omitempty"`
	// +optional
	TargetMs int64 `json:"targetMs,omitempty"`
}

// HasEnded says whether nothing comes of the operation any more.
func (s *StoreOperationStatus) HasEnded() bool {
	return s.Phase == OperationSucceeded || s.Phase == OperationFailed
}
