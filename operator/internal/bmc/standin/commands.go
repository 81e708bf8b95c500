package standin

import (
	"context"
	"encoding/binary"

	"github.com/bougou/go-ipmi/pkg/command/chassis"
	"github.com/bougou/go-ipmi/pkg/handlers"
	"github.com/bougou/go-ipmi/pkg/types"
)

// Bits of thresholds in answers: IPMI 2.0, section 35.
const (
	lowerCritical = 0x02
	upperCritical = 0x10
	// scanned says that events and scanning of a sensor are enabled.
	scanned     = 0xc0
	unavailable = 0x20
)

// registry returns the commands of go-ipmi's server and those that it lacks.
func (b *BMC) registry() *handlers.Registry {
	registry := handlers.NewRegistry()
	registry.Use(b.refuse)
	registry.Use(b.password)
	registry.Use(b.recordTimes)
	handlers.RegisterAllHandlers(registry)
	registry.RegisterFunc(types.CommandGetChassisStatus, b.chassisStatus)
	registry.RegisterFunc(types.CommandGetSystemGUID, b.systemGUID)
	registry.RegisterFunc(types.CommandGetSensorReading, b.sensorReading)
	registry.RegisterFunc(types.CommandGetSensorThresholds, b.sensorThresholds)
	registry.RegisterFunc(types.CommandGetSELInfo, b.logInfo)
	registry.RegisterFunc(types.CommandGetSELEntry, b.logEntry)
	registry.RegisterFunc(types.CommandReserveSEL, reserveLog)
	return registry
}

func (b *BMC) systemGUID(_ context.Context, h *handlers.HandlerContext, _ []byte) ([]byte, types.CompletionCode, error) {
	if b.config.SystemGUID == "" {
		return nil, types.CodeInvalidCommand, nil
	}
	return h.BMC.GUID[:], types.CodeOK, nil
}

func reserveLog(context.Context, *handlers.HandlerContext, []byte) ([]byte, types.CompletionCode, error) {
	return []byte{1, 0}, types.CodeOK, nil
}

// refuse answers with the code of the faults. Sessions can still be opened and closed.
func (b *BMC) refuse(next handlers.Handler) handlers.Handler {
	return handlers.HandlerFunc(func(ctx context.Context, h *handlers.HandlerContext, data []byte) ([]byte, types.CompletionCode, error) {
		b.mu.Lock()
		if h.Session != nil && h.Command == types.CommandGetDeviceID {
			b.seen.SignsOfLife++
		}
		code := b.faults.Code
		if one, isRefused := b.faults.Codes[h.Command]; isRefused {
			code = one
		}
		b.mu.Unlock()
		if code != 0 && h.Session != nil && h.Command != types.CommandSetSessionPrivilegeLevel && h.Command != types.CommandCloseSession {
			return nil, code, nil
		}
		return next.Handle(ctx, h, data)
	})
}

// password has passwords kept in part.
func (b *BMC) password(next handlers.Handler) handlers.Handler {
	const header, short, isLong = 2, 16, 0x80 // IPMI 2.0, section 22.30
	return handlers.HandlerFunc(func(ctx context.Context, h *handlers.HandlerContext, data []byte) ([]byte, types.CompletionCode, error) {
		if h.Command != types.CommandSetUserPassword || len(data) < header+short {
			return next.Handle(ctx, h, data)
		}
		b.mu.Lock()
		faults := b.faults
		b.mu.Unlock()
		if faults.ShortPasswords && data[0]&isLong != 0 {
			data = append([]byte{data[0] &^ isLong}, data[1:header+short]...)
		}
		answer, code, err := next.Handle(ctx, h, data)
		if faults.OnPassword != nil {
			faults.OnPassword()
		}
		return answer, code, err
	})
}

// recordTimes says when sensor records were changed. The server of go-ipmi says that they were just now, each time.
func (b *BMC) recordTimes(next handlers.Handler) handlers.Handler {
	const added, erased = 5, 9 // IPMI 2.0, section 33.9
	return handlers.HandlerFunc(func(ctx context.Context, h *handlers.HandlerContext, data []byte) ([]byte, types.CompletionCode, error) {
		answer, code, err := next.Handle(ctx, h, data)
		if h.Command == types.CommandGetSDRRepoInfo && len(answer) >= erased+4 {
			b.mu.Lock()
			defer b.mu.Unlock()
			binary.LittleEndian.PutUint32(answer[added:], b.recorded)
			binary.LittleEndian.PutUint32(answer[erased:], b.recorded)
		}
		return answer, code, err
	})
}

func (b *BMC) chassisStatus(context.Context, *handlers.HandlerContext, []byte) ([]byte, types.CompletionCode, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	status := &chassis.GetChassisStatusResponse{PowerIsOn: b.says(), ChassisIdentifySupported: true}
	if b.seen.IdentifySeconds > 0 {
		status.ChassisIdentifyState = chassis.ChassisIdentifyStateTemporaryOn
	}
	return status.Pack(), types.CodeOK, nil
}

func (b *BMC) sensor(data []byte) (Sensor, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(data) < 1 || data[0] == 0 || int(data[0]) > len(b.sensors) || b.sensors[data[0]-1].Broken {
		return Sensor{}, false
	}
	return b.sensors[data[0]-1], true
}

func (b *BMC) sensorReading(_ context.Context, _ *handlers.HandlerContext, data []byte) ([]byte, types.CompletionCode, error) {
	sensor, found := b.sensor(data)
	if !found {
		return nil, types.CodeInvalidCommand, nil
	}
	state := byte(scanned)
	if sensor.Unavailable {
		state |= unavailable
	}
	if sensor.States != nil {
		return binary.LittleEndian.AppendUint16([]byte{0, state}, *sensor.States), types.CodeOK, nil
	}
	beyond := byte(scanned)
	if sensor.LowerCritical != nil && sensor.Count <= *sensor.LowerCritical {
		beyond |= lowerCritical
	}
	if sensor.UpperCritical != nil && sensor.Count >= *sensor.UpperCritical {
		beyond |= upperCritical
	}
	return []byte{sensor.Count, state, beyond}, types.CodeOK, nil
}

func (b *BMC) sensorThresholds(_ context.Context, _ *handlers.HandlerContext, data []byte) ([]byte, types.CompletionCode, error) {
	sensor, found := b.sensor(data)
	if !found || sensor.States != nil {
		return nil, types.CodeInvalidCommand, nil
	}
	answer := make([]byte, 7)
	if sensor.LowerCritical != nil {
		answer[0], answer[2] = answer[0]|lowerCritical, *sensor.LowerCritical
	}
	if sensor.UpperCritical != nil {
		answer[0], answer[5] = answer[0]|upperCritical, *sensor.UpperCritical
	}
	return answer, types.CodeOK, nil
}

func (b *BMC) logInfo(context.Context, *handlers.HandlerContext, []byte) ([]byte, types.CompletionCode, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	answer := []byte{0x51}
	answer = binary.LittleEndian.AppendUint16(answer, uint16(len(b.events))) //nolint:gosec // few
	answer = binary.LittleEndian.AppendUint16(answer, 0x1000)                // bytes left
	answer = append(answer, make([]byte, 8)...)                              // never added, never erased
	return append(answer, 0x02), types.CodeOK, nil                           // can be reserved
}

func (b *BMC) logEntry(_ context.Context, _ *handlers.HandlerContext, data []byte) ([]byte, types.CompletionCode, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(data) < 6 {
		return nil, types.CodeRequestDataTruncated, nil
	}
	id := int(binary.LittleEndian.Uint16(data[2:]))
	switch id {
	case 0:
		id = 1
	case 0xffff:
		id = len(b.events)
	}
	if id < 1 || id > len(b.events) || id == b.faults.MissingRecord {
		return nil, types.CodeRequestedDataNotPresent, nil
	}
	next := uint16(0xffff)
	if id < len(b.events) {
		next = uint16(id + 1)
	}
	return append(binary.LittleEndian.AppendUint16(nil, next), b.events[id-1].Pack()...), types.CodeOK, nil
}
