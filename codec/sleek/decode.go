package sleek

import (
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
	if c.blocks == (blocks{}) {
		c.decodeSubchunks(row, src)
	} else if done, at := c.decodeBlocks(row, src[:stored]); done < len(row) {
		rest := row[done:]
		c.unpack(rest, src, 8*at, uint(src[c.subchunks-1]))
		c.wordsOf(rest[:len(rest)&^7])
	}
	return stored, nil
}

// decodeSubchunks decodes a row in two passes, codes first and then words, so that the constants of each stay in registers.
func (c *Codec) decodeSubchunks(row, src []byte) {
	pos := 8 * c.subchunks
	for i := range c.subchunks {
		n := uint(src[i])
		part := row[i*c.subchunk : min((i+1)*c.subchunk, c.rowBytes)]
		next := pos + c.full*int(n)
		if len(part) == c.subchunk && next>>3+slack <= len(src) {
			c.unpackFrom(part, unsafe.SliceData(src[pos>>3:]), uint(pos&7), n)
		} else {
			c.unpack(part, src, pos, n)
		}
		pos = next
	}
	c.wordsOf(row[:len(row)&^7])
}

// slack is the number of bytes beyond the last code that unpackFrom may load.
const slack = 16

// unpack stores a subchunk's codes, which have n bits each and begin at bit pos of src. If the row ends within a group of
// eight bytes, it stores the words of this group instead.
func (c *Codec) unpack(part, src []byte, pos int, n uint) {
	at, bit := pos>>3, uint(pos&7)
	perGroup := n * c.perGroup
	whole := len(part) >> 3
	if n > 0 && at+int(bit+perGroup*uint(whole))>>3+slack > len(src) {
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

// unpackEnd is unpack for the last groups, for which unpackFrom could load beyond src, and for a last group that is not whole.
// The codes are at most slack + 9 bytes and one group long.
func (c *Codec) unpackEnd(part, src []byte, bit, n uint) {
	var in [2*slack + 24]byte
	copy(in[:], src)
	base, whole := unsafe.SliceData(in[:]), len(part)&^7
	c.unpackFrom(part[:whole], base, bit, n)
	if rest := part[whole:]; len(rest) > 0 {
		var last [8]byte
		bit += n * uint(whole/c.word)
		c.unpackFrom(last[:], unsafe.SliceData(in[bit>>3:]), bit&7, n)
		c.wordsOf(last[:])
		copy(rest, last[:])
	}
}

// unpackFrom stores whole groups of eight bytes. It shifts codes by multiplying: variable shifts would need one more register.
func (c *Codec) unpackFrom(part []byte, base *byte, bit, n uint) {
	to, groups := unsafe.SliceData(part), len(part)/8
	switch {
	case n == 0:
		clear(part)
	case c.lanes.width == 64:
		unpack64(to, base, groups, bit, n)
	case c.lanes.width == 16 && n <= 14:
		unpack14(to, base, groups, bit, n)
	case c.lanes.width == 16:
		unpack16(to, base, groups, bit, n)
	case n <= 28:
		unpack28(to, base, groups, bit, n)
	default:
		unpack32(to, base, groups, bit, n)
	}
}

func unpack64(to, base *byte, groups int, bit, n uint) {
	mask := ^uint64(0) >> (-n & 63)
	for i := range groups {
		at, shift := int(bit>>3), bit&7
		bitio.Store(to, 8*i, (bitio.Load(base, at)>>shift|bitio.Load(base, at+8)<<1<<(63-shift))&mask)
		bit += n
	}
}

func unpack32(to, base *byte, groups int, bit, n uint) {
	mask := uint64(1)<<n - 1
	for i := range groups {
		next := bit + n
		x := bitio.Load(base, int(bit>>3))>>(bit&7)&mask | bitio.Load(base, int(next>>3))>>(next&7)&mask<<32
		bit = next + n
		bitio.Store(to, 8*i, x)
	}
}

// unpack28 is unpack32 for n ≤ 28, so that one load holds two codes wherever they begin.
func unpack28(to, base *byte, groups int, bit, n uint) {
	low, up := uint64(1)<<n-1, uint64(1)<<(32-n)
	for i := range groups {
		x := bitio.Load(base, int(bit>>3)) >> (bit & 7)
		bit += 2 * n
		bitio.Store(to, 8*i, x&low|x*up&(low<<32))
	}
}

func unpack16(to, base *byte, groups int, bit, n uint) {
	low, up := uint64(1)<<n-1, uint64(1)<<(16-n)
	for i := range groups {
		next := bit + 2*n
		x, y := bitio.Load(base, int(bit>>3))>>(bit&7), bitio.Load(base, int(next>>3))>>(next&7)
		bit = next + 2*n
		bitio.Store(to, 8*i, x&low|x*up&(low<<16)|(y&low|y*up&(low<<16))<<32)
	}
}

// unpack14 is unpack16 for n ≤ 14, so that one load holds four codes wherever they begin.
func unpack14(to, base *byte, groups int, bit, n uint) {
	pair, pairUp := uint64(1)<<(2*n)-1, uint64(1)<<(32-2*n) // mask of the first two codes; factor that shifts the others
	low, up := (uint64(1)<<n-1)*0x100000001, uint64(1)<<(16-n)
	for i := range groups {
		x := bitio.Load(base, int(bit>>3)) >> (bit & 7)
		bit += 4 * n
		x = x&pair | x*pairUp&(pair<<32)
		bitio.Store(to, 8*i, x&low|x*up&(low<<16))
	}
}

// wordsOf replaces codes, in groups of eight bytes, by their words.
func (c *Codec) wordsOf(codes []byte) {
	if c.bounded != nil {
		c.bounded.decode(codes)
	} else {
		c.lanes.inverseAll(codes)
	}
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
	payload := sum*c.full - int(src[c.subchunks-1])*(c.full-c.last)
	n := c.subchunks + (payload+7)/8
	if n > len(src) {
		return 0, codec.CorruptError(name, "stored row (%d bytes) ends before its payload (%d)", len(src), n)
	}
	return n, nil
}
