package standin

import (
	"context"
	"fmt"

	"github.com/bougou/go-ipmi/pkg/hal"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/types"
)

// hardware is what the controller switches.
type hardware struct {
	*mock.HAL
	bmc *BMC
}

func (h hardware) Chassis() hal.ChassisHAL { return chassisUnit{Chassis: &mock.Chassis{}, bmc: h.bmc} }
func (h hardware) Console() hal.ConsoleHAL { return console(h) }

type chassisUnit struct {
	*mock.Chassis
	bmc *BMC
}

// PowerState is what the controller says, which need not be true.
func (c chassisUnit) PowerState(context.Context) (bool, error) {
	c.bmc.mu.Lock()
	defer c.bmc.mu.Unlock()
	return c.bmc.says(), nil
}

func (b *BMC) says() bool {
	switch {
	case b.faults.SaysOff:
		return false
	case b.faults.SaysOn:
		return true
	default:
		return b.on
	}
}

// order notes an order, and says what becomes of the power.
func (c chassisUnit) order(name string, on bool) error {
	c.bmc.mu.Lock()
	defer c.bmc.mu.Unlock()
	c.bmc.seen.Orders = append(c.bmc.seen.Orders, name)
	switch {
	case c.bmc.faults.RefusesWhatIsDone && c.bmc.on == on:
		return hal.ErrNotSupported
	case !c.bmc.faults.KeepsPower:
		c.bmc.on = on
	}
	return nil
}

func (c chassisUnit) SetPower(_ context.Context, on bool) error {
	if on {
		return c.order("up", true)
	}
	return c.order("down", false)
}

func (c chassisUnit) PowerCycle(context.Context) error { return c.order("cycle", true) }
func (c chassisUnit) ColdReset(context.Context) error  { return c.order("reset", c.bmc.On()) }

// WarmReset is how go-ipmi's server calls the soft shutdown.
func (c chassisUnit) WarmReset(context.Context) error { return c.order("soft", false) }

func (c chassisUnit) Identify(_ context.Context, seconds uint8) error {
	c.bmc.mu.Lock()
	defer c.bmc.mu.Unlock()
	c.bmc.seen.IdentifySeconds = seconds
	return nil
}

func (c chassisUnit) SetBootFlags(_ context.Context, flags *types.BootOptionParam_BootFlags) error {
	c.bmc.mu.Lock()
	defer c.bmc.mu.Unlock()
	if c.bmc.faults.KeepsBoot {
		return nil
	}
	c.bmc.seen.Network = flags.BootFlagsValid && !flags.Persist && flags.BootDeviceSelector == types.BootDeviceSelectorForcePXE
	c.bmc.seen.Disk = flags.BootFlagsValid && !flags.Persist && flags.BootDeviceSelector == types.BootDeviceSelectorForceHardDrive
	return nil
}

func (c chassisUnit) GetBootFlags(context.Context) (*types.BootOptionParam_BootFlags, error) {
	c.bmc.mu.Lock()
	defer c.bmc.mu.Unlock()
	flags := &types.BootOptionParam_BootFlags{BootFlagsValid: c.bmc.seen.Network || c.bmc.seen.Disk}
	switch {
	case c.bmc.seen.Network:
		flags.BootDeviceSelector = types.BootDeviceSelectorForcePXE
	case c.bmc.seen.Disk:
		flags.BootDeviceSelector = types.BootDeviceSelectorForceHardDrive
	}
	return flags, nil
}

// console is the server's serial port. It remembers what is typed.
type console hardware

func (c console) Open(context.Context) (hal.ConsoleConn, error) {
	c.bmc.mu.Lock()
	defer c.bmc.mu.Unlock()
	c.bmc.console = &mock.FakeConsoleConn{}
	return c.bmc.console, nil
}

// fillStore writes FRU and sensor records.
func (b *BMC) fillStore() error {
	field := func(text string) (types.TypeLength, []byte) {
		return types.TypeLength(0xc0 | len(text)), []byte(text) //nolint:gosec // short
	}
	product := &types.FRUProductInfoArea{
		FormatVersion: types.FRUFormatVersion, AssetTagTypeLength: 0xc0, FRUFileIDTypeLength: 0xc0, PartModelTypeLength: 0xc0,
	}
	product.ManufacturerTypeLength, product.Manufacturer = field(b.config.Manufacturer)
	product.NameTypeLength, product.Name = field(b.config.Product)
	product.VersionTypeLength, product.Version = field("stand-in")
	product.SerialNumberTypeLength, product.SerialNumber = field(b.config.Serial)
	for _, text := range b.config.Custom {
		length, data := field(text)
		product.Custom = append(product.Custom, types.FRUField{TypeLength: length, Data: data})
	}
	packed, err := types.PackFRUInventory(&types.FRU{
		CommonHeader: &types.FRUCommonHeader{FormatVersion: types.FRUFormatVersion}, ProductInfoArea: product,
	})
	if err != nil {
		return fmt.Errorf("stand-in: FRU: %w", err)
	}
	ctx := context.Background()
	if err := b.store.Storage().FRU().Write(ctx, 0, packed); err != nil {
		return fmt.Errorf("stand-in: FRU: %w", err)
	}
	return b.writeRecords(b.config.Sensors)
}

func (b *BMC) writeRecords(sensors []Sensor) error {
	for i, sensor := range sensors {
		id := uint16(i + 1)
		if err := b.store.Storage().SDR().Write(context.Background(), id, sensor.pack(id)); err != nil {
			return fmt.Errorf("stand-in: sensors: %w", err)
		}
	}
	return nil
}

func (s Sensor) pack(id uint16) []byte {
	name, number := []byte(s.Name), types.SensorNumber(id) //nolint:gosec // few
	length := types.TypeLength(0xc0 | len(name))           //nolint:gosec // short
	scanning := types.SensorInitialization{InitScanning: true, SensorScanningEnabled: true}
	if s.States != nil {
		compact := types.SDRCompact{
			GeneratorID: types.GeneratorBMC, SensorNumber: number, SensorEntityID: 7, SensorInitialization: scanning, SensorType: s.Type,
			SensorEventReadingType: types.EventReadingTypeSensorSpecific,
			SensorUnit:             types.SensorUnit{AnalogDataFormat: types.SensorAnalogUnitFormat_NotAnalog},
			IDStringTypeLength:     length, IDStringBytes: name,
		}
		return compact.Pack(id)
	}
	format := types.SensorAnalogUnitFormat_Unsigned
	if s.Signed {
		format = types.SensorAnalogUnitFormat_2sComplement
	}
	full := types.SDRFull{
		GeneratorID: types.GeneratorBMC, SensorNumber: number, SensorEntityID: 7, SensorInitialization: scanning, SensorType: s.Type,
		SensorCapabilities:     types.SensorCapabilities{ThresholdAccess: 1},
		SensorEventReadingType: types.EventReadingTypeThreshold,
		SensorUnit:             types.SensorUnit{AnalogDataFormat: format, BaseUnit: s.Unit},
		ReadingFactors:         types.ReadingFactors{M: max(s.Step, 1), R_Exp: s.Exponent},
		SensorMaxReadingRaw:    0xff,
		IDStringTypeLength:     length, IDStringBytes: name,
	}
	full.Mask.Threshold.LCR.Readable = s.LowerCritical != nil
	full.Mask.Threshold.UCR.Readable = s.UpperCritical != nil
	return full.Pack(id)
}
