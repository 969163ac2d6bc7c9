package ndzip

import (
	"encoding/binary"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

// Serialised codec metadata, little-endian:
//
//	0      4       5        6       8           12      16
//	+------+-------+--------+-------+-----------+-------+
//	| TCND | ver 1 | bytes  | 0   0 | row bytes | CRC32C|
//	|      |       | a word |       |           |       |
//	+------+-------+--------+-------+-----------+-------+
//
// The CRC covers all bytes before it.
const metadataBytes = 16

var frame = rowcodec.Frame{Codec: name, Magic: "TCND", Bytes: metadataBytes}

// MarshalBinary implements codec.Codec.
func (c *Codec) MarshalBinary() ([]byte, error) {
	b := frame.Begin(byte(c.word), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(c.rowBytes))
	return rowcodec.Seal(b), nil
}

// Unmarshal restores a codec from MarshalBinary's bytes. Anything else is codec.ErrCorrupt.
func Unmarshal(b []byte) (*Codec, error) {
	if _, err := frame.Open(b); err != nil {
		return nil, err
	}
	if len(b) != metadataBytes {
		return nil, codec.CorruptError(name, "metadata (%d bytes) must be %d bytes", len(b), metadataBytes)
	}
	if b[6]|b[7] != 0 {
		return nil, codec.CorruptError(name, "metadata bytes 6 and 7 (%02x %02x) are not 0", b[6], b[7])
	}
	word := int(b[5])
	if word != 2 && word != 4 && word != 8 {
		return nil, codec.CorruptError(name, "word (%d bytes) must be 2, 4 or 8", word)
	}
	c, err := newCodec(word, int(binary.LittleEndian.Uint32(b[8:])))
	return rowcodec.OrCorrupt(name, c, err)
}
