package sparse

import (
	"math/bits"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// layout is where the parts of a segment lie, all in bits: what follows from its header.
type layout struct {
	elements, entries int
	listed            int  // positions that are stored, of the entries or, if inverted, of the background elements
	inverted          bool // there are more entries than background elements
	bitmap            bool // positions are a bitmap of the entries
	low               uint // bits of the lower half of a listed position
	palette           int  // values of the palette, 0 for none
	digit             uint // bits of an index or digit
	rest              uint // bits of a value that follow the digits

	lows, positionBits int // the lower halves' first bit, and the bits of all positions
	digitBits, bits    int // the bits before the digits, and of the whole segment; rests follow the digits
}

// lowBits returns the bits of the lower half of a position: about the logarithm of elements ÷ positions. REQUIRES: 0 < positions ≤ elements.
func lowBits(elements, positions int) uint {
	n := bits.Len(uint(elements)) - bits.Len(uint(positions))
	if positions<<n > elements {
		n--
	}
	return uint(n)
}

// place sets what follows from the number of elements and of entries.
func (l *layout) place(elements, entries int) {
	*l = layout{elements: elements, entries: entries, listed: entries}
	if l.inverted = entries > elements-entries; l.inverted {
		l.listed = elements - entries
	}
	if l.listed == 0 {
		return
	}
	l.low = lowBits(elements, l.listed)
	l.lows = l.listed + (elements-1)>>l.low
	l.positionBits = l.lows + l.listed*int(l.low)
	if l.bitmap = l.positionBits >= elements; l.bitmap {
		l.positionBits = elements
	}
}

// hold sets what follows from a header's second field and returns whether the field is valid.
func (l *layout) hold(c *Codec, values int) bool {
	l.palette, l.digit, l.rest = 0, 0, 0
	switch {
	case values < asDigits:
		l.palette = values + 1
		l.digit = uint(bits.Len(uint(values)))
	case values < asRaw:
		l.digit, l.rest = uint(values-asDigits), c.rest
	default:
		l.rest = c.width
	}
	l.digitBits = l.positionBits + l.palette*int(c.width)
	l.bits = l.digitBits + l.entries*int(l.digit+l.rest)
	return values <= asRaw && l.palette <= l.entries
}

// headerBits returns the bits of a header.
func (c *Codec) headerBits() int { return int(c.count) + valueBits }

// header reads the header of segment i into l.
func (c *Codec) header(l *layout, src []byte, i int) error {
	at := i * c.headerBits()
	x := int(bitio.Window(src, at) & (1<<c.headerBits() - 1))
	entries, values := x&(1<<c.count-1), x>>c.count
	if n := c.segment(i); entries > n {
		return codec.CorruptError("sparse", "entries (%d) of segment %d are more than its elements (%d)", entries, i, n)
	}
	l.place(c.segment(i), entries)
	if !l.hold(c, values) {
		return codec.CorruptError("sparse", "values (%d) of segment %d with %d entries are of no kind", values, i, entries)
	}
	return nil
}

// head returns the bytes that hold the headers, and start the first bit of the segments. One header is followed by its segment; several are
// padded to a byte.
func (c *Codec) head() int { return (c.segments*c.headerBits() + 7) / 8 }

func (c *Codec) start() int {
	if c.segments == 1 {
		return c.headerBits()
	}
	return 8 * c.head()
}

// Stored implements codec.Codec.
func (c *Codec) Stored(src []byte) (int, error) {
	if len(src) < c.head() {
		return 0, codec.CorruptError("sparse", "stored row (%d bytes) is shorter than its headers (%d)", len(src), c.head())
	}
	pos := c.start()
	var l layout
	for i := range c.segments {
		if err := c.header(&l, src, i); err != nil {
			return 0, err
		}
		pos += l.bits
	}
	n := (pos + 8*c.tail() + 7) / 8
	if n > len(src) {
		return 0, codec.CorruptError("sparse", "stored row (%d bytes) ends before its payload (%d)", len(src), n)
	}
	if n >= c.rowBytes {
		return 0, codec.CorruptError("sparse", "stored row (%d bytes) is no shorter than the row (%d)", n, c.rowBytes)
	}
	return n, nil
}
