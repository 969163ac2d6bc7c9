package ibp

import (
	"encoding/binary"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// The layout of the paper's own code, which savings are compared with. V participation
// bits (chunk j is bit j of the little-endian bytes) padded to a multiple of S bytes, then S-byte little-endian words
// filled from their highest bit down: for each chunk its kept bits, or all W, high to low. Words may be straddled. A row
// is stored so only when that is shorter than the row. Rows must be a multiple of S.

// AppendReference appends the reference layout of row to dst, whether or not it shrinks.
func (c *Codec) AppendReference(dst, row []byte) []byte {
	start, width := len(dst), 8*c.chunk
	dst = append(dst, make([]byte, c.referenceHeader())...)
	head := dst[start:]
	w := wordWriter{dst: dst, width: width}
	for j := range c.chunks {
		x, mask, val := c.chunkAt(row, j)
		if x&mask == val {
			head[j/8] |= 1 << (j % 8)
		} else {
			mask = 0
		}
		for b := width - 1; b >= 0; b-- {
			if mask>>b&1 == 0 {
				w.put(x >> b & 1)
			}
		}
	}
	w.flush()
	copy(w.dst[start:], head)
	return w.dst
}

// DecodeReference restores a row from the reference layout at the front of src and returns the bytes it took.
func (c *Codec) DecodeReference(row, src []byte) (int, error) {
	width, head := 8*c.chunk, c.referenceHeader()
	if len(src) < head {
		return 0, codec.CorruptError(c.name, "reference row (%d bytes) is shorter than its participation bits (%d)", len(src), head)
	}
	pos := 0
	var out [8]byte
	for j := range c.chunks {
		_, mask, x := c.chunkAt(nil, j)
		if src[j/8]>>(j%8)&1 == 0 {
			mask, x = 0, 0
		}
		for b := width - 1; b >= 0; b-- {
			if mask>>b&1 != 0 {
				continue
			}
			// Bit pos of the payload is bit width-1-pos%width of its little-endian word.
			at := width - 1 - pos%width
			i := head + pos/width*c.chunk + at/8
			if i >= len(src) {
				return 0, codec.CorruptError(c.name, "reference row (%d bytes) ends before its payload", len(src))
			}
			x |= uint64(src[i]>>(at%8)&1) << b
			pos++
		}
		binary.LittleEndian.PutUint64(out[:], x)
		copy(row[j*c.chunk:min((j+1)*c.chunk, c.rowBytes)], out[:c.chunk])
	}
	return head + (pos+width-1)/width*c.chunk, nil
}

// referenceHeader is the length of the participation bits in bytes.
func (c *Codec) referenceHeader() int { return ((c.chunks+7)/8 + c.chunk - 1) / c.chunk * c.chunk }

// chunkAt returns chunk j of row (zero for a nil row) with its mask and bitval.
func (c *Codec) chunkAt(row []byte, j int) (x, mask, val uint64) {
	gr, shift := &c.groups[j*c.chunk/8], j*c.chunk%8*8
	if row != nil {
		x = bitio.Group(row, j*c.chunk/8) >> shift
	}
	mask, val = gr.mask>>shift, gr.val>>shift
	of := uint64(1)<<(8*c.chunk-1)<<1 - 1
	return x & of, mask & of, val & of
}

// wordWriter appends bits to little-endian words of width bits, from the highest bit down.
type wordWriter struct {
	dst   []byte
	width int
	word  uint64
	fill  int
}

func (w *wordWriter) put(bit uint64) {
	w.fill++
	w.word |= bit << (w.width - w.fill)
	if w.fill == w.width {
		w.flush()
	}
}

func (w *wordWriter) flush() {
	if w.fill == 0 {
		return
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], w.word)
	w.dst = append(w.dst, b[:w.width/8]...)
	w.word, w.fill = 0, 0
}
