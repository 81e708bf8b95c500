package controller

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// TestConditionsAreMetrics: those that a Chassis has, each by its present status, as long as the Chassis is there.
func TestConditionsAreMetrics(t *testing.T) {
	const chassis = "mercury-of-metrics"
	observe := func(status metav1.ConditionStatus, types ...string) {
		var conditions []metav1.Condition
		for _, name := range types {
			conditions = append(conditions, metav1.Condition{Type: name, Status: status})
		}
		observeConditions(chassis, conditions)
	}
	value := func(status metav1.ConditionStatus) float64 {
		return testutil.ToFloat64(conditionGauge.WithLabelValues(chassis, v1alpha1.ConditionServicesReady, string(status)))
	}
	before := testutil.CollectAndCount(conditionGauge)
	observe(metav1.ConditionTrue, v1alpha1.ConditionServicesReady, v1alpha1.ConditionInstalled)
	if got := testutil.CollectAndCount(conditionGauge) - before; got != 6 {
		t.Errorf("%d series of two conditions", got)
	}
	observe(metav1.ConditionFalse, v1alpha1.ConditionServicesReady)
	got := testutil.CollectAndCount(conditionGauge) - before
	if got != 3 || value(metav1.ConditionFalse) != 1 || value(metav1.ConditionTrue) != 0 {
		t.Errorf("%d series of one condition; False is %v, True %v", got, value(metav1.ConditionFalse), value(metav1.ConditionTrue))
	}
	forgetConditions(chassis)
	if got := testutil.CollectAndCount(conditionGauge); got != before {
		t.Errorf("%d series are left of a Chassis that is gone", got-before)
	}
}
