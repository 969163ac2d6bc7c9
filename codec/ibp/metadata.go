package ibp

import (
	"encoding/binary"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

// Serialised codec metadata, little-endian:
//
//	0      4       5     6          8           12                 12 + n            12 + 2n
//	+------+-------+-----+----------+-----------+------------------+-----------------+-------+
//	| TCIB | ver 1 |  S  | 0      0 | row bytes | mask             | bitval          | CRC32C|
//	+------+-------+-----+----------+-----------+------------------+-----------------+-------+
//
// n is the row's bytes rounded up to S.
const metadataHeader = 12

var frame = rowcodec.Frame{Codec: "ibp", Magic: "TCIB", Bytes: metadataHeader + 4}

// MarshalBinary implements codec.Codec.
func (c *Codec) MarshalBinary() ([]byte, error) {
	mask, bitval := c.MaskBitval()
	b := frame.Begin(byte(c.chunk), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(c.rowBytes))
	return rowcodec.Seal(append(append(b, mask...), bitval...)), nil
}

// Unmarshal restores a codec from MarshalBinary's bytes. Anything else is codec.ErrCorrupt.
func Unmarshal(b []byte) (*Codec, error) {
	body, err := frame.Open(b)
	if err != nil {
		return nil, err
	}
	if b[6]|b[7] != 0 {
		return nil, codec.CorruptError("ibp", "metadata bytes 6 and 7 (%02x %02x) are not 0", b[6], b[7])
	}
	chunk, rowBytes := int(b[5]), int(binary.LittleEndian.Uint32(b[8:]))
	planes := body[metadataHeader:]
	c, err := New(chunk, rowBytes, planes[:len(planes)/2], planes[len(planes)/2:])
	return rowcodec.OrCorrupt("ibp", c, err)
}

func unmarshal(b []byte) (codec.Codec, error) { return rowcodec.AsCodec(Unmarshal(b)) }
