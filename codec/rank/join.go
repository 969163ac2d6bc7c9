package rank

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// These functions join symbols and rests to elements. The rests lie in src from bit pos on; src holds all of them.

// join16 writes elements of 2 bytes, four at a time. Their symbols are already shifted to their positions.
func (c *Codec) join16(row []byte, symbols *[segmentElements + 32]uint16, src []byte, pos int) {
	c.joinSteps(row, symbols, src, pos, 4*c.rest)
}

// join32 writes elements of 4 bytes, two at a time if one load holds both rests.
func (c *Codec) join32(row []byte, symbols *[segmentElements + 32]uint16, src []byte, pos int) {
	if c.rest <= 28 {
		c.joinSteps(row, symbols, src, pos, 2*c.rest)
		return
	}
	rest, rotate := uint(c.rest)&31, -c.joinRotate
	mask := uint32(1)<<rest - 1
	for i := 0; 4*i+4 <= len(row); i++ {
		x := uint32(bitio.Window(src, pos))&mask | uint32(symbols[i&255])<<rest
		pos += int(rest)
		binary.LittleEndian.PutUint32(row[4*i:], bits.RotateLeft32(x, rotate))
	}
}

// join64 writes elements of 8 bytes. Their rests have up to 62 bits, so most need two loads.
func (c *Codec) join64(row []byte, symbols *[segmentElements + 32]uint16, src []byte, pos int) {
	base, last := unsafe.SliceData(src), len(src)-9
	rest, rotate := uint(c.rest)&63, -c.joinRotate
	mask := uint64(1)<<rest - 1
	for i := 0; 8*i+8 <= len(row); i++ {
		var w uint64
		if at := pos >> 3; at <= last {
			w = bitio.Load(base, at)>>(pos&7) | bitio.Load(base, at+1)>>56<<1<<(63-pos&7)
		} else {
			w = bitio.Window(src, pos)
		}
		pos += int(rest)
		x := w&mask | uint64(symbols[i&255])<<rest
		binary.LittleEndian.PutUint64(row[8*i:], bits.RotateLeft64(x, rotate))
	}
}

// joinSteps writes the row in steps of 8 bytes, each with the given bits of rests. Steps whose loads or stores would exceed
// src or row use copies.
func (c *Codec) joinSteps(row []byte, symbols *[segmentElements + 32]uint16, src []byte, pos, bits int) {
	n := len(row) / 8
	if (pos+(n-1)*bits)>>3 > len(src)-8 {
		n = max(0, n-(63+bits)/bits)
	}
	if n > 0 {
		c.steps(unsafe.SliceData(row), unsafe.SliceData(src), &symbols[0], pos, n)
		pos += n * bits
	}
	if row = row[8*n:]; len(row) > 0 {
		var in [40]byte
		var out [8 * 8]byte
		copy(in[:], src[pos>>3:])
		c.steps(&out[0], &in[0], &symbols[8/c.shape.ElementBytes*n], pos&7, (len(row)+7)/8)
		copy(row, out[:])
	}
}

// steps writes n steps to the memory at to.
func (c *Codec) steps(to, src *byte, symbols *uint16, pos, n int) {
	if c.shape.ElementBytes == 2 {
		c.steps16(to, src, symbols, uint(pos), n)
	} else {
		c.steps32(to, src, symbols, uint(pos), n)
	}
}

const (
	low16 = 0x0001000100010001 // the lowest bit of each element in 8 bytes
	low32 = 0x0000000100000001
)

// steps16 is steps for elements of 2 bytes. It shifts rests by multiplying: variable shifts would need one more register.
func (c *Codec) steps16(to, src *byte, symbols *uint16, pos uint, n int) {
	rest := uint(c.rest) & 15
	pair, pairUp := uint64(1)<<(2*rest)-1, uint64(1)<<(32-2*rest) // mask of the first two rests; factor that shifts the others
	one, up := (uint64(1)<<rest-1)*low32, uint64(1)<<(16-rest)    // mask of the first rest of each pair; factor for the other
	otherPair, other := pair<<(2*rest), one<<rest                 // masks of the others
	rotate := c.joinRotate != 0
	for i := 0; i < 8*n; i += 8 {
		w := bitio.Load(src, int(pos>>3)) >> (pos & 7)
		pos += 4 * rest
		w = w&pair | w&otherPair*pairUp
		w = w&one | w&other*up | *(*uint64)(unsafe.Add(unsafe.Pointer(symbols), i))
		if rotate {
			w = w>>1&^(low16<<15) | w&low16<<15
		}
		bitio.Store(to, i, w)
	}
}

// steps32 is steps for elements of 4 bytes.
func (c *Codec) steps32(to, src *byte, symbols *uint16, pos uint, n int) {
	rest := uint(c.rest) & 31
	one, up := uint64(1)<<rest-1, uint64(1)<<(32-rest) // mask of the first rest; factor that shifts the other
	other, symbolUp := one<<rest, uint64(1)<<rest      // mask of the other; factor that shifts symbols
	rotate := c.joinRotate != 0
	for i := range n {
		w := bitio.Load(src, int(pos>>3)) >> (pos & 7)
		pos += 2 * rest
		x := uint64(*(*uint32)(unsafe.Add(unsafe.Pointer(symbols), 4*i)))
		w = w&one | w&other*up | (x|x<<16)&0x0000ffff0000ffff*symbolUp
		if rotate {
			w = w>>1&^(low32<<31) | w&low32<<31
		}
		bitio.Store(to, 8*i, w)
	}
}
