package sleek

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec/internal/bitio"
	"github.com/tensorcache/tensorcache/internal/dtype"
)

// Eight codes of n bits take n bytes whatever n is: blocks of eight words begin at bytes, and where their codes lie depends on n
// alone. Words come from codes by table, without a branch on n, which is noise where the data is. That is for 16 and 32-bit words, in
// subchunks of whole blocks, and not for the error-bounded mode.
const blockWords = 8

// blocks are what decodes the blocks of one element type: one of them, or none if they are not decoded so.
type blocks struct {
	of32 *blocks32
	of16 *blocks16
}

// blocksOf returns what decodes c's blocks.
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

// decode fills part, whole blocks, with the words whose codes, n bits each, begin at from. Up to blockSlack bytes beyond them are loaded.
func (b *blocks) decode(part []byte, from *byte, n uint) {
	if b.of32 != nil {
		b.of32.decode(part, from, n)
	} else {
		b.of16.decode(part, from, n)
	}
}

// mostBlock is the length of the widest block's codes, and blockSlack that of what may be loaded beyond a block's.
const (
	mostBlock  = 32
	blockSlack = 8
)

// decodeBlocks decodes all whole blocks of a row, and returns how many of its bytes these are, and where their codes end. src is the
// stored row and no more.
func (c *Codec) decodeBlocks(row, src []byte) (done, at int) {
	var end [mostBlock + 2*blockSlack]byte // the last codes, which cannot be loaded from where they are
	in, begin := src, 0                    // what codes are loaded from, and which byte of src it begins with
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

// blocks32 are those of float32.
type blocks32 struct {
	// turns is what a word differs in from its code turned right by two, by the code's lowest bit, the table index's
	// highest, and its highest seven: sign and mantissa are turned over or not, the exponent is another.
	turns [256]uint32
	// places say by the codes' width where the eight loads begin that have a code each, and what they are multiplied by so that it
	// begins at bit 32.
	places [33]struct{ at, up [blockWords]uint64 }
}

func newBlocks32() *blocks32 {
	b := new(blocks32)
	l := lanesOf(layouts[dtype.Float32])
	for i := range b.turns {
		code := uint32(i)<<25 | uint32(i)>>7
		b.turns[i] = uint32(l.inverse(uint64(code))) ^ bits.RotateLeft32(code, -2)
	}
	for n := range b.places {
		for i := range blockWords {
			b.places[n].at[i], b.places[n].up[i] = uint64(i*n>>3), 1<<(32-i*n&7)
		}
	}
	return b
}

// word returns the word of the code that begins at bit 32.
func (b *blocks32) word(x uint64, mask uint32) uint32 {
	code := uint32(x>>32) & mask
	return bits.RotateLeft32(code, -2) ^ b.turns[uint8(bits.RotateLeft32(code, 7))]
}

func (b *blocks32) decode(part []byte, from *byte, n uint) {
	at, up, mask := &b.places[n].at, &b.places[n].up, uint32(1<<n-1)
	for pos := 0; len(part) >= 32; part = part[32:] {
		p, to := (*byte)(unsafe.Add(unsafe.Pointer(from), pos)), (*[32]byte)(part)
		pos += int(n)
		// Eight times, as a loop takes half as long again.
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

// blocks16 are those of float16 and bfloat16: the words of all codes. Those of a narrow width are close together.
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

// four stores the words of the codes that x begins with.
func (b *blocks16) four(to *[8]byte, x, mask uint64, n uint) {
	binary.LittleEndian.PutUint16(to[:], b[uint16(x&mask)])
	x >>= n & 63
	binary.LittleEndian.PutUint16(to[2:], b[uint16(x&mask)])
	x >>= n & 63
	binary.LittleEndian.PutUint16(to[4:], b[uint16(x&mask)])
	x >>= n & 63
	binary.LittleEndian.PutUint16(to[6:], b[uint16(x&mask)])
}
