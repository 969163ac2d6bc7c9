package parts

import (
	"encoding/binary"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/huffman"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

// Serialised codec metadata, little-endian: see docs/format/parts.md.
var frame = rowcodec.Frame{Codec: name, Magic: "TCPT", Bytes: metadataHeader + 4}

const (
	metadataHeader = 8
	partHeader     = 6
)

// MarshalBinary implements codec.Codec.
func (c *Codec) MarshalBinary() ([]byte, error) {
	b := frame.Begin(byte(c.field), byte(len(c.parts)), 0)
	for i := range c.parts {
		part := &c.parts[i]
		b = binary.LittleEndian.AppendUint32(append(b, byte(part.ElementBytes), byte(part.Rotate)), uint32(part.Elements))
		for k := range part.Planes {
			p := &part.Planes[k]
			if p.Kind != Coded {
				b = append(b, byte(p.Kind), p.Value)
				continue
			}
			b = append(b, byte(p.Kind), byte(p.SymbolBits))
			packed := make([]byte, lengthsBytes(p.SymbolBits))
			for s, n := range p.Lengths[:1<<p.SymbolBits] {
				packed[s/2] |= n << (s % 2 * 4)
			}
			packed[len(packed)-1] = p.Lengths[huffman.Escape]
			b = append(b, packed...)
		}
	}
	return rowcodec.Seal(b), nil
}

// lengthsBytes returns the bytes of the lengths of a plane's codes, four bits each, with those of the escape last.
func lengthsBytes(symbolBits int) int { return 1<<symbolBits/2 + 1 }

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
		return nil, codec.CorruptError(name, "metadata byte 7 (%02x) is not 0", body[7])
	}
	var parts []Part
	rest := body[metadataHeader:]
	for i := range int(body[6]) {
		if len(rest) < partHeader {
			return nil, codec.CorruptError(name, "metadata end before part %d of %d", i, body[6])
		}
		part := Part{ElementBytes: int(rest[0]), Rotate: int(rest[1]), Elements: int(binary.LittleEndian.Uint32(rest[2:]))}
		rest = rest[partHeader:]
		for k := range min(8, part.ElementBytes) {
			if len(rest) < 2 {
				return nil, codec.CorruptError(name, "metadata end before plane %d of part %d", k, i)
			}
			p := Plane{Kind: PlaneKind(rest[0]), Value: rest[1]}
			rest = rest[2:]
			if p.Kind == Raw && p.Value != 0 {
				return nil, codec.CorruptError(name, "plane %d of part %d has a value (%d) but is not constant", k, i, p.Value)
			}
			if p.Kind == Coded {
				p.SymbolBits, p.Value = int(p.Value), 0
				if p.SymbolBits < 1 || p.SymbolBits > 8 || len(rest) < lengthsBytes(p.SymbolBits) {
					return nil, codec.CorruptError(name, "metadata has no code lengths of plane %d of part %d for symbols of %d bits", k, i, p.SymbolBits)
				}
				packed := rest[:lengthsBytes(p.SymbolBits)]
				rest = rest[len(packed):]
				for s := range 1 << p.SymbolBits {
					p.Lengths[s] = packed[s/2] >> (s % 2 * 4) & 15
				}
				p.Lengths[huffman.Escape] = packed[len(packed)-1]
			}
			part.Planes = append(part.Planes, p)
		}
		parts = append(parts, part)
	}
	if len(rest) != 0 {
		return nil, codec.CorruptError(name, "metadata has %d bytes after its %d parts", len(rest), len(parts))
	}
	c, err := New(int(body[5]), parts)
	return rowcodec.OrCorrupt(name, c, err)
}
