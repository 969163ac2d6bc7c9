package zipnn

import (
	"encoding/binary"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

// Serialised codec metadata, little-endian:
//
//	0      4       5         6          7   8           12              12 + Σ
//	+------+-------+---------+----------+---+-----------+---------------+-------+
//	| TCZN | ver 1 | element | exponent | 0 | row bytes | planes,       | CRC32C|
//	|      |       | bytes   | bits     |   |           | lowest first  |       |
//	+------+-------+---------+----------+---+-----------+---------------+-------+
//
// A plane is its kind and its value, a byte each; of a coded plane, whose value is 0, 129 bytes follow: the lengths of the codes of
// 0 to 255 and of the escape, four bits each, low ones first, the last four bits 0. The CRC covers all bytes before it.
var frame = rowcodec.Frame{Codec: "zipnn", Magic: "TCZN", Bytes: metadataHeader + 4}

const metadataHeader = 12

const lengthsBytes = (symbols + 1) / 2

// MarshalBinary implements codec.Codec.
func (c *Codec) MarshalBinary() ([]byte, error) {
	b := frame.Begin(byte(c.layout.ElementBytes), byte(c.layout.ExponentBits), 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(c.rowBytes))
	for i := range c.planes {
		p := &c.planes[i]
		b = append(b, byte(p.Kind), p.Value)
		if p.Kind == Coded {
			var packed [lengthsBytes]byte
			for s, n := range p.Lengths {
				packed[s/2] |= n << (s % 2 * 4)
			}
			b = append(b, packed[:]...)
		}
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
	if body[7] != 0 {
		return nil, codec.CorruptError("zipnn", "metadata byte 7 (%02x) is not 0", body[7])
	}
	var planes []Plane
	rest := body[metadataHeader:]
	for len(rest) >= 2 && len(planes) < 9 {
		p := Plane{Kind: PlaneKind(rest[0]), Value: rest[1]}
		rest = rest[2:]
		if p.Kind != Constant && p.Value != 0 {
			return nil, codec.CorruptError("zipnn", "plane %d has a value (%d) but is not constant", len(planes), p.Value)
		}
		if p.Kind == Coded {
			if len(rest) < lengthsBytes || rest[lengthsBytes-1]>>4 != 0 {
				return nil, codec.CorruptError("zipnn", "metadata has no %d code lengths of plane %d", symbols, len(planes))
			}
			for s := range p.Lengths {
				p.Lengths[s] = rest[s/2] >> (s % 2 * 4) & 15
			}
			rest = rest[lengthsBytes:]
		}
		planes = append(planes, p)
	}
	if len(rest) != 0 {
		return nil, codec.CorruptError("zipnn", "metadata has %d bytes after its %d planes", len(rest), len(planes))
	}
	c, err := New(int(binary.LittleEndian.Uint32(body[8:])), Layout{int(body[5]), int(body[6])}, planes)
	return rowcodec.OrCorrupt("zipnn", c, err)
}
