package view

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
)

// StatusDocument is the Store for scripts. Fields may be added, none is renamed.
type StatusDocument struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Available bool   `json:"available"`
	// OperatorLookedAt is when the operator looked at the Store last, in RFC 3339, empty if it has not said; conditions are no newer.
	// Stale: that is longer ago than it should be.
	OperatorLookedAt string `json:"operatorLookedAt"`
	Stale            bool   `json:"stale"`
	// CoordinatorError says why the coordinator gave no answer; the rest is then what the operator has seen last.
	CoordinatorError string             `json:"coordinatorError"`
	Coordinator      string             `json:"coordinator"`
	Conditions       []metav1.Condition `json:"conditions"`
	Members          []Member           `json:"members"`
	Recoveries       []Recovery         `json:"recoveries"`
	Losses           []v1alpha1.Loss    `json:"losses"`
	Advice           []Advice           `json:"advice"`
}

// Recovery is one recovery for scripts.
type Recovery struct {
	Member      string `json:"member"`
	ServerID    string `json:"serverId"`
	SinceMs     uint64 `json:"sinceMs"`
	TabletCount uint64 `json:"tabletCount"`
	TabletsLeft uint64 `json:"tabletsLeft"`
	Bytes       uint64 `json:"bytes"`
	PromisedMs  uint64 `json:"promisedMs"`
	MeasuredMs  uint64 `json:"measuredMs"`
	WaitsFor    string `json:"waitsFor"`
	// Missing says what no backup has, a sentence for each log.
	Missing   []string `json:"missing"`
	LossToken string   `json:"lossToken"`
}

// Document is the Store for scripts.
func (s *Snapshot) Document() StatusDocument {
	return StatusDocument{
		Namespace: s.Store.Namespace, Name: s.Store.Name, Available: s.Available(),
		OperatorLookedAt: s.lookedAtText(), Stale: s.isStale(), CoordinatorError: s.ClusterError, Coordinator: s.LeaderPod,
		Conditions: orEmpty(s.Store.Status.Conditions), Members: s.Members(), Recoveries: s.RecoveryList(),
		Losses: orEmpty(s.Store.Status.Losses), Advice: orEmpty(s.Advice()),
	}
}

func (s *Snapshot) lookedAtText() string {
	if s.LookedAt.IsZero() {
		return ""
	}
	return s.LookedAt.UTC().Format(time.RFC3339)
}

// RecoveryList is every recovery for scripts.
func (s *Snapshot) RecoveryList() []Recovery {
	list := []Recovery{}
	for _, recovery := range s.Cluster.GetRecoveries() {
		list = append(list, s.recovery(recovery))
	}
	return list
}

func (s *Snapshot) recovery(recovery *adminv1.Recovery) Recovery {
	missing := []string{}
	for _, log := range recovery.GetMissing() {
		missing = append(missing, log.GetText())
	}
	return Recovery{
		Member: recovery.GetMember(), ServerID: serverID(recovery.GetServerId()),
		SinceMs:     uint64(max(s.sinceStart(recovery.GetStartedNs()).Milliseconds(), 0)),
		TabletCount: recovery.GetTabletCount(), TabletsLeft: recovery.GetTabletsLeft(), Bytes: recovery.GetBytes(),
		PromisedMs: recovery.GetPromisedMs(), MeasuredMs: recovery.GetMeasuredMs(), WaitsFor: recovery.GetWaitsFor(),
		Missing: missing, LossToken: recovery.GetLossToken(),
	}
}

// orEmpty has JSON say [] instead of null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
