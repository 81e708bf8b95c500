package ipmi_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/standin"
)

// TestLog reads the event log.
func TestLog(t *testing.T) {
	t.Parallel()
	controller := start(t, config())
	session := dial(t, controller)
	if entries, err := session.Log(t.Context()); err != nil || len(entries) != 0 {
		t.Errorf("an empty log: %v, %v", entries, err)
	}
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	hot := types.SELStandard{
		Timestamp: at, SensorType: types.SensorTypeTemperature, SensorNumber: 2, EventReadingType: types.EventReadingTypeThreshold,
		EventData: types.EventData{EventData1: 0x09},
	}
	cold := hot
	cold.Timestamp, cold.EventDir, cold.SensorNumber = time.Unix(77, 0), true, 0x55
	controller.Record(hot)
	controller.Record(cold)
	entries, err := session.Log(t.Context())
	if err != nil || len(entries) != 2 {
		t.Fatalf("got %v, %v", entries, err)
	}
	if e := entries[0]; e.ID != 1 || !e.At.Equal(at) || e.Sensor != "CPU" || e.Text == "" || !e.Asserted {
		t.Errorf("first: %+v", e)
	}
	if e := entries[1]; e.ID != 2 || !e.At.IsZero() || e.Sensor != "Temperature #0x55" || e.Asserted {
		t.Errorf("second: %+v", e)
	}
}

// TestMemoryErrors: what a record of a sensor of type Memory tells of.
func TestMemoryErrors(t *testing.T) {
	t.Parallel()
	controller := start(t, config())
	session := dial(t, controller)
	memory := types.SELStandard{
		Timestamp: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), SensorType: types.SensorTypeMemory, SensorNumber: 9,
		EventReadingType: types.EventReadingTypeSensorSpecific,
	}
	want := []bmc.MemoryError{bmc.CorrectedError, bmc.UncorrectedError, bmc.NoMemoryError, bmc.TooManyCorrected, bmc.NoMemoryError}
	for _, offset := range []uint8{0, 1, 2, 5} {
		memory.EventData.EventData1 = 0xa0 | offset // the other bits say what the other bytes are
		controller.Record(memory)
	}
	memory.SensorType = types.SensorTypeProcessor
	memory.EventData.EventData1 = 1
	controller.Record(memory)
	entries, err := session.Log(t.Context())
	if err != nil || len(entries) != len(want) {
		t.Fatalf("%+v, %v", entries, err)
	}
	for i, entry := range entries {
		if entry.Memory != want[i] {
			t.Errorf("entry %d is %d, not %d: %+v", i, entry.Memory, want[i], entry)
		}
	}
}

// TestLogGrows: records that were read are not read again, the newest entries are kept, and a log that was cleared is read from the
// beginning.
func TestLogGrows(t *testing.T) {
	t.Parallel()
	controller := start(t, config())
	session := dial(t, controller)
	event := types.SELStandard{
		Timestamp: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), SensorType: types.SensorTypeTemperature, SensorNumber: 2,
		EventReadingType: types.EventReadingTypeThreshold, EventData: types.EventData{EventData1: 0x09},
	}
	read := func(want, newest int) {
		t.Helper()
		entries, err := session.Log(t.Context())
		if err != nil || len(entries) != want || want > 0 && entries[want-1].ID != newest {
			t.Fatalf("want %d up to %d, and read %+v, %v", want, newest, entries, err)
		}
		for i := range entries {
			if entries[i].ID != newest-want+1+i {
				t.Errorf("entry %d is %+v", i, entries[i])
			}
		}
	}
	for n := 1; n <= 5; n++ {
		controller.Record(event)
		event.Timestamp = event.Timestamp.Add(time.Second)
		read(n, n)
	}
	before := controller.Seen().Datagrams
	read(5, 5)
	if asked := controller.Seen().Datagrams - before; asked != 1 {
		t.Errorf("a log that did not change costs %d datagrams", asked)
	}
	for range 30 {
		event.Timestamp = event.Timestamp.Add(time.Second)
		controller.Record(event)
	}
	read(bmc.MaxLog, 35)
	controller.ClearLog()
	read(0, 0)
	controller.Record(event)
	read(1, 1)
}

// TestLogThatContradictsItself refers to a record that is not there. Somebody may have cleared the log meanwhile, so it is read anew once.
func TestLogThatContradictsItself(t *testing.T) {
	t.Parallel()
	controller := start(t, config())
	for range 4 {
		controller.Record(types.SELStandard{SensorType: types.SensorTypeTemperature, EventReadingType: types.EventReadingTypeThreshold})
	}
	session := dial(t, controller)
	controller.Fault(func(f *standin.Faults) { f.MissingRecord = 3 })
	if _, err := session.Sensors(t.Context(), nil); err != nil { // the names of sensors are known
		t.Fatal(err)
	}
	before := controller.Seen().Datagrams
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	_, err := session.Log(ctx)
	if _, isSlow := errors.AsType[*bmc.SlowError](err); err == nil || isSlow || ctx.Err() != nil {
		t.Errorf("got %v", err)
	}
	if sent := controller.Seen().Datagrams - before; sent > 20 {
		t.Errorf("%d datagrams", sent)
	}
	controller.Fault(func(f *standin.Faults) { f.MissingRecord = 0 })
	if entries, err := session.Log(t.Context()); err != nil || len(entries) != 4 {
		t.Errorf("afterwards: %+v, %v", entries, err)
	}
}

// TestLogOfSlowController: the next question continues to read a log that one question could not read to its end.
func TestLogOfSlowController(t *testing.T) {
	t.Parallel()
	controller := start(t, config())
	for range 60 {
		controller.Record(types.SELStandard{SensorType: types.SensorTypeTemperature, EventReadingType: types.EventReadingTypeThreshold})
	}
	session := dial(t, controller)
	if _, err := session.Sensors(t.Context(), nil); err != nil { // the names of sensors are known
		t.Fatal(err)
	}
	controller.Fault(func(f *standin.Faults) { f.Delay = 20 * time.Millisecond })
	slow, done := 0, 0
	for range 1000 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		entries, err := session.Log(ctx)
		cancel()
		of, isSlow := errors.AsType[*bmc.SlowError](err)
		if !isSlow {
			if err != nil || len(entries) != bmc.MaxLog || entries[bmc.MaxLog-1].ID != 60 {
				t.Errorf("got %+v, %v", entries, err)
			}
			break
		}
		if of.What != bmc.SlowLog || of.All != 60 || of.Done < done {
			t.Errorf("%+v", of)
		}
		slow, done = slow+1, of.Done
	}
	if slow == 0 {
		t.Error("it was not slow")
	}
}
