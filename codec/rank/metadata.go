package rank

import (
	"encoding/binary"
	"slices"

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
// s is the sum of 2^d - 1 over the digits; the CRC covers all bytes before it. If bit 1 of rot is set, there are 2^c classes of rows, c being
// bits 2 to 4 of rot, and the bases follow the symbols, class by class, 2 B for each element of a row.
var frame = rowcodec.Frame{Codec: "rank", Magic: "TCRK", Bytes: metadataHeader + 4}

const metadataHeader = 13

// withBases is added to the rotation of metadata with bases, and the bits of a class, shifted.
const (
	withBases     = 2
	classBitsAt   = 2
	classBitsMask = 7 << classBitsAt
)

// MarshalBinary implements codec.Codec.
func (c *Codec) MarshalBinary() ([]byte, error) {
	s := &c.shape
	rotate := byte(s.Rotate)
	if s.Bases != nil {
		rotate |= withBases | byte(c.classBits)<<classBitsAt
	}
	b := frame.Begin(byte(s.ElementBytes), rotate, byte(s.SymbolBits))
	b = binary.LittleEndian.AppendUint32(b, uint32(c.rowBytes))
	b = append(b, byte(len(s.Digits)))
	for _, d := range s.Digits {
		b = append(b, byte(d))
	}
	for _, symbol := range slices.Concat(append([][]uint16{s.Symbols}, s.Bases...)...) {
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
	rowBytes := int(binary.LittleEndian.Uint32(body[8:]))
	if body[6]&withBases != 0 {
		classBits := int(body[6]&classBitsMask) >> classBitsAt
		s.Rotate &^= withBases | classBitsMask
		columns := 0
		if s.ElementBytes > 0 {
			columns = rowBytes / s.ElementBytes
		}
		symbols := len(s.Symbols) - columns<<classBits
		if symbols < 0 {
			return nil, codec.CorruptError("rank", "metadata (%d bytes) must hold bases for %d columns of %d classes", len(body), columns, 1<<classBits)
		}
		bases := s.Symbols[symbols:]
		s.Symbols, s.Bases = s.Symbols[:symbols:symbols], make([][]uint16, 0, 1<<classBits)
		for k := range 1 << classBits {
			s.Bases = append(s.Bases, bases[k*columns:][:columns:columns])
		}
	}
	c, err := New(rowBytes, s)
	return rowcodec.OrCorrupt("rank", c, err)
}
