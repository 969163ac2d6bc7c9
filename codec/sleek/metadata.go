package sleek

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

// Serialised codec metadata, little-endian:
//
//	0      4       5        6          7      8           12         14        16      20
//	+------+-------+--------+----------+------+-----------+----------+---------+-------+
//	| TCSL | ver 1 | bytes  | bits of  | mode | row bytes | subchunk | log2 of | CRC32C|
//	|      |       | a word | exponent |      |           | bytes    | bound   |       |
//	+------+-------+--------+----------+------+-----------+----------+---------+-------+
//
// Mode is 0 for lossless (then the bound's logarithm is 0) and 1 for bounded. The CRC covers all bytes before it.
const metadataBytes = 20

var frame = rowcodec.Frame{Codec: name, Magic: "TCSL", Bytes: metadataBytes}

const (
	modeLossless = iota
	modeBounded
)

// MarshalBinary implements codec.Codec.
func (c *Codec) MarshalBinary() ([]byte, error) {
	mode, exp := byte(modeLossless), 0
	if c.bounded != nil {
		mode, exp = modeBounded, c.bounded.exp
	}
	b := frame.Begin(byte(c.word), byte(c.exponent), mode)
	b = binary.LittleEndian.AppendUint32(b, uint32(c.rowBytes))
	b = binary.LittleEndian.AppendUint16(b, uint16(c.subchunk))
	b = binary.LittleEndian.AppendUint16(b, uint16(int16(exp)))
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
	l := layout{int(b[5]), int(b[6])}
	if !slices.Contains(slices.Collect(maps.Values(layouts)), l) {
		return nil, codec.CorruptError(name, "word (%d bytes, %d bits of exponent) is of no element type", l.word, l.exponent)
	}
	var of *bounded
	exp := int(int16(binary.LittleEndian.Uint16(b[14:])))
	switch mode := b[7]; {
	case mode == modeBounded:
		if of = boundedAt(l, exp); of.exp != exp {
			return nil, codec.CorruptError(name, "bound (2^%d) is not one of the element type's", exp)
		}
	case mode != modeLossless || exp != 0:
		return nil, codec.CorruptError(name, "mode (%d, bound 2^%d) is neither lossless nor bounded", mode, exp)
	}
	c, err := newCodec(l, int(binary.LittleEndian.Uint32(b[8:])), int(binary.LittleEndian.Uint16(b[12:])), of)
	return rowcodec.OrCorrupt(name, c, err)
}
