package admin

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// bounds of one answer: as it comes, and decoded. An element of a list takes two bytes in an answer and two hundred in memory if it is
// empty, so that memory is counted before anything is decoded.
type bounds struct{ answerBytes, memoryBytes int }

var (
	// smallAnswer fits the status of a store of a hundred members. The operator decodes as many at a time as it reconciles Stores.
	smallAnswer = bounds{answerBytes: 256 << 10, memoryBytes: 2 << 20}
	// largeAnswer fits twice the status of 736 members with 16 shards each, and any page of tables. The operator decodes one at a time.
	largeAnswer = bounds{answerBytes: 8 << 20, memoryBytes: 32 << 20}
)

type boundsKey struct{}

// within has calls with this context refuse larger answers.
func within(ctx context.Context, b bounds) context.Context {
	return context.WithValue(ctx, boundsKey{}, b)
}

// boundAnswers refuses answers beyond the bounds of the call's context, or beyond those of a large one: with ResourceExhausted, as gRPC
// does for an answer that is too long.
func boundAnswers(ctx context.Context, method string, request, answer any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	b, isSet := ctx.Value(boundsKey{}).(bounds)
	if !isSet {
		b = largeAnswer
	}
	codec := &boundedCodec{CodecV2: encoding.GetCodecV2(encodingproto.Name), memoryBytes: b.memoryBytes}
	options = append(options, grpc.MaxCallRecvMsgSize(b.answerBytes), grpc.ForceCodecV2(codec))
	err := invoke(ctx, method, request, answer, connection, options...)
	if codec.refused != nil {
		return status.Error(codes.ResourceExhausted, codec.refused.Error()) //nolint:wrapcheck // callers branch on the code
	}
	return err
}

// boundedCodec is gRPC's codec, for one call.
type boundedCodec struct {
	encoding.CodecV2

	memoryBytes int
	refused     error
}

// Unmarshal implements encoding.CodecV2.
func (c *boundedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	message, isMessage := v.(proto.Message)
	if !isMessage {
		return fmt.Errorf("%w: %T is no message", errMalformed, v)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	left := c.memoryBytes
	switch err := count(message.ProtoReflect().Descriptor(), buffer.ReadOnlyData(), &left); {
	case errors.Is(err, errTooLarge):
		c.refused = fmt.Errorf("an answer of %d bytes that takes more than %d MiB of memory: %w",
			data.Len(), c.memoryBytes>>20, errTooLarge)
		return c.refused
	case err != nil:
		return err
	}
	if err := proto.Unmarshal(buffer.ReadOnlyData(), message); err != nil {
		return fmt.Errorf("decode an answer: %w", err)
	}
	return nil
}

var (
	errMalformed = errors.New("malformed answer")
	errTooLarge  = errors.New("no store has so much to tell; check what runs in the coordinator's pod")
)

// pointerBytes is what a list has for each message, numberBytes for each number; a list that grows has room for as many again.
const (
	pointerBytes = 2 * 8
	numberBytes  = 2 * 8
	stringBytes  = 2 * 16
)

// count takes what an encoded message takes in memory from left.
func count(descriptor protoreflect.MessageDescriptor, encoded []byte, left *int) error {
	take := func(bytes int) error {
		if *left -= bytes; *left < 0 {
			return errTooLarge
		}
		return nil
	}
	if err := take(structBytes(descriptor)); err != nil {
		return err
	}
	for len(encoded) > 0 {
		number, wireType, keyBytes := protowire.ConsumeTag(encoded)
		if keyBytes < 0 {
			return fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(keyBytes))
		}
		valueBytes := protowire.ConsumeFieldValue(number, wireType, encoded[keyBytes:])
		if valueBytes < 0 {
			return fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(valueBytes))
		}
		value := encoded[keyBytes : keyBytes+valueBytes]
		encoded = encoded[keyBytes+valueBytes:]
		field := descriptor.Fields().ByNumber(number)
		if field == nil {
			// Of a newer build: kept as it is.
			if err := take(keyBytes + valueBytes); err != nil {
				return err
			}
			continue
		}
		if err := countField(field, wireType, value, left, take); err != nil {
			return err
		}
	}
	return nil
}

func countField(field protoreflect.FieldDescriptor, wireType protowire.Type, value []byte, left *int, take func(int) error) error {
	if wireType != protowire.BytesType {
		return take(numberBytes)
	}
	content, _ := protowire.ConsumeBytes(value) // it is whole: it was consumed before
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		if err := take(pointerBytes); err != nil {
			return err
		}
		return count(field.Message(), content, left)
	case protoreflect.StringKind, protoreflect.BytesKind:
		return take(stringBytes + len(content))
	default:
		// Packed numbers: each has a byte at least.
		return take(numberBytes * len(content))
	}
}

var structs sync.Map // of a message's full name: the size of its Go type

func structBytes(descriptor protoreflect.MessageDescriptor) int {
	if bytes, isKnown := structs.Load(descriptor.FullName()); isKnown {
		return bytes.(int) //nolint:forcetypeassert // only those are stored
	}
	// Of an unknown type, as much as the largest of ours.
	bytes := 512
	if known, err := protoregistry.GlobalTypes.FindMessageByName(descriptor.FullName()); err == nil {
		bytes = int(reflect.TypeOf(known.Zero().Interface()).Elem().Size())
	}
	structs.Store(descriptor.FullName(), bytes)
	return bytes
}
