package faults

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"rcbox.dev/rcbox/operator/proxy/wire"
)

// What is sent here is written down anew: a client would not send it.

// talk is a TCP connection on which somebody speaks the protocol of clients, or that of servers with each other, which has the same frames.
type talk struct {
	net.Conn
	nonce uint64
}

// dialFrom connects from an address of this machine.
func dialFrom(from, target string) (*talk, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: deadline}
	connection, err := dialer.Dial("tcp", target)
	if err != nil {
		return nil, err
	}
	return &talk{Conn: connection}, connection.SetDeadline(time.Now().Add(deadline))
}

// send a request without waiting for its answer.
func (c *talk) send(payload []byte) error {
	c.nonce++
	header := wire.Header{Nonce: c.nonce, Length: uint32(len(payload))}
	_, err := c.Write(append(header.Append(nil), payload...))
	return err
}

// answer is the next one.
func (c *talk) answer() ([]byte, error) {
	header, err := wire.ReadHeader(c)
	if err != nil {
		return nil, err
	}
	payload := make([]byte, header.Length)
	_, err = io.ReadFull(c, payload)
	return payload, err
}

func (c *talk) ask(payload []byte) ([]byte, error) {
	if err := c.send(payload); err != nil {
		return nil, err
	}
	return c.answer()
}

// fields of a message, one behind the other: numbers of fixed length, and bytes.
func fields(all ...any) []byte {
	var bytes []byte
	for _, field := range all {
		var err error
		if bytes, err = binary.Append(bytes, binary.LittleEndian, field); err != nil {
			panic(err) // Not a number of fixed length: a mistake in a test.
		}
	}
	return bytes
}

// Opcodes and services of the clients' protocol.
const (
	opcodeRemove, opcodeEnumerate, opcodeRenewLease, opcodeControlAll = uint16(15), uint16(22), uint16(60), uint16(62)
	serviceMaster, serviceCoordinator                                 = uint16(0), uint16(2)
	// getPerfStats is a control operation.
	getPerfStats = uint32(1007)
)

// enumeration asks for the objects of a table, and says that it goes on with so many bytes of ranges without anything in them.
func enumeration(table uint64, iteratorBytes int) []byte {
	iterator := make([]byte, 0, iteratorBytes)
	for len(iterator)+2 <= iteratorBytes {
		iterator = append(iterator, 0x0a, 0)
	}
	head := fields(opcodeEnumerate, serviceMaster, table, uint8(0), uint64(0), uint32(len(iterator)))
	return append(head, iterator...)
}

// removal of a key that is not there, with a lease that lasts, and the claim that all requests up to another one have been answered.
func removal(table, lease, request, answered uint64) []byte {
	const key = "no such key"
	noRules := make([]byte, 12)
	return append(fields(opcodeRemove, serviceMaster, table, lease, uint64(math.MaxInt64), uint64(1), request, answered,
		uint16(len(key)), noRules), key...)
}

// controlOfAll is a control operation for all servers, with this much beside it.
func controlOfAll(inputBytes int) []byte {
	return append(fields(opcodeControlAll, serviceCoordinator, getPerfStats, uint32(inputBytes)), make([]byte, inputBytes)...)
}

// Requests between servers, which begin with their kind.
const (
	peerAppend, peerFree, peerRead, peerReadEntries, peerList = uint8(1), uint8(3), uint8(4), uint8(5), uint8(6)
)

// emptyAppend begins a segment of a server's log, and brings nothing of it.
func emptyAppend(log, segment uint64) []byte {
	return fields(peerAppend, log, segment, uint8(0), uint8(0), uint32(0), uint32(0))
}

// peerRequests are one of each kind, about the first segment of a server's log.
func peerRequests(log uint64) map[string][]byte {
	const segment = uint64(1)
	return map[string][]byte{
		"append":       emptyAppend(log, segment),
		"free":         fields(peerFree, log, segment),
		"read":         fields(peerRead, log, segment, uint32(0), uint32(1<<20)),
		"read entries": fields(peerReadEntries, log, segment, uint32(0), uint32(1<<20)),
		"list":         fields(peerList, log),
	}
}

// The member protocol: the first bytes of a connection, tags of messages to the coordinator, and of messages from it.
const (
	memberPreface          = "rcbmem\x01\x00"
	tagHello, tagInventory = 1, 9
	tagWelcome, tagPing    = 1, 3
	longestMemberFrame     = 16 << 20
)

// memberFrame is a message of the member protocol, of one field.
func memberFrame(tag protowire.Number, content []byte) []byte {
	message := protowire.AppendBytes(protowire.AppendTag(nil, tag, protowire.BytesType), content)
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(message))), message...)
}

// welcomed waits until the coordinator lets the shard in. A Welcome waits until the coordinator's state is on disk; Pings do not.
func (c *talk) welcomed() error {
	for {
		var length [4]byte
		if _, err := io.ReadFull(c, length[:]); err != nil {
			return err
		}
		bytes := binary.LittleEndian.Uint32(length[:])
		if bytes > longestMemberFrame {
			return fmt.Errorf("a frame of %d bytes", bytes)
		}
		message := make([]byte, bytes)
		if _, err := io.ReadFull(c, message); err != nil {
			return err
		}
		switch tag, _, _ := protowire.ConsumeTag(message); tag {
		case tagWelcome:
			return nil
		case tagPing:
		default:
			return fmt.Errorf("a message of kind %d: %q", tag, message)
		}
	}
}

// emptyReplicas is the longest message that says what a backup has: replicas without anything in them.
func emptyReplicas() []byte {
	const headBytes = 16
	content := make([]byte, 0, longestMemberFrame)
	for len(content)+2+headBytes <= longestMemberFrame {
		content = append(content, 0x12, 0)
	}
	return memberFrame(tagInventory, content)
}

// hello says that a shard of a member is here, which keeps no tablets and no copies.
func hello(member string, shard, shards uint64) []byte {
	var content []byte
	text := func(tag protowire.Number, text string) {
		content = protowire.AppendString(protowire.AppendTag(content, tag, protowire.BytesType), text)
	}
	number := func(tag protowire.Number, number uint64) {
		content = protowire.AppendVarint(protowire.AppendTag(content, tag, protowire.VarintType), number)
	}
	text(4, member)
	text(5, "instance of "+member)
	content = protowire.AppendFixed64(protowire.AppendTag(content, 6, protowire.Fixed64Type), 7)
	text(7, "host of "+member)
	number(8, shard)
	number(9, shards)
	text(10, fmt.Sprintf("tcp:host=127.0.0.1,port=%d", 1+shard))
	const tagBackupOnly, tagOldestFormat, tagNewestFormat = 16, 18, 19
	number(tagBackupOnly, 1)
	number(tagOldestFormat, 1)
	number(tagNewestFormat, 1)
	return memberFrame(tagHello, content)
}
