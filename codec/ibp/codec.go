package ibp

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/tensorcache/tensorcache/codec/internal/bitio"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

// Codec is IBP for the rows of one table. It implements [codec.Codec].
type Codec struct {
	name     string
	chunk    int // S: bytes of a chunk, 2, 4 or 8
	rowBytes int
	chunks   int // V
	groups   []group
	// Of a set of Clustered: its number, stored in lead bits before the payload.
	index uint64
	lead  int
}

// group is eight bytes of a row: four 2-byte chunks, two 4-byte chunks or one 8-byte chunk, packed and expanded as one 64-bit
// word. Chunks move within their part of it, so that each may participate or not.
type group struct {
	mask, val uint64
	// moves[i] are the bits that step i of packing shifts right by 1<<i, and that expanding, last step first, shifts
	// back: branch-free steps instead of a loop over the mask's bits (Hacker's Delight, section 7-4).
	moves [6]uint64
	kept  uint8    // bits kept when all of the group participates
	low   uint8    // S = 4: bits kept of the first chunk
	each  [4]uint8 // S = 2: bits kept of each chunk
	short bool     // no bit moves by 16 or more
}

// New returns the codec with the given mask and bitval, each the row's bytes padded to whole chunks. bitval must be
// zero wherever mask is. Padding bits are set as the format wants them.
func New(chunk, rowBytes int, mask, bitval []byte) (*Codec, error) {
	if chunk != 2 && chunk != 4 && chunk != 8 {
		return nil, fmt.Errorf("ibp: chunk (%d bytes) must be 2, 4 or 8", chunk)
	}
	if err := rowcodec.CheckRow("ibp", rowBytes); err != nil {
		return nil, err
	}
	c := &Codec{name: fmt.Sprintf("ibp%d", chunk), chunk: chunk, rowBytes: rowBytes, chunks: (rowBytes + chunk - 1) / chunk}
	if n := c.chunks * chunk; len(mask) != n || len(bitval) != n {
		return nil, fmt.Errorf("ibp: mask and bitval (%d and %d bytes) must have %d bytes each", len(mask), len(bitval), n)
	}
	c.groups = make([]group, (rowBytes+7)/8)
	for g := range c.groups {
		valid := groupBits(rowBytes, g)
		m, v := bitio.Group(mask, g)|^valid, bitio.Group(bitval, g)&valid
		if v&^m != 0 {
			return nil, fmt.Errorf("ibp: bitval (%016x) has bits outside mask (%016x) in bytes %d to %d", v, m, 8*g, 8*g+7)
		}
		c.groups[g] = newGroup(m, v, chunk)
	}
	return c, nil
}

func newGroup(mask, val uint64, chunk int) group {
	g := group{
		mask: mask, val: val,
		kept: uint8(bits.OnesCount64(^mask)),
		low:  uint8(bits.OnesCount32(^uint32(mask))),
	}
	// The bits above each chunk are kept in place by a mask of zeros there.
	width := 8 * chunk
	part := uint64(1)<<(width-1)<<1 - 1
	for at := 0; at < 64; at += width {
		for i, m := range moves(mask >> at & part) {
			g.moves[i] |= m & part << at
		}
	}
	for j := range g.each {
		g.each[j] = uint8(bits.OnesCount16(^uint16(mask >> (16 * j))))
	}
	g.short = g.moves[4]|g.moves[5] == 0
	return g
}

// moves returns the steps that close the gaps of mask: a kept bit moves down by the number of masked bits below it, and
// step i moves those whose distance has bit i.
func moves(mask uint64) (m [6]uint64) {
	keep, below := ^mask, mask<<1
	for i := range m {
		parity := below
		for s := 1; s < 64; s <<= 1 {
			parity ^= parity << s
		}
		m[i] = parity & keep
		keep = keep ^ m[i] | m[i]>>(1<<i)
		below &^= parity
	}
	return m
}

// pack gathers the kept bits of each chunk at the chunk's low end.
func (g *group) pack(x uint64) uint64 {
	x &^= g.mask
	for i, m := range g.moves {
		t := x & m
		x = x ^ t | t>>(1<<i)
	}
	return x
}

// expand puts the low bits of each chunk back where pack took them from, and the bitval over the masked bits.
func (g *group) expand(x uint64) uint64 {
	m := &g.moves
	x ^= (x ^ x<<32) & m[5]
	x ^= (x ^ x<<16) & m[4]
	return g.expandShort(x)
}

// expandShort is expand for groups that move no bit by 16 or more; small enough to be inlined.
func (g *group) expandShort(x uint64) uint64 {
	m := &g.moves
	x ^= (x ^ x<<8) & m[3]
	x ^= (x ^ x<<4) & m[2]
	x ^= (x ^ x<<2) & m[1]
	x ^= (x ^ x<<1) & m[0]
	return x ^ (x^g.val)&g.mask
}

// groupBits has ones where group g holds bits of the row.
func groupBits(rowBytes, g int) uint64 {
	if rest := rowBytes - 8*g; rest < 8 {
		return 1<<(8*rest) - 1
	}
	return ^uint64(0)
}

// Name implements codec.Codec: "ibp2", "ibp4" or "ibp8".
func (c *Codec) Name() string { return c.name }

// RowBytes implements codec.Codec.
func (c *Codec) RowBytes() int { return c.rowBytes }

// MetadataBytes implements codec.Codec.
func (c *Codec) MetadataBytes() int64 {
	if c.chunk == 2 {
		return int64(coderBytes(c.chunk, c.rowBytes, 1))
	}
	return int64(blocksBytes(c.chunk, c.rowBytes, c.steps()))
}

// MaskBitval returns copies of the table's mask and bitval, padded to whole chunks.
func (c *Codec) MaskBitval() (mask, bitval []byte) {
	for _, g := range c.groups {
		mask = binary.LittleEndian.AppendUint64(mask, g.mask)
		bitval = binary.LittleEndian.AppendUint64(bitval, g.val)
	}
	n := c.chunks * c.chunk
	return mask[:n], bitval[:n]
}
