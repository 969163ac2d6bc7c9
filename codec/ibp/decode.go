package ibp

import (
	"encoding/binary"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// Decode implements codec.Codec.
func (c *Codec) Decode(row, src []byte) (int, error) {
	if err := c.checkHead(src); err != nil {
		return 0, err
	}
	row = row[:c.rowBytes]
	var pos int
	switch c.chunk {
	case 2:
		pos = c.decode2(row, src)
	case 4:
		pos = c.decode4(row, src)
	default:
		pos = c.decode8(row, src)
	}
	return c.end(src, pos)
}

// checkHead returns an error if src ends before the row's participation bits.
func (c *Codec) checkHead(src []byte) error {
	if n := (c.chunks + 7) / 8; len(src) < n {
		return codec.CorruptError(c.name, "stored row (%d bytes) is shorter than its participation bits (%d)", len(src), n)
	}
	return nil
}

// end returns the stored length of a row whose payload ends at bit pos, or an error if src ends before.
func (c *Codec) end(src []byte, pos int) (int, error) {
	n := (pos + 7) / 8
	if n > len(src) {
		return 0, codec.CorruptError(c.name, "stored row (%d bytes) ends before its payload (%d)", len(src), n)
	}
	return n, nil
}

// decode2 returns the bit position after the payload, which may lie beyond src: bits beyond it read as zeros.
func (c *Codec) decode2(row, src []byte) int {
	pos := c.chunks + c.lead
	var part uint64
	for g := range c.groups {
		gr := &c.groups[g]
		if g&15 == 0 {
			part = c.participation(src, g>>4)
		}
		stored := bitio.Window(src, pos)
		var x, sel uint64
		at := uint64(0)
		for j, kept := range gr.each {
			on := -(part >> j & 1)
			x |= stored >> (at & 63) & 0xffff << (16 * j)
			sel |= on & 0xffff << (16 * j)
			at += 16 - (16-uint64(kept))&on
		}
		part >>= 4
		pos += int(at)
		x ^= (x ^ gr.expandShort(x)) & sel
		if 8*g+8 <= len(row) {
			binary.LittleEndian.PutUint64(row[8*g:], x)
		} else {
			bitio.PutTail(row[8*g:], x)
		}
	}
	return pos
}

// decode4 returns what decode2 does.
func (c *Codec) decode4(row, src []byte) int {
	pos := c.chunks + c.lead
	for first := 0; first < len(c.groups); first += 32 {
		groups := c.groups[first:min(first+32, len(c.groups))]
		pos = decodePairs(groups, row[8*first:], src, pos, c.participation(src, first/32))
	}
	return pos
}

// decodePairs decodes up to 32 groups of two 4-byte chunks. It does not branch on which of a group's chunks
// participate: that is noise no branch predictor learns.
func decodePairs(groups []group, row, src []byte, pos int, part uint64) int {
	const half = 1<<32 - 1
	base := unsafe.SliceData(src)
	last := 8 * (len(src) - 16) // up to this bit, a group's two loads stay inside src
	for i := range groups {
		g := &groups[i]
		first, second := -(part & 1), -(part >> 1 & 1)
		sel := first&half | second&^half
		part >>= 2
		x := g.val
		if n := int(g.kept); n != 0 || sel != ^uint64(0) { // sparse tables are mostly the other way
			low := 32 - (32-int(g.low))&int(first)
			if pos <= last {
				x = bitio.Load(base, pos>>3) >> (pos & 7) & half
				next := pos + low
				x |= bitio.Load(base, next>>3) >> (next & 7) << 32
			} else {
				x = bitio.Window(src, pos)&half | bitio.Window(src, pos+low)<<32
			}
			pos += low + 32 - (32-n+int(g.low))&int(second)
			if g.short {
				x ^= (x ^ g.expandShort(x)) & sel
			} else {
				x ^= (x ^ g.expand(x)) & sel
			}
		}
		if 8*i+8 <= len(row) {
			binary.LittleEndian.PutUint64(row[8*i:], x)
		} else {
			bitio.PutTail(row[8*i:], x)
		}
	}
	return pos
}

func (c *Codec) decode8(row, src []byte) int {
	pos := c.chunks + c.lead
	var part uint64
	for g := range c.groups {
		gr := &c.groups[g]
		if g&63 == 0 {
			part = c.participation(src, g>>6)
		}
		var x uint64
		switch i := pos >> 3; {
		case part&1 == 0:
			x = bitio.Window(src, pos)
			pos += 64
		case gr.short && gr.kept <= 57 && i+8 <= len(src): // one load holds the kept bits at any bit offset
			x = gr.expandShort(binary.LittleEndian.Uint64(src[i:]) >> (pos & 7))
			pos += int(gr.kept)
		case gr.kept == 0:
			x = gr.val
		default:
			x = gr.expand(bitio.Window(src, pos))
			pos += int(gr.kept)
		}
		part >>= 1
		if 8*g+8 <= len(row) {
			binary.LittleEndian.PutUint64(row[8*g:], x)
		} else {
			bitio.PutTail(row[8*g:], x)
		}
	}
	return pos
}

// participation returns 64 participation bits from bit 64·block on; those past the last chunk are ones, as the missing
// second chunk of the last group participates.
func (c *Codec) participation(src []byte, block int) uint64 {
	part := bitio.Window(src, 64*block)
	if rest := c.chunks - 64*block; rest < 64 {
		part |= ^uint64(0) << rest
	}
	return part
}

// stored returns the bits that the group takes when its chunks participate as the low bits of part say.
func (g *group) stored(chunk int, part uint64) int {
	switch chunk {
	case 8:
		return 64 - int(64-g.kept)*int(part&1)
	case 4:
		return 64 - int(32-g.low)*int(part&1) - int(32-(g.kept-g.low))*int(part>>1&1)
	}
	n := 64
	for j, kept := range g.each {
		n -= int(16-kept) * int(part>>j&1)
	}
	return n
}

// Stored implements codec.Codec.
func (c *Codec) Stored(src []byte) (int, error) {
	if err := c.checkHead(src); err != nil {
		return 0, err
	}
	pos := c.chunks + c.lead
	perBlock := 8 * c.chunk // groups whose participation bits fill 64 bits
	for first := 0; first < len(c.groups); first += perBlock {
		part := c.participation(src, first/perBlock)
		for g := first; g < min(first+perBlock, len(c.groups)); g++ {
			pos += c.groups[g].stored(c.chunk, part)
			part >>= 8 / c.chunk
		}
	}
	return c.end(src, pos)
}
