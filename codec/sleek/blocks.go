package sleek

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec/internal/bitio"
	"github.com/tensorcache/tensorcache/dtype"
)

// Eight codes of n bits take n bytes. So blocks of eight words begin at whole bytes, and the positions of their codes depend
// only on n. Blocks are decoded by table lookups without branches on n, which would be unpredictable. This is for words of 16
// and 32 bits in subchunks of whole blocks, in the lossless mode.
const blockWords = 8

// blocks has the decoder of one element type's blocks, or none if rows are not decoded by blocks.
type blocks struct {
	of32 *blocks32
	of16 *blocks16
}

// blocksOf returns the decoder of c's blocks.
func blocksOf(c *Codec) (b blocks) {
	if c.bounded != nil || c.subchunk < blockWords*c.word {
		return b
	}
	switch c.layout {
	case layouts[dtype.Float32]:
		b.of32 = float32Blocks()
	case layouts[dtype.Float16]:
		b.of16 = float16Blocks()
	case layouts[dtype.BFloat16]:
		b.of16 = bfloat16Blocks()
	}
	return b
}

var (
	float32Blocks  = sync.OnceValue(newBlocks32)
	float16Blocks  = sync.OnceValue(func() *blocks16 { return newBlocks16(dtype.Float16) })
	bfloat16Blocks = sync.OnceValue(func() *blocks16 { return newBlocks16(dtype.BFloat16) })
)

// decode fills part, which is whole blocks, with the words whose codes begin at from and have n bits each. It may load up to
// blockSlack bytes beyond the codes.
func (b *blocks) decode(part []byte, from *byte, n uint) {
	if b.of32 != nil {
		b.of32.decode(part, from, n)
	} else {
		b.of16.decode(part, from, n)
	}
}

// mostBlock is the most bytes of a block's codes. blockSlack is the most bytes that may be loaded beyond them.
const (
	mostBlock  = 32
	blockSlack = 8
)

// decodeBlocks decodes all whole blocks of a row. It returns their length in the row and the end of their codes in src, which
// must be the stored row and no more.
func (c *Codec) decodeBlocks(row, src []byte) (done, at int) {
	var end [mostBlock + 2*blockSlack]byte // padded copy of the last codes
	in, begin := src, 0                    // source of loads, and its first byte's offset in src
	block := blockWords * c.word
	shift := bits.TrailingZeros(uint(block))
	at = c.subchunks
	for _, n := range src[:c.subchunks] {
		n := int(n)
		for part := min(c.subchunk, len(row)-done) &^ (block - 1); part > 0; {
			size, next := part, at+part>>shift*n
			if next+blockSlack > begin+len(in) {
				if size, next = block, at+n; next+blockSlack > begin+len(in) {
					copy(end[:], src[at:])
					in, begin = end[:], at
				}
			}
			c.blocks.decode(row[done:done+size], unsafe.SliceData(in[at-begin:]), uint(n))
			at, done, part = next, done+size, part-size
		}
	}
	return done, at
}

// blocks32 decodes blocks of float32.
type blocks32 struct {
	// flips is the XOR of a word and its code rotated right by two. The index is the code's lowest bit and its highest seven
	// bits, from high to low.
	flips [256]uint32
	// offsets has, by the width of codes, the byte offset of the load for each of the eight codes, and the factor that shifts
	// the code to bit 32.
	offsets [33]struct{ at, up [blockWords]uint64 }
}

func newBlocks32() *blocks32 {
	b := new(blocks32)
	l := lanesOf(layouts[dtype.Float32])
	for i := range b.flips {
		code := uint32(i)<<25 | uint32(i)>>7
		b.flips[i] = uint32(l.inverse(uint64(code))) ^ bits.RotateLeft32(code, -2)
	}
	for n := range b.offsets {
		for i := range blockWords {
			b.offsets[n].at[i], b.offsets[n].up[i] = uint64(i*n>>3), 1<<(32-i*n&7)
		}
	}
	return b
}

// word returns the word of the code that begins at bit 32.
func (b *blocks32) word(x uint64, mask uint32) uint32 {
	code := uint32(x>>32) & mask
	return bits.RotateLeft32(code, -2) ^ b.flips[uint8(bits.RotateLeft32(code, 7))]
}

func (b *blocks32) decode(part []byte, from *byte, n uint) {
	at, up, mask := &b.offsets[n].at, &b.offsets[n].up, uint32(1<<n-1)
	for pos := 0; len(part) >= 32; part = part[32:] {
		p, to := (*byte)(unsafe.Add(unsafe.Pointer(from), pos)), (*[32]byte)(part)
		pos += int(n)
		// Unrolled: a loop takes half as long again.
		binary.LittleEndian.PutUint32(to[0:], b.word(bitio.Load(p, int(at[0]))*up[0], mask))
		binary.LittleEndian.PutUint32(to[4:], b.word(bitio.Load(p, int(at[1]))*up[1], mask))
		binary.LittleEndian.PutUint32(to[8:], b.word(bitio.Load(p, int(at[2]))*up[2], mask))
		binary.LittleEndian.PutUint32(to[12:], b.word(bitio.Load(p, int(at[3]))*up[3], mask))
		binary.LittleEndian.PutUint32(to[16:], b.word(bitio.Load(p, int(at[4]))*up[4], mask))
		binary.LittleEndian.PutUint32(to[20:], b.word(bitio.Load(p, int(at[5]))*up[5], mask))
		binary.LittleEndian.PutUint32(to[24:], b.word(bitio.Load(p, int(at[6]))*up[6], mask))
		binary.LittleEndian.PutUint32(to[28:], b.word(bitio.Load(p, int(at[7]))*up[7], mask))
	}
}

// blocks16 decodes blocks of float16 or bfloat16. It has the words of all codes; narrow codes use few cache lines of it.
type blocks16 [1 << 16]uint16

func newBlocks16(of dtype.Type) *blocks16 {
	b := new(blocks16)
	l := lanesOf(layouts[of])
	for code := range b {
		b[code] = uint16(l.inverse(uint64(code)))
	}
	return b
}

func (b *blocks16) decode(part []byte, from *byte, n uint) {
	mask, half, odd := uint64(1)<<n-1, int(n>>1), n&1<<2
	for pos := 0; len(part) >= 16; part = part[16:] {
		p, to := (*byte)(unsafe.Add(unsafe.Pointer(from), pos)), (*[16]byte)(part)
		pos += int(n)
		b.four((*[8]byte)(to[:8]), bitio.Load(p, 0), mask, n)
		b.four((*[8]byte)(to[8:]), bitio.Load(p, half)>>odd, mask, n)
	}
}

// four stores the words of the lowest four codes of x.
func (b *blocks16) four(to *[8]byte, x, mask uint64, n uint) {
	binary.LittleEndian.PutUint16(to[:], b[uint16(x&mask)])
	x >>= n & 63
	binary.LittleEndian.PutUint16(to[2:], b[uint16(x&mask)])
	x >>= n & 63
	binary.LittleEndian.PutUint16(to[4:], b[uint16(x&mask)])
	x >>= n & 63
	binary.LittleEndian.PutUint16(to[6:], b[uint16(x&mask)])
}
