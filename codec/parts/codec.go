package parts

import (
	"fmt"
	"math"
	"slices"

	"github.com/tensorcache/tensorcache/codec/internal/huffman"
)

const (
	name = "parts"
	// MaxRow is the longest row in bytes: GPUs keep the symbols of a row in shared memory.
	MaxRow = 8<<10 - 1

	maxParts   = 64
	regionOf   = 256 // coded symbols of a region
	maxRegions = 16
	// A code of a plane of an eighth of the row or more has at most longCode bits, of others at most shortCode.
	longCode, shortCode = huffman.MaxCode, 8
)

// PlaneKind is how a byte plane is stored.
type PlaneKind uint8

// The kinds of planes.
const (
	Raw      PlaneKind = iota // stored as it is
	Constant                  // not stored; rows with other values are stored raw
	Coded                     // leading bits by a Huffman code, the others as they are
)

// Plane is a byte plane of a part: byte i of all its elements.
type Plane struct {
	Kind PlaneKind
	// Value is the value of a constant plane.
	Value byte
	// SymbolBits is T of a coded plane, the number of leading bits that are coded: 1 to 8.
	SymbolBits int
	// Lengths are the lengths of the codes of a coded plane's symbols in bits, and 0 for symbols without a code. The last is the length of the
	// escape. The codes must be complete. If a symbol has no code, the escape must have one.
	Lengths [huffman.Symbols]uint8
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
	field    int // bytes of a field in front: the bytes of a region's codes
	parts    []Part
	planes   []plane // of all parts, in their order
	blocks   int     // of symbols
	regions  int     // 0 without coded planes
	head     int     // bytes of the fields
	codes    int     // where codes begin: behind fields and rests
}

// plane is a plane of a row, and what derives from it. A coded plane's symbols are numbered from first on, a multiple of block.
type plane struct {
	*Plane
	elements, at, stride int // element e is byte at + e × stride of the row
	rest, restAt         int // bits of a rest, and where the first one begins
	first                int
	limit                int // the most bits of a code
	codes                [huffman.Symbols]huffman.Code
	table                []entry // of the next limit bits, the first being the lowest
}

// Symbols are divided between decoders in blocks: a decoder on a GPU has whole words of them.
const block = 4

// New returns the codec for rows of these parts. field is the bytes, 1 or 2, in which a row has the length of a region.
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
	}
	restAt, symbols, at := 0, 0, 0
	for i := range c.parts {
		part := &c.parts[i]
		for k := range part.Planes {
			p := plane{Plane: &part.Planes[k], elements: part.Elements, at: at + k, stride: part.ElementBytes, restAt: restAt}
			switch p.Kind {
			case Raw:
				p.rest = 8
			case Constant:
			case Coded:
				if p.SymbolBits < 1 || p.SymbolBits > 8 {
					return nil, fmt.Errorf("parts: symbol (%d bits) of plane %d of part %d must be 1 to 8", p.SymbolBits, k, i)
				}
				p.rest, p.first, p.limit = 8-p.SymbolBits, symbols, limitOf(p.elements, c.rowBytes)
				if err := p.setCode(); err != nil {
					return nil, fmt.Errorf("parts: %w (plane %d of part %d)", err, k, i)
				}
				symbols += (p.elements + block - 1) / block * block
			default:
				return nil, fmt.Errorf("parts: kind (%d) of plane %d of part %d must be 0 to %d", p.Kind, k, i, Coded)
			}
			restAt += p.rest * p.elements
			c.planes = append(c.planes, p)
		}
		at += part.ElementBytes * part.Elements
	}
	c.blocks = symbols / block
	if symbols > 0 {
		c.regions = min(max(1, symbols/regionOf), maxRegions)
	}
	c.head = c.regions * field
	if c.head+restAt == 0 {
		c.head = 1 // no stored row is empty: a row of constants is a byte of 0
	}
	for i := range c.planes {
		c.planes[i].restAt += 8 * c.head
	}
	c.codes = c.head + (restAt+7)/8
	return c, nil
}

// limitOf returns the most bits of a code of a plane: shared memory of GPUs holds a table of 2^limit words for each.
func limitOf(elements, rowBytes int) int {
	if 8*elements >= rowBytes {
		return longCode
	}
	return shortCode
}

// region returns the first block of region g, the first that is read downwards, and the end.
func (c *Codec) region(g int) (first, middle, end int) {
	first, end = g*c.blocks/c.regions, (g+1)*c.blocks/c.regions
	return first, (first + end + 1) / 2, end
}

// cut returns which elements of a coded plane have their symbols in the blocks from first to end: none if from is not below to.
func (p *plane) cut(first, end int) (from, to int) {
	return max(0, first*block-p.first), min(p.elements, end*block-p.first)
}

// entry is what the next bits of a plane's codes say:
//
//	[0:20]  the symbols whose whole codes the bits hold, up to the first escape and at most 4, T bits each
//	[20:23] their number, 0 if the first is an escape
//	[23:27] the bits of their codes
//	[27:31] the bits of the first code
type entry uint32

func (e entry) symbols() int { return int(e >> 20 & 7) }
func (e entry) bits() int    { return int(e >> 23 & 15) }
func (e entry) first() int   { return int(e >> 27) }

// setCode makes the codes and the table of a coded plane.
func (p *plane) setCode() (err error) {
	if p.codes, err = huffman.Codes(&p.Lengths, p.limit); err != nil {
		return err
	}
	values := 1 << p.SymbolBits
	if i := slices.IndexFunc(p.Lengths[values:huffman.Escape], func(n uint8) bool { return n != 0 }); i >= 0 {
		return fmt.Errorf("symbol (%d) must have %d bits", values+i, p.SymbolBits)
	}
	if i := slices.Index(p.Lengths[:values], 0); i >= 0 && p.Lengths[huffman.Escape] == 0 {
		return fmt.Errorf("there must be an escape code: symbol %d has none", i)
	}
	next := make([]uint16, 1<<p.limit) // symbol and length << 9 of the first code
	for s, code := range p.codes {
		for rest := 0; code.Length > 0 && rest < 1<<(p.limit-int(code.Length)); rest++ {
			next[int(code.LSB)|rest<<code.Length] = uint16(s) | uint16(code.Length)<<9
		}
	}
	p.table = make([]entry, 1<<p.limit)
	for i := range p.table {
		e, used, n := entry(next[i]>>9)<<27, 0, 0
		for n < min(block, 20/p.SymbolBits) {
			symbol, length := int(next[i>>used]&511), int(next[i>>used]>>9)
			if symbol == huffman.Escape || used+length > p.limit {
				break
			}
			e |= entry(symbol) << (n * p.SymbolBits)
			used, n = used+length, n+1
		}
		p.table[i] = e | entry(n)<<20 | entry(used)<<23
	}
	return nil
}

// Name implements codec.Codec.
func (c *Codec) Name() string { return name }

// RowBytes implements codec.Codec.
func (c *Codec) RowBytes() int { return c.rowBytes }

// maxField is the longest region in bytes.
func (c *Codec) maxField() int {
	if c.field == 1 {
		return math.MaxUint8
	}
	return math.MaxUint16
}
