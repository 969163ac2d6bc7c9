package ibp

import (
	"encoding/binary"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// EncodeBound implements codec.Codec: participation bits, every chunk whole, and room for the last 8-byte store.
func (c *Codec) EncodeBound() int { return (c.chunks+c.lead+7)/8 + 8*len(c.groups) + bitio.Slack }

// Encode implements codec.Codec.
func (c *Codec) Encode(dst, row []byte) (int, error) {
	n := c.encode(dst[:c.EncodeBound()], row[:c.rowBytes])
	if n >= c.rowBytes {
		return 0, codec.ErrIncompressible
	}
	return n, nil
}

// encode writes the stored form, however long it is.
func (c *Codec) encode(dst, row []byte) int {
	const half = 1<<32 - 1
	w := bitio.NewWriter(dst, c.chunks)
	w.Put(c.index, uint(c.lead))
	tail := dst[c.chunks>>3:][:1]
	var part uint64 // participation bits not yet stored
	var partFill uint
	partNext := 0
	perGroup := uint(8 / c.chunk)
	for g := range c.groups {
		gr := &c.groups[g]
		x := bitio.Group(row, g)
		bad := x&gr.mask ^ gr.val
		var p uint64
		switch perGroup {
		case 1:
			if bad == 0 {
				p = 1
				w.Put(gr.pack(x), uint(gr.kept))
			} else {
				w.Put(x, 64)
			}
		case 4:
			packed := gr.pack(x)
			for j, kept := range gr.each {
				on := uint64((int64(bad>>(16*j)&0xffff) - 1) >> 63)
				p |= on & 1 << j
				w.Put((packed&on|x&^on)>>(16*j)&0xffff, uint(16-(16-uint64(kept))&on))
			}
		default:
			// Branch-free, as in decode4: first and second are all ones where that chunk participates.
			first := uint64((int64(bad&half) - 1) >> 63)
			second := uint64((int64(bad>>32) - 1) >> 63)
			p = first&1 | second&2
			sel := first&half | second&^half
			x = gr.pack(x)&sel | x&^sel
			low := 32 - (32-uint64(gr.low))&first
			high := 32 - (32-uint64(gr.kept-gr.low))&second
			w.Put(x&half|x>>32<<low, uint(low+high))
		}
		part |= p << partFill
		if partFill += perGroup; partFill == 64 {
			// The payload's first byte may share the last of these eight; it is merged below.
			if partNext+8 <= c.chunks>>3 {
				binary.LittleEndian.PutUint64(dst[partNext:], part)
				partNext, part, partFill = partNext+8, 0, 0
			}
		}
	}
	end := w.Finish()
	for ; partNext < c.chunks>>3; partNext++ {
		dst[partNext] = byte(part)
		part >>= 8
	}
	if rest := c.chunks & 7; rest != 0 {
		tail[0] |= byte(part) & (1<<rest - 1)
	}
	return end
}
