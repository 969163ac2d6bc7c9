package rank

import (
	"encoding/binary"
	"math/bits"
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
	pos := 8 * c.header
	whole := c.elements * c.shape.ElementBytes
	for at := 0; at < whole; at += segmentBytes {
		part := row[at:min(at+segmentBytes, whole)]
		if pos>>3+segmentBound <= len(src) {
			pos = c.decodeSegment(part, src, pos)
			continue
		}
		if pos > 8*len(src) {
			break
		}
		pos = c.decodeLast(part, src, pos)
	}
	for i := whole; i < c.rowBytes; i++ {
		row[i] = byte(bitio.Window(src, pos))
		pos += 8
	}
	return c.end(src, pos)
}

// end returns the stored length of a row whose bits end at pos, if that is right.
func (c *Codec) end(src []byte, pos int) (int, error) {
	n := (pos + 7) / 8
	if n > len(src) {
		return 0, codec.CorruptError("rank", "stored row (%d bytes) ends before its payload (%d)", len(src), n)
	}
	if n >= c.rowBytes {
		return 0, codec.CorruptError("rank", "stored row (%d bytes) is no shorter than the row (%d)", n, c.rowBytes)
	}
	if c.header != 0 && c.length(src) != n {
		return 0, codec.CorruptError("rank", "stored row says that it has %d bytes, but its payload ends after %d", c.length(src), n)
	}
	return n, nil
}

// length reads a row's length; there must be one.
func (c *Codec) length(src []byte) int {
	n := int(binary.LittleEndian.Uint16(src))
	if c.header == 3 {
		n |= int(src[2]) << 16
	}
	return n
}

// decodeLast is decodeSegment where src may end before what decoding loads: bits beyond it are zeros.
func (c *Codec) decodeLast(row, src []byte, pos int) int {
	var padded [segmentBound]byte
	copy(padded[:], src[pos>>3:])
	return c.decodeSegment(row, padded[:], pos&7) + pos&^7
}

// decodeSegment writes a segment's elements to row and returns the bit position after it. src has segmentBound bytes from
// the one that pos is in.
func (c *Codec) decodeSegment(row, src []byte, pos int) int {
	var symbols [segmentElements + 32]uint16 // level 0 is decoded 8, 16 or 32 elements at a time
	n := len(row) / c.shape.ElementBytes
	pos = c.decodeSymbols(&symbols, n, src, pos)
	base := unsafe.SliceData(src)
	switch c.shape.ElementBytes {
	case 2:
		c.join16(row, &symbols, base, pos)
	case 4:
		rest, rotate := uint(c.rest), -c.shape.Rotate
		mask := uint32(1)<<rest - 1
		for i, at := 0, pos; i < n; i++ {
			x := uint32(bitio.Load(base, at>>3)>>(at&7))&mask | uint32(symbols[i&255])<<rest
			binary.LittleEndian.PutUint32(row[4*i:], bits.RotateLeft32(x, rotate))
			at += int(rest)
		}
	default:
		rest, rotate := uint(c.rest), -c.shape.Rotate
		mask := uint64(1)<<rest - 1
		for i, at := 0, pos; i < n; i++ {
			// A rest has up to 62 bits: one load holds it at few bit positions.
			x := bitio.Load(base, at>>3)>>(at&7) | bitio.Load(base, at>>3+1)>>56<<1<<(63-at&7)
			binary.LittleEndian.PutUint64(row[8*i:], bits.RotateLeft64(x&mask|uint64(symbols[i&255])<<rest, rotate))
			at += int(rest)
		}
	}
	return pos + n*c.rest
}

// decodeSymbols decodes a segment's levels: the symbols of its n elements, shifted by c.place. It returns the bit position
// where the rests begin.
func (c *Codec) decodeSymbols(symbols *[segmentElements + 32]uint16, n int, src []byte, pos int) int {
	base := unsafe.SliceData(src)
	var list [segmentElements + 32]uint8
	passed := 0
	l := &c.levels[0]
	each, lanes, step := 4, 4*int(l.bits), 32/int(l.bits) // digits and bits a look-up, digits a load
	if l.bits > 2 {
		each, lanes, step = 2, 2*int(l.bits), 8
	}
	for i := 0; i < n; i += step {
		at := pos + i*int(l.bits)
		w := bitio.Load(base, at>>3) >> (at & 7)
		// Bit i·bits of escapes is set where digit i is all ones.
		var escapes uint64
		switch l.bits {
		case 1:
			escapes = w & 0xffffffff
		case 2:
			escapes = w & (w >> 1) & 0x55555555
		case 3:
			escapes = w & (w >> 1) & (w >> 2) & 0x249249
		default:
			escapes = w & (w >> 1) & (w >> 2) & (w >> 3) & 0x11111111
		}
		to := unsafe.Pointer(&symbols[i])
		if each == 4 {
			for j := 0; j < step; j += 4 {
				*(*uint64)(unsafe.Add(to, 2*j)) = c.first[uint8(w)&(1<<lanes-1)]
				w >>= lanes
			}
		} else {
			for j := 0; j < 8; j += 2 {
				*(*uint32)(unsafe.Add(to, 2*j)) = uint32(c.first[uint8(w)&(1<<lanes-1)])
				w >>= lanes
			}
		}
		if left := n - i; left < step {
			escapes &= 1<<(left*int(l.bits)) - 1
		}
		for ; escapes != 0; escapes &= escapes - 1 {
			d := uint(bits.TrailingZeros64(escapes))
			if l.bits == 3 {
				d = d * 43 >> 7
			} else {
				d >>= l.bits >> 1
			}
			list[passed&255] = uint8(i + int(d))
			passed++
		}
	}
	pos += n * int(l.bits)
	for k := 1; k < len(c.levels) && passed > 0; k++ {
		l := &c.levels[k]
		mask := uint64(1)<<l.bits - 1
		next := 0
		for first := 0; first < passed; first += 8 {
			w := bitio.Load(base, pos>>3) >> (pos & 7)
			for _, i := range list[first:min(first+8, passed)] {
				digit := w & mask
				w >>= l.bits
				symbols[i] = l.symbols[digit&15]
				list[next&255] = i
				next += int((digit + 1) >> l.bits)
				pos += int(l.bits)
			}
		}
		passed = next
	}
	mask := uint64(1)<<c.shape.SymbolBits - 1
	for _, i := range list[:passed] {
		symbols[i] = uint16(bitio.Load(base, pos>>3)>>(pos&7)&mask) << c.place
		pos += c.shape.SymbolBits
	}
	return pos
}

// join16 writes elements of 2 bytes, four at a time: the symbols are in their places already.
func (c *Codec) join16(row []byte, symbols *[segmentElements + 32]uint16, base *byte, pos int) {
	const low = 0x0001000100010001
	rest := uint(c.rest)
	pair := uint64(1)<<(2*rest) - 1            // two rests
	one := (uint64(1)<<rest - 1) * (1<<32 | 1) // the first of each pair
	up, spread := 16-rest, (32 - 2*rest)       // by how much the second of each pair, and the second pair, move
	rotate := uint64(c.shape.Rotate)
	for i := 0; i < len(row); i += 8 {
		w := bitio.Load(base, pos>>3) >> (pos & 7)
		pos += 4 * int(rest)
		w = w&pair | w&(pair<<(2*rest))<<spread
		w = w&one | w&(one<<rest)<<up
		w |= *(*uint64)(unsafe.Pointer(&symbols[i>>1&255]))
		if rotate != 0 {
			w = w>>1&^(low<<15) | w&low<<15
		}
		if i+8 <= len(row) {
			binary.LittleEndian.PutUint64(row[i:], w)
		} else {
			bitio.PutTail(row[i:], w)
		}
	}
}

// Stored implements codec.Codec.
func (c *Codec) Stored(src []byte) (int, error) {
	if len(src) < c.header {
		return 0, codec.CorruptError("rank", "stored row (%d bytes) is shorter than its length (%d)", len(src), c.header)
	}
	if c.header != 0 {
		n := c.length(src)
		if n > len(src) || n >= c.rowBytes {
			return 0, codec.CorruptError("rank", "stored row (%d bytes, of a row of %d) says that it has %d", len(src), c.rowBytes, n)
		}
		return n, nil
	}
	n := c.elements // a row without a length is one segment
	pos := 0
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
