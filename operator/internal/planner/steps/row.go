package steps

// Row is what the table of kinds says of a step.
type Row struct {
	// Text says what is done and why, for events and logs.
	Text string
	// Event is the reason of the event that reports the step; empty for a step that none reports.
	Event string
	// Object that the step is about; empty if that is the Store itself.
	Object Object
	// Look is what has to be read once more before the step is carried out.
	Look Look
	// StopsRest: what comes after it in a plan is right only if it succeeded.
	StopsRest bool
}

// Object is one of the API's.
type Object struct{ Kind, Name string }

// Look is what has to be read once more before a step is carried out, and not from the cache.
type Look int

const (
	// Nothing has to be read: preconditions of the write itself are enough.
	Nothing Look = iota
	// Coordinator has to be reached.
	Coordinator
	// StoreOnce in a reconcile: an order in the cache may have been withdrawn.
	StoreOnce
	// Store has to be the present one at each such step.
	Store
	// Everything is observed again, and the step must be planned again: it cannot be undone.
	Everything
)
