package zipnn

import (
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// EncodeBound implements codec.Codec: all values escaped, and room for a reordered row.
func (c *Codec) EncodeBound() int {
	return c.head + (len(c.coded)*c.elements*(maxCode+8)+7)/8 + c.rawBytes + bitio.Slack + c.rowBytes
}

// Encode implements codec.Codec.
func (c *Codec) Encode(dst, row []byte) (int, error) {
	dst, row = dst[:c.EncodeBound()], row[:c.rowBytes]
	size := c.layout.ElementBytes
	whole := c.elements * size
	reordered := dst[len(dst)-c.rowBytes:][:whole]
	copy(reordered, row)
	c.order.applyAll(reordered)
	for _, p := range c.filled {
		for at := p; at < whole; at += size {
			if reordered[at] != c.planes[p].Value {
				return 0, codec.ErrIncompressible
			}
		}
	}
	w := bitio.NewWriter(dst, 8*c.head)
	n := 0 // code bits
	clear(dst[:c.head])
	if len(c.coded) > 0 {
		for g := range c.regions {
			first, end := c.region(g)
			middle := (first + end + 1) / 2
			for e := first; e < middle; e++ {
				for i := range c.coded {
					n += c.coded[i].put(&w, reordered[e*size+c.coded[i].plane])
				}
			}
			// The second half is written in reverse: what is decoded last comes first.
			for e := end - 1; e >= middle; e-- {
				for i := len(c.coded) - 1; i >= 0; i-- {
					n += c.coded[i].putBack(&w, reordered[e*size+c.coded[i].plane])
				}
			}
			at := 0 // offset of the field with the region's end
			if g < c.regions-1 {
				at = c.field * (1 + g)
			}
			for i := range c.field {
				dst[at+i] = byte(n >> (8 * i))
			}
		}
	}
	end := c.head + (n+7)/8
	if end+c.rawBytes >= c.rowBytes {
		return 0, codec.ErrIncompressible
	}
	w.Finish()
	for _, p := range c.raw {
		for at := p; at < whole; at += size {
			dst[end] = reordered[at]
			end++
		}
	}
	return end + copy(dst[end:], row[whole:]), nil
}

// put writes a value's code for reading upwards, and returns its bits.
func (p *coded) put(w *bitio.Writer, value byte) int {
	if k := &p.codes[value]; k.Length > 0 {
		w.Put(uint64(k.LSB), uint(k.Length))
		return int(k.Length)
	}
	k := &p.codes[escape]
	w.Put(uint64(k.LSB)|uint64(value)<<k.Length, uint(k.Length)+8)
	return int(k.Length) + 8
}

// putBack writes a value's code for reading downwards, and returns its bits.
func (p *coded) putBack(w *bitio.Writer, value byte) int {
	if k := &p.codes[value]; k.Length > 0 {
		w.Put(uint64(k.MSB), uint(k.Length))
		return int(k.Length)
	}
	k := &p.codes[escape]
	w.Put(uint64(value)|uint64(k.MSB)<<8, uint(k.Length)+8)
	return int(k.Length) + 8
}
