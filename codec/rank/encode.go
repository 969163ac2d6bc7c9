package rank

import (
	"encoding/binary"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// EncodeBound implements codec.Codec. In the worst case every element has a digit in each level and its symbol as it is.
func (c *Codec) EncodeBound() int {
	return c.header + c.rowBytes + (c.classBits+c.elements*c.raw+7)/8 + bitio.Slack
}

// Encode implements codec.Codec.
func (c *Codec) Encode(dst, row []byte) (int, error) {
	row = row[:c.rowBytes]
	class := c.classOf(row)
	n := c.encode(dst[:c.EncodeBound()], row, class)
	if n >= c.rowBytes {
		return 0, codec.ErrIncompressible
	}
	field := n | class<<classShift
	for i := range c.header {
		dst[i] = byte(field >> (8 * i))
	}
	return n, nil
}

// encode writes the stored form of a row of the given class without its length field, and returns its length.
func (c *Codec) encode(dst, row []byte, class int) int {
	w := bitio.NewWriter(dst, 8*c.header)
	if c.header == 0 {
		w.Put(uint64(class), uint(c.classBits))
	}
	whole := c.elements * c.shape.ElementBytes
	for at := 0; at < whole; at += segmentBytes {
		var bases []byte
		if c.bases != nil {
			bases = c.bases[class*c.baseStride+at:]
		}
		c.encodeSegment(&w, row[at:min(at+segmentBytes, whole)], bases)
	}
	for _, b := range row[whole:] {
		w.Put(uint64(b), 8)
	}
	return w.Finish()
}

// encodeSegment writes a segment. bases begins with those of its columns, as elements, if there are any.
func (c *Codec) encodeSegment(w *bitio.Writer, row, bases []byte) {
	var symbols [segmentElements]uint16
	var rests [segmentBytes + bitio.Slack]byte // a bit stream
	n := len(row) / c.shape.ElementBytes
	c.split(&symbols, &rests, row, bases)
	passed := n
	for k := range c.levels {
		passed = c.levels[k].put(w, c.codes, symbols[:passed])
	}
	for _, s := range symbols[:passed] {
		w.Put(uint64(s), uint(c.shape.SymbolBits))
	}
	at, left := 0, n*c.rest
	for ; left >= 64; left -= 64 {
		w.Put(binary.LittleEndian.Uint64(rests[at:]), 64)
		at += 8
	}
	w.Put(binary.LittleEndian.Uint64(rests[at:])&(1<<left-1), uint(left))
}

// put writes the digits of symbols in a level. It moves those that are passed on to the front, and returns how many they are. Multiplying
// places digits: shifts by variables would need more registers.
func (l *level) put(w *bitio.Writer, codes []uint8, symbols []uint16) (passed int) {
	up := uint64(1) << (l.bits & 7)
	for first := 0; first < len(symbols); first += 15 { // at most 60 bits
		some := symbols[first:min(first+15, len(symbols))]
		digits, place := uint64(0), uint64(1)
		for _, s := range some {
			digit := l.digits[codes[s]]
			digits += uint64(digit&15) * place
			place *= up
			symbols[passed] = s
			passed += int(digit >> 7)
		}
		w.Put(digits, uint(len(some))*l.bits)
	}
	return passed
}

// split splits a segment's elements into symbols and the bit stream of their rests, in steps of eight bytes as steps16 and steps32 join
// them. The last step may write a few symbols and bits more.
func (c *Codec) split(symbols *[segmentElements]uint16, rests *[segmentBytes + bitio.Slack]byte, row, bases []byte) {
	var words [segmentBytes / 8]uint64
	n := c.rotate(&words, row, bases)
	w := bitio.NewWriter(rests[:], 0)
	rest := uint(c.rest) & 63
	switch c.shape.ElementBytes {
	case 2:
		one, pair, low := low32*(uint64(1)<<rest-1), uint64(1)<<(2*rest)-1, low16*(uint64(1)<<(16-rest)-1)
		other, otherPair, down, pairDown := one<<rest, pair<<(2*rest), 16-rest, 32-2*rest
		for i, x := range words[:n] {
			binary.LittleEndian.PutUint64((*[8]byte)(unsafe.Pointer(&symbols[4*i]))[:], x>>rest&low)
			x = x&one | x>>(down&63)&other
			w.Put(x&pair|x>>(pairDown&63)&otherPair, 4*rest)
		}
	case 4:
		one, down, low := uint64(1)<<rest-1, 32-rest, uint64(1)<<(32-rest)-1
		other := one << rest
		for i, x := range words[:n] {
			s := x >> rest
			symbols[2*i], symbols[2*i+1] = uint16(s&low), uint16(s>>32)
			w.Put(x&one|x>>(down&63)&other, 2*rest)
		}
	default:
		for i, x := range words[:n] {
			symbols[i] = uint16(x >> rest)
			w.Put(x&(1<<rest-1), rest)
		}
	}
	w.Finish()
}

// rotate writes the rotated elements of a segment, less their bases, and returns the number of words.
func (c *Codec) rotate(words *[segmentBytes / 8]uint64, row, bases []byte) int {
	width := 8 * uint(c.shape.ElementBytes) & 127
	one := ^uint64(0) / (1<<width - 1) // the lowest bit of each element
	top, down := one<<(width-1), width-1
	n := (len(row) + 7) / 8
	for i := range len(row) / 8 {
		words[i] = binary.LittleEndian.Uint64(row[8*i:])
	}
	if len(row)%8 != 0 {
		words[n-1] = bitio.Group(row, n-1)
	}
	if c.shape.Rotate != 0 {
		for i, x := range words[:n] {
			words[i] = x<<1&^one | x>>(down&63)&one
		}
	}
	if bases != nil {
		for i, x := range words[:n] {
			base := binary.LittleEndian.Uint64(bases[8*i:])
			words[i] = ((x | top) - base&^top) ^ (x^^base)&top // no borrow leaves an element
		}
	}
	return n
}
