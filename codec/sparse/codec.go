package sparse

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

// Limits of the format.
const (
	segmentElements = 4096
	valueBits       = 7 // of a header's second field

	maxPalette   = 64
	maxDigitBits = 6
	maxSymbols   = 1 << maxDigitBits
	maxSymbol    = 12 // bits
)

// The values of a header's second field. Those below asDigits are the length of a palette minus 1; asDigits + d is digits of d bits.
const (
	asDigits = maxPalette
	asRaw    = asDigits + maxDigitBits + 1
)

// Shape is what training chooses for a table.
type Shape struct {
	// ElementBytes is 1, 2, 4 or 8.
	ElementBytes int
	// Background is the element that is not stored, in its lowest ElementBytes bytes.
	Background uint64
	// Rotate is the number of bits, 0 or 1, by which elements are rotated left before they are split.
	Rotate int
	// SymbolBits is T, the number of leading bits that are a symbol: 1 to 12, at most the element's.
	SymbolBits int
	// Symbols are those that digits name, at most 64, all different, the most frequent first.
	Symbols []uint16
}

// Codec stores the rows of one table. It implements [codec.Codec].
type Codec struct {
	shape    Shape
	rowBytes int
	elements int  // whole elements of a row
	segments int  // ⌈elements / 4096⌉
	count    uint // bits of a header's count
	width    uint // W, the bits of an element
	rest     uint // W - T
	mask     uint64

	symbols [maxSymbols]uint64 // shifted to their position in an element, zeros beyond the last one
	// codes has 1 + the digit of each symbol, 0 for those that have none.
	codes []uint8
}

// New returns the codec with the given shape for rows of rowBytes.
func New(rowBytes int, s Shape) (*Codec, error) {
	if err := rowcodec.CheckRow("sparse", rowBytes); err != nil {
		return nil, err
	}
	if err := checkElement(s.ElementBytes); err != nil {
		return nil, err
	}
	width := 8 * s.ElementBytes
	switch {
	case s.Rotate != 0 && s.Rotate != 1:
		return nil, fmt.Errorf("sparse: rotation (%d bits) must be 0 or 1", s.Rotate)
	case s.SymbolBits < 1 || s.SymbolBits > min(maxSymbol, width):
		return nil, fmt.Errorf("sparse: symbol (%d bits) must be 1 to %d", s.SymbolBits, min(maxSymbol, width))
	case len(s.Symbols) > maxSymbols:
		return nil, fmt.Errorf("sparse: symbols (%d) must be at most %d", len(s.Symbols), maxSymbols)
	case s.Background>>(width-1)>>1 != 0:
		return nil, fmt.Errorf("sparse: background (%#x) must have %d bits", s.Background, width)
	}
	elements := rowBytes / s.ElementBytes
	c := &Codec{
		shape: s, rowBytes: rowBytes, elements: elements, segments: (elements + segmentElements - 1) / segmentElements,
		count: uint(bits.Len(uint(min(elements, segmentElements)))), width: uint(width), rest: uint(width - s.SymbolBits),
		mask: 1<<(width-1)<<1 - 1, codes: make([]uint8, 1<<s.SymbolBits),
	}
	c.shape.Symbols = slices.Clone(s.Symbols)
	for i, symbol := range s.Symbols {
		if int(symbol) >= len(c.codes) {
			return nil, fmt.Errorf("sparse: symbol (%#x) must have %d bits", symbol, s.SymbolBits)
		}
		if c.codes[symbol] != 0 {
			return nil, fmt.Errorf("sparse: symbol (%#x) must have one digit", symbol)
		}
		c.codes[symbol] = uint8(i + 1)
		c.symbols[i] = uint64(symbol) << c.rest
	}
	return c, nil
}

func checkElement(bytes int) error {
	if bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8 {
		return fmt.Errorf("sparse: element (%d bytes) must be 1, 2, 4 or 8", bytes)
	}
	return nil
}

// Name implements codec.Codec.
func (c *Codec) Name() string { return "sparse" }

// RowBytes implements codec.Codec.
func (c *Codec) RowBytes() int { return c.rowBytes }

// tail returns the bytes of a row after its last whole element.
func (c *Codec) tail() int { return c.rowBytes - c.elements*c.shape.ElementBytes }

// segment returns the number of elements of segment i.
func (c *Codec) segment(i int) int { return min(segmentElements, c.elements-i*segmentElements) }

// rotate rotates an element left by the table's bits.
func (c *Codec) rotate(x uint64) uint64 {
	if c.shape.Rotate == 0 {
		return x
	}
	return (x<<1 | x>>(c.width-1)) & c.mask
}

var _ codec.OnDevice = (*Codec)(nil)
