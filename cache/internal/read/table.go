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
	// Restore says that Close restores uncompressed rows in an adopted tier.
	Restore bool
	// Cold holds the rows that the tier does not hold. It is nil if the tier holds all.
	Cold *cold.Table
	// Absent reads the rows that batches do not find in the host tier. It is nil if the tier holds all. In the owner
	// it is Cold; a client asks the owner.
	Absent RowFetcher

	// WantResident is not nil if the table is resident. Resident then says where its rows lie, once they are there,
	// and the tier is empty. In a client Resident is nil, as the views of its devices say where rows lie.
	WantResident *ResidentOptions
	Resident     *Resident

	// Rejected are the rows that admission declined, and Oversize those larger than any slab. The devices have copies
	// of both.
	Rejected, Oversize Bitset
	Counts             TableCounts
}

// RowFetcher reads absent rows of batches. It is safe for concurrent use.
type RowFetcher interface {
	// Gather writes rows to their positions in out, stride bytes apart. A row that cannot be read becomes zeros.
	Gather(ctx context.Context, rows []int64, positions []uint32, out []byte, stride int) cold.Outcome
	// Deliver calls put once for each of rows, from several goroutines: with the row's stored form, or with the error
	// of reading it. stored is never changed afterwards.
	Deliver(ctx context.Context, rows []int64, put func(i int, stored []byte, compressed bool, err error))
	// Longest is the longest time that Deliver takes.
	Longest() time.Duration
}

// SlotBytes returns the bytes that a row with the given location takes in a slab.
func (t *Table) SlotBytes(l slab.Location) int { return slab.SlotBytes(l.Stored(t.Tier.RowBytes())) }

// TierNow returns where a row lies that is in no slab: "host", or below the host tier "log" or "pages". It is "" for
// tables whose host tier holds all rows.
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

// TableView is a table as the kernels of one device read it. It is immutable, except for hitShare.
type TableView struct {
	Rows               kernels.HostRows
	Codec              kernels.Codec
	Rejected, Oversize device.Buffer
	Share              *transfer.ShareTable // nil: misses are not shared with host threads
	Resident           *kernels.Resident    // not nil: the table is resident, and Rows has no memory

	hitShare atomic.Uint32 // share of hits in the last finished batch, in units of 1/hitShareUnit
}

const hitShareUnit = 1 << 16

// WithRows returns the view for host rows that now lie at rows. The caller must release the old view's Share before
// it frees the old rows.
func (t *TableView) WithRows(rows kernels.HostRows) *TableView {
	v := &TableView{Resident: t.Resident, Rows: rows, Codec: t.Codec, Rejected: t.Rejected, Oversize: t.Oversize, Share: t.Share.Moved(rows)}
	v.hitShare.Store(t.hitShare.Load())
	return v
}

// With returns the view for memory that now lies where the other view says.
func (t *TableView) With(other *TableView) *TableView {
	v := t.WithRows(other.Rows)
	v.Rejected, v.Oversize, v.Resident = other.Rejected, other.Oversize, other.Resident
	return v
}

// learn records the share of hits of a finished batch. The table's next batch is expected to have about the same.
func (t *TableView) learn(o *Outcome) {
	if n := o.Hits + o.Misses; n > 0 {
		t.hitShare.Store(uint32(o.Hits * hitShareUnit / n))
	}
}

// missShare returns the expected share of misses, 0 to 1.
func (t *TableView) missShare() float64 { return 1 - float64(t.hitShare.Load())/hitShareUnit }

// Bitset is a set of row numbers. The zero value is empty, and nothing can be added to it.
type Bitset []uint64

// NewBitset returns an empty set for rows 0 to rows-1.
func NewBitset(rows int64) Bitset { return make(Bitset, BitsetBytes(rows)/8) }

// BitsetBytes returns the memory of such a set in bytes.
func BitsetBytes(rows int64) int64 { return (rows + 63) / 64 * 8 }

// Add adds a row. No other goroutine may use the set meanwhile.
func (b Bitset) Add(row int64) { b[row>>6] |= 1 << (row & 63) }

// Remove removes a row. No other goroutine may use the set meanwhile.
func (b Bitset) Remove(row int64) { b[row>>6] &^= 1 << (row & 63) }

// Has says whether a row is in the set. No other goroutine may add to it meanwhile.
func (b Bitset) Has(row int64) bool { return len(b) != 0 && b[row>>6]>>(row&63)&1 != 0 }

// AddOnce adds a row and says whether it was not in the set before. Several goroutines may call it at once.
func (b Bitset) AddOnce(row int64) bool {
	bit := uint64(1) << (row & 63)
	return atomic.OrUint64(&b[row>>6], bit)&bit == 0
}

// AddShared is Add for one goroutine while others call HasShared.
func (b Bitset) AddShared(row int64) { atomic.StoreUint64(&b[row>>6], b[row>>6]|1<<(row&63)) }

// HasShared is Has while another goroutine calls AddShared.
func (b Bitset) HasShared(row int64) bool { return atomic.LoadUint64(&b[row>>6])>>(row&63)&1 != 0 }
