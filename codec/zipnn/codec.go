package zipnn

import (
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

// PlaneKind is how a byte plane is stored.
type PlaneKind uint8

// The kinds of planes.
const (
	Raw      PlaneKind = iota // stored as it is
	Constant                  // not stored; rows with other values are stored raw
	Coded                     // stored by a Huffman code
)

// Plane is a byte plane of a table's elements.
type Plane struct {
	Kind PlaneKind
	// Value is the value of a constant plane.
	Value byte
	// Lengths are the lengths of a coded plane's codes in bits, at most 12, and 0 for values without a code. The last is the
	// length of the escape. The codes must be complete. If a value has no code, the escape must have one.
	Lengths [symbols]uint8
}

// Codec stores the rows of one table. It implements [codec.Codec].
type Codec struct {
	layout   Layout
	order    order
	rowBytes int
	elements int
	field    int // bytes of a field of the head
	regions  int
	head     int // bytes of the fields before the code bits: their number and the regions' ends
	rawBytes int // bytes of raw planes and tail
	planes   []Plane

	coded  []coded
	raw    []int      // the raw planes
	filled []int      // the constant planes
	fill   [8][8]byte // their values, repeated eight times
}

// coded is a coded plane.
type coded struct {
	plane int
	*codebook
}

// New returns the codec for rows of rowBytes. planes has one plane for each byte of an element, lowest first.
func New(rowBytes int, layout Layout, planes []Plane) (*Codec, error) {
	if err := rowcodec.CheckRow("zipnn", rowBytes); err != nil {
		return nil, err
	}
	if err := layout.check(); err != nil {
		return nil, err
	}
	if len(planes) != layout.ElementBytes {
		return nil, fmt.Errorf("zipnn: planes (%d) must be one for each byte of an element (%d)", len(planes), layout.ElementBytes)
	}
	c := &Codec{layout: layout, order: layout.order(), rowBytes: rowBytes, elements: rowBytes / layout.ElementBytes, planes: slices.Clone(planes)}
	c.rawBytes = rowBytes % layout.ElementBytes
	for i := range planes {
		switch p := &planes[i]; p.Kind {
		case Raw:
			c.raw = append(c.raw, i)
			c.rawBytes += c.elements
		case Constant:
			c.filled = append(c.filled, i)
			for k := range c.fill[i] {
				c.fill[i][k] = p.Value
			}
		case Coded:
			book, err := newCodebook(&p.Lengths)
			if err != nil {
				return nil, fmt.Errorf("%w (plane %d)", err, i)
			}
			if p.Lengths[escape] == 0 && slices.Contains(p.Lengths[:], 0) && slices.Index(p.Lengths[:], 0) != escape {
				return nil, fmt.Errorf("zipnn: plane %d must have an escape code: value %d has none", i, slices.Index(p.Lengths[:], 0))
			}
			c.coded = append(c.coded, coded{i, book})
		default:
			return nil, fmt.Errorf("zipnn: kind (%d) of plane %d must be 0 to %d", p.Kind, i, Coded)
		}
	}
	if len(c.coded) == 1 {
		c.coded[0].fillRuns()
	}
	c.field, c.regions = fieldBytes(rowBytes), regions(rowBytes)
	if c.rawBytes == 0 && len(c.coded) == 0 {
		c.head = 1 // no stored row is empty: a row of constants is a byte of 0
	}
	if len(c.coded) > 0 {
		c.head = c.field * c.regions
	}
	return c, nil
}

// fieldBytes returns the bytes of a field. A row that shrinks has fewer code bits than bits, so its fields hold their number.
func fieldBytes(rowBytes int) int {
	if rowBytes < 8<<10 {
		return 2
	}
	return 3
}

// regions returns the number of regions of a row. Their ends take less than half a percent of it.
func regions(rowBytes int) int {
	if rowBytes < 8<<10 {
		return min(16, 1+rowBytes/512)
	}
	return min(16, 1+rowBytes/1024)
}

// region returns the first element of region g and the end of the region.
func (c *Codec) region(g int) (first, end int) {
	return g * c.elements / c.regions, (g + 1) * c.elements / c.regions
}

// Name implements codec.Codec.
func (c *Codec) Name() string { return "zipnn" }

// CodedPlanes implements codec.CodesPlanes.
func (c *Codec) CodedPlanes() (coded, planes int) {
	for i := range c.planes {
		if c.planes[i].Kind == Coded {
			coded++
		}
	}
	return coded, len(c.planes)
}

// RowBytes implements codec.Codec.
func (c *Codec) RowBytes() int { return c.rowBytes }
