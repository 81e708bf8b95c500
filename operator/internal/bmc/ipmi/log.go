package ipmi

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/command/storage"
	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

const (
	// maxLog bounds the records of an event log.
	maxLog = 8192
	// clockWasSet is the first time stamp that is a date: smaller ones count seconds since the controller started.
	clockWasSet = 0x20000000
	noTimestamp = 0xffffffff
)

// withLUN addresses a command to one of a controller's logical units.
func withLUN(ctx context.Context, lun uint8) context.Context {
	if lun == 0 {
		return ctx
	}
	return client.WithCommandContext(ctx, new(client.CommandContext).WithResponderLUN(lun))
}

// eventLog is the part of the event log that a session has read. Between two questions, most logs do not change, and the others usually
// only grow.
type eventLog struct {
	added, erased time.Time
	// all is the number of records that the log had, and read the number of these that were read; next is the record to read next.
	all, read int
	next      uint16
	// last is the record that was read last. It has to be read again to learn which record follows it.
	last       uint16
	isComplete bool
	entries    []bmc.LogEntry
}

// Log reads the newest entries of the event log, oldest first. If the log takes longer than one question may last, the next question
// continues to read it.
func (c *Client) Log(ctx context.Context) ([]bmc.LogEntry, error) {
	var info *storage.GetSELInfoResponse
	err := c.exchange(ctx, "event log", true, func(ctx context.Context) (err error) {
		info, err = c.lib().GetSELInfo(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	if info.Entries == 0 {
		c.log = nil
		return nil, nil
	}
	added, erased, all := info.RecentAdditionTime, info.RecentEraseTime, int(info.Entries)
	switch known := c.log; {
	case known == nil || !known.erased.Equal(erased) || all < known.all:
		c.log = &eventLog{}
	case known.isComplete && known.added.Equal(added) && known.all == all:
		return slices.Clone(known.entries), nil
	case known.isComplete:
		known.isComplete, known.next = false, known.last
	}
	c.log.added, c.log.erased, c.log.all = added, erased, all
	if err := c.readLog(ctx); err != nil || c.log == nil {
		return nil, err
	}
	return slices.Clone(c.log.entries), nil
}

// readLog reads the records that were not read yet.
func (c *Client) readLog(ctx context.Context) error {
	names, err := c.sensorNames(ctx)
	if err != nil {
		return err
	}
	limited, cancel := shareOf(ctx)
	defer cancel()
	isAnew := false
	for known := c.log; ; {
		answer := &storage.GetSELEntryResponse{}
		request := &storage.GetSELEntryRequest{RecordID: known.next, ReadBytes: 0xff}
		err := c.exchange(limited, "event log", true, func(ctx context.Context) error { return c.lib().Exchange(ctx, request, answer) })
		switch {
		case err == nil:
		case ended(limited) != nil && ended(ctx) == nil:
			return &bmc.SlowError{Address: c.address, What: bmc.SlowLog, Done: known.read, All: known.all}
		case hasCode(err, types.CodeRequestedDataNotPresent) && known.next == 0:
			c.log = nil // the log was cleared meanwhile
			return nil
		case hasCode(err, types.CodeRequestedDataNotPresent) && !isAnew: // at least this record was cleared
			isAnew = true
			*known = eventLog{added: known.added, erased: known.erased, all: known.all}
			continue
		default:
			c.log = nil
			return err
		}
		known.add(answer.Data, names)
		if answer.NextRecordID == endOfList {
			known.isComplete = true
			return nil
		}
		if known.next = answer.NextRecordID; known.read > maxLog {
			c.log = nil
			return fmt.Errorf("%s: more than %d records in the event log, or a loop in their list: %w", c.address, maxLog, errMalformed)
		}
	}
}

// add stores a record, unless it is the record that was read last.
func (l *eventLog) add(data []byte, names map[uint8]string) {
	// A record that cannot be decoded is left out.
	_ = safely(func() error {
		parsed, err := types.ParseSEL(data)
		if err != nil {
			return err
		}
		isKnown := l.read > 0 && parsed.RecordID == l.last
		if l.last = parsed.RecordID; isKnown {
			return nil
		}
		l.entries = append(l.entries, entry(parsed, names))
		l.entries = l.entries[max(len(l.entries)-bmc.MaxLog, 0):]
		return nil
	})
	l.read++
}

// sensorNames is empty for a controller without sensor records.
func (c *Client) sensorNames(ctx context.Context) (map[uint8]string, error) {
	known, err := c.repository(ctx)
	if err != nil {
		if wasAnswered(err) {
			return nil, nil
		}
		return nil, err
	}
	names := make(map[uint8]string, len(known.sensors))
	for _, record := range known.sensors {
		names[record.number] = record.name
	}
	return names, nil
}

func entry(parsed *types.SEL, names map[uint8]string) bmc.LogEntry {
	made := bmc.LogEntry{ID: int(parsed.RecordID), Asserted: true}
	switch {
	case parsed.Standard != nil:
		event := parsed.Standard
		made.At = at(event.Timestamp)
		made.Asserted = !bool(event.EventDir)
		made.Text = bmc.Printable(event.EventString())
		made.Memory = memoryError(event)
		made.Sensor = names[uint8(event.SensorNumber)]
		if made.Sensor == "" {
			made.Sensor = fmt.Sprintf("%s #%#02x", event.SensorType, uint8(event.SensorNumber))
		}
	case parsed.OEMTimestamped != nil:
		made.At = at(parsed.OEMTimestamped.Timestamp)
		made.Text = fmt.Sprintf("manufacturer %d: %x", parsed.OEMTimestamped.ManufacturerID, parsed.OEMTimestamped.OEMDefined)
	case parsed.OEMNonTimestamped != nil:
		made.Text = fmt.Sprintf("%x", parsed.OEMNonTimestamped.OEM)
	}
	return made
}

// memoryErrors are the events of sensors of type Memory (IPMI 2.0, table 42-3), by their offset.
var memoryErrors = map[uint8]bmc.MemoryError{0: bmc.CorrectedError, 1: bmc.UncorrectedError, 5: bmc.TooManyCorrected}

func memoryError(event *types.SELStandard) bmc.MemoryError {
	if event.SensorType != types.SensorTypeMemory || event.EventReadingType != types.EventReadingTypeSensorSpecific {
		return bmc.NoMemoryError
	}
	return memoryErrors[event.EventData.EventReadingOffset()]
}

// at is zero for a time stamp that is no date.
func at(stamp time.Time) time.Time {
	if seconds := stamp.Unix(); seconds < clockWasSet || seconds == noTimestamp {
		return time.Time{}
	}
	return bmc.EventTime(stamp)
}
