package parts

import (
	"encoding/binary"
	"math/bits"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
	"github.com/tensorcache/tensorcache/codec/internal/huffman"
)

// EncodeBound implements codec.Codec: the longest codes, and the rotated row behind them.
func (c *Codec) EncodeBound() int {
	return c.codes + (block*c.blocks*(longCode+8)+7)/8 + c.regions + bitio.Slack + c.rowBytes
}

// Encode implements codec.Codec.
func (c *Codec) Encode(dst, row []byte) (int, error) {
	x := dst[:c.EncodeBound()]
	x = x[len(x)-c.rowBytes:]
	copy(x, row[:c.rowBytes])
	c.rotate(x, 1)
	clear(dst[:c.head])
	w := bitio.NewWriter(dst, 8*c.head)
	for i := range c.planes {
		p := &c.planes[i]
		if p.Kind == Constant {
			for at := p.at; at < p.at+p.elements*p.stride; at += p.stride {
				if x[at] != p.Value {
					return 0, codec.ErrIncompressible
				}
			}
			continue
		}
		mask := byte(1<<p.rest - 1)
		for at := p.at; at < p.at+p.elements*p.stride; at += p.stride {
			w.Put(uint64(x[at]&mask), uint(p.rest))
		}
	}
	w.Finish()
	end := c.codes
	for g := range c.regions {
		first, middle, last := c.region(g)
		w := bitio.NewWriter(dst, 8*end)
		n := c.putUp(&w, x, first, middle) + c.bitsOf(x, middle, last)
		w.Put(0, uint(-n&7)) // where both halves meet
		c.putDown(&w, x, middle, last)
		w.Finish()
		size := (n + 7) / 8
		if end += size; size > c.maxField() || end >= c.rowBytes {
			return 0, codec.ErrIncompressible
		}
		dst[g*c.field] = byte(size)
		if c.field == 2 {
			dst[g*c.field+1] = byte(size >> 8)
		}
	}
	if end >= c.rowBytes {
		return 0, codec.ErrIncompressible
	}
	return end, nil
}

// putUp writes the codes of the symbols of some blocks for reading upwards, and returns their bits.
func (c *Codec) putUp(w *bitio.Writer, x []byte, first, end int) (n int) {
	for i := range c.planes {
		p := &c.planes[i]
		if p.Kind != Coded {
			continue
		}
		from, to := p.cut(first, end)
		for e := from; e < to; e++ {
			symbol := x[p.at+e*p.stride] >> p.rest
			code := p.codes[symbol]
			if code.Length > 0 {
				w.Put(uint64(code.LSB), uint(code.Length))
				n += int(code.Length)
				continue
			}
			code = p.codes[huffman.Escape]
			w.Put(uint64(code.LSB)|uint64(symbol)<<code.Length, uint(code.Length)+uint(p.SymbolBits))
			n += int(code.Length) + p.SymbolBits
		}
	}
	return n
}

// bitsOf returns the bits of the codes of some blocks.
func (c *Codec) bitsOf(x []byte, first, end int) (n int) {
	for i := range c.planes {
		p := &c.planes[i]
		if p.Kind != Coded {
			continue
		}
		from, to := p.cut(first, end)
		for e := from; e < to; e++ {
			if code := p.codes[x[p.at+e*p.stride]>>p.rest]; code.Length > 0 {
				n += int(code.Length)
			} else {
				n += int(p.codes[huffman.Escape].Length) + p.SymbolBits
			}
		}
	}
	return n
}

// putDown writes the codes of the symbols of some blocks for reading downwards: what is read last comes first.
func (c *Codec) putDown(w *bitio.Writer, x []byte, first, end int) {
	for i := len(c.planes) - 1; i >= 0; i-- {
		p := &c.planes[i]
		if p.Kind != Coded {
			continue
		}
		from, to := p.cut(first, end)
		for e := to - 1; e >= from; e-- {
			symbol := x[p.at+e*p.stride] >> p.rest
			if code := p.codes[symbol]; code.Length > 0 {
				w.Put(uint64(code.MSB), uint(code.Length))
				continue
			}
			code := p.codes[huffman.Escape]
			w.Put(uint64(symbol)|uint64(code.MSB)<<p.SymbolBits, uint(code.Length)+uint(p.SymbolBits))
		}
	}
}

// rotate rotates the elements of the parts that say so left by by bits, 1 or -1.
func (c *Codec) rotate(row []byte, by int) {
	for i := range c.parts {
		p := &c.parts[i]
		x := row[:p.Elements*p.ElementBytes]
		row = row[len(x):]
		if p.Rotate == 0 {
			continue
		}
		switch p.ElementBytes {
		case 1:
			for i, b := range x {
				x[i] = bits.RotateLeft8(b, by)
			}
		case 2:
			for ; len(x) > 0; x = x[2:] {
				binary.LittleEndian.PutUint16(x, bits.RotateLeft16(binary.LittleEndian.Uint16(x), by))
			}
		case 4:
			for ; len(x) > 0; x = x[4:] {
				binary.LittleEndian.PutUint32(x, bits.RotateLeft32(binary.LittleEndian.Uint32(x), by))
			}
		default:
			for ; len(x) > 0; x = x[8:] {
				binary.LittleEndian.PutUint64(x, bits.RotateLeft64(binary.LittleEndian.Uint64(x), by))
			}
		}
	}
}
