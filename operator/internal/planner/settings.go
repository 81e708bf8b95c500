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
	settings.Replicas, settings.Min = copiesFor(o)
	return settings
}

// copiesFor are how many copies there are to be. The first copies are a matter of how a process is started; their number is not. While a
// master runs that was started without, what is in force stays: nothing but the spec makes copies fewer.
func copiesFor(o *Observed) (replicas, least *int32) {
	if o.Store.Copies() == 0 {
		return nil, nil
	}
	if slices.ContainsFunc(o.masters(), (*member).keepsNone) {
		return o.Cluster.Settings.Replicas, o.Cluster.Settings.Min
	}
	factor, effective := o.Store.Copies(), o.Store.LeastCopies()
	return &factor, &effective
}

// keepsNone says whether the member's process was started without copies, or may have been. A coordinator reports 0 copies of a member
// that is away, too, so that its pod counts; without a pod, its next one is made from the spec.
func (m *member) keepsNone() bool {
	pod := m.pod()
	switch {
	case m.up() && m.reported.Copies > 0:
		return false
	case pod != nil && pod.Inputs.Image != "":
		return pod.Inputs.Replication == nil
	default: // what the pod was made from cannot be read
		return pod != nil
	}
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
		p.add(SetSettings{Settings: wanted, Why: differences})
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
