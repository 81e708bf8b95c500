package planner

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// Settings are what the coordinator changes while the store runs. What is nil, or empty, is as programs were started.
type Settings struct {
	// Replicas is set in a store that has copies, and Min with it.
	Replicas           *int32
	Min                *int32
	RepairMBps         *int32
	PollMicros         *int32
	CleanerFreePercent *int32
	MaxConnections     *int32
	LogLevel           v1alpha1.LogLevel
	// RebalanceMBps is 0 where tablets do not move by themselves.
	RebalanceMBps *int32
}

// settingsFor are the spec's.
func settingsFor(o *Observed) Settings {
	spec := &o.Store.Spec
	settings := Settings{
		RepairMBps:         spec.Replication.RepairMBps,
		PollMicros:         spec.Masters.PollMicros,
		CleanerFreePercent: spec.Masters.CleanerFreePercent,
		MaxConnections:     spec.Masters.MaxConnections,
		LogLevel:           spec.LogLevel,
		RebalanceMBps:      rebalanceMBps(spec.Rebalancing),
	}
	// The first copies are a matter of how a process is started; their number is not.
	hasNone := func(m Member) bool { return m.Copies == 0 }
	if spec.Replication.Factor > 0 && !slices.ContainsFunc(o.Cluster.Members, hasNone) {
		factor, least := spec.Replication.Factor, spec.Replication.EffectiveMin()
		settings.Replicas, settings.Min = &factor, &least
	}
	return settings
}

// rebalanceMBps always says something: what coordinators were started with may be an older spec's.
func rebalanceMBps(spec v1alpha1.RebalancingSpec) *int32 {
	rate := spec.MaxMBps
	if rate == 0 {
		rate = resources.DefaultRebalanceMBps
	}
	if spec.Enabled != nil && !*spec.Enabled {
		rate = 0
	}
	return &rate
}

// keepSettings has the coordinator change what can be changed while the store runs.
func (p *planning) keepSettings() {
	o := p.observed
	if o.Cluster == nil || o.Cluster.StateWait != "" || o.Cluster.Settings == nil {
		return
	}
	wanted := settingsFor(o)
	if differences := o.Cluster.Settings.diff(wanted); differences != "" {
		p.add(SetSettings{Settings: wanted, Why: "the spec asks for it: " + differences})
		p.lookAgainIn(UnsettledInterval)
	}
}

// diff names what differs, such as "pollMicros: 100 -> 0".
func (s Settings) diff(wanted Settings) string {
	var parts []string
	have, want := reflect.ValueOf(s), reflect.ValueOf(wanted)
	for i := range have.NumField() {
		from, to := have.Field(i), want.Field(i)
		if reflect.DeepEqual(from.Interface(), to.Interface()) {
			continue
		}
		name := have.Type().Field(i).Name
		parts = append(parts, fmt.Sprintf("%s: %s -> %s", strings.ToLower(name[:1])+name[1:], settingText(from), settingText(to)))
	}
	return strings.Join(parts, ", ")
}

func settingText(value reflect.Value) string {
	switch {
	case value.IsZero():
		return "as started"
	case value.Kind() == reflect.Pointer:
		return fmt.Sprint(value.Elem())
	default:
		return value.String()
	}
}

// outdated is how a pod differs from the spec by more than its process can be told while it runs.
func (p *planning) outdated(have, want resources.Inputs) string {
	cluster := p.observed.Cluster
	if takesSettings := cluster == nil || cluster.Settings != nil; takesSettings && have.Replication != nil && want.Replication != nil {
		told := *have.Replication
		told.Factor, told.Min = want.Replication.Factor, want.Replication.Min
		have.Replication = &told
	}
	return resources.Diff(have, want)
}
