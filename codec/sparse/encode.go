package sparse

import (
	"encoding/binary"
	"math/bits"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// EncodeBound implements codec.Codec: headers, bitmaps and all elements as they are. No segment that is encoded is longer.
func (c *Codec) EncodeBound() int {
	return c.head() + (c.elements+7)/8 + c.segments + c.rowBytes + bitio.Slack
}

// Encode implements codec.Codec.
func (c *Codec) Encode(dst, row []byte) (int, error) {
	dst, row = dst[:c.EncodeBound()], row[:c.rowBytes]
	pos, headers, w := c.start(), 0, bitio.NewWriter(dst, 0)
	if c.segments != 1 {
		headers = c.head()
		clear(dst[:headers])
		w = bitio.NewWriter(dst, pos)
	}
	var e entries
	var l layout
	for i := range c.segments {
		n := c.segment(i)
		part := row[i*segmentElements*c.shape.ElementBytes:][:n*c.shape.ElementBytes]
		l.place(n, e.find(c, part))
		values := e.choose(c, &l, part)
		if pos += l.bits; (pos+8*c.tail()+7)/8 >= c.rowBytes {
			return 0, codec.ErrIncompressible
		}
		if header := uint64(l.entries | values<<c.count); headers == 0 {
			w.Put(header, uint(c.headerBits()))
		} else {
			putHeader(dst, i*c.headerBits(), header)
		}
		e.putPositions(&w, &l)
		e.putValues(c, &w, &l, part)
	}
	for _, b := range row[c.rowBytes-c.tail():] {
		w.Put(uint64(b), 8)
	}
	if n := w.Finish(); n < c.rowBytes {
		return n, nil
	}
	return 0, codec.ErrIncompressible // of a row shorter than an element
}

// putHeader sets a header's bits, which are zeros, from bit pos on.
func putHeader(dst []byte, pos int, header uint64) {
	for header <<= pos & 7; header != 0; header >>= 8 {
		dst[pos>>3] |= byte(header)
		pos += 8
	}
}

// bitmap has a bit for each element of a segment, zeros beyond the last one.
type bitmap struct {
	bits  [segmentElements / 64]uint64
	words int
}

// all yields the number, from 0, and the position of each bit that is set.
func (b *bitmap) all(yield func(i, position int) bool) {
	i := 0
	for w, word := range b.bits[:b.words] {
		for ; word != 0; word &= word - 1 {
			if !yield(i, 64*w+bits.TrailingZeros64(word)) {
				return
			}
			i++
		}
	}
}

// inverted returns the bitmap of the other elements.
func (b *bitmap) inverted(elements int) *bitmap {
	x := &bitmap{words: b.words}
	for i, word := range b.bits[:b.words] {
		x.bits[i] = ^word & (1<<min(64, elements-64*i) - 1)
	}
	return x
}

// entries are where the entries of a segment lie, and their distinct values if these are stored as a palette.
type entries struct {
	bitmap
	palette palette
}

// find sets the bitmap of a segment's entries and returns their number.
func (e *entries) find(c *Codec, part []byte) int {
	switch c.shape.ElementBytes {
	case 1:
		return find[uint8](&e.bitmap, part, c.shape.Background)
	case 2:
		return find[uint16](&e.bitmap, part, c.shape.Background)
	case 4:
		return find[uint32](&e.bitmap, part, c.shape.Background)
	}
	return find[uint64](&e.bitmap, part, c.shape.Background)
}

func find[T element](b *bitmap, part []byte, background uint64) (n int) {
	size := sizeOf[T]()
	b.words = (len(part)/size + 63) / 64
	for w := range b.words {
		word := uint64(0)
		group := part[64*size*w : min(64*size*(w+1), len(part))]
		for i := range len(group) / size {
			bit := uint64(0)
			if load[T](group, i) != T(background) {
				bit = 1
			}
			word |= bit << i
		}
		b.bits[w] = word
		n += bits.OnesCount64(word)
	}
	return n
}

// at returns an element of a segment.
func (c *Codec) at(part []byte, i int) uint64 {
	switch c.shape.ElementBytes {
	case 1:
		return uint64(part[i])
	case 2:
		return uint64(binary.LittleEndian.Uint16(part[2*i:]))
	case 4:
		return uint64(binary.LittleEndian.Uint32(part[4*i:]))
	}
	return binary.LittleEndian.Uint64(part[8*i:])
}

// choose picks how the values of a segment take the fewest bits, completes the layout and returns the header's second field. Of equally
// short ways it takes the values as they are, then digits.
func (e *entries) choose(c *Codec, l *layout, part []byte) int {
	values, bitsOf := asRaw, l.entries*int(c.width)
	largest := uint8(0) // 1 + the largest digit
	for _, at := range e.all {
		code := c.codes[c.rotate(c.at(part, at))>>c.rest]
		if code == 0 {
			largest = maxSymbols + 1
			break
		}
		largest = max(largest, code)
	}
	if l.entries > 0 && largest <= maxSymbols {
		digit := bits.Len8(largest - 1)
		if n := l.entries * (digit + int(c.rest)); n < bitsOf {
			values, bitsOf = asDigits+digit, n
		}
	}
	if e.fillPalette(c, l, part, bitsOf) {
		values = e.palette.n - 1
	}
	l.hold(c, values)
	return values
}

// palette are a segment's distinct values, in the order of their first entries.
type palette struct {
	n      int
	values [maxPalette]uint64
	slots  [4 * maxPalette]uint8 // a hash table of 1 + index; a full slot leads to the next one
}

// find returns the index of a value, or of the slot for it and -1.
func (p *palette) find(x uint64) (index, slot int) {
	slot = int(x * 0x9e3779b97f4a7c15 >> 56)
	for ; p.slots[slot] != 0; slot = (slot + 1) % len(p.slots) {
		if i := int(p.slots[slot]) - 1; p.values[i] == x {
			return i, slot
		}
	}
	return -1, slot
}

// fillPalette collects the distinct values, and returns whether a palette of them takes fewer than the given bits.
func (e *entries) fillPalette(c *Codec, l *layout, part []byte, most int) bool {
	p := &e.palette
	p.n = 0
	clear(p.slots[:])
	for _, at := range e.all {
		x := c.at(part, at)
		if i, slot := p.find(x); i < 0 {
			if p.n == maxPalette || (p.n+1)*int(c.width)+l.entries*bits.Len(uint(p.n)) >= most {
				return false
			}
			p.values[p.n] = x
			p.n++
			p.slots[slot] = uint8(p.n)
		}
	}
	return p.n > 0
}

func (e *entries) putPositions(w *bitio.Writer, l *layout) {
	if l.listed == 0 {
		return
	}
	if l.bitmap {
		for i, word := range e.bits[:e.words] {
			w.Put(word, uint(min(64, l.elements-64*i)))
		}
		return
	}
	listed := &e.bitmap
	if l.inverted {
		listed = e.inverted(l.elements)
	}
	// The upper halves: a one for each position, and before it a zero for each step of its upper half.
	next := 0
	for i, at := range listed.all {
		one := at>>l.low + i
		putZeros(w, one-next)
		w.Put(1, 1)
		next = one + 1
	}
	putZeros(w, l.lows-next)
	for _, at := range listed.all {
		w.Put(uint64(at)&(1<<l.low-1), l.low)
	}
}

func putZeros(w *bitio.Writer, n int) {
	for ; n > 64; n -= 64 {
		w.Put(0, 64)
	}
	w.Put(0, uint(n))
}

func (e *entries) putValues(c *Codec, w *bitio.Writer, l *layout, part []byte) {
	for _, x := range e.palette.values[:l.palette] {
		w.Put(x, c.width)
	}
	if l.digit > 0 {
		for _, at := range e.all {
			x, digit := c.at(part, at), 0
			if l.palette > 0 {
				digit, _ = e.palette.find(x)
			} else {
				digit = int(c.codes[c.rotate(x)>>c.rest]) - 1
			}
			w.Put(uint64(digit), l.digit)
		}
	}
	if l.rest > 0 {
		mask := uint64(1)<<(l.rest-1)<<1 - 1
		for _, at := range e.all {
			w.Put(c.rotate(c.at(part, at))&mask, l.rest)
		}
	}
}
