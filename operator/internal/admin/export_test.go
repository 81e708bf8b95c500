package admin

import "google.golang.org/protobuf/proto"

// LargestAnswer is how long an answer may be, and what it may take in memory.
func LargestAnswer() (answerBytes, memoryBytes int) {
	return largeAnswer.answerBytes, largeAnswer.memoryBytes
}

// Count takes what an encoded message takes in memory from left.
func Count(message proto.Message, encoded []byte, left *int) error {
	return count(message.ProtoReflect().Descriptor(), encoded, left)
}

// ErrSilent means that a stream was silent for too long.
var ErrSilent = errSilent
