package parts

import (
	"math/bits"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// fieldAt returns the bytes of region g.
func (c *Codec) fieldAt(src []byte, g int) int {
	if c.field == 1 {
		return int(src[g])
	}
	return int(src[2*g]) | int(src[2*g+1])<<8
}

// Stored implements codec.Codec.
func (c *Codec) Stored(src []byte) (int, error) {
	if len(src) < c.head {
		return 0, codec.CorruptError(name, "stored row (%d bytes) ends in its head", len(src))
	}
	n := c.codes
	for g := range c.regions {
		n += c.fieldAt(src, g)
	}
	if n >= c.rowBytes || n > len(src) {
		return 0, codec.CorruptError(name, "stored row (%d bytes) has %d, which must be less than the row's %d", len(src), n, c.rowBytes)
	}
	return n, nil
}

// Decode implements codec.Codec.
func (c *Codec) Decode(row, src []byte) (int, error) {
	n, err := c.Stored(src)
	if err != nil {
		return 0, err
	}
	src, row = src[:n], row[:c.rowBytes]
	for i := range c.planes {
		c.planes[i].rests(row, src)
	}
	end := c.codes
	for g := range c.regions {
		begin := end
		end += c.fieldAt(src, g)
		first, middle, last := c.region(g)
		up, down := 8*begin, 8*end
		for i := range c.planes {
			p := &c.planes[i]
			if p.Kind != Coded {
				continue
			}
			if up = p.up(row, src, first, middle, up); up > down {
				return 0, codec.CorruptError(name, "region %d ends within its codes", g)
			}
		}
		for i := range c.planes {
			p := &c.planes[i]
			if p.Kind != Coded {
				continue
			}
			if down = p.down(row, src, middle, last, down); down < up {
				return 0, codec.CorruptError(name, "region %d ends within its codes", g)
			}
		}
		if down-up >= 8 {
			return 0, codec.CorruptError(name, "region %d (%d bytes) has %d bits behind its codes", g, end-begin, down-up)
		}
	}
	c.rotate(row, -1)
	return n, nil
}

// rests writes the plane's rests, or what it has in their place, to the row.
func (p *plane) rests(row, src []byte) {
	at, left := p.at, p.elements
	if p.rest == 0 {
		for ; left > 0; left-- {
			row[at] = p.Value
			at += p.stride
		}
		return
	}
	mask, pos, rest := byte(1<<p.rest-1), p.restAt, uint(p.rest)
	for left > 0 {
		x := bitio.Window(src, pos)
		for range min(8, left) {
			row[at] = byte(x) & mask
			x >>= rest
			at += p.stride
		}
		pos += 8 * p.rest
		left -= min(8, left)
	}
}

// up decodes the symbols of some blocks from bit pos on, and returns where they end.
func (p *plane) up(row, src []byte, first, end, pos int) int {
	from, to := p.cut(first, end)
	for from < to && pos <= 8*len(src) {
		n, used := p.symbols(row[p.at+from*p.stride:], bitio.Window(src, pos), to-from, false)
		from, pos = from+n, pos+used
	}
	return pos
}

// down decodes the symbols of some blocks that end at bit pos and are read downwards, and returns where they begin.
func (p *plane) down(row, src []byte, first, end, pos int) int {
	from, to := p.cut(first, end)
	for from < to && pos >= 0 {
		var x uint64
		if pos >= 64 {
			x = bitio.Window(src, pos-64)
		} else {
			x = bitio.Window(src, 0) << (64 - pos)
		}
		n, used := p.symbols(row[p.at+from*p.stride:], bits.Reverse64(x), to-from, true)
		from, pos = from+n, pos-used
	}
	return pos
}

// symbols adds the symbols that the bits x have, the first being the lowest, to the next elements of the row, at most left of them. It returns their number and
// the bits of their codes.
func (p *plane) symbols(row []byte, x uint64, left int, down bool) (n, used int) {
	rest, width, stride := uint(p.rest)&7, uint(p.SymbolBits)&15, p.stride
	low := byte(1<<width - 1)
	table, index := p.table, uint64(len(p.table)-1)
	at := 0
	for used <= 64-longCode-8 && n < left {
		e := table[x&index]
		k := e.symbols()
		switch {
		case k == 4 && n+4 <= left: // the usual case of short symbols
			s := row[at : at+3*stride+1]
			s[0] |= byte(e) & low << rest
			e >>= width
			s[stride] |= byte(e) & low << rest
			e >>= width
			s[2*stride] |= byte(e) & low << rest
			e >>= width
			s[3*stride] |= byte(e) & low << rest
			e = table[x&index]
			at += 4 * stride
		case k == 0:
			symbol := byte(x>>uint(e.first())) & low
			if down {
				symbol = bits.Reverse8(symbol) >> (8 - width)
			}
			row[at] |= symbol << rest
			at += stride
			n++
			x >>= uint(e.first()) + width
			used += e.first() + int(width)
			continue
		case n+k > left: // one by one
			row[at] |= byte(e) & low << rest
			at += stride
			n++
			x >>= uint(e.first())
			used += e.first()
			continue
		default:
			s := e
			for range k {
				row[at] |= byte(s) & low << rest
				s >>= width
				at += stride
			}
		}
		n += k
		x >>= uint(e.bits())
		used += e.bits()
	}
	return n, used
}
