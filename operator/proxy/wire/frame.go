// Package wire is the part of RAMCloud's client protocol that whoever stands between a client and a store has to read: frames, and
// the answers that say where servers are. It is pure, and knows nothing of connections. docs/protocol.md has the protocol.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	// HeaderBytes of each message: a nonce, by which answers are matched with requests, and the length of the payload.
	HeaderBytes = 12
	// MaxPayloadBytes is the largest payload that the protocol knows.
	MaxPayloadBytes = 8<<20 + 200
	// OperationBytes at the beginning of a request's payload say what is asked for.
	OperationBytes = 4
)

// Header of a message.
type Header struct {
	Nonce uint64
	// Length of the payload.
	Length uint32
}

// ReadHeader reads the header of the next message; io.EOF where there is none.
func ReadHeader(from io.Reader) (Header, error) {
	var bytes [HeaderBytes]byte
	switch _, err := io.ReadFull(from, bytes[:]); {
	case errors.Is(err, io.EOF):
		return Header{}, io.EOF
	case err != nil:
		return Header{}, fmt.Errorf("read the header of a message: %w", err)
	}
	return Header{Nonce: binary.LittleEndian.Uint64(bytes[:]), Length: binary.LittleEndian.Uint32(bytes[8:])}, nil
}

// Append the header's bytes.
func (h Header) Append(to []byte) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(to, h.Nonce), h.Length)
}

// Operation is what a request asks for, and of which service.
type Operation struct {
	Opcode  uint16
	Service uint16
}

// Operations that matter here.
var (
	// Ping asks whether anybody is there.
	Ping = Operation{Opcode: 7, Service: 3}
	// GetServerList, GetTableConfig and GetServerConfig are answered with locators.
	GetServerList   = Operation{Opcode: 17, Service: 2}
	GetTableConfig  = Operation{Opcode: 18, Service: 2}
	GetServerConfig = Operation{Opcode: 52, Service: 3}
)

// OperationOf the request that begins with these bytes; the zero Operation, which nobody serves, if they are too few.
func OperationOf(payload []byte) Operation {
	if len(payload) < OperationBytes {
		return Operation{}
	}
	return Operation{Opcode: binary.LittleEndian.Uint16(payload), Service: binary.LittleEndian.Uint16(payload[2:])}
}

// Pong is the payload of the answer to a Ping: the status OK.
func Pong() []byte { return make([]byte, statusBytes) }
