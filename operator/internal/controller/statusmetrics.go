package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	statusAgeDesc = prometheus.NewDesc("rcbox_store_status_age_seconds",
		"How long ago the coordinator has given the status that the operator goes by; absent while it gives none.",
		[]string{"namespace", "name"}, nil)
	streamsDesc = prometheus.NewDesc("rcbox_operator_status_streams",
		"Streams of coordinators that are open: one for each Store whose coordinator leads and tells of changes.", nil, nil)
)

// Describe implements prometheus.Collector.
func (w *StatusWatch) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- statusAgeDesc
	descriptions <- streamsDesc
}

// Collect implements prometheus.Collector: ages are of the moment at which somebody asks for them.
func (w *StatusWatch) Collect(collected chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, s := range w.stores {
		if s.isKnown && s.seen.Error == "" {
			age := time.Since(s.seen.At).Seconds()
			collected <- prometheus.MustNewConstMetric(statusAgeDesc, prometheus.GaugeValue, age, key.Namespace, key.Name)
		}
	}
	collected <- prometheus.MustNewConstMetric(streamsDesc, prometheus.GaugeValue, float64(w.streams))
}
