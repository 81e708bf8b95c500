// Package perf decides what is to be done for a ClusterPerf, a run of clusterperf against a Store. It is pure: no client, no clock.
package perf

import (
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// Observed is all that a plan is made from.
type Observed struct {
	Now time.Time
	Run *v1alpha1.ClusterPerf
	// Store that the run is about; nil if there is none.
	Store *v1alpha1.Store
	// Others are the other runs of the namespace.
	Others []v1alpha1.ClusterPerf
	// Strays are clients' pods of the Store whose runs are gone: they are ending, and may be measuring still.
	Strays []string
	Pods   []Pod
	// Report of the first client; nil if it was not asked, or did not answer.
	Report *Report
	// ReportError says why it did not answer.
	ReportError string
}

// PodState is what became of a pod's process.
type PodState int

// A process is awaited, runs, or has ended, well or not.
const (
	PodPending PodState = iota
	PodRunning
	PodSucceeded
	PodFailed
)

// Pod of a run.
type Pod struct {
	Name string
	UID  string
	// Cleanup tells the pod that drops tables from clients.
	Cleanup bool
	// Index of a client.
	Index int
	State PodState
	IP    string
	Node  string
	// Trouble says why it does not run, or why it failed.
	Trouble string
	// EndsAt is when its time to end is up; zero if it was not told to end.
	EndsAt time.Time
}

// Report is what the first client says of the run.
type Report struct {
	State       string      `json:"state"`
	Error       string      `json:"error"`
	TestsDone   int32       `json:"tests_done"` //nolint:tagliatelle // as all documents of the store's programs
	Note        string      `json:"note"`
	Environment Environment `json:"environment"`
	Rows        []Row       `json:"rows"`
	RowsOmitted int32       `json:"rows_omitted"` //nolint:tagliatelle // as all documents of the store's programs
}

// States of a report.
const (
	StateRunning  = "Running"
	StateComplete = "Complete"
	StateFailed   = "Failed"
)

// Environment is what the first client knows of its node.
type Environment struct {
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	CPUs   int32  `json:"cpus"`
	Load   string `json:"load"`
}

// Row is one figure.
type Row struct {
	Name        string `json:"name"`
	Value       string `json:"value"`
	Unit        string `json:"unit"`
	Description string `json:"description"`
	Best        string `json:"best"`
	P99         string `json:"p99"`
	Worst       string `json:"worst"`
}
