package v1alpha1

// Conditions of a ClusterPerf. Progressing has the name that a Store's has.
const (
	// ConditionComplete is True when every test has ended and its figures are kept. Its reason says how far a run is that is not.
	ConditionComplete = "Complete"
	// ConditionFailed is True when the run has ended without all figures.
	ConditionFailed = "Failed"
)

// Reasons of a ClusterPerf's conditions; docs/clusterperf-resource.md explains each.
const (
	ReasonWaitsForStore = "WaitsForStore"
	ReasonWaitsForTurn  = "WaitsForTurn"
	ReasonStarting      = "Starting"
	ReasonRunning       = "Running"
	ReasonCompleted     = "Completed"
	ReasonNotFailed     = "NotFailed"
	ReasonClientFailed  = "ClientFailed"
	ReasonClientLost    = "ClientLost"
	ReasonTimedOut      = "TimedOut"
	ReasonStoreDeleted  = "StoreDeleted"
	ReasonCleaningUp    = "CleaningUp"
	ReasonEnded         = "Ended"
	ReasonTablesLeft    = "TablesLeft"
)

const (
	// LabelClusterPerf on a pod or ConfigMap names the run that it is of.
	LabelClusterPerf = "rcbox.dev/clusterperf"
	// LabelClusterPerfStore on a run's client names the Store that it measures.
	LabelClusterPerfStore = "rcbox.dev/clusterperf-store"
	// ComponentPerfClient and the next one are values of LabelComponent.
	ComponentPerfClient = "clusterperf-client"
	// ComponentPerfCleanup drops a run's tables.
	ComponentPerfCleanup = "clusterperf-cleanup"
)

// Ended says whether the run is over, one way or the other.
func (p *ClusterPerf) Ended() bool { return p.Status.CompletionTime != nil }
