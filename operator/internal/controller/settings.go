package controller

import (
	"math"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

var logLevels = map[adminv1.LogLevel]v1alpha1.LogLevel{
	adminv1.LogLevel_LOG_LEVEL_ERROR: "Error",
	adminv1.LogLevel_LOG_LEVEL_WARN:  "Warn",
	adminv1.LogLevel_LOG_LEVEL_INFO:  "Info",
	adminv1.LogLevel_LOG_LEVEL_DEBUG: "Debug",
	adminv1.LogLevel_LOG_LEVEL_TRACE: "Trace",
}

// settingsOf are those in force; nil for a build that takes none.
func settingsOf(settings *adminv1.Settings) *facts.Settings {
	if settings == nil {
		return nil
	}
	return &facts.Settings{
		Replicas:           signed(settings.Replicas),
		Min:                signed(settings.MinReplicas),
		RepairMBps:         signed(settings.RepairMbps),
		PollMicros:         signed(settings.PollMicros),
		CleanerFreePercent: signed(settings.CleanerFreePercent),
		MaxConnections:     signed(settings.MaxConnections),
		LogLevel:           logLevels[settings.GetLogLevel()],
		RebalanceMBps:      signed(settings.RebalanceMbps),
	}
}

// settingsRequest says which version of the spec asks for the settings, and, where these have fewer copies than are in force, that this
// is meant: the coordinator refuses it otherwise.
func settingsRequest(store *v1alpha1.Store, cluster *facts.Cluster, wanted facts.Settings) *adminv1.SetSettingsRequest {
	request := &adminv1.SetSettingsRequest{
		Settings: adminSettings(wanted),
		AskedBy:  &adminv1.SpecVersion{Uid: string(store.UID), Generation: store.Generation},
	}
	if wanted.Replicas == nil {
		return request // those in force stay
	}
	var started int32
	for _, member := range cluster.Members {
		started = max(started, member.Copies)
	}
	inForce, least := &started, (*int32)(nil)
	if have := cluster.Settings; have != nil && have.Replicas != nil {
		inForce, least = have.Replicas, have.Min
	}
	isFewer := *wanted.Replicas < *inForce || least != nil && wanted.Min != nil && *wanted.Min < *least
	if isFewer {
		request.FewerCopies = &adminv1.FewerCopies{ExpectedReplicas: uint32(max(*inForce, 0))}
	}
	return request
}

// adminSettings is the reverse of settingsOf.
func adminSettings(settings facts.Settings) *adminv1.Settings {
	asked := &adminv1.Settings{
		Replicas:           unsigned(settings.Replicas),
		MinReplicas:        unsigned(settings.Min),
		RepairMbps:         unsigned(settings.RepairMBps),
		PollMicros:         unsigned(settings.PollMicros),
		CleanerFreePercent: unsigned(settings.CleanerFreePercent),
		MaxConnections:     unsigned(settings.MaxConnections),
		RebalanceMbps:      unsigned(settings.RebalanceMBps),
	}
	for level, name := range logLevels {
		if name == settings.LogLevel {
			asked.LogLevel = level
		}
	}
	return asked
}

func signed(number *uint32) *int32 {
	if number == nil {
		return nil
	}
	converted := int32(min(*number, math.MaxInt32))
	return &converted
}

func unsigned(number *int32) *uint32 {
	if number == nil {
		return nil
	}
	converted := uint32(max(*number, 0))
	return &converted
}
