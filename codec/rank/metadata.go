package rank

import (
	"encoding/binary"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

// Serialised codec metadata, little-endian:
//
//	0      4       5         6      7            8           12       13       13 + l   13 + l + 2s
//	+------+-------+---------+------+------------+-----------+--------+--------+--------+-------+
//	| TCRK | ver 1 | element | rot  | T          | row bytes | l      | digits | symbols| CRC32C|
//	|      |       | bytes   | 0, 1 | 2 to 12    |           | levels | l × 1 B| s × 2 B|       |
//	+------+-------+---------+------+------------+-----------+--------+--------+--------+-------+
//
// s is the sum of 2^d - 1 over the digits; the CRC covers all bytes before it.
var frame = rowcodec.Frame{Codec: "rank", Magic: "TCRK", Bytes: metadataHeader + 4}

const metadataHeader = 13

// MarshalBinary implements codec.Codec.
func (c *Codec) MarshalBinary() ([]byte, error) {
	s := &c.shape
	b := frame.Begin(byte(s.ElementBytes), byte(s.Rotate), byte(s.SymbolBits))
	b = binary.LittleEndian.AppendUint32(b, uint32(c.rowBytes))
	b = append(b, byte(len(s.Digits)))
	for _, d := range s.Digits {
		b = append(b, byte(d))
	}
	for _, symbol := range s.Symbols {
		b = binary.LittleEndian.AppendUint16(b, symbol)
	}
	return rowcodec.Seal(b), nil
}

// Unmarshal restores a codec from MarshalBinary's bytes. Anything else is codec.ErrCorrupt.
func Unmarshal(b []byte) (*Codec, error) {
	body, err := frame.Open(b)
	if err != nil {
		return nil, err
	}
	return parse(body)
}

// parse reads metadata without its checksum.
func parse(body []byte) (*Codec, error) {
	s := Shape{ElementBytes: int(body[5]), Rotate: int(body[6]), SymbolBits: int(body[7])}
	levels, rest := int(body[12]), body[metadataHeader:]
	if len(rest) < levels || (len(rest)-levels)%2 != 0 {
		return nil, codec.CorruptError("rank", "metadata (%d bytes) does not hold %d digits and symbols of 2 bytes", len(body), levels)
	}
	for _, d := range rest[:levels] {
		s.Digits = append(s.Digits, int(d))
	}
	for rest = rest[levels:]; len(rest) > 0; rest = rest[2:] {
		s.Symbols = append(s.Symbols, binary.LittleEndian.Uint16(rest))
	}
	c, err := New(int(binary.LittleEndian.Uint32(body[8:])), s)
	return rowcodec.OrCorrupt("rank", c, err)
}
