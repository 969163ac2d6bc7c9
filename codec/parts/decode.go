package parts

import (
	"math/bits"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// Stored implements codec.Codec.
func (c *Codec) Stored(src []byte) (int, error) {
	if len(src) < max(1, c.head) {
		return 0, codec.CorruptError(name, "stored row (%d bytes) ends in its head", len(src))
	}
	n := c.codes
	for i := range c.head {
		n += int(src[i]) << (8 * i)
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
	pos := c.fixed
	for i := range c.planes {
		p := &c.planes[i]
		p.rests(row, src)
		if p.Kind != Coded {
			continue
		}
		for first := 0; first < p.elements; first += segment {
			if pos = p.segment(row, src, first, min(segment, p.elements-first), pos); pos > 8*n {
				return 0, codec.CorruptError(name, "stored row (%d bytes) ends within its codes", n)
			}
		}
		if len(p.Bases) > 0 {
			at := p.at
			for _, base := range p.Bases {
				row[at] += base
				at += p.stride
			}
		}
	}
	if c.head > 0 && (pos+7)/8 != n {
		return 0, codec.CorruptError(name, "stored row (%d bytes) has %d bits behind its codes", n, 8*n-pos)
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
		x, step := bitio.Window(src, pos), rest
		if rest == wordRest && left >= 8 {
			x, step = p.fromWord(uint32(x)), 8
		}
		for range min(8, left) {
			row[at] = byte(x) & mask
			x >>= step
			at += p.stride
		}
		pos += 8 * p.rest
		left -= min(8, left)
	}
}

// lowBits has the lowest bit of each byte.
const lowBits = 0x0101010101010101

// fromWord returns the eight rests of a word in the lowest bits of a byte each. The others are undefined.
func (p *plane) fromWord(w uint32) uint64 {
	x := uint64(bits.RotateLeft32(w, 4))<<32 | uint64(w)
	if p.turn == 1 {
		x = x<<1&^lowBits | x>>7&lowBits
	}
	return x
}

// toWord returns the word of eight rests, a byte each.
func (p *plane) toWord(x uint64) uint32 {
	if p.turn == 1 {
		x = x>>1&^(lowBits<<7) | x&lowBits<<7
	}
	return uint32(x) | bits.RotateLeft32(uint32(x>>32), -4)
}

// segment adds the symbols of the n elements from first on to the row. Their level 1 begins at bit pos. It returns where their escapes end.
func (p *plane) segment(row, src []byte, first, n, pos int) int {
	var list [segment]uint16 // the elements that a level passes on
	passed := 0
	digits, ones := uint(p.Digits[0]), uint64(1)<<p.Digits[0]-1
	at, place := p.digitsAt+first*int(digits), p.at+first*p.stride
	for e := 0; e < n; {
		x := bitio.Window(src, at)
		for range min(32, n-e) {
			digit := x & ones
			x >>= digits
			row[place] |= p.named[0][digit&3]
			list[passed] = uint16(place)
			passed += int((digit + 1) >> digits)
			place += p.stride
			e++
		}
		at += 32 * int(digits)
	}
	digits, ones = uint(p.Digits[1]), uint64(1)<<p.Digits[1]-1
	escapes := 0
	at = pos
	for i := 0; i < passed; {
		x := bitio.Window(src, at)
		for range min(32, passed-i) {
			digit := x & ones
			x >>= digits
			place := list[i]
			row[place] |= p.named[1][digit&3]
			list[escapes] = place
			escapes += int((digit + 1) >> digits)
			i++
		}
		at += 32 * int(digits)
	}
	pos += passed * int(digits)
	low := byte(1<<p.SymbolBits - 1)
	for _, place := range list[:escapes] {
		row[place] |= byte(bitio.Window(src, pos)) & low << p.rest
		pos += p.SymbolBits
	}
	return pos
}
