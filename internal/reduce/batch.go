package reduce

import (
	"math"
	"sort"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
)

// Mode is what is made of the rows of a bag.
type Mode uint8

// The modes.
const (
	Sum Mode = iota
	Mean
	Max
)

// Batch says how the rows of a batch are divided into bags, and what becomes of each bag.
type Batch struct {
	Mode Mode
	// Row and Out are the element types of rows and output: Float32, Float16 or BFloat16. Columns is the elements of a row.
	Row, Out dtype.Type
	Columns  int
	// Float8 says whether stored rows are float8 values. Row is Float32 then: what Load makes of them.
	Float8 Float8
	// Rows is the number of the batch's row numbers, and Bags that of its bags.
	Rows, Bags int
	// Size is the rows of each bag, Bags × Size = Rows; 0: Offsets say.
	Size int
	// Offsets are positions of the batch, int32 if Narrow is set, else int64. Bag b begins at the b-th and ends at the next one, or at Rows where there is
	// no next one.
	Offsets device.Buffer
	Narrow  bool
	// Begin is what offsets count from: an offset of Begin is position 0 of the batch.
	Begin int64
	// Whole, if not empty, says that the batch is a window: Offsets are some of those at Whole, its rows are those from its first offset to its last, and
	// Rows and the row numbers and weights are those of all bags of Whole. Begin is 0 then, and Rows is limited by it only.
	Whole device.Buffer
	// Weights, if not empty, has a float32 for each row number. Only for Sum.
	Weights device.Buffer
	// Padding is the row that is left out, NoPadding for none.
	Padding int64
	// Stride is the distance in bytes from one bag's output to the next one's.
	Stride int64
}

// NoPadding is a number that no row has, and that no caller gives by mistake, as -1 is.
const NoPadding = math.MinInt64

// Float says whether rows of a type can be added up.
func Float(t dtype.Type) bool { return t == dtype.Float32 || t == dtype.Float16 || t == dtype.BFloat16 }

// Window returns the batch of a window as one of its own, given the first of its offsets and the last, and the position of its first row among those of
// all. Offsets out of range are taken for the nearest position.
func (b *Batch) Window(first, last int64) (own Batch, at int64) {
	own, at = *b, min(max(first, 0), int64(b.Rows))
	end := min(max(last, at), int64(b.Rows))
	own.Begin, own.Rows, own.Whole = at, int(end-at), device.Buffer{}
	if b.Weights.Size() > 0 {
		own.Weights = b.Weights.Slice(4*at, 4*end)
	}
	return own, at
}

// OutBytes returns the bytes of one bag's output.
func (b *Batch) OutBytes() int { return b.Columns * b.Out.Size() }

// PartialBytes returns the device memory that a GPU needs for the sums of runs: of bags with several runs each run has one, with a header. The place of
// a run is twice its position by Run, and one further if it is the last run of its bag: no two have the same, as all but the last one of a bag are full.
func (b *Batch) PartialBytes() int64 {
	if b.Rows <= Run || b.Size != 0 && b.Size <= Run {
		return 0
	}
	return int64(2*(b.Rows/Run+1)) * b.PartialStride()
}

// PartialStride returns the distance of runs' sums in bytes.
func (b *Batch) PartialStride() int64 { return int64(PartialHeader+4*b.Columns+15) &^ 15 }

// PartialHeader is the bytes in front of a run's sums: how many rows it has.
const PartialHeader = 16

// OffsetBytes returns the bytes of an offset.
func (b *Batch) OffsetBytes() int64 {
	if b.Narrow {
		return 4
	}
	return 8
}

// NumOffsets returns how many offsets there are.
func (b *Batch) NumOffsets() int {
	return int(b.Offsets.Size() / b.OffsetBytes())
}

// View is a Batch whose memory the host addresses.
type View struct {
	*Batch
	wide    []int64
	narrow  []int32
	Weights []float32
	end     int
}

// NewView returns a view. No offset is checked.
func NewView(b *Batch) View {
	v := View{Batch: b, Weights: slice[float32](b.Weights), end: b.Rows}
	if b.Size == 0 {
		if b.Narrow {
			v.narrow = slice[int32](b.Offsets)
		} else {
			v.wide = slice[int64](b.Offsets)
		}
		if b.NumOffsets() > b.Bags {
			v.end = v.clamp(b.Bags)
		}
	}
	return v
}

func slice[T any](b device.Buffer) []T {
	mem := b.Bytes()
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/int(unsafe.Sizeof(*new(T))))
}

// Offset returns an offset as it is given, counted from Begin. REQUIRES: Size is 0.
func (v *View) Offset(i int) int64 {
	if v.narrow != nil {
		return int64(v.narrow[i]) - v.Begin
	}
	return v.wide[i] - v.Begin
}

func (v *View) clamp(i int) int { return int(min(max(v.Offset(i), 0), int64(v.Rows))) }

// Start returns the position at which a bag begins. Those out of range are taken for the nearest position, or for the batch's end.
func (v *View) Start(bag int) int {
	switch {
	case bag >= v.Bags:
		return v.end
	case v.Size != 0:
		return bag * v.Size
	}
	return v.clamp(bag)
}

// End returns the position behind a bag's last one. A bag whose next one begins before it is empty.
func (v *View) End(bag int) int { return max(v.Start(bag), v.Start(bag+1)) }

// BadOffset returns the first offset that is not a position of the batch, that is less than the one before it, or that is the first and not 0; or -1.
func (v *View) BadOffset() int {
	if v.Size != 0 {
		return -1
	}
	last := int64(0)
	for i := range v.NumOffsets() {
		x := v.Offset(i)
		if x < last || x > int64(v.Rows) || i == 0 && x != 0 {
			return i
		}
		last = x
	}
	return -1
}

// Longest returns the rows of the largest bag.
func (v *View) Longest() int {
	if v.Size != 0 {
		return v.Size
	}
	n := 0
	for b := range v.Bags {
		n = max(n, v.End(b)-v.Start(b))
	}
	return n
}

// FirstPiece returns the first piece that begins at a position or behind it: its bag, and where it begins. A piece is so many consecutive rows of a bag,
// from the bag's first one on; the last one may be shorter, and an empty bag is a piece. Where there is none, bag is Bags. REQUIRES: offsets do not
// descend.
func (v *View) FirstPiece(position, rows int) (bag, at int) {
	if v.Size != 0 {
		bag = min((position+v.Size-1)/v.Size, v.Bags)
	} else {
		bag = sort.Search(v.Bags, func(b int) bool { return v.Start(b) >= position })
	}
	if bag > 0 {
		start := v.Start(bag - 1)
		if at = start + (position-start+rows-1)/rows*rows; at < v.End(bag-1) {
			return bag - 1, at
		}
	}
	return bag, v.Start(bag)
}
