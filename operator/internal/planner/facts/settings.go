package facts

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// Diff names what differs, such as "pollMicros: 100 -> 0".
func (s Settings) Diff(wanted Settings) string {
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

// SettingsFor are the spec's.
func SettingsFor(o *Observed) Settings {
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
	if slices.ContainsFunc(o.Masters(), (*Member).KeepsNone) {
		return o.Cluster.Settings.Replicas, o.Cluster.Settings.Min
	}
	factor, effective := o.Store.Copies(), o.Store.LeastCopies()
	return &factor, &effective
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
