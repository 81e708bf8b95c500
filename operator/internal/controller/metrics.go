package controller

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/network"
	"rcbox.dev/rcbox/operator/internal/planner"
)

var (
	conditionGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rcbox_store_condition",
		Help: "1 for the status that a condition of a Store has, 0 for the other two.",
	}, []string{"namespace", "name", "type", "status"})
	mastersGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rcbox_store_masters",
		Help: "Masters of a Store by what they are: desired, ready, outdated.",
	}, []string{"namespace", "name", "state"})
	stoppedGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rcbox_store_stopped",
		Help: "1 while a Store serves nothing because somebody asked for that: it is hibernated, or being deleted; else 0.",
	}, []string{"namespace", "name"})
	leadingGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rcbox_store_leading",
		Help: "1 while a coordinator that leads the Store answers the operator, else 0; absent while the Store is stopped or not formed.",
	}, []string{"namespace", "name"})
	lossesGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rcbox_store_losses",
		Help: "How many times a Store has lost data.",
	}, []string{"namespace", "name"})
	shortGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rcbox_store_segments_short",
		Help: "Pieces of masters' logs with fewer copies than they should have.",
	}, []string{"namespace", "name"})
	recoveriesGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rcbox_store_recoveries",
		Help: "Recoveries under way: lost masters some of whose tablets are not served yet.",
	}, []string{"namespace", "name"})
	expectedGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rcbox_store_recovery_expected_seconds",
		Help: "How long the recovery of what a lost failure domain held would take: with what logs have in them now, and with full ones.",
	}, []string{"namespace", "name", "logs"})
	targetGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rcbox_store_recovery_target_seconds",
		Help: "How long it may take: recovery.target.",
	}, []string{"namespace", "name"})
	drillGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rcbox_store_drill_seconds",
		Help: "Of the last drill whose recovery was measured: how long it took, was expected to take, and may take.",
	}, []string{"namespace", "name", "time"})
	drillEndGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rcbox_store_drill_end_timestamp_seconds",
		Help: "When the last drill ended that ended so: Succeeded, TooSlow, Failed, Missed, Refused.",
	}, []string{"namespace", "name", "state"})
	addressesGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rcbox_store_addresses",
		Help: "Addresses for masters' ports by pool: all, free, in quarantine, and spare: how many should be free.",
	}, []string{"namespace", "name", "pool", "state"})
	refusalsGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rcbox_store_refused_pods",
		Help: "Consecutive pods of masters that their kubelets rejected; 0 again when one is admitted.",
	}, []string{"namespace", "name"})
	stepsCounter = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rcbox_operator_steps_total",
		Help: "Steps that the operator carried out, by kind.",
	}, []string{"reason"})
)

func init() { //nolint:gochecknoinits // controller-runtime's registry is global
	metrics.Registry.MustRegister(conditionGauge, mastersGauge, stoppedGauge, leadingGauge, lossesGauge, shortGauge, recoveriesGauge,
		expectedGauge, targetGauge, drillGauge, drillEndGauge, addressesGauge, refusalsGauge, stepsCounter)
}

func observeMetrics(store *v1alpha1.Store, next *v1alpha1.StoreStatus) {
	for i := range next.Conditions {
		condition := &next.Conditions[i]
		for _, value := range []string{"True", "False", "Unknown"} {
			is := 0.0
			if string(condition.Status) == value {
				is = 1
			}
			conditionGauge.WithLabelValues(store.Namespace, store.Name, condition.Type, value).Set(is)
		}
	}
	observeLeader(store, next)
	mastersGauge.WithLabelValues(store.Namespace, store.Name, "desired").Set(float64(store.Spec.Masters.Replicas))
	mastersGauge.WithLabelValues(store.Namespace, store.Name, "ready").Set(float64(next.Masters.Ready))
	mastersGauge.WithLabelValues(store.Namespace, store.Name, "outdated").Set(float64(next.Masters.Outdated))
	lossesGauge.WithLabelValues(store.Namespace, store.Name).Set(float64(next.LossCount))
	shortGauge.WithLabelValues(store.Namespace, store.Name).Set(float64(next.Replication.SegmentsShort))
	underWay := 0.0
	for i := range next.Recoveries {
		if next.Recoveries[i].TabletsLeft > 0 {
			underWay++
		}
	}
	recoveriesGauge.WithLabelValues(store.Namespace, store.Name).Set(underWay)
	observeCapacity(store, next)
	observeNetwork(store, next)
	for i := range next.Drills {
		observeDrill(store, &next.Drills[i])
	}
}

// observeLeader: a Store that is stopped on purpose has no leader, and one that is new has had none yet.
func observeLeader(store *v1alpha1.Store, next *v1alpha1.StoreStatus) {
	stopped, leading := 0.0, 0.0
	if available := meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionAvailable); available != nil &&
		(available.Reason == v1alpha1.ReasonHibernated || available.Reason == v1alpha1.ReasonDeleting) {
		stopped = 1
	}
	stoppedGauge.WithLabelValues(store.Namespace, store.Name).Set(stopped)
	if stopped == 1 || next.FormedAt == nil {
		leadingGauge.DeleteLabelValues(store.Namespace, store.Name)
		return
	}
	if next.Coordinator.Ready {
		leading = 1
	}
	leadingGauge.WithLabelValues(store.Namespace, store.Name).Set(leading)
}

// observeDrill in the order in which they were: the last one of a kind counts.
func observeDrill(store *v1alpha1.Store, drill *v1alpha1.Drill) {
	if !drill.HasEnded() || drill.EndedAt == nil {
		return
	}
	drillEndGauge.WithLabelValues(store.Namespace, store.Name, string(drill.State)).Set(float64(drill.EndedAt.Unix()))
	if drill.MeasuredMs == 0 {
		return
	}
	for kind, ms := range map[string]int64{"measured": drill.MeasuredMs, "expected": drill.PromisedMs, "target": drill.TargetMs} {
		drillGauge.WithLabelValues(store.Namespace, store.Name, kind).Set((time.Duration(ms) * time.Millisecond).Seconds())
	}
}

// observeCapacity has nothing to say of a Store without copies.
func observeCapacity(store *v1alpha1.Store, next *v1alpha1.StoreStatus) {
	target, err := time.ParseDuration(store.Spec.Recovery.Target)
	if next.Capacity == nil || err != nil {
		labels := prometheus.Labels{"namespace": store.Namespace, "name": store.Name}
		expectedGauge.DeletePartialMatch(labels)
		targetGauge.DeletePartialMatch(labels)
		return
	}
	seconds := func(ms int64) float64 {
		if ms == 0 {
			return math.Inf(1) // nobody could take over
		}
		return (time.Duration(ms) * time.Millisecond).Seconds()
	}
	expectedGauge.WithLabelValues(store.Namespace, store.Name, "now").Set(seconds(next.Capacity.ExpectedMs))
	expectedGauge.WithLabelValues(store.Namespace, store.Name, "full").Set(seconds(next.Capacity.ExpectedFullMs))
	targetGauge.WithLabelValues(store.Namespace, store.Name).Set(target.Seconds())
}

// observeNetwork has nothing to say of pools that are not there any more.
func observeNetwork(store *v1alpha1.Store, next *v1alpha1.StoreStatus) {
	addressesGauge.DeletePartialMatch(prometheus.Labels{"namespace": store.Namespace, "name": store.Name})
	refused := 0.0
	for i := range next.Masters.Members {
		if refusals := next.Masters.Members[i].Refusals; refusals != nil {
			refused += float64(refusals.Count)
		}
	}
	refusalsGauge.WithLabelValues(store.Namespace, store.Name).Set(refused)
	if next.Network == nil {
		return
	}
	for _, pool := range next.Network.Pools {
		quarantined := 0
		for _, entry := range next.Network.Quarantined {
			if network.IsIn(entry.IP, pool.Range) {
				quarantined++
			}
		}
		for state, value := range map[string]float64{
			"all": float64(pool.Size), "free": float64(pool.Free), "quarantined": float64(quarantined),
			"spare": float64(planner.SpareAddresses(store)),
		} {
			addressesGauge.WithLabelValues(store.Namespace, store.Name, pool.Range, state).Set(value)
		}
	}
}

// forget a Store that is gone.
func forget(key types.NamespacedName) {
	labels := prometheus.Labels{"namespace": key.Namespace, "name": key.Name}
	conditionGauge.DeletePartialMatch(labels)
	mastersGauge.DeletePartialMatch(labels)
	stoppedGauge.DeletePartialMatch(labels)
	leadingGauge.DeletePartialMatch(labels)
	lossesGauge.DeletePartialMatch(labels)
	shortGauge.DeletePartialMatch(labels)
	recoveriesGauge.DeletePartialMatch(labels)
	expectedGauge.DeletePartialMatch(labels)
	targetGauge.DeletePartialMatch(labels)
	drillGauge.DeletePartialMatch(labels)
	drillEndGauge.DeletePartialMatch(labels)
	addressesGauge.DeletePartialMatch(labels)
	refusalsGauge.DeletePartialMatch(labels)
}
