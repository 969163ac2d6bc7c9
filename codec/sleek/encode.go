package sleek

import (
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// EncodeBound implements codec.Codec: the widths, every word in full, and room for the last store.
func (c *Codec) EncodeBound() int {
	return c.subchunks + (c.rowBytes+c.word-1)/c.word*c.word + bitio.Slack
}

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
	w := bitio.NewWriter(dst, 8*c.subchunks)
	var codes [maxSubchunk / 8]uint64
	for i := range c.subchunks {
		part := row[i*c.subchunk : min((i+1)*c.subchunk, len(row))]
		n := c.code(codes[:], part)
		dst[i] = byte(n)
		c.lanes.pack(&w, codes[:], c.words(i), n)
	}
	return w.Finish()
}

// code computes the codes of a subchunk, in groups of eight bytes, and returns their width.
func (c *Codec) code(codes []uint64, part []byte) uint {
	all := uint64(0)
	for g := range (len(part) + 7) / 8 {
		x := bitio.Group(part, g)
		if c.bounded == nil {
			x = c.lanes.forward(x)
		} else {
			x = c.bounded.codes(x)
		}
		codes[g] = x
		all |= x
	}
	return c.lanes.widest(all)
}

// pack appends the first words codes, n bits each.
func (l *lanes) pack(w *bitio.Writer, codes []uint64, words int, n uint) {
	perGroup := int(64 / l.width)
	for _, x := range codes[:words/perGroup] {
		switch l.width {
		case 64:
			w.Put(x, n)
		case 32:
			w.Put(x&l.full|x>>32<<n, 2*n)
		default:
			w.Put(x&l.full|x>>16&l.full<<n|x>>32&l.full<<(2*n)|x>>48<<(3*n), 4*n)
		}
	}
	if rest := words % perGroup; rest != 0 {
		for x := codes[words/perGroup]; rest > 0; rest-- {
			w.Put(x&l.full, n)
			x >>= l.width
		}
	}
}
