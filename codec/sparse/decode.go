package sparse

import (
	"math/bits"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// Decode implements codec.Codec.
func (c *Codec) Decode(row, src []byte) (int, error) {
	stored, err := c.Stored(src)
	if err != nil {
		return 0, err
	}
	row, src = row[:c.rowBytes], src[:stored]
	pos := c.start()
	for i := range c.segments {
		var l layout
		if err := c.header(&l, src, i); err != nil {
			return 0, err
		}
		part := row[i*segmentElements*c.shape.ElementBytes:][:l.elements*c.shape.ElementBytes]
		ok := false
		switch c.shape.ElementBytes {
		case 1:
			ok = decode[uint8](c, &l, part, src, pos)
		case 2:
			ok = decode[uint16](c, &l, part, src, pos)
		case 4:
			ok = decode[uint32](c, &l, part, src, pos)
		default:
			ok = decode[uint64](c, &l, part, src, pos)
		}
		if !ok {
			return 0, codec.CorruptError("sparse", "positions of segment %d are not those of its %d entries", i, l.entries)
		}
		pos += l.bits
	}
	for i := c.rowBytes - c.tail(); i < c.rowBytes; i++ {
		row[i] = byte(bitio.Window(src, pos))
		pos += 8
	}
	return stored, nil
}

// decode writes the elements of a segment, which begins at bit pos of src, and returns whether its positions are valid.
func decode[T element](c *Codec, l *layout, part, src []byte, pos int) bool {
	background := T(c.shape.Background)
	if l.entries < l.elements {
		if background == 0 {
			clear(part)
		} else {
			for i := range l.elements {
				store(part, i, background)
			}
		}
	}
	if l.entries == 0 {
		return true
	}
	v := valuesOf[T](c, l, src, pos)
	switch {
	case l.listed == 0:
		for i := range l.elements {
			store(part, i, v.at(i))
		}
		return true
	case l.bitmap || l.inverted:
		return scatterBitmap(l, part, src, pos, &v)
	}
	return scatterList(l, part, src, pos, &v)
}

// values are the values of a segment's entries.
type values[T element] struct {
	src                []byte
	kind               int
	digitsAt, restsAt  int // first bits
	digit, rest        uint
	digitMask, rest1   uint64
	rotate, rotateBack uint
	table              *[maxSymbols]uint64
	palette            [maxPalette]uint64
}

// The kinds of values: one value for all, indices of a palette, and digits and rests.
const (
	oneValue = iota
	ofPalette
	split
)

func valuesOf[T element](c *Codec, l *layout, src []byte, pos int) (v values[T]) {
	v.src, v.kind, v.table = src, split, &c.symbols
	v.digitsAt, v.digit, v.digitMask = pos+l.digitBits, l.digit, 1<<l.digit-1
	v.restsAt, v.rest, v.rest1 = v.digitsAt+l.entries*int(l.digit), l.rest, 1<<l.rest-1
	v.rotate = uint(c.shape.Rotate)
	v.rotateBack = c.width - v.rotate
	if l.palette > 0 {
		for i := range l.palette {
			v.palette[i] = bitio.Window(src, pos+l.positionBits+i*int(c.width)) & c.mask
		}
		v.kind = ofPalette
		if l.palette == 1 {
			v.kind = oneValue
		}
	}
	if l.rest == c.width { // as they are: no symbol
		v.table = &noSymbols
	}
	return v
}

// noSymbols is a table without symbols.
var noSymbols [maxSymbols]uint64

// at returns value i.
func (v *values[T]) at(i int) T {
	if v.kind == oneValue {
		return T(v.palette[0])
	}
	x := bitio.Window(v.src, v.digitsAt+i*int(v.digit)) & v.digitMask
	if v.kind == ofPalette {
		return T(v.palette[x%maxPalette])
	}
	x = v.table[x%maxSymbols] | bitio.Window(v.src, v.restsAt+i*int(v.rest))&v.rest1
	return T(x>>v.rotate) | T(x<<(v.rotateBack&63))&-T(v.rotate)
}

// list reads a list of positions, 64 bits of upper halves at a time.
type list struct {
	*layout
	src       []byte
	pos       int // of the segment
	next, i   int // the next of the upper halves' bits, and the positions so far
	last      int // the last position, at first -1
	positions [64]uint16
}

// fill reads the next positions, perhaps none, and returns their number and whether they are in order, within the segment, and no more than
// there should be.
func (r *list) fill() (n int, ok bool) {
	word := bitio.Window(r.src, r.pos+r.next)
	if left := r.lows - r.next; left < 64 {
		word &= 1<<left - 1
	}
	if r.i+bits.OnesCount64(word) > r.listed {
		return 0, false
	}
	low, lowAt := r.low, r.pos+r.lows+r.i*int(r.low)
	upper, mask := r.next-r.i, uint64(1)<<low-1
	for ; word != 0; word &= word - 1 {
		p := (upper+bits.TrailingZeros64(word)-n)<<low | int(bitio.Window(r.src, lowAt)&mask)
		if p <= r.last || p >= r.elements {
			return 0, false
		}
		r.last = p
		lowAt += int(low)
		r.positions[n&63] = uint16(p)
		n++
	}
	r.next += 64
	r.i += n
	return n, true
}

// scatterList writes the entries at a list of positions, and returns whether these are valid.
func scatterList[T element](l *layout, part, src []byte, pos int, v *values[T]) bool {
	r := list{layout: l, src: src, pos: pos, last: -1}
	for i := 0; r.next < l.lows; {
		n, ok := r.fill()
		if !ok {
			return false
		}
		if v.kind == oneValue {
			for _, p := range r.positions[:n] {
				store(part, int(p), T(v.palette[0]))
			}
			continue
		}
		for _, p := range r.positions[:n] {
			store(part, int(p), v.at(i))
			i++
		}
	}
	return r.i == l.listed
}

// scatterBitmap is scatterList for positions that are a bitmap, or a list of the background elements.
func scatterBitmap[T element](l *layout, part, src []byte, pos int, v *values[T]) bool {
	b := bitmap{words: (l.elements + 63) / 64}
	for w := range b.words {
		b.bits[w] = ^uint64(0)
		if l.bitmap {
			b.bits[w] = bitio.Window(src, pos+64*w)
		}
	}
	if left := l.elements & 63; left != 0 {
		b.bits[b.words-1] &= 1<<left - 1
	}
	if !l.bitmap {
		r := list{layout: l, src: src, pos: pos, last: -1}
		for r.next < l.lows {
			n, ok := r.fill()
			if !ok {
				return false
			}
			for _, p := range r.positions[:n] {
				b.bits[p>>6] &^= 1 << (p & 63)
			}
		}
	}
	ones := 0
	for _, word := range b.bits[:b.words] {
		ones += bits.OnesCount64(word)
	}
	if ones != l.entries {
		return false
	}
	i := 0
	for w, word := range b.bits[:b.words] {
		for ; word != 0; word &= word - 1 {
			store(part, 64*w+bits.TrailingZeros64(word), v.at(i))
			i++
		}
	}
	return true
}
