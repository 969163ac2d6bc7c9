package zipnn

import (
	"unsafe"

	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// join writes elements first to first + n - 1 to row. raw has the raw planes of the row, coded the values of the coded planes,
// each planesPiece bytes after the one before.
func (c *Codec) join(row, raw, coded []byte, first, n int) {
	if n <= 0 {
		return
	}
	size := c.layout.ElementBytes
	row = row[first*size:][:n*size]
	var at planes
	for i, p := range c.raw {
		at.base[p], at.move[p] = unsafe.SliceData(raw[i*c.elements+first:][:n]), -1
	}
	for i := range c.coded {
		p := c.coded[i].plane
		at.base[p], at.move[p] = unsafe.SliceData(coded[i*planesPiece:][:n]), -1
	}
	for _, p := range c.filled {
		at.base[p] = &c.fill[p][0]
	}
	if n >= 8 {
		at.join(row, &c.order, size, n)
		return
	}
	// Fewer than eight elements are joined in a copy.
	var in [8][8]byte
	var out [64]byte
	for p := range size {
		for i := range n {
			in[p][i] = *(*byte)(unsafe.Add(unsafe.Pointer(at.base[p]), i&at.move[p]))
		}
		at.base[p], at.move[p] = &in[p][0], -1
	}
	at.join(out[:8*size], &c.order, size, 8)
	copy(row, out[:])
}

// planes has the addresses of the byte planes: the value of element i is at base + i & move.
type planes struct {
	base [8]*byte
	move [8]int // -1, or 0 for constants
}

// load returns the values of elements i to i + 7 in plane p.
func (at *planes) load(p, i int) uint64 { return bitio.Load(at.base[p], i&at.move[p]) }

// join writes n elements, at least 8, to row, eight at a time; some of the last eight may be written twice. It transposes bytes,
// words of two bytes and words of four bytes, one after the other.
func (at *planes) join(row []byte, order *order, size, n int) {
	o, to := *order, unsafe.SliceData(row[:n*size])
	for i := 0; ; i = min(i+8, n-8) {
		switch size {
		case 1:
			bitio.Store(to, i, o.undo(at.load(0, i)))
		case 2:
			a, b := swap8(at.load(0, i), at.load(1, i))
			a, b = swap16(a, b)
			a, b = swap32(a, b)
			bitio.Store(to, 2*i, o.undo(a))
			bitio.Store(to, 2*i+8, o.undo(b))
		case 4:
			a, b := swap8(at.load(0, i), at.load(1, i))
			c, d := swap8(at.load(2, i), at.load(3, i))
			a, c = swap16(a, c)
			b, d = swap16(b, d)
			a, b = swap32(a, b)
			c, d = swap32(c, d)
			bitio.Store(to, 4*i, o.undo(a))
			bitio.Store(to, 4*i+8, o.undo(c))
			bitio.Store(to, 4*i+16, o.undo(b))
			bitio.Store(to, 4*i+24, o.undo(d))
		default:
			var x [8]uint64
			for p := 0; p < 8; p += 4 {
				a, b := swap8(at.load(p, i), at.load(p+1, i))
				c, d := swap8(at.load(p+2, i), at.load(p+3, i))
				x[p], x[p+2] = swap16(a, c)
				x[p+1], x[p+3] = swap16(b, d)
			}
			for k := range 4 {
				a, b := swap32(x[k], x[k+4])
				bitio.Store(to, 8*(i+k), o.undo(a))
				bitio.Store(to, 8*(i+k)+32, o.undo(b))
			}
		}
		if i == n-8 {
			return
		}
	}
}

// swap8 exchanges the odd bytes of a and the even bytes of b. swap16 and swap32 do the same with words of two and four bytes.
func swap8(a, b uint64) (uint64, uint64) {
	t := (a>>8 ^ b) & 0x00ff00ff00ff00ff
	return a ^ t<<8, b ^ t
}

func swap16(a, b uint64) (uint64, uint64) {
	t := (a>>16 ^ b) & 0x0000ffff0000ffff
	return a ^ t<<16, b ^ t
}

func swap32(a, b uint64) (uint64, uint64) {
	t := (a>>32 ^ b) & 0xffffffff
	return a ^ t<<32, b ^ t
}
