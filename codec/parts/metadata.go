package parts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

// Serialised codec metadata, little-endian: see docs/format/parts.md.
var frame = rowcodec.Frame{Codec: name, Magic: "TCPT", Version: 3, Bytes: metadataHeader + 4}

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
			b = append(b, byte(p.Kind), byte(p.SymbolBits), byte(p.Digits[0]|p.Digits[1]<<4), byte(min(1, len(p.Bases))))
			for level, digits := range p.Digits {
				b = append(b, p.Symbols[level][:1<<digits-1]...)
			}
			b = append(b, p.Bases...)
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
		return nil, codec.CorruptError(name, "metadata byte 7 (%02x) is not 0", body[7])
	}
	var parts []Part
	var err error
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
				if rest, err = p.parse(rest, part.Elements); err != nil {
					return nil, codec.CorruptError(name, "%v (plane %d of part %d)", err, k, i)
				}
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

// parse reads what metadata have of a coded plane behind its kind and T, which Value has, and returns what follows.
func (p *Plane) parse(b []byte, elements int) ([]byte, error) {
	p.SymbolBits, p.Value = int(p.Value), 0
	if len(b) < 2 || b[1] > 1 {
		return nil, errors.New("metadata must have the digits of levels, and 0 or 1 for bases")
	}
	based := b[1] == 1
	p.Digits = [2]int{int(b[0] & 15), int(b[0] >> 4)}
	b = b[2:]
	for level, digits := range p.Digits {
		if digits < 1 || digits > 2 {
			return nil, fmt.Errorf("digits (%d bits) of level %d must have 1 or 2", digits, level)
		}
		n := 1<<digits - 1
		if len(b) < n {
			return nil, fmt.Errorf("metadata end before the symbols of level %d", level)
		}
		copy(p.Symbols[level][:], b[:n])
		b = b[n:]
	}
	if based {
		if elements > len(b) {
			return nil, fmt.Errorf("metadata (%d bytes) end before the bases of %d elements", len(b), elements)
		}
		p.Bases = slices.Clone(b[:elements])
		b = b[elements:]
	}
	return b, nil
}
