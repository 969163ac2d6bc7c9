package zipnn

import (
	"encoding/binary"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// Stored implements codec.Codec.
func (c *Codec) Stored(src []byte) (int, error) {
	n := c.head
	if n > len(src) {
		return 0, codec.CorruptError("zipnn", "stored row (%d bytes) is shorter than its head (%d)", len(src), n)
	}
	if len(c.coded) > 0 {
		n += (c.number(src, 0) + 7) / 8
	}
	if n += c.rawBytes; n > len(src) {
		return 0, codec.CorruptError("zipnn", "stored row (%d bytes) ends before its payload (%d)", len(src), n)
	}
	if n >= c.rowBytes {
		return 0, codec.CorruptError("zipnn", "stored row (%d bytes) is no shorter than the row (%d)", n, c.rowBytes)
	}
	return n, nil
}

// number reads field i of the head.
func (c *Codec) number(src []byte, i int) int {
	if c.field == 2 {
		return int(binary.LittleEndian.Uint16(src[2*i:]))
	}
	b := src[3*i:][:3]
	return int(b[0]) | int(b[1])<<8 | int(b[2])<<16
}

// Decode implements codec.Codec.
func (c *Codec) Decode(row, src []byte) (int, error) {
	n, err := c.Stored(src)
	if err != nil {
		return 0, err
	}
	row = row[:c.rowBytes]
	whole := c.elements * c.layout.ElementBytes
	raw := src[n-c.rawBytes : n]
	copy(row[whole:], raw[len(c.raw)*c.elements:])
	if len(c.coded) == 0 {
		c.join(row, raw, nil, 0, c.elements)
		return n, nil
	}
	bits, start := c.number(src, 0), 0
	for g := range c.regions {
		end := bits
		if g < c.regions-1 {
			end = c.number(src, 1+g)
		}
		if end < start || end > bits {
			return 0, codec.CorruptError("zipnn", "region %d of the row ends at bit %d, outside %d to %d", g, end, start, bits)
		}
		first, last := c.region(g)
		r := region{first: first, middle: (first + last + 1) / 2, last: last, f: 8*c.head + start, b: 8*c.head + end}
		if len(c.coded) == 1 {
			c.decodePlane(row, raw, src, &r)
		} else {
			c.decodePlanes(row, raw, src, &r)
		}
		if r.f != r.b {
			return 0, codec.CorruptError("zipnn", "the codes of region %d do not fill its %d bits", g, end-start)
		}
		start = end
	}
	return n, nil
}

// region is the part of a region that is still to be decoded: elements first to middle - 1 from bit f of the stored row upwards,
// and middle to last - 1 from bit b downwards. If f and b differ in the end, the row is corrupt.
type region struct{ first, middle, last, f, b int }

// above returns at least 57 bits of src from bit pos on. Bits beyond its end are zeros.
func above(src []byte, pos int) uint64 {
	if i := pos >> 3; i <= len(src)-8 {
		return bitio.Load(unsafe.SliceData(src), i) >> (pos & 7)
	}
	return bitio.Window(src, pos)
}

// below returns at least 57 bits of src below bit pos, the nearest being the highest. Bits before its first are zeros. pos must
// be in src or its end.
func below(src []byte, pos int) uint64 {
	if i := (pos+7)>>3 - 8; i >= 0 {
		return bitio.Load(unsafe.SliceData(src), i) << (-pos & 7)
	}
	return bitio.Window(src, 0) << (64 - max(pos, 0))
}

// up decodes the value whose code is in the lowest bits of w, and returns it with its number of bits.
func (p *codebook) up(w uint64) (byte, int) {
	e := p.ahead[w&(1<<maxCode-1)]
	if e.symbol() != escape {
		return byte(e), e.length()
	}
	return byte(w >> e.length()), e.length() + 8
}

// down decodes the value whose code is in the highest bits of w, and returns it with its number of bits.
func (p *codebook) down(w uint64) (byte, int) {
	e := p.back[w>>(64-maxCode)]
	if e.symbol() != escape {
		return byte(e), e.length()
	}
	return byte(w << e.length() >> 56), e.length() + 8
}
