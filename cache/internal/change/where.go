package change

import (
	"context"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// inPages is the Where.Tier of a row that only pages have.
const inPages = "pages"

// Where says where a row is, or why it is not cached.
type Where struct {
	Cached, Overlay bool
	Device          int // -1 unless a slab has the row
	Offset          int64
	Age             time.Duration
	Reason          slab.Reason
	Compressed      bool
	Stored          int
	Withdrawn       observe.Withdrawal // the zero value: never, or forgotten
	Tier            string             // "slab", "overlay", "host", "log" or "pages"
	Ranked          bool               // the policy ranks the row
	Since           time.Time          // when the row came there; the zero time: not known
}

// Where returns where rows of a table are. It reads rows that lie in pages, to know their lengths.
func (w *Writer) Where(table int, rows []int64) ([]Where, error) {
	all := make([]Where, len(rows))
	for from := 0; from < len(rows); from += changedRows {
		to := min(from+changedRows, len(rows))
		w.wherePart(table, rows[from:to], all[from:to])
	}
	return all, w.sources[table].measure(rows, all)
}

// Has says whether a batch that begins now hits a row.
func (w *Writer) Has(table int, row int64) bool { return w.sources[table].has(row) }

func (w *Writer) wherePart(table int, rows []int64, all []Where) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, row := range rows {
		all[i].Device = -1
		w.sources[table].whereLocked(row, &all[i])
	}
}

func (c *cached) whereLocked(row int64, a *Where) {
	w, t, key := c.w, c.t, hashmap.Key(c.table, row)
	a.Ranked = true
	if stored, compressed, err := t.Tier.Stored(row); err == nil { // a corrupt row is for Gather to report
		a.Stored, a.Compressed = len(stored), compressed
	}
	l := w.mu.index.find(key)
	a.Cached = l.Valid()
	switch {
	case a.Cached && w.store.Overlay.Has(l):
		a.Overlay, a.Offset, a.Tier = true, l.Offset(), "overlay"
	case a.Cached:
		a.Device, a.Offset = l.Slab(), l.Offset()-w.store.Overlay.In(l.Slab())
		if s, ok := w.mu.index.m.Slot(key); ok {
			a.Age = w.ageLocked(s)
		}
		a.Tier, a.Since = "slab", time.Now().Add(-a.Age)
	default:
		a.Tier, a.Reason = "host", l.Reason()
		if a.Reason == slab.Cold { // the hashmap knows nothing of rows that it never held
			switch {
			case t.Oversize.Has(row):
				a.Reason = slab.Oversize
			case t.Rejected.Has(row):
				a.Reason = slab.Rejected
			}
		}
	}
	if a.Cached {
		a.Stored, a.Compressed = l.Stored(t.Tier.RowBytes()), l.Compressed()
	}
	a.Withdrawn, _ = w.Withdrawn.Find(key)
}

func (p *paged) whereLocked(row int64, a *Where) {
	p.cached.whereLocked(row, a)
	if a.Cached {
		return
	}
	a.Tier, a.Since = p.t.TierNow(row), p.t.Tier.Since(row)
	if a.Tier != "host" && a.Withdrawn.At.After(a.Since) { // a slab had it since it left the host tier
		a.Since = a.Withdrawn.At
	}
	switch a.Tier {
	case "log":
		a.Stored, a.Compressed, _ = p.t.Cold.Log().Find(row)
	case inPages:
		a.Stored, a.Compressed = 0, false
	}
}

// measure returns an error if the cache closes meanwhile.
func (p *paged) measure(rows []int64, all []Where) error {
	var numbers []int64
	var at []int
	for i := range all {
		if all[i].Tier == inPages {
			numbers, at = append(numbers, rows[i]), append(at, i)
		}
	}
	if len(numbers) == 0 {
		return nil
	}
	p.t.Cold.Peek(context.Background(), numbers, func(i, stored int, compressed bool) {
		all[at[i]].Stored, all[at[i]].Compressed = stored, compressed
	})
	return context.Cause(p.t.Cold.Life())
}

func (r *resident) whereLocked(row int64, a *Where) {
	of := r.t.Resident
	a.Cached, a.Stored = true, of.Stored(row)
	a.Compressed = a.Stored < of.Rows.RowBytes
	if b := r.w.mu.residents.batches[of.Batch(row)]; b != nil {
		a.Overlay, a.Offset, a.Tier = true, b.slot(slices.Index(b.rows, row)).Offset, "overlay"
		return
	}
	a.Device, a.Offset, a.Tier = of.Rows.Device(row), of.Of(row).SlotOf(of.Rows.Local(row)), "resident"
}

// State is a Writer's state at one moment.
type State struct {
	Budget       int64
	Used, Free   []int64 // of each device: bytes of slots that rows take, and that they may take beside; 0 for lost devices
	Unallocated  []int64 // of each device: bytes of the budget that no slab was made for; 0 for lost devices
	Holes        int64   // free bytes in pieces too short for the longest row
	OverlayBytes int64
	OverlayRows  int64
	MeanAge      time.Duration // of the cached rows
	CopiedRows   int64
	// Err is the error after which nothing can be changed, CycleErr the last cycle's error.
	Err, CycleErr error
}

// State returns what the writer knows.
func (w *Writer) State() State {
	s := w.held()
	w.cycle.last.Lock()
	defer w.cycle.last.Unlock()
	s.CycleErr = w.cycle.last.err
	return s
}

// held returns a State without the last cycle's error.
func (w *Writer) held() State {
	n := len(w.set.Devices)
	s := State{Budget: w.budget.Load(), Used: make([]int64, n), Free: make([]int64, n), Unallocated: make([]int64, n)}
	w.mu.Lock()
	defer w.mu.Unlock()
	space := w.store.Space.Load()
	longest := w.store.LongestSlot()
	for i, of := range w.store.Slabs {
		if !w.set.Devices[i].IsLost() {
			s.Used[i], s.Free[i] = of.Used(), max(0, of.Limit-of.Used())
			s.Unallocated[i] = max(0, space.PayloadOf(i, min(space.Budgets[i], s.Budget))-of.Limit)
			s.Holes += of.Slots.HoleBytes(longest)
		}
	}
	s.OverlayBytes, s.OverlayRows = w.store.Overlay.Slots.Used(), int64(len(w.mu.updated))+w.mu.residents.rows
	rows := int64(0)
	for _, t := range w.set.Tables {
		rows += t.Counts.Cached.Load()
	}
	if rows > 0 {
		sum := rows*int64(w.now()) - w.mu.admittedAtSum
		s.MeanAge = time.Duration(max(0, sum/rows)) * ageUnit
	}
	s.CopiedRows, s.Err = w.mu.index.copies.Rows.Load(), w.mu.err
	return s
}

// Cached returns the bytes of the slots that rows take on devices that are not lost, without the first beyond bytes on each; ok is false before
// Open.
func (w *Writer) Cached(beyond int64) (used int64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.index == nil {
		return 0, false
	}
	for i, of := range w.store.Slabs {
		if !w.set.Devices[i].IsLost() {
			used += max(0, of.Used()-beyond)
		}
	}
	return used, true
}
