package ipmi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/bougou/go-ipmi/pkg/command/app"
	"github.com/bougou/go-ipmi/pkg/command/storage"
	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// Bounds of a FRU. Its areas have at most 255 times 8 bytes.
const (
	fruHeader = 8
	fruChunk  = 32
	fruUnit   = 8
	// maxNICs bounds the numbers of NICs that a FRU may name.
	maxNICs = 16
)

// Identity reads firmware, system GUID and FRU. Fields that are absent stay empty. A failure to read them just now is an
// error.
func (c *Client) Identity(ctx context.Context) (bmc.Identity, error) {
	var identity bmc.Identity
	var device *app.GetDeviceIDResponse
	err := c.exchange(ctx, "device id", true, func(ctx context.Context) (err error) {
		device, err = c.lib().GetDeviceID(ctx)
		return err
	})
	if err != nil {
		return identity, err
	}
	identity.Firmware = fmt.Sprintf("%d.%02x", device.MajorFirmwareRevision, device.MinorFirmwareRevision)
	// Not the device GUID, which names the controller and not the server.
	var system *app.GetSystemGUIDResponse
	err = c.exchange(ctx, "system GUID", true, func(ctx context.Context) (err error) {
		system, err = c.lib().GetSystemGUID(ctx)
		return err
	})
	switch {
	case err == nil:
		identity.SystemGUID = bmc.FormatGUID(system.GUID)
	case !isAbsent(err):
		return identity, err
	}
	if err := c.readFRU(ctx, &identity); err != nil && !isAbsent(err) {
		return identity, err
	}
	return identity, nil
}

// isAbsent says whether the controller answered that it does not have what was asked for, or not for this account. A controller that is
// only busy says nothing of the kind: an identity without its slot would have no second witness.
func isAbsent(err error) bool {
	_, isUnsupported := errors.AsType[*bmc.UnsupportedError](err)
	_, isRefused := errors.AsType[*bmc.RefusedError](err)
	return isUnsupported || isRefused || hasCode(err, types.CodeRequestedDataNotPresent)
}

// readFRU reads the areas of the server's own FRU. The product's names win over the board's.
func (c *Client) readFRU(ctx context.Context, identity *bmc.Identity) error {
	header, err := c.readFRUAt(ctx, 0, fruHeader)
	if err != nil {
		return err
	}
	var (
		chassis types.FRUChassisInfoArea
		board   types.FRUBoardInfoArea
		product types.FRUProductInfoArea
	)
	areas := []struct {
		at     int
		unpack func([]byte) error
	}{{int(header[2]), chassis.Unpack}, {int(header[3]), board.Unpack}, {int(header[4]), product.Unpack}}
	for _, area := range areas {
		if area.at == 0 {
			continue
		}
		data, err := c.readFRUArea(ctx, area.at*fruUnit)
		if err != nil {
			return err
		}
		// An area that cannot be decoded is as if it were not there: boards have them.
		_ = safely(func() error { return area.unpack(data) })
	}
	identity.Manufacturer = first(
		text(product.ManufacturerTypeLength, product.Manufacturer), text(board.ManufacturerTypeLength, board.Manufacturer))
	identity.Product = first(text(product.NameTypeLength, product.Name), text(board.ProductNameTypeLength, board.ProductName))
	identity.Serial = first(
		text(product.SerialNumberTypeLength, product.SerialNumber), text(board.SerialNumberTypeLength, board.SerialNumber))
	for _, field := range append(append(product.Custom, board.Custom...), chassis.Custom...) {
		customField(identity, text(field.TypeLength, field.Data))
	}
	return nil
}

func (c *Client) readFRUArea(ctx context.Context, at int) ([]byte, error) {
	start, err := c.readFRUAt(ctx, at, 2)
	if err != nil {
		return nil, err
	}
	return c.readFRUAt(ctx, at, int(start[1])*fruUnit)
}

// readFRUAt reads size bytes, in chunks that each controller can send.
func (c *Client) readFRUAt(ctx context.Context, at, size int) ([]byte, error) {
	data := make([]byte, 0, size)
	for len(data) < size {
		want := min(size-len(data), fruChunk)
		var chunk *storage.ReadFRUDataResponse
		err := c.exchange(ctx, "FRU", true, func(ctx context.Context) (err error) {
			chunk, err = c.lib().ReadFRUData(ctx, 0, uint16(at+len(data)), uint8(want)) //nolint:gosec // at most 4 KiB
			return err
		})
		if hasCode(err, types.CodeReadFRUDataDeviceBusy) { // of this command alone: IPMI 2.0, section 34.2
			return nil, &bmc.BusyError{Address: c.address, What: "FRU"}
		}
		if err != nil {
			return nil, err
		}
		if len(chunk.Data) == 0 || len(chunk.Data) > want {
			return nil, fmt.Errorf("%s: FRU: %w", c.address, errMalformed)
		}
		data = append(data, chunk.Data...)
	}
	return data, nil
}

// customField takes SLOT=7 and MAC1=52:54:00:03:00:07 out of a FRU's own fields.
func customField(identity *bmc.Identity, field string) {
	key, value, found := strings.Cut(field, "=")
	if !found {
		return
	}
	key, value = strings.ToUpper(strings.TrimSpace(key)), strings.TrimSpace(value)
	if key == "SLOT" {
		if slot, err := strconv.Atoi(value); err == nil && slot > 0 {
			identity.Slot = slot
		}
		return
	}
	number, isMAC := strings.CutPrefix(key, "MAC")
	if !isMAC {
		return
	}
	nic, err := strconv.Atoi(number)
	address, errMAC := net.ParseMAC(value)
	if err != nil || errMAC != nil || nic < 1 || nic > maxNICs || len(address) != 6 {
		return
	}
	if identity.MACs == nil {
		identity.MACs = make(map[int]string)
	}
	identity.MACs[nic] = address.String()
}

func text(kind types.TypeLength, raw []byte) string {
	var decoded string
	if err := safely(func() error { decoded = types.FRUFieldString(kind, raw); return nil }); err != nil {
		return ""
	}
	return bmc.Printable(decoded)
}

func first(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
