package ipmi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/standin"
)

// slow is a controller with 40 sensors that takes 5 ms for each answer. The stand-in gives records in parts, as hardware does: all of them
// together take more than a second.
func slow(t *testing.T) *standin.BMC {
	t.Helper()
	with := config()
	with.Sensors = slots("Slot %02d Power")
	controller := start(t, with)
	controller.Fault(func(f *standin.Faults) { f.Delay = 5 * time.Millisecond })
	return controller
}

func slots(form string) []standin.Sensor {
	var sensors []standin.Sensor
	for slot := range 40 {
		sensors = append(sensors, standin.Sensor{
			Name: fmt.Sprintf(form, slot+1), Type: types.SensorTypePowerSupply, Unit: types.SensorUnitType_Watts, Count: 10,
		})
	}
	return sensors
}

// ask asks again and again, with the time of one question for each, until all is read. It returns the errors before that.
func ask(t *testing.T, session bmc.BMC, patience time.Duration, isWanted func(string) bool) ([]bmc.Sensor, []error) {
	t.Helper()
	var errs []error
	for begin := time.Now(); time.Since(begin) < time.Minute; {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		sensors, err := session.Sensors(ctx, isWanted)
		cancel()
		if err == nil {
			return sensors, errs
		}
		errs = append(errs, err)
	}
	t.Fatalf("after %d questions the sensors are still not read: %v", len(errs), errs[len(errs)-1])
	return nil, nil
}

// TestSlowRecords: records that take longer than a question are read by several of them, and each goes on where the one before ended.
func TestSlowRecords(t *testing.T) {
	t.Parallel()
	controller := slow(t)
	session := dial(t, controller)
	before := controller.Seen().Datagrams
	isWanted := func(name string) bool { return strings.HasPrefix(name, "Slot 0") }
	sensors, errs := ask(t, session, 600*time.Millisecond, isWanted)
	if len(sensors) != 9 || sensors[8].Value != 10 {
		t.Errorf("got %+v", sensors)
	}
	if len(errs) < 2 {
		t.Fatalf("only %v: the controller is not slow enough to show something", errs)
	}
	done := -1
	for _, err := range errs {
		slow, is := errors.AsType[*bmc.SlowError](err)
		if !is || slow.What != bmc.SlowRecords || slow.All != 40 || slow.Done < done {
			t.Errorf("after %d records: %v", done, err)
			continue
		}
		done = slow.Done
	}
	// A record takes six commands at most, and each question has one that it does not end.
	if sent, most := controller.Seen().Datagrams-before, 6*(40+len(errs))+4*len(errs)+50; sent > most {
		t.Errorf("%d datagrams: more than %d, so records were read twice", sent, most)
	}
	before = controller.Seen().Datagrams
	if again, err := session.Sensors(t.Context(), isWanted); err != nil || len(again) != 9 {
		t.Errorf("got %d sensors, %v", len(again), err)
	}
	if sent := controller.Seen().Datagrams - before; sent > 20 {
		t.Errorf("9 sensors took %d datagrams", sent)
	}
}

// TestRecordsThatChange: records that were read in part are of no use once the controller says that records changed.
func TestRecordsThatChange(t *testing.T) {
	t.Parallel()
	controller := slow(t)
	session := dial(t, controller)
	ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
	defer cancel()
	_, err := session.Sensors(ctx, nil)
	if slow, is := errors.AsType[*bmc.SlowError](err); !is || slow.Done == 0 {
		t.Fatalf("got %v: nothing was read in part", err)
	}
	controller.Fault(func(f *standin.Faults) { f.Delay = 0 })
	for _, form := range []string{"Blade %02d Power", "Board %02d Power"} {
		if err := controller.SetRecords(slots(form)); err != nil {
			t.Fatal(err)
		}
		sensors, err := session.Sensors(t.Context(), nil)
		if err != nil || len(sensors) != 40 {
			t.Fatalf("got %d sensors, %v", len(sensors), err)
		}
		for i, sensor := range sensors {
			if want := fmt.Sprintf(form, i+1); sensor.Name != want {
				t.Errorf("sensor %d is %q instead of %q", i+1, sensor.Name, want)
			}
		}
	}
}

// TestSlowReadings: a question that had an answer and no time for all of them says so.
func TestSlowReadings(t *testing.T) {
	t.Parallel()
	controller := slow(t)
	session := dial(t, controller)
	if _, err := session.Sensors(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	controller.Fault(func(f *standin.Faults) { f.Delay = 50 * time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	_, err := session.Sensors(ctx, nil)
	if slow, is := errors.AsType[*bmc.SlowError](err); !is || slow.What != bmc.SlowSensors || slow.All != 40 || slow.Done < 1 {
		t.Errorf("got %v", err)
	}
}
