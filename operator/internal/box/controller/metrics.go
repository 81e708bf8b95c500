package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// conditionGauge has three series for each condition of a Chassis, as that of Stores has.
var conditionGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "rcbox_chassis_condition",
	Help: "1 for the status that a condition of a Chassis has, 0 for the other two.",
}, []string{"name", "type", "status"})

func init() { //nolint:gochecknoinits // controller-runtime's registry is global
	metrics.Registry.MustRegister(conditionGauge)
}

// observeConditions exposes the conditions of a Chassis, and none that it does not have any more.
func observeConditions(chassis string, conditions []metav1.Condition) {
	forgetConditions(chassis)
	for i := range conditions {
		for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
			value := 0.0
			if conditions[i].Status == status {
				value = 1
			}
			conditionGauge.WithLabelValues(chassis, conditions[i].Type, string(status)).Set(value)
		}
	}
}

func forgetConditions(chassis string) {
	conditionGauge.DeletePartialMatch(prometheus.Labels{"name": chassis})
}
