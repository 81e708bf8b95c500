package blade

import (
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// unpackMemory bounds what the decompression keeps: the window of `zstd -19` is 8 MiB.
const unpackMemory = 64 << 20

// Unpack gives the bytes of a disk that a piece is the compressed form of. The caller closes what it is given.
func Unpack(piece []byte) (io.ReadCloser, error) {
	decoder, err := zstd.NewReader(bytes.NewReader(piece), zstd.WithDecoderMaxMemory(unpackMemory), zstd.WithDecoderMaxWindow(unpackMemory))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return decoder.IOReadCloser(), nil
}
