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
	size := c.layout.ElementBytes
	if len(c.coded) > 0 {
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
			if !c.decodeRegion(row[first*size:], last-first, src[c.head:], start, end) {
				return 0, codec.CorruptError("zipnn", "the codes of region %d do not fill its %d bits", g, end-start)
			}
			start = end
		}
	}
	at := n - c.rawBytes
	for _, p := range c.raw {
		spread(row[p:], src[at:at+c.elements], size)
		at += c.elements
	}
	for _, p := range c.filled {
		value := c.planes[p].Value
		for e := range c.elements {
			row[e*size+p] = value
		}
	}
	c.order.undoAll(row[:c.elements*size])
	copy(row[c.elements*size:], src[at:n])
	return n, nil
}

// spread writes a plane's bytes to every size'th of row.
func spread(row, plane []byte, size int) {
	for i, at := 0, 0; i < len(plane) && at < len(row); i, at = i+1, at+size {
		row[at] = plane[i]
	}
}

// decodeRegion decodes the coded planes of n elements to row, from bit start of src upwards and from bit end downwards in
// turns, so that neither waits for the other. It returns whether they meet.
func (c *Codec) decodeRegion(row []byte, n int, src []byte, start, end int) bool {
	size := c.layout.ElementBytes
	other := (n + 1) / 2 * size // from an element to the one that is decoded downwards with it
	base := unsafe.SliceData(src)
	safe := len(src) - 8 // up to this byte, 8 can be loaded
	f, b := start, end
	for at := 0; at < n/2*size; at += size {
		for i := range c.coded {
			p := &c.coded[i]
			var w uint64
			if f>>3 <= safe {
				w = bitio.Load(base, f>>3) >> (f & 7)
			} else {
				w = bitio.Window(src, f)
			}
			e := p.ahead[w&(1<<maxCode-1)]
			f += e.length()
			if e.symbol() == escape {
				e = entry(w >> e.length() & 255)
				f += 8
			}
			row[at+p.plane] = byte(e)
			if f > b {
				return false
			}
			if from := b>>3 - 7; from >= 0 && from <= safe {
				w = bitio.Load(base, from) << (8 - b&7)
			} else {
				w = below(src, b)
			}
			e = p.back[w>>(64-maxCode)]
			b -= e.length()
			if e.symbol() == escape {
				e = entry(w << e.length() >> 56)
				b -= 8
			}
			row[at+other+p.plane] = byte(e)
			if f > b {
				return false
			}
		}
	}
	if n%2 == 1 {
		for i := range c.coded {
			p := &c.coded[i]
			w := bitio.Window(src, f)
			e := p.ahead[w&(1<<maxCode-1)]
			f += e.length()
			if e.symbol() == escape {
				e = entry(w >> e.length() & 255)
				f += 8
			}
			row[other-size+p.plane] = byte(e)
			if f > b {
				return false
			}
		}
	}
	return f == b
}

// below returns the 64 bits of src below bit pos, the nearest being the highest, zeros below its first and beyond its end.
func below(src []byte, pos int) uint64 {
	if pos < 64 {
		return bitio.Window(src, 0) << (64 - pos)
	}
	return bitio.Window(src, pos-64)
}
