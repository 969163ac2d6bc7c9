package rank

import (
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

// Limits of the format.
const (
	maxLevels    = 8
	maxDigitBits = 4
	minSymbol    = 2  // bits
	maxSymbol    = 12 // bits

	segmentBytes    = 512 // bytes of the row in a segment
	segmentElements = segmentBytes / 2

	tableBytes = maxLevels << maxDigitBits * 2 // table of symbols by level and digit

	// In a segment with this many bits of rests, the levels end at least eight bytes before the segment.
	restSlack = 64 + 8
	// shortBound is the most bytes of a segment with fewer, from any first bit, and of the loads beyond its end.
	shortBound = 1 + (restSlack/(16-maxSymbol)*(maxLevels*maxDigitBits+maxSymbol)+restSlack+7)/8 + 8
)

// Shape is what training chooses for a table.
type Shape struct {
	// ElementBytes is 2, 4 or 8.
	ElementBytes int
	// Rotate is the number of bits, 0 or 1, by which elements are rotated left before they are split.
	Rotate int
	// SymbolBits is T, the bits of a symbol: 2 to 12, less than the element's.
	SymbolBits int
	// Digits has the digit length in bits, 1 to 4, of each of 1 to 8 levels.
	Digits []int
	// Symbols are the symbols that the digits name, level by level: 2^d - 1 for a level of d bits, all different.
	Symbols []uint16
	// Bases has, for each class of rows, the leading 16 bits of what is subtracted from the rotated elements of each column, modulo 2^W.
	// nil: nothing is subtracted. Only for elements of 2 or 4 bytes, in rows of at most 4096 bytes. There are 1, 2, 4, 8 or 16 classes,
	// whose bases, as elements, have at most 8192 bytes.
	Bases [][]uint16
}

// Codec stores the rows of one table. It implements [codec.Codec].
type Codec struct {
	shape    Shape
	rowBytes int
	elements int // whole elements of a row
	segment  int // elements of a segment
	header   int // bytes of the length field
	rest     int // bits of a rest
	raw      int // bits of an element's digits in all levels
	levels   []level
	// bases has the bases of each class as a row of elements, padded with zeros to baseStride bytes; nil for none.
	bases      []byte
	baseStride int
	classBits  int // the bits that name a row's class
	// joinRotate is the rotation that joining symbols and rests undoes: shape.Rotate, or 0 with bases.
	joinRotate int
	// symbolShift is the left shift of symbols in tables: for elements of 2 bytes their final position, else 0.
	symbolShift uint

	// codes has level << 4 | digit of each symbol. Symbols without a digit have level len(levels).
	codes []uint8
	// bits has, by level, the bits of a symbol's digits; the last entry is that of symbols without a digit.
	bits [maxLevels + 1]uint8
	// first is the lookup table of level 0. Its index is 4 digits, or 2 if digits have more than 2 bits.
	first [256]lookup
}

// lookup is the result of decoding some digits of level 0.
type lookup struct {
	symbols uint64 // 16 bits each, the first one lowest
	passed  uint32 // indices, a byte each, of the elements that are passed on
	count   uint32 // number of elements that are passed on
}

// level has the bits of a digit and the symbols by digit, shifted by Codec.symbolShift.
type level struct {
	bits    uint
	symbols [1 << maxDigitBits]uint16
	passed  [1 << maxDigitBits]uint8 // 1 for the digit that passes elements on
	// digits has, by entry of Codec.codes, the digit of a symbol in this level, plus 1 << 7 if it passes elements on.
	digits [1 << 8]uint8
}

// New returns the codec with the given shape for rows of rowBytes.
func New(rowBytes int, s Shape) (*Codec, error) {
	if err := rowcodec.CheckRow("rank", rowBytes); err != nil {
		return nil, err
	}
	width := 8 * s.ElementBytes
	if err := checkElement(s.ElementBytes); err != nil {
		return nil, err
	}
	if s.Rotate != 0 && s.Rotate != 1 {
		return nil, fmt.Errorf("rank: rotation (%d bits) must be 0 or 1", s.Rotate)
	}
	if s.SymbolBits < minSymbol || s.SymbolBits > maxSymbol {
		return nil, fmt.Errorf("rank: symbol (%d bits) must be %d to %d", s.SymbolBits, minSymbol, maxSymbol)
	}
	if len(s.Digits) < 1 || len(s.Digits) > maxLevels {
		return nil, fmt.Errorf("rank: levels (%d) must be 1 to %d", len(s.Digits), maxLevels)
	}
	c := &Codec{
		shape: Shape{s.ElementBytes, s.Rotate, s.SymbolBits, slices.Clone(s.Digits), slices.Clone(s.Symbols), nil}, rowBytes: rowBytes,
		elements: rowBytes / s.ElementBytes, segment: segmentBytes / s.ElementBytes, header: headerBytes(rowBytes),
		rest: width - s.SymbolBits, raw: 0, codes: make([]uint8, 1<<s.SymbolBits, 1<<maxSymbol), joinRotate: s.Rotate,
	}
	if err := c.setBases(s.Bases); err != nil {
		return nil, err
	}
	if width == 16 {
		c.symbolShift = uint(c.rest)
	}
	for i := range c.codes {
		c.codes[i] = uint8(len(s.Digits) << 4)
	}
	next := s.Symbols
	for k, bits := range s.Digits {
		if bits < 1 || bits > maxDigitBits {
			return nil, fmt.Errorf("rank: digit (%d bits) of level %d must have 1 to %d", bits, k, maxDigitBits)
		}
		l := level{bits: uint(bits)}
		if len(next) < 1<<bits-1 {
			return nil, fmt.Errorf("rank: symbols (%d) must be as many as the digits %v name", len(s.Symbols), s.Digits)
		}
		for d, symbol := range next[:1<<bits-1] {
			if int(symbol) >= len(c.codes) {
				return nil, fmt.Errorf("rank: symbol (%#x) must have %d bits", symbol, s.SymbolBits)
			}
			if int(c.codes[symbol]>>4) != len(s.Digits) {
				return nil, fmt.Errorf("rank: symbol (%#x) must have one digit", symbol)
			}
			c.codes[symbol] = uint8(k<<4 | d)
			l.symbols[d] = symbol << c.symbolShift
		}
		l.passed[1<<bits-1] = 1
		for code := range l.digits {
			if l.digits[code] = uint8(code & 15); code>>4 != k {
				l.digits[code] = 1<<7 | 1<<bits - 1
			}
		}
		next = next[1<<bits-1:]
		c.levels = append(c.levels, l)
		c.raw += bits
		c.bits[k] = uint8(c.raw)
	}
	c.bits[len(s.Digits)] = uint8(c.raw + s.SymbolBits)
	if len(next) != 0 {
		return nil, fmt.Errorf("rank: symbols (%d) must be as many as the digits %v name", len(s.Symbols), s.Digits)
	}
	l := &c.levels[0]
	digits := 4
	if l.bits > 2 {
		digits = 2
	}
	for i := range c.first {
		f := &c.first[i]
		for d := range digits {
			digit := i >> (d * int(l.bits)) & (1<<l.bits - 1)
			f.symbols |= uint64(l.symbols[digit]) << (16 * d)
			if digit == 1<<l.bits-1 {
				f.passed |= uint32(d) << (8 * f.count)
				f.count++
			}
		}
	}
	return c, nil
}

func checkElement(bytes int) error {
	if bytes != 2 && bytes != 4 && bytes != 8 {
		return fmt.Errorf("rank: element (%d bytes) must be 2, 4 or 8", bytes)
	}
	return nil
}

// headerBytes returns the bytes of the length field.
func headerBytes(rowBytes int) int {
	switch {
	case rowBytes < 256:
		return 0
	case rowBytes < 1<<16:
		return 2
	}
	return 3
}

// Name implements codec.Codec.
func (c *Codec) Name() string { return "rank" }

// RowBytes implements codec.Codec.
func (c *Codec) RowBytes() int { return c.rowBytes }
