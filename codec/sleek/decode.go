package sleek

import (
	"encoding/binary"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// Decode implements codec.Codec.
func (c *Codec) Decode(row, src []byte) (int, error) {
	stored, err := c.Stored(src)
	if err != nil {
		return 0, err
	}
	row = row[:c.rowBytes]
	pos := 8 * c.subchunks
	for i := range c.subchunks {
		n := uint(src[i])
		part := row[i*c.subchunk : min((i+1)*c.subchunk, c.rowBytes)]
		c.unpack(part, src, pos, n)
		pos += c.words(i) * int(n)
	}
	return stored, nil
}

// slack is the number of bytes that the loads of unpacking may touch beyond the last word's.
const slack = 24

// unpack stores a subchunk's words, which lie from bit pos of src on, n bits each.
func (c *Codec) unpack(part, src []byte, pos int, n uint) {
	if n == 0 {
		clear(part)
		return
	}
	at, bit := pos>>3, uint(pos&7)
	perGroup := n * (64 / c.lanes.width)
	whole := len(part) >> 3
	if at+int(bit+perGroup*uint(whole))>>3+slack > len(src) {
		whole = max(0, 8*(len(src)-at-slack)-7) / int(perGroup)
	}
	if whole > 0 {
		c.unpackFrom(part[:8*whole], unsafe.SliceData(src[at:]), bit, n)
	}
	if part = part[8*whole:]; len(part) > 0 {
		bit += perGroup * uint(whole)
		c.unpackEnd(part, src[at+int(bit>>3):], bit&7, n)
	}
}

// unpackEnd is unpack where src ends too soon for unpackFrom, or the row does within a group. src has the words of all
// but slack + 9 bytes less, and those of one group more that may be cut.
func (c *Codec) unpackEnd(part, src []byte, bit, n uint) {
	var in [2*slack + 24]byte
	copy(in[:], src)
	base, whole := unsafe.SliceData(in[:]), len(part)&^7
	c.unpackFrom(part[:whole], base, bit, n)
	if rest := part[whole:]; len(rest) > 0 {
		var last [8]byte
		bit += n * uint(whole/c.word)
		c.unpackFrom(last[:], unsafe.SliceData(in[bit>>3:]), bit&7, n)
		copy(rest, last[:])
	}
}

// unpackFrom stores whole groups of eight bytes.
func (c *Codec) unpackFrom(part []byte, base *byte, bit, n uint) {
	switch {
	case c.lanes.width == 64:
		c.unpack64(part, base, bit, n)
	case c.lanes.width == 16:
		c.unpack16(part, base, bit, n)
	case n <= 28:
		c.unpack28(part, base, bit, n)
	default:
		c.unpack32(part, base, bit, n)
	}
	if c.bounded != nil {
		c.bounded.decode(part)
	}
}

func (c *Codec) unpack64(part []byte, base *byte, bit, n uint) {
	mask := ^uint64(0) >> (-n & 63)
	for ; len(part) >= 8; part = part[8:] {
		i, shift := int(bit>>3), bit&7
		x := (bitio.Load(base, i)>>shift | bitio.Load(base, i+8)<<1<<(63-shift)) & mask
		bit += n
		binary.LittleEndian.PutUint64(part, c.inverse(x))
	}
}

func (c *Codec) unpack32(part []byte, base *byte, bit, n uint) {
	mask := uint64(1)<<n - 1
	for ; len(part) >= 8; part = part[8:] {
		next := bit + n
		x := bitio.Load(base, int(bit>>3))>>(bit&7)&mask | bitio.Load(base, int(next>>3))>>(next&7)&mask<<32
		bit = next + n
		binary.LittleEndian.PutUint64(part, c.inverse(x))
	}
}

// unpack28 is unpack32 for two words that one load holds at any bit.
func (c *Codec) unpack28(part []byte, base *byte, bit, n uint) {
	low := uint64(1)<<n - 1
	high, up := low<<32, (32-n)&63
	for ; len(part) >= 8; part = part[8:] {
		x := bitio.Load(base, int(bit>>3)) >> (bit & 7)
		bit += 2 * n
		binary.LittleEndian.PutUint64(part, c.inverse(x&low|x<<up&high))
	}
}

func (c *Codec) unpack16(part []byte, base *byte, bit, n uint) {
	low := uint64(1)<<n - 1
	high, up := low<<16, (16-n)&63
	for ; len(part) >= 8; part = part[8:] {
		next := bit + 2*n
		x, y := bitio.Load(base, int(bit>>3))>>(bit&7), bitio.Load(base, int(next>>3))>>(next&7)
		bit = next + 2*n
		binary.LittleEndian.PutUint64(part, c.inverse(x&low|x<<up&high|(y&low|y<<up&high)<<32))
	}
}

// inverse is the identity in the bounded mode.
func (c *Codec) inverse(z uint64) uint64 {
	if c.bounded != nil {
		return z
	}
	return c.lanes.inverse(z)
}

// Stored implements codec.Codec.
func (c *Codec) Stored(src []byte) (int, error) {
	if len(src) < c.subchunks {
		return 0, codec.CorruptError(name, "stored row (%d bytes) is shorter than its widths (%d)", len(src), c.subchunks)
	}
	sum, most := 0, byte(0)
	for _, n := range src[:c.subchunks] {
		sum += int(n)
		most = max(most, n)
	}
	if uint(most) > c.lanes.width {
		return 0, codec.CorruptError(name, "width (%d bits) is more than a word's (%d)", most, c.lanes.width)
	}
	last := c.subchunks - 1
	full := c.subchunk / c.word
	payload := sum*full - int(src[last])*(full-c.words(last))
	n := c.subchunks + (payload+7)/8
	if n > len(src) {
		return 0, codec.CorruptError(name, "stored row (%d bytes) ends before its payload (%d)", len(src), n)
	}
	return n, nil
}
