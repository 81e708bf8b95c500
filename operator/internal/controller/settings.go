package controller

import (
	"math"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
)

var logLevels = map[adminv1.LogLevel]v1alpha1.LogLevel{
	adminv1.LogLevel_LOG_LEVEL_ERROR: "Error",
	adminv1.LogLevel_LOG_LEVEL_WARN:  "Warn",
	adminv1.LogLevel_LOG_LEVEL_INFO:  "Info",
	adminv1.LogLevel_LOG_LEVEL_DEBUG: "Debug",
	adminv1.LogLevel_LOG_LEVEL_TRACE: "Trace",
}

// settingsOf are those in force; nil for a build that takes none.
func settingsOf(settings *adminv1.Settings) *planner.Settings {
	if settings == nil {
		return nil
	}
	return &planner.Settings{
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

// adminSettings is the reverse of settingsOf.
func adminSettings(settings planner.Settings) *adminv1.Settings {
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
