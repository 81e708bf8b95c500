package redfish

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/stmcginnis/gofish/redfish"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// server reads the system, of which there must be one.
func (c *Client) server() (*redfish.ComputerSystem, error) {
	if c.system == "" {
		return nil, &bmc.UnsupportedError{Address: c.address, What: "power", Detail: "it has no system, or several"}
	}
	return redfish.GetComputerSystem(c.api, c.system) //nolint:wrapcheck // types are given to it in one place
}

// call runs a call within its context, and gives types to its error.
func (c *Client) call(ctx context.Context, what string, do func() error) error {
	defer c.limit.during(ctx)()
	err := do()
	if typed(err) {
		return err
	}
	return c.callError(ctx, what, err)
}

// Power reads whether the server is on. While that changes, it is unknown.
func (c *Client) Power(ctx context.Context) (bmc.Reading, error) {
	var reading bmc.Reading
	err := c.call(ctx, "power state", func() error {
		system, err := c.server()
		if err != nil {
			return err
		}
		switch system.PowerState {
		case redfish.OnPowerState:
			reading.Power = bmc.PowerOn
		case redfish.OffPowerState:
			reading.Power = bmc.PowerOff
		default:
		}
		reading.Identify = system.LocationIndicatorActive || slices.Contains(lit, string(system.IndicatorLED))
		return nil
	})
	return reading, err
}

var lit = []string{"Lit", "Blinking"}

// Do orders an action.
func (c *Client) Do(ctx context.Context, action bmc.Action) error {
	resets := map[bmc.Action]redfish.ResetType{
		bmc.ActionOn:    redfish.OnResetType,
		bmc.ActionSoft:  redfish.GracefulShutdownResetType,
		bmc.ActionOff:   redfish.ForceOffResetType,
		bmc.ActionCycle: redfish.PowerCycleResetType,
		bmc.ActionReset: redfish.ForceRestartResetType,
	}
	reset, known := resets[action]
	if !known {
		return fmt.Errorf("%s is no order", action)
	}
	return c.call(ctx, "power "+action.String(), func() error {
		system, err := c.server()
		if err != nil {
			return err
		}
		if allowed := system.SupportedResetTypes; len(allowed) > 0 && !slices.Contains(allowed, reset) {
			return &bmc.UnsupportedError{Address: c.address, What: "power " + action.String()}
		}
		err = system.Reset(reset)
		if status(err) != 0 && c.isAlready(action) {
			return nil // some controllers refuse to switch off what is off
		}
		return err //nolint:wrapcheck // types are given to it in one place
	})
}

// isAlready says whether the server is in the state that an action leads to.
func (c *Client) isAlready(action bmc.Action) bool {
	system, err := c.server()
	if err != nil {
		return false
	}
	switch action {
	case bmc.ActionOn:
		return system.PowerState == redfish.OnPowerState
	case bmc.ActionOff, bmc.ActionSoft:
		return system.PowerState == redfish.OffPowerState
	default:
		return false
	}
}

// BootOnce says what the server boots from at its next start.
func (c *Client) BootOnce(ctx context.Context, network bool) error {
	target := redfish.HddBootSourceOverrideTarget
	if network {
		target = redfish.PxeBootSourceOverrideTarget
	}
	return c.call(ctx, "boot device", func() error {
		system, err := c.server()
		if err != nil {
			return err
		}
		once := redfish.Boot{BootSourceOverrideEnabled: redfish.OnceBootSourceOverrideEnabled, BootSourceOverrideTarget: target}
		return system.SetBoot(once)
	})
}

// NextBoot reads what the server boots from at its next start.
func (c *Client) NextBoot(ctx context.Context) (bmc.NextBoot, error) {
	var next bmc.NextBoot
	err := c.call(ctx, "reading of the boot device", func() error {
		system, err := c.server()
		if err != nil {
			return err
		}
		boot := &system.Boot
		switch {
		case boot.BootSourceOverrideEnabled == "" || boot.BootSourceOverrideTarget == "":
			return &bmc.UnsupportedError{Address: c.address, What: "reading of the boot device"}
		case boot.BootSourceOverrideEnabled == redfish.DisabledBootSourceOverrideEnabled,
			boot.BootSourceOverrideTarget == redfish.NoneBootSourceOverrideTarget:
			next.From = bmc.BootUnset
			return nil
		case boot.BootSourceOverrideTarget == redfish.PxeBootSourceOverrideTarget:
			next.From = bmc.BootNetwork
		case boot.BootSourceOverrideTarget == redfish.HddBootSourceOverrideTarget:
			next.From = bmc.BootDisk
		default:
			next.From = bmc.BootOther
		}
		next.EachTime = boot.BootSourceOverrideEnabled != redfish.OnceBootSourceOverrideEnabled
		return nil
	})
	return next, err
}

// Identify lets the light blink until it is called with 0: Redfish knows no time.
func (c *Client) Identify(ctx context.Context, d time.Duration) error {
	return c.call(ctx, "identify", func() error {
		if c.system == "" {
			return &bmc.UnsupportedError{Address: c.address, What: "identify", Detail: "it has no system, or several"}
		}
		system, err := get[struct {
			LocationIndicatorActive *bool
			IndicatorLED            *string
		}](c, c.system)
		if err != nil {
			return err
		}
		var change map[string]any
		switch {
		case system.LocationIndicatorActive != nil:
			change = map[string]any{"LocationIndicatorActive": d > 0}
		case system.IndicatorLED != nil && d > 0:
			change = map[string]any{"IndicatorLED": "Blinking"}
		case system.IndicatorLED != nil:
			change = map[string]any{"IndicatorLED": "Off"}
		default:
			return &bmc.UnsupportedError{Address: c.address, What: "identify"}
		}
		answer, err := c.api.Patch(c.system, change)
		if err != nil {
			return err //nolint:wrapcheck // types are given to it in one place
		}
		return answer.Body.Close()
	})
}

// Console is not part of Redfish, which names a server of SSH or IPMI for that.
func (c *Client) Console(context.Context) (io.ReadWriteCloser, error) {
	return nil, &bmc.UnsupportedError{Address: c.address, What: "console", Detail: "Redfish has none"}
}
