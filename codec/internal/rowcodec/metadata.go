// Package rowcodec holds what the row codecs have in common: the frame of serialised metadata, and the checks and
// the reading of training samples.
package rowcodec

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"github.com/tensorcache/tensorcache/codec"
)

// Frame describes the serialised metadata of one codec. All frames are little-endian and have the same ends:
//
//	0       4       5                       n       n + 4
//	+-------+-------+-----------------------+-------+
//	| magic | ver 1 | the codec's fields    | CRC32C|
//	+-------+-------+-----------------------+-------+
//
// The checksum covers all bytes before it.
type Frame struct {
	Codec   string // the codec's name, for errors
	Magic   string // four characters
	Bytes   int    // length of the shortest frame, checksum included
	Version byte   // of the codec's metadata; 0 is 1
}

func (f Frame) version() byte { return max(1, f.Version) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Begin returns the magic, the version and the first fields.
func (f Frame) Begin(fields ...byte) []byte {
	return append(append([]byte(f.Magic), f.version()), fields...)
}

// Seal appends the checksum.
func Seal(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// Open checks magic, version and checksum, and returns b without the checksum. Its error wraps codec.ErrCorrupt.
func (f Frame) Open(b []byte) (body []byte, err error) {
	if len(b) < f.Bytes || !bytes.HasPrefix(b, []byte(f.Magic)) {
		return nil, codec.CorruptError(f.Codec, "metadata (%d bytes) has no %q header", len(b), f.Magic)
	}
	if b[4] != f.version() {
		return nil, codec.CorruptError(f.Codec, "metadata version (%d) is not %d", b[4], f.version())
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return nil, codec.CorruptError(f.Codec, "metadata checksum (%08x) is not %08x", got, sum)
	}
	return body, nil
}

// OrCorrupt returns c, or err as a corruption of the codec's metadata.
func OrCorrupt[C any](name string, c C, err error) (C, error) {
	if err != nil {
		err = codec.CorruptError(name, "%v", err)
	}
	return c, err
}

// AsCodec returns c as an interface that is nil after an error, rather than one that holds a nil pointer.
func AsCodec[C codec.Codec](c C, err error) (codec.Codec, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}
