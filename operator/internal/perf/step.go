package perf

import "fmt"

// Step is one thing to do.
//
//sumtype:decl
type Step interface {
	// Describe says what is done and why.
	Describe() string
	step()
}

// CheckTurn asks the API server itself whether it is the run's turn: a cache may not have seen that another one has just begun.
type CheckTurn struct{}

// CreateClient makes the pod of a client.
type CreateClient struct{ Index int }

// CreateCleanup makes the pod that drops the run's tables.
type CreateCleanup struct{}

// DeletePod ends a pod.
type DeletePod struct {
	Name string
	UID  string
	Why  string
}

// SaveResults writes the run's documents to its ConfigMap.
type SaveResults struct {
	// IP of the first client's pod, which has them.
	IP string
}

// DeleteRun deletes the run itself.
type DeleteRun struct{ Why string }

// Describe implements Step.
func (CheckTurn) Describe() string { return "look whether another run has begun" }

// Describe implements Step.
func (s CreateClient) Describe() string { return fmt.Sprintf("create the pod of client %d", s.Index) }

// Describe implements Step.
func (CreateCleanup) Describe() string { return "create the pod that drops the run's tables" }

// Describe implements Step.
func (s DeletePod) Describe() string { return fmt.Sprintf("delete pod %s: %s", s.Name, s.Why) }

// Describe implements Step.
func (SaveResults) Describe() string { return "save the results" }

// Describe implements Step.
func (s DeleteRun) Describe() string { return "delete the run: " + s.Why }

func (CheckTurn) step() {}

func (CreateClient) step() {}

func (CreateCleanup) step() {}

func (DeletePod) step() {}

func (SaveResults) step() {}

func (DeleteRun) step() {}
