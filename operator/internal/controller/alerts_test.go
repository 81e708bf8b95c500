package controller

import (
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const scrapeInterval = 30 * time.Second

// sample is a series that has had one value all the time.
type sample struct {
	labels labels.Labels
	value  float64
}

// scraped are the series that Prometheus would have; as a storage it answers its query engine.
type scraped []sample

func (s scraped) Querier(from, to int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(
		_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher,
	) storage.SeriesSet {
		var found []storage.Series
		for _, one := range s {
			misses := func(m *labels.Matcher) bool { return !m.Matches(one.labels.Get(m.Name)) }
			if slices.ContainsFunc(matchers, misses) {
				continue
			}
			found = append(found, one.over(from, to))
		}
		return &seriesSet{SeriesSet: storage.EmptySeriesSet(), series: found, at: -1}
	}}, nil
}

func (s sample) over(from, to int64) storage.Series {
	var points []promql.FPoint
	for at := from; at <= to; at += scrapeInterval.Milliseconds() {
		points = append(points, promql.FPoint{T: at, F: s.value})
	}
	return promql.NewStorageSeries(promql.Series{Metric: s.labels, Floats: points})
}

type seriesSet struct {
	storage.SeriesSet

	series []storage.Series
	at     int
}

func (s *seriesSet) Next() bool         { s.at++; return s.at < len(s.series) }
func (s *seriesSet) At() storage.Series { return s.series[s.at] }

// firing names the alerts of config/prometheus that fire, by Prometheus' own query engine, after all series have stayed as they are for
// longer than any alert waits.
func firing(t *testing.T, series scraped) []string {
	t.Helper()
	text, err := os.ReadFile("../../../config/prometheus/prometheus_rule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rule struct {
		Spec struct {
			Groups []struct {
				Rules []struct{ Alert, Expr string }
			}
		}
	}
	if err := yaml.Unmarshal(text, &rule); err != nil {
		t.Fatal(err)
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 100_000, Timeout: time.Minute})
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var names []string
	for _, group := range rule.Spec.Groups {
		for _, alert := range group.Rules {
			query, err := engine.NewInstantQuery(t.Context(), series, nil, alert.Expr, now)
			if err != nil {
				t.Fatalf("%s: %v", alert.Alert, err)
			}
			vector, err := query.Exec(t.Context()).Vector()
			if err != nil {
				t.Fatalf("%s: %v", alert.Alert, err)
			}
			if len(vector) > 0 {
				names = append(names, alert.Alert)
			}
			query.Close()
		}
	}
	slices.Sort(names)
	return names
}

// ofOperator are the series that the operator exposes about a Store.
func ofOperator(t *testing.T, store *v1alpha1.Store, next *v1alpha1.StoreStatus) scraped {
	t.Helper()
	key := types.NamespacedName{Namespace: store.Namespace, Name: store.Name}
	forget(key)
	defer forget(key)
	observeMetrics(store, next)
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := scraped{seriesOf("controller_runtime_max_concurrent_reconciles", 1, map[string]string{"controller": "store"})}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			named := map[string]string{}
			for _, label := range metric.GetLabel() {
				named[label.GetName()] = label.GetValue()
			}
			if named["namespace"] == store.Namespace && named["name"] == store.Name {
				series = append(series, seriesOf(family.GetName(), metric.GetGauge().GetValue(), named))
			}
		}
	}
	return series
}

func seriesOf(name string, value float64, named map[string]string) sample {
	all := maps.Clone(named)
	all["__name__"] = name
	return sample{labels.FromMap(all), value}
}

// ofCoordinators are the series of coordinators' processes, which say whether they lead.
func ofCoordinators(leads ...float64) scraped {
	var list scraped
	for i, value := range leads {
		list = append(list, seriesOf("rcbox_leading", value, map[string]string{
			"namespace": "shop", "rcbox_dev_store": "box", "pod": string(rune('a' + i)),
		}))
	}
	return list
}

// ofChassis are the series of a condition that the box controller exposes.
func ofChassis(condition string, is metav1.ConditionStatus) scraped {
	var list scraped
	for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
		value := 0.0
		if status == is {
			value = 1
		}
		list = append(list, seriesOf("rcbox_chassis_condition", value, map[string]string{
			"name": "mercury1", "type": condition, "status": string(status),
		}))
	}
	return list
}

// alertScene is a Store of three masters with ports that serves.
type alertScene struct {
	store        v1alpha1.Store
	next         v1alpha1.StoreStatus
	coordinators scraped
	noOperator   bool
}

func (s *alertScene) set(name string, status metav1.ConditionStatus, reason string) {
	s.next.Conditions = slices.DeleteFunc(s.next.Conditions, func(c metav1.Condition) bool { return c.Type == name })
	s.next.Conditions = append(s.next.Conditions, metav1.Condition{Type: name, Status: status, Reason: reason})
}

func (s *alertScene) stop(reason string) {
	s.set(v1alpha1.ConditionAvailable, metav1.ConditionFalse, reason)
	s.set(v1alpha1.ConditionNetworkReady, metav1.ConditionFalse, reason)
	s.next.Masters.Ready, s.next.Coordinator.Ready, s.coordinators = 0, false, nil
}

// TestAlertsFire asks Prometheus' own query engine which alerts fire for a Store in some state.
func TestAlertsFire(t *testing.T) {
	const unavailable, missing, nobody = "RcboxStoreUnavailable", "RcboxMastersMissing", "RcboxNobodyLeads"
	for name, test := range map[string]struct {
		change func(*alertScene)
		want   []string
	}{
		"it serves":            {func(*alertScene) {}, nil},
		"it sleeps on purpose": {func(s *alertScene) { s.stop(v1alpha1.ReasonHibernated) }, nil},
		"it is being deleted":  {func(s *alertScene) { s.stop(v1alpha1.ReasonDeleting) }, nil},
		"it was woken up, and its masters do not come": {func(s *alertScene) {
			s.stop(v1alpha1.ReasonMembersDown)
			s.next.Coordinator.Ready, s.coordinators = true, ofCoordinators(1)
		}, []string{missing, "RcboxNetworkNotReady", unavailable}},
		"no coordinator runs": {func(s *alertScene) {
			s.set(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonCoordinatorDown)
			s.next.Coordinator.Ready, s.coordinators = false, nil
		}, []string{nobody, unavailable}},
		"coordinators run, and none leads": {func(s *alertScene) {
			s.set(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonCoordinatorDown)
			s.next.Coordinator.Ready, s.coordinators = false, ofCoordinators(0, 0)
		}, []string{nobody, unavailable}},
		"one of several leads": {func(s *alertScene) { s.coordinators = ofCoordinators(0, 1) }, nil},
		"one leads, and the operator does not reach it": {func(s *alertScene) {
			s.set(v1alpha1.ConditionAvailable, metav1.ConditionUnknown, v1alpha1.ReasonCoordinatorDown)
			s.next.Coordinator.Ready = false
		}, []string{unavailable}},
		"nobody leads, and no operator runs": {func(s *alertScene) {
			s.noOperator, s.coordinators = true, ofCoordinators(0)
		}, []string{nobody, "RcboxOperatorDown"}},
		"a chassis whose box hosts serve": {func(s *alertScene) {
			s.coordinators = append(s.coordinators, ofChassis(v1alpha1.ConditionServicesReady, metav1.ConditionTrue)...)
		}, nil},
		"a chassis whose box hosts do not": {func(s *alertScene) {
			s.coordinators = append(s.coordinators, ofChassis(v1alpha1.ConditionServicesReady, metav1.ConditionFalse)...)
		}, []string{"RcboxBoxHostsNotReady"}},
		"a chassis whose BMCs are silent": {func(s *alertScene) {
			s.coordinators = append(s.coordinators, ofChassis(v1alpha1.ConditionManagementReady, metav1.ConditionFalse)...)
		}, []string{"RcboxChassisUnreachable"}},
		"a chassis with a broken fan": {func(s *alertScene) {
			s.coordinators = append(s.coordinators, ofChassis(v1alpha1.ConditionDegraded, metav1.ConditionTrue)...)
		}, []string{"RcboxChassisDegraded"}},
		"a chassis whose servers are not installed": {func(s *alertScene) {
			s.coordinators = append(s.coordinators, ofChassis(v1alpha1.ConditionInstalled, metav1.ConditionFalse)...)
		}, []string{"RcboxNotInstalled"}},
		"processes are not scraped": {func(s *alertScene) { s.coordinators = nil }, nil},
		"it is new, and its first coordinator is on its way": {func(s *alertScene) {
			s.next.FormedAt = nil
			s.stop(v1alpha1.ReasonForming)
			s.set(v1alpha1.ConditionNetworkReady, metav1.ConditionTrue, v1alpha1.ReasonPodNetwork)
		}, []string{missing, unavailable}},
	} {
		t.Run(name, func(t *testing.T) {
			formed := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			s := &alertScene{coordinators: ofCoordinators(1)}
			s.store.Namespace, s.store.Name, s.store.Spec.Masters.Replicas = "shop", "box", 3
			s.next.FormedAt, s.next.Masters.Ready, s.next.Coordinator.Ready = &formed, 3, true
			s.set(v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonServing)
			s.set(v1alpha1.ConditionNetworkReady, metav1.ConditionTrue, v1alpha1.ReasonAttached)
			s.set(v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)
			test.change(s)
			series := s.coordinators
			if !s.noOperator {
				series = append(series, ofOperator(t, &s.store, &s.next)...)
			}
			if got := firing(t, series); !slices.Equal(got, test.want) {
				t.Errorf("fire: %v, and should: %v", got, test.want)
			}
		})
	}
}
