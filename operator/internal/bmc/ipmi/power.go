package ipmi

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/bougou/go-ipmi/pkg/command/chassis"
	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// Power reads whether the server is on.
func (c *Client) Power(ctx context.Context) (bmc.Reading, error) {
	var status *chassis.GetChassisStatusResponse
	err := c.exchange(ctx, "power state", true, func(ctx context.Context) (err error) {
		status, err = c.lib().GetChassisStatus(ctx)
		return err
	})
	if err != nil {
		return bmc.Reading{}, err
	}
	reading := bmc.Reading{Power: bmc.PowerOff}
	if status.PowerIsOn {
		reading.Power = bmc.PowerOn
	}
	reading.Identify = status.ChassisIdentifySupported && status.ChassisIdentifyState != chassis.ChassisIdentifyStateOff
	return reading, nil
}

// Do orders an action. Cycle and Reset are sent once: a repetition could do them twice.
func (c *Client) Do(ctx context.Context, action bmc.Action) error {
	controls := map[bmc.Action]chassis.ChassisControl{
		bmc.ActionOn:    chassis.ChassisControlPowerUp,
		bmc.ActionSoft:  chassis.ChassisControlSoftShutdown,
		bmc.ActionOff:   chassis.ChassisControlPowerDown,
		bmc.ActionCycle: chassis.ChassisControlPowerCycle,
		bmc.ActionReset: chassis.ChassisControlHardReset,
	}
	control, known := controls[action]
	if !known {
		return fmt.Errorf("%s is no order", action)
	}
	repeatable := action != bmc.ActionCycle && action != bmc.ActionReset
	err := c.exchange(ctx, "power "+action.String(), repeatable, func(ctx context.Context) error {
		_, err := c.lib().ChassisControl(ctx, control)
		return err
	})
	if wasAnswered(err) && c.isAlready(ctx, action) {
		return nil // some controllers refuse to switch off what is off
	}
	return err
}

// isAlready says whether the server is in the state that an action leads to.
func (c *Client) isAlready(ctx context.Context, action bmc.Action) bool {
	reading, err := c.Power(ctx)
	if err != nil {
		return false
	}
	switch action {
	case bmc.ActionOn:
		return reading.Power == bmc.PowerOn
	case bmc.ActionOff, bmc.ActionSoft:
		return reading.Power == bmc.PowerOff
	default:
		return false
	}
}

// BootOnce says what the server boots from at its next start.
func (c *Client) BootOnce(ctx context.Context, network bool) error {
	device := types.BootDeviceSelectorForceHardDrive
	if network {
		device = types.BootDeviceSelectorForcePXE
	}
	// Otherwise the flags are forgotten after a minute if the server is not started by then. Not every controller knows the parameter.
	err := c.setBootOption(ctx, &types.BootOptionParam_BMCBootFlagValidBitClear{DontClearOnCommandReceivedTimeout: true})
	if err != nil && !wasAnswered(err) {
		return err
	}
	return c.setBootOption(ctx, &types.BootOptionParam_BootFlags{BootFlagsValid: true, BootDeviceSelector: device})
}

// NextBoot reads what the server boots from at its next start.
func (c *Client) NextBoot(ctx context.Context) (bmc.NextBoot, error) {
	flags := &types.BootOptionParam_BootFlags{}
	err := c.exchange(ctx, "reading of the boot device", true, func(ctx context.Context) error {
		return c.lib().GetSystemBootOptionsParamFor(ctx, flags)
	})
	if hasCode(err, types.CodeParameterNotSupported) {
		return bmc.NextBoot{}, &bmc.UnsupportedError{Address: c.address, What: "reading of the boot device"}
	}
	if err != nil {
		return bmc.NextBoot{}, err
	}
	next := bmc.NextBoot{EachTime: flags.Persist, Invalid: !flags.BootFlagsValid, From: bmc.BootOther}
	switch flags.BootDeviceSelector {
	case types.BootDeviceSelectorNoOverride:
		return bmc.NextBoot{From: bmc.BootUnset}, nil
	case types.BootDeviceSelectorForcePXE:
		next.From = bmc.BootNetwork
	case types.BootDeviceSelectorForceHardDrive:
		next.From = bmc.BootDisk
	default:
	}
	return next, nil
}

func (c *Client) setBootOption(ctx context.Context, option types.BootOptionParameter) error {
	err := c.exchange(ctx, "boot device", true, func(ctx context.Context) error {
		return c.lib().SetSystemBootOptionsParamFor(ctx, option)
	})
	if hasCode(err, types.CodeParameterNotSupported) {
		return &commandError{typed: &bmc.UnsupportedError{Address: c.address, What: "boot device"}, answer: answerOf(err)}
	}
	return err
}

// Identify lets the light blink.
func (c *Client) Identify(ctx context.Context, d time.Duration) error {
	seconds := min(max(math.Ceil(d.Seconds()), 0), math.MaxUint8)
	return c.exchange(ctx, "identify", true, func(ctx context.Context) error {
		_, err := c.lib().ChassisIdentify(ctx, uint8(seconds), false)
		return err
	})
}
