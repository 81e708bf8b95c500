package ipmi

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/bougou/go-ipmi/pkg/command/sensor"
	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// record is a sensor.
type record struct {
	number  uint8
	owner   uint8
	lun     uint8
	name    string
	full    *types.SDRFull // nil: the sensor has no number to show
	lower   *float64
	upper   *float64
	limited bool // the thresholds were asked for
}

// Sensors reads sensors of the controller itself. One that cannot be read now is left out.
func (c *Client) Sensors(ctx context.Context, isWanted func(name string) bool) ([]bmc.Sensor, error) {
	known, err := c.repository(ctx)
	if err != nil {
		return nil, err
	}
	wanted := known.sensors
	if isWanted != nil {
		wanted = slices.DeleteFunc(slices.Clone(wanted), func(r *record) bool { return !isWanted(r.name) })
	}
	sensors := make([]bmc.Sensor, 0, len(wanted))
	for i, record := range wanted {
		read, err := c.readSensor(ctx, record)
		switch {
		case i > 0 && errors.Is(err, context.DeadlineExceeded):
			return nil, &bmc.SlowError{Address: c.address, What: bmc.SlowSensors, Done: i, All: len(wanted)}
		case err != nil:
			return nil, err
		case read != nil:
			sensors = append(sensors, *read)
		}
	}
	return sensors, nil
}

// readSensor returns nil for a sensor without a reading. The library shows such a sensor as 0 if the controller refuses to read it; a 0 at
// the wrong moment would be a witness that a server is off.
func (c *Client) readSensor(ctx context.Context, record *record) (*bmc.Sensor, error) {
	var answer *sensor.GetSensorReadingResponse
	err := c.exchange(withLUN(ctx, record.lun), "sensor "+record.name, true, func(ctx context.Context) (err error) {
		answer, err = c.lib().GetSensorReading(ctx, record.number)
		return err
	})
	if err != nil && !wasAnswered(err) {
		return nil, err
	}
	if err != nil || answer.ReadingUnavailable || answer.SensorScanningDisabled {
		return nil, nil //nolint:nilerr // a sensor without a reading is one
	}
	if record.full == nil {
		states := float64(uint16(answer.OptionalData2&0x7f)<<8 | uint16(answer.OptionalData1))
		return &bmc.Sensor{Name: record.name, Discrete: true, Value: states}, nil
	}
	value := rounded(record.full.ConvertReading(answer.Reading))
	if value == nil {
		return nil, nil //nolint:nilnil // what is not finite is no reading
	}
	if err := c.readThresholds(ctx, record); err != nil {
		return nil, err
	}
	return &bmc.Sensor{
		Name: record.name, Value: *value, Unit: unit(record.full.SensorUnit),
		Beyond: answer.ThresholdStatus() != types.SensorThresholdStatus_OK,
		Lower:  record.lower, Upper: record.upper,
	}, nil
}

// readThresholds asks for the critical thresholds once a session.
func (c *Client) readThresholds(ctx context.Context, record *record) error {
	if record.limited {
		return nil
	}
	var answer *sensor.GetSensorThresholdsResponse
	err := c.exchange(withLUN(ctx, record.lun), "thresholds of "+record.name, true, func(ctx context.Context) (err error) {
		answer, err = c.lib().GetSensorThresholds(ctx, record.number)
		return err
	})
	if err != nil && !wasAnswered(err) {
		return err
	}
	record.limited = true
	if err != nil {
		return nil //nolint:nilerr // a sensor without thresholds is one
	}
	if answer.LCR_Readable {
		record.lower = rounded(record.full.ConvertReading(answer.LCR_Raw))
	}
	if answer.UCR_Readable {
		record.upper = rounded(record.full.ConvertReading(answer.UCR_Raw))
	}
	return nil
}

// rounded keeps three decimals; nil: not finite.
func rounded(value float64) *float64 {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return nil
	}
	value = math.Round(value*1000) / 1000
	return &value
}

func unit(unit types.SensorUnit) string {
	if unit.Percentage {
		return "%"
	}
	short := map[types.SensorUnitType]string{
		types.SensorUnitType_Unspecified: "", types.SensorUnitType_DegreesC: "C", types.SensorUnitType_DegreesF: "F",
		types.SensorUnitType_DegreesK: "K", types.SensorUnitType_Volts: "V", types.SensorUnitType_Amps: "A",
		types.SensorUnitType_Watts: "W", types.SensorUnitType_Joules: "J",
	}
	if text, found := short[unit.BaseUnit]; found {
		return text
	}
	return unit.BaseUnit.String()
}
