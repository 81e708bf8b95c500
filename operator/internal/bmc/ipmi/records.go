package ipmi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/bougou/go-ipmi/pkg/command/storage"
	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// Bounds of a repository of sensor records.
const (
	maxRecords  = 1024
	recordChunk = 16
	recordStart = 5
	// recordsShare is the part of a question's time that its records may take, one in so many: others wait for the session, too.
	recordsShare = 3
	// maxReservations bounds how often a record is begun anew because somebody else reads records, too.
	maxReservations = 16
	// shortestPause, doubled so often, bounds the pause before that.
	shortestPause = 4 * time.Millisecond
	maxDoublings  = 6
	endOfList     = 0xffff
	// controllerAddress is that of the first controller on its bus, and of each over LAN.
	controllerAddress = 0x20
)

// repository is what the records of sensors say, as far as they were read. They hardly ever change, so a session keeps them until the
// controller says that they did. Another session reads them anew: the hardware behind the address may be another, with the same times.
type repository struct {
	added, erased time.Time
	// all is how many records there are, and read how many of them were read; next is the one to go on with, endOfList after the last.
	all, read int
	next      uint16
	sensors   []*record
}

// repository returns the records of all sensors. Where they take longer than a question may, the next one goes on with those that are left.
func (c *Client) repository(ctx context.Context) (*repository, error) {
	var info *storage.GetSDRRepoInfoResponse
	err := c.exchange(ctx, "sensor records", true, func(ctx context.Context) (err error) {
		info, err = c.lib().GetSDRRepoInfo(ctx)
		return err
	})
	switch added, erased := infoTimes(info); {
	case err != nil:
		return nil, err
	case info.RecordCount == 0:
		return &repository{}, nil
	case c.records == nil || !c.records.added.Equal(added) || !c.records.erased.Equal(erased) || c.records.all != int(info.RecordCount):
		c.records = &repository{added: added, erased: erased, all: int(info.RecordCount)}
	}
	if err := c.readRecords(ctx); err != nil {
		return nil, err
	}
	return c.records, nil
}

func infoTimes(info *storage.GetSDRRepoInfoResponse) (added, erased time.Time) {
	if info == nil {
		return time.Time{}, time.Time{}
	}
	return info.MostRecentAdditionTime, info.MostRecentEraseTime
}

// readRecords reads the records that are left. What was read stays unless the controller contradicts itself.
func (c *Client) readRecords(ctx context.Context) error {
	limited, cancel := shareOf(ctx)
	defer cancel()
	for known := c.records; known.next != endOfList; {
		if known.read == maxRecords {
			c.records = nil
			return fmt.Errorf("%s: more than %d sensor records, or a loop in the list of records: %w", c.address, maxRecords, errMalformed)
		}
		data, next, err := c.readRecord(limited, known.next)
		switch {
		case err == nil:
		case ended(limited) != nil && ended(ctx) == nil:
			return &bmc.SlowError{Address: c.address, What: bmc.SlowRecords, Done: known.read, All: known.all}
		case ended(ctx) == nil && !errors.Is(err, bmc.ErrSilent):
			c.records = nil
			return err
		default:
			return err
		}
		// A record that cannot be decoded is as if it were not there.
		_ = safely(func() error {
			parsed, err := types.ParseSDR(data, next)
			if err != nil {
				return err
			}
			known.add(parsed)
			return nil
		})
		known.read, known.next = known.read+1, next
		if next == endOfList {
			known.keepOwn()
		}
	}
	return nil
}

// shareOf bounds the time for records by their share of what a question has left.
func shareOf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, has := ctx.Deadline()
	if !has {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/recordsShare)
}

func (r *repository) add(parsed *types.SDR) {
	var added record
	var owner types.GeneratorID
	switch {
	case parsed.Full != nil:
		owner, added.number, added.name = parsed.Full.GeneratorID, uint8(parsed.Full.SensorNumber), string(parsed.Full.IDStringBytes)
		if parsed.Full.SensorEventReadingType.IsThreshold() && parsed.Full.SensorUnit.IsAnalog() {
			added.full = parsed.Full
		}
	case parsed.Compact != nil && !parsed.Compact.SensorEventReadingType.IsThreshold():
		compact := parsed.Compact
		owner, added.number, added.name = compact.GeneratorID, uint8(compact.SensorNumber), string(compact.IDStringBytes)
	default:
		return // no sensor, or one whose readings say nothing without factors
	}
	added.name = bmc.Printable(strings.TrimRight(added.name, "\x00"))
	added.owner, added.lun = owner.OwnerID(), owner.LUN()
	r.sensors = append(r.sensors, &added)
}

// keepOwn leaves out the sensors of other controllers on the same bus, which cannot be read without a bridge: the sensor of that number
// that is read instead may be another one. Controllers that are not the first on their bus have another address there than over LAN; all
// sensors in their repository have it.
func (r *repository) keepOwn() {
	own := uint8(controllerAddress)
	isOwn := func(s *record) bool { return s.owner == own }
	if len(r.sensors) > 0 && !slices.ContainsFunc(r.sensors, isOwn) {
		own = r.sensors[0].owner
		if !slices.ContainsFunc(r.sensors, func(s *record) bool { return !isOwn(s) }) {
			return
		}
		own = controllerAddress // several: nobody knows which
	}
	r.sensors = slices.DeleteFunc(r.sensors, func(s *record) bool { return !isOwn(s) })
}

// readRecord reads a record at once or, where the controller cannot, in parts.
func (c *Client) readRecord(ctx context.Context, id uint16) (data []byte, next uint16, err error) {
	answer, err := c.readRecordPart(ctx, &storage.GetSDRRequest{RecordID: id, ReadBytes: 0xff})
	if err == nil {
		return answer.RecordData, answer.NextRecordID, nil
	}
	if !wasAnswered(err) {
		return nil, 0, err
	}
	for attempt := range maxReservations {
		data, next, err = c.readRecordInParts(ctx, id)
		if !hasCode(err, types.CodeReservationCanceled) {
			break
		}
		// Two who begin anew at once would take each other's reservation again.
		pause := time.Duration(rand.Int64N(int64(shortestPause << min(attempt, maxDoublings)))) //nolint:gosec // no secret
		select {
		case <-ctx.Done():
			return nil, 0, fmt.Errorf("%s: sensor records: %w", c.address, ctx.Err())
		case <-time.After(pause):
		}
	}
	return data, next, err
}

// readRecordInParts needs a reservation, which is gone once somebody else takes one.
func (c *Client) readRecordInParts(ctx context.Context, id uint16) (data []byte, next uint16, err error) {
	var reservation *storage.ReserveSDRRepoResponse
	err = c.exchange(ctx, "sensor records", true, func(ctx context.Context) (err error) {
		reservation, err = c.lib().ReserveSDRRepo(ctx)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	size := recordStart
	for len(data) < size {
		want := min(size-len(data), recordChunk)
		answer, err := c.readRecordPart(ctx, &storage.GetSDRRequest{
			ReservationID: reservation.ReservationID, RecordID: id,
			ReadOffset: uint8(len(data)), ReadBytes: uint8(want), //nolint:gosec // at most 260, and the protocol ends at 255
		})
		if err != nil {
			return nil, 0, err
		}
		if len(answer.RecordData) == 0 || len(answer.RecordData) > want {
			return nil, 0, fmt.Errorf("%s: sensor records: %w", c.address, errMalformed)
		}
		data, next = append(data, answer.RecordData...), answer.NextRecordID
		if len(data) == recordStart {
			size = min(recordStart+int(data[recordStart-1]), math.MaxUint8)
		}
	}
	return data, next, nil
}

func (c *Client) readRecordPart(ctx context.Context, request *storage.GetSDRRequest) (*storage.GetSDRResponse, error) {
	answer := &storage.GetSDRResponse{}
	err := c.exchange(ctx, "sensor records", true, func(ctx context.Context) error { return c.lib().Exchange(ctx, request, answer) })
	return answer, err
}
