package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	statusBytes = 4
	// fixedBytes of an answer that carries a message of protobuf: the status, and the message's length.
	fixedBytes = 8
)

// shape says where in a message of protobuf locators are.
type shape struct {
	locators []protowire.Number
	nested   map[protowire.Number]*shape
}

func (s *shape) isLocator(field protowire.Number) bool {
	return slices.Contains(s.locators, field)
}

// shapes of the answers that carry locators.
var shapes = map[Operation]*shape{
	GetTableConfig: {nested: map[protowire.Number]*shape{
		1: {locators: []protowire.Number{6}},                                           // Tablet.service_locator
		2: {nested: map[protowire.Number]*shape{3: {locators: []protowire.Number{4}}}}, // Index.Indexlet.service_locator
	}},
	GetServerList:   {nested: map[protowire.Number]*shape{1: {locators: []protowire.Number{3}}}}, // Entry.service_locator
	GetServerConfig: {locators: []protowire.Number{1, 2}},                                        // coordinator_locator, local_locator
}

// CarriesLocators says whether the answer to a request has to be rewritten.
func CarriesLocators(asked Operation) bool { return shapes[asked] != nil }

var (
	errAnswerShort  = errors.New("the answer is shorter than it says")
	errAnswerBroken = errors.New("the answer has a message that is no protobuf")
)

// Rewrite gives an answer's payload with each locator replaced by what translate makes of it. Empty locators stay, and all else does.
func Rewrite(asked Operation, payload []byte, translate func(locators string) string) ([]byte, error) {
	form := shapes[asked]
	if form == nil || len(payload) >= statusBytes && binary.LittleEndian.Uint32(payload) != 0 {
		return payload, nil // nothing to rewrite, or an error, which has no message
	}
	if len(payload) < fixedBytes {
		return nil, errAnswerShort
	}
	length := int64(binary.LittleEndian.Uint32(payload[statusBytes:]))
	rest := payload[fixedBytes:]
	if int64(len(rest)) < length {
		return nil, errAnswerShort
	}
	message, err := form.rewrite(rest[:length], translate)
	if err != nil {
		return nil, err
	}
	if size := fixedBytes + len(message) + len(rest) - int(length); size > MaxPayloadBytes {
		return nil, fmt.Errorf("with other locators the answer has %d bytes, of which the protocol allows %d", size, MaxPayloadBytes)
	}
	rewritten := append([]byte{}, payload[:statusBytes]...)
	rewritten = binary.LittleEndian.AppendUint32(rewritten, uint32(len(message))) //nolint:gosec // at most MaxPayloadBytes
	return append(append(rewritten, message...), rest[length:]...), nil
}

func (s *shape) rewrite(message []byte, translate func(string) string) ([]byte, error) {
	rewritten := make([]byte, 0, len(message))
	for len(message) > 0 {
		number, kind, tagBytes := protowire.ConsumeTag(message)
		if tagBytes < 0 {
			return nil, errAnswerBroken
		}
		valueBytes := protowire.ConsumeFieldValue(number, kind, message[tagBytes:])
		if valueBytes < 0 {
			return nil, errAnswerBroken
		}
		field := message[:tagBytes+valueBytes]
		message = message[len(field):]
		nested := s.nested[number]
		if kind != protowire.BytesType || nested == nil && !s.isLocator(number) {
			rewritten = append(rewritten, field...)
			continue
		}
		value, _ := protowire.ConsumeBytes(field[tagBytes:])
		if nested != nil {
			inner, err := nested.rewrite(value, translate)
			if err != nil {
				return nil, err
			}
			value = inner
		} else if len(value) > 0 {
			value = []byte(translate(string(value)))
		}
		rewritten = protowire.AppendBytes(append(rewritten, field[:tagBytes]...), value)
	}
	return rewritten, nil
}
