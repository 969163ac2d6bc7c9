package read

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// Table is one table of a cache.
type Table struct {
	Name  string
	DType dtype.Type
	Tier  *transfer.Tier
	// Restore says that the rows of an adopted tier are to be uncompressed in their places when the cache is closed.
	Restore bool
	// Cold has the rows that the tier does not hold, nil if it holds all.
	Cold *cold.Table
	// Absent reads the rows that batches do not find in the host tier, nil if it holds all: Cold, or, in a client, the owner.
	Absent RowFetcher

	// WantResident, if not nil, says that the table is resident, and Resident is where its rows lie, once they are there. The tier is vacated then. In a
	// client Resident is nil: the views of its devices say where rows lie.
	WantResident *ResidentOptions
	Resident     *Resident

	// Rejected are the rows that admission declined, Oversize those larger than any slab. The devices have copies of both.
	Rejected, Oversize Bitset
	Counts             TableCounts
}

// RowFetcher reads absent rows of batches. Its methods may be called concurrently.
type RowFetcher interface {
	// Gather writes rows to their positions in out, stride bytes apart, and zeros where a row cannot be read.
	Gather(ctx context.Context, rows []int64, positions []uint32, out []byte, stride int) cold.Outcome
	// Deliver calls put once for each of rows, with its stored form or with the reason why it cannot be read, from several goroutines. stored is not
	// changed later.
	Deliver(ctx context.Context, rows []int64, put func(i int, stored []byte, compressed bool, err error))
	// Longest is the longest time that Deliver takes.
	Longest() time.Duration
}

// SlotBytes returns the bytes that a row with the given location takes in a slab.
func (t *Table) SlotBytes(l slab.Location) int { return slab.SlotBytes(l.Stored(t.Tier.RowBytes())) }

// TierNow returns the tier that has a row which is in no slab: "host", or "pages" or "log" below it. It is "" for tables whose rows are all in the
// host tier.
func (t *Table) TierNow(row int64) string {
	switch {
	case t.Cold == nil:
		return ""
	case t.Tier.Holds(row):
		return "host"
	}
	if _, _, ok := t.Cold.Log().Find(row); ok {
		return "log"
	}
	return "pages"
}

// Errors of batches. Package cache documents them.
var (
	ErrRows      = errors.New("cache: row numbers out of range")
	ErrOutput    = errors.New("cache: wrong size")
	ErrDevice    = errors.New("cache: device failed")
	ErrCapturing = errors.New("cache: batch cannot be captured")
	ErrCorrupt   = errors.New("cache: corrupt row")
	ErrCold      = cold.ErrCold
	ErrClosed    = cold.ErrEnded
)

// TableView is a table as the kernels of one device read it. It is immutable but for what is learnt of misses.
type TableView struct {
	Rows               kernels.HostRows
	Codec              kernels.Codec
	Rejected, Oversize device.Buffer
	Share              *transfer.ShareTable // nil: misses are not shared with the host's processors
	Resident           *kernels.Resident    // not nil: a resident table, and Rows has no memory

	hitShare atomic.Uint32 // hits of the last finished batch, in parts of hitShareUnit
}

const hitShareUnit = 1 << 16

// WithRows returns the view for host rows that lie elsewhere. Share of the old one is to be released before the old rows are freed.
func (t *TableView) WithRows(rows kernels.HostRows) *TableView {
	v := &TableView{Resident: t.Resident, Rows: rows, Codec: t.Codec, Rejected: t.Rejected, Oversize: t.Oversize, Share: t.Share.Moved(rows)}
	v.hitShare.Store(t.hitShare.Load())
	return v
}

// With returns the view for memory that lies elsewhere: that of the other view.
func (t *TableView) With(other *TableView) *TableView {
	v := t.WithRows(other.Rows)
	v.Rejected, v.Oversize, v.Resident = other.Rejected, other.Oversize, other.Resident
	return v
}

// learn notes the share of hits of a finished batch: the next batch of the table is likely to have about the same.
func (t *TableView) learn(o *Outcome) {
	if n := o.Hits + o.Misses; n > 0 {
		t.hitShare.Store(uint32(o.Hits * hitShareUnit / n))
	}
}

// missShare returns the expected share of misses, 0 to 1.
func (t *TableView) missShare() float64 { return 1 - float64(t.hitShare.Load())/hitShareUnit }

// Bitset is a set of row numbers. The zero value is empty and cannot be added to.
type Bitset []uint64

// NewBitset returns an empty set for rows 0 to rows-1.
func NewBitset(rows int64) Bitset { return make(Bitset, BitsetBytes(rows)/8) }

// BitsetBytes returns the memory of a set.
func BitsetBytes(rows int64) int64 { return (rows + 63) / 64 * 8 }

// Add adds a row. No other goroutine may use the set.
func (b Bitset) Add(row int64) { b[row>>6] |= 1 << (row & 63) }

// Has says whether a row is in the set. No other goroutine may add to it.
func (b Bitset) Has(row int64) bool { return len(b) != 0 && b[row>>6]>>(row&63)&1 != 0 }

// AddOnce adds a row, while other goroutines do the same, and says whether it was not in the set.
func (b Bitset) AddOnce(row int64) bool {
	bit := uint64(1) << (row & 63)
	return atomic.OrUint64(&b[row>>6], bit)&bit == 0
}

// AddShared is Add while other goroutines call HasShared. One goroutine adds at a time.
func (b Bitset) AddShared(row int64) { atomic.StoreUint64(&b[row>>6], b[row>>6]|1<<(row&63)) }

// HasShared is Has while another goroutine calls AddShared.
func (b Bitset) HasShared(row int64) bool { return atomic.LoadUint64(&b[row>>6])>>(row&63)&1 != 0 }
