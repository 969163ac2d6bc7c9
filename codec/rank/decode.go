package rank

import (
	"encoding/binary"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// Decode implements codec.Codec.
func (c *Codec) Decode(row, src []byte) (int, error) {
	row = row[:c.rowBytes]
	if len(src) < c.header {
		return 0, codec.CorruptError("rank", "stored row (%d bytes) is shorter than its length (%d)", len(src), c.header)
	}
	class, pos := c.front(src)
	whole := c.elements * c.shape.ElementBytes
	for at := 0; at < whole && pos <= 8*len(src); at += segmentBytes {
		part := row[at:min(at+segmentBytes, whole)]
		if len(part)/c.shape.ElementBytes*c.rest < restSlack {
			pos = c.decodeShort(part, src, pos)
		} else {
			pos = c.decodeSegment(part, src, pos)
		}
		if c.bases != nil {
			c.addBases(part, class, at)
		}
	}
	for i := whole; i < c.rowBytes; i++ {
		row[i] = byte(bitio.Window(src, pos))
		pos += 8
	}
	return c.end(src, pos)
}

// end returns the stored length of a row whose bits end at pos, or an error if that contradicts the row.
func (c *Codec) end(src []byte, pos int) (int, error) {
	n := (pos + 7) / 8
	if n > len(src) {
		return 0, codec.CorruptError("rank", "stored row (%d bytes) ends before its payload (%d)", len(src), n)
	}
	if n >= c.rowBytes {
		return 0, codec.CorruptError("rank", "stored row (%d bytes) is no shorter than the row (%d)", n, c.rowBytes)
	}
	if c.header != 0 {
		if err := c.checkFront(src); err != nil {
			return 0, err
		}
		if c.length(src) != n {
			return 0, codec.CorruptError("rank", "stored row's length field (%d) is not the end of its payload (%d)", c.length(src), n)
		}
	}
	return n, nil
}

// length reads the length of a stored row from its length field. REQUIRES: c.header != 0.
func (c *Codec) length(src []byte) int {
	n := int(binary.LittleEndian.Uint16(src))
	if c.header == 3 {
		n |= int(src[2]) << 16
	}
	if c.bases != nil {
		n &= 1<<classShift - 1
	}
	return n
}

// decodeShort is decodeSegment for segments with less than restSlack bits of rests. Bits beyond the end of src read as zeros.
func (c *Codec) decodeShort(row, src []byte, pos int) int {
	var padded [shortBound]byte
	copy(padded[:], src[pos>>3:])
	return c.decodeSegment(row, padded[:], pos&7) + pos&^7
}

// decodeSegment writes a segment's elements to row and returns the bit position of its end, which may lie beyond src: then row
// is undefined. The segment must have at least restSlack bits of rests, so that the levels before them can be loaded eight
// bytes at a time.
func (c *Codec) decodeSegment(row, src []byte, pos int) int {
	var symbols [segmentElements + 32]uint16 // level 0 is decoded in steps of 8, 16 or 32 elements
	n := len(row) / c.shape.ElementBytes
	pos = c.decodeSymbols(&symbols, n, src, pos)
	end := pos + n*c.rest
	if end > 8*len(src) {
		return end
	}
	switch c.shape.ElementBytes {
	case 2:
		c.join16(row, &symbols, src, pos)
	case 4:
		c.join32(row, &symbols, src, pos)
	default:
		c.join64(row, &symbols, src, pos)
	}
	return end
}

// decodeSymbols decodes the levels of a segment to the symbols of its n elements, shifted by c.symbolShift. It returns the
// bit position of the rests. If src does not hold all rests from there, the symbols are undefined.
func (c *Codec) decodeSymbols(symbols *[segmentElements + 32]uint16, n int, src []byte, pos int) int {
	var list [segmentElements + 32]uint8
	base, last := unsafe.SliceData(src), 8*len(src)-n*c.rest
	size := c.levels[0].bits
	start := pos
	if pos += n * int(size); pos > last {
		return pos
	}
	passed, to := 0, 0
	each, lanes, step := 4, 4*size, 32/int(size) // digits and bits per table lookup, digits per load
	if size > 2 {
		each, lanes, step = 2, 2*size, 8
	}
	mask := uint64(1)<<lanes - 1
	first, place := unsafe.Pointer(&symbols[0]), unsafe.SliceData(list[:])
	for i := 0; i < n; i += step {
		w := bitio.Load(base, start>>3) >> (start & 7)
		start += 32
		if size == 3 {
			start -= 8
		}
		if left := n - i; left < step {
			w &= 1<<(uint(left)*size&63) - 1 // digits beyond the segment must pass nothing on
		}
		for to = i; to < i+step; to += each {
			f := &c.first[w&mask&255]
			w >>= lanes & 15
			*(*uint64)(unsafe.Add(first, 2*to)) = f.symbols
			*(*uint32)(unsafe.Add(unsafe.Pointer(place), passed)) = f.passed + uint32(to)*0x01010101
			passed += int(f.count)
		}
	}
	for k := 1; k < len(c.levels) && passed > 0; k++ {
		l := &c.levels[k]
		start = pos
		if pos += passed * int(l.bits); pos > last {
			return pos
		}
		mask, next := uint64(1)<<l.bits-1, 0
		size := l.bits & 7
		for first := 0; first < passed; first += 8 {
			w := bitio.Load(base, start>>3) >> (start & 7)
			start += 8 * int(l.bits)
			for _, i := range list[first:min(first+8, passed)] {
				digit := w & mask
				w >>= size
				symbols[i] = l.symbols[digit&15]
				list[next&255] = i
				next += int(l.passed[digit&15])
			}
		}
		passed = next
	}
	start = pos
	if pos += passed * c.shape.SymbolBits; pos > last {
		return pos
	}
	mask = uint64(1)<<c.shape.SymbolBits - 1
	for _, i := range list[:passed] {
		symbols[i] = uint16(bitio.Load(base, start>>3)>>(start&7)&mask) << c.symbolShift
		start += c.shape.SymbolBits
	}
	return pos
}

// Stored implements codec.Codec.
func (c *Codec) Stored(src []byte) (int, error) {
	if len(src) < c.header {
		return 0, codec.CorruptError("rank", "stored row (%d bytes) is shorter than its length (%d)", len(src), c.header)
	}
	if c.header != 0 {
		if err := c.checkFront(src); err != nil {
			return 0, err
		}
		n := c.length(src)
		if n > len(src) || n >= c.rowBytes {
			return 0, codec.CorruptError("rank", "stored row's length field (%[3]d) must be at most the bytes given (%[1]d) and below the row's (%[2]d)", len(src), c.rowBytes, n)
		}
		return n, nil
	}
	n := c.elements // a row without a length field is one segment
	pos := c.classBits
	for _, l := range c.levels {
		ones := 0
		for i := range n {
			digit := bitio.Window(src, pos+i*int(l.bits)) & (1<<l.bits - 1)
			ones += int((digit + 1) >> l.bits)
		}
		pos += n * int(l.bits)
		n = ones
	}
	return c.end(src, pos+n*c.shape.SymbolBits+c.elements*c.rest+8*(c.rowBytes-c.elements*c.shape.ElementBytes))
}
