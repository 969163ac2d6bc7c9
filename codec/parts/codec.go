package parts

import (
	"fmt"
	"math"
	"slices"
)

const (
	name = "parts"
	// MaxRow is the longest row in bytes: GPUs keep planes of elements of several bytes in shared memory.
	MaxRow = 8<<10 - 1

	maxParts = 64
	// segment is the number of elements whose digits of level 1 and escapes lie together.
	segment = 512
	// minSymbol is the least bits of a symbol: so many that all digits can name one.
	minSymbol = 3
	// wordRest is the bits of rests of which words of 32 bits have eight: see docs/format/parts.md.
	wordRest = 4
	// maxNamed is the most symbols that digits of a level name.
	maxNamed = 3
)

// PlaneKind is how a byte plane is stored.
type PlaneKind uint8

// The kinds of planes.
const (
	Raw      PlaneKind = iota // stored as it is
	Constant                  // not stored; rows with other values are stored raw
	Coded                     // leading bits by two levels of digits, the others as they are
)

// Plane is a byte plane of a part: byte i of all its elements.
type Plane struct {
	Kind PlaneKind
	// Value is the value of a constant plane.
	Value byte
	// SymbolBits is T of a coded plane, the number of leading bits that are a symbol: 3 to 8.
	SymbolBits int
	// Digits are the bits of a digit of a coded plane's levels, 1 or 2.
	Digits [2]int
	// Symbols are those that the digits of a coded plane's levels name, 2^Digits - 1 each, all different. The others are 0.
	Symbols [2][maxNamed]byte
	// Bases are subtracted from the bytes of a coded plane, one for each element. There may be none.
	Bases []byte
}

// Part is a part of a row.
type Part struct {
	// ElementBytes is 1, 2, 4 or 8.
	ElementBytes int
	// Elements is their number.
	Elements int
	// Rotate is the number of bits, 0 or 1, by which elements are rotated left before they are cut into planes.
	Rotate int
	// Planes has a plane for each byte of an element, lowest first.
	Planes []Plane
}

// Codec stores the rows of one table. It implements [codec.Codec].
type Codec struct {
	rowBytes int
	field    int // as New was given it
	head     int // bytes of the field in front, which says how many bytes there are from codes on: 0 without coded planes
	parts    []Part
	planes   []plane // of all parts, in their order
	fixed    int     // bits of the field, level 0, rests and raw planes: all but level 1 and escapes
	codes    int     // the same in bytes, rounded up, at least 1: no stored row is empty
}

// plane is a plane of a row, and what derives from it.
type plane struct {
	*Plane
	elements, at, stride int // element e is byte at + e × stride of the row
	rest                 int // bits of a rest
	turn                 int // bits, 0 or 1, by which bytes are rotated that are whole elements
	digitsAt, restAt     int // bit positions of the digits of level 0 and of the rests
	first                int // where GPUs keep it in their scratch memory, if elements have several bytes
	// named are the symbols of the digits of each level, in their place in the byte, and 0 for the digit that passes an element on.
	named [2][maxNamed + 1]byte
	// codes are level << 2 | digit of the symbols; of those without one the level is 2.
	codes [256]uint8
}

// New returns the codec for rows of these parts. field is the bytes, 1 or 2, in which a row has the length of its level 1 and escapes.
func New(field int, parts []Part) (*Codec, error) {
	if field != 1 && field != 2 {
		return nil, fmt.Errorf("parts: field (%d bytes) must be 1 or 2", field)
	}
	if len(parts) < 1 || len(parts) > maxParts {
		return nil, fmt.Errorf("parts: parts (%d) must be 1 to %d", len(parts), maxParts)
	}
	c := &Codec{field: field, parts: slices.Clone(parts)}
	for i := range c.parts {
		p := &c.parts[i]
		if p.ElementBytes != 1 && p.ElementBytes != 2 && p.ElementBytes != 4 && p.ElementBytes != 8 {
			return nil, fmt.Errorf("parts: element (%d bytes) of part %d must be 1, 2, 4 or 8", p.ElementBytes, i)
		}
		if p.Elements < 1 || p.Elements > MaxRow {
			return nil, fmt.Errorf("parts: elements (%d) of part %d must be 1 to %d", p.Elements, i, MaxRow)
		}
		if p.Rotate != 0 && p.Rotate != 1 {
			return nil, fmt.Errorf("parts: rotation (%d bits) of part %d must be 0 or 1", p.Rotate, i)
		}
		if len(p.Planes) != p.ElementBytes {
			return nil, fmt.Errorf("parts: planes (%d) of part %d must be one for each byte of an element (%d)", len(p.Planes), i, p.ElementBytes)
		}
		if c.rowBytes += p.Elements * p.ElementBytes; c.rowBytes > MaxRow {
			return nil, fmt.Errorf("parts: row (%d bytes and more) must have at most %d", c.rowBytes, MaxRow)
		}
		p.Planes = slices.Clone(p.Planes)
		for k := range p.Planes {
			if p.Planes[k].Kind == Coded {
				c.head = field
			}
		}
	}
	c.fixed = 8 * c.head
	at, first := 0, 0
	for i := range c.parts {
		part := &c.parts[i]
		for k := range part.Planes {
			if kind := part.Planes[k].Kind; (kind == Raw || kind == Coded) && part.Planes[k].Value != 0 {
				return nil, fmt.Errorf("parts: value (%d) of plane %d of part %d, which is not constant, must be 0", part.Planes[k].Value, k, i)
			}
			p := plane{Plane: &part.Planes[k], elements: part.Elements, at: at + k, stride: part.ElementBytes, digitsAt: c.fixed, first: first}
			if p.stride == 1 {
				p.turn = part.Rotate
			}
			switch p.Kind {
			case Raw:
				p.rest = 8
			case Constant:
			case Coded:
				if err := p.setSymbols(); err != nil {
					return nil, fmt.Errorf("parts: %w (plane %d of part %d)", err, k, i)
				}
				c.fixed += p.Digits[0] * p.elements
				if p.stride > 1 {
					first += (p.elements + 3) &^ 3
				}
			default:
				return nil, fmt.Errorf("parts: kind (%d) of plane %d of part %d must be 0 to %d", p.Kind, k, i, Coded)
			}
			p.restAt = c.fixed
			c.fixed += p.rest * p.elements
			c.planes = append(c.planes, p)
		}
		at += part.ElementBytes * part.Elements
	}
	c.codes = max(1, (c.fixed+7)/8)
	return c, nil
}

// scratch is the bytes of shared memory in which GPUs keep planes.
func (c *Codec) scratch() (n int) {
	for i := range c.planes {
		if p := &c.planes[i]; p.Kind == Coded && p.stride > 1 {
			n += (p.elements + 3) &^ 3
		}
	}
	return n
}

// setSymbols checks a coded plane and sets what its symbols are coded by.
func (p *plane) setSymbols() error {
	if p.SymbolBits < minSymbol || p.SymbolBits > 8 {
		return fmt.Errorf("symbol (%d bits) must be %d to 8", p.SymbolBits, minSymbol)
	}
	if len(p.Bases) != 0 && len(p.Bases) != p.elements {
		return fmt.Errorf("bases (%d) must be none or one for each of %d elements", len(p.Bases), p.elements)
	}
	p.rest = 8 - p.SymbolBits
	for s := range p.codes {
		p.codes[s] = 2 << 2
	}
	for level, digits := range p.Digits {
		if digits != 1 && digits != 2 {
			return fmt.Errorf("digits (%d bits) of level %d must have 1 or 2", digits, level)
		}
		for digit, s := range p.Symbols[level] {
			switch {
			case digit >= 1<<digits-1:
				if s != 0 {
					return fmt.Errorf("symbol (%d) of digit %d of level %d must be 0: the level has no such digit", s, digit, level)
				}
				continue
			case int(s) >= 1<<p.SymbolBits:
				return fmt.Errorf("symbol (%d) must have %d bits", s, p.SymbolBits)
			case p.codes[s] != 2<<2:
				return fmt.Errorf("symbol (%d) must be named once", s)
			}
			p.codes[s] = uint8(level<<2 | digit)
			p.named[level][digit] = s << p.rest
		}
	}
	return nil
}

// Name implements codec.Codec.
func (c *Codec) Name() string { return name }

// RowBytes implements codec.Codec.
func (c *Codec) RowBytes() int { return c.rowBytes }

// maxField is the most bytes behind the fixed ones.
func (c *Codec) maxField() int {
	if c.field == 1 {
		return math.MaxUint8
	}
	return math.MaxUint16
}
