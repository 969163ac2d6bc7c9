package fill

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// Rows of tables of pages are read in parts, several at once: while some wait for the drive, others are copied to their places. A part must be read within
// HostOptions.ColdTimeout, also if each of its rows lies on a page of its own.
const (
	partRows  = 1 << 14
	partBytes = 32 << 20
	partsRead = 4
)

// part are rows of one table that were read from below the host tier, as they lie in memory.
type part struct {
	table  int
	memory []byte
	rows   []transfer.Staged
}

// fromBelow reads the rows of keys, each page once or twice, and calls put with parts of them, for several parts at once. A row that cannot be read is an error.
func (f *filler) fromBelow(keys []uint64, put func(p *part) error) error {
	rows := make([][]int64, len(f.set.Tables))
	for _, key := range keys {
		table, row := hashmap.SplitKey(key)
		rows[table] = append(rows[table], row)
	}
	for table, rows := range rows {
		if len(rows) == 0 {
			continue
		}
		t := f.set.Tables[table]
		rows = byPage(rows, t.Cold)
		most := max(1, min(partRows, partBytes/slab.SlotBytes(t.Tier.RowBytes())))
		var next atomic.Int64
		var fault atomic.Pointer[error]
		var readers sync.WaitGroup
		for range min(partsRead, (len(rows)-1)/most+1) {
			readers.Go(func() {
				p := &part{table: table, memory: make([]byte, most*slab.SlotBytes(t.Tier.RowBytes()))}
				for fault.Load() == nil {
					from := int(next.Add(int64(most))) - most
					if from >= len(rows) {
						return
					}
					err := f.readPart(p, rows[from:min(from+most, len(rows))])
					if err == nil {
						err = put(p)
					}
					if err != nil {
						fault.CompareAndSwap(nil, &err)
					}
				}
			})
		}
		readers.Wait()
		if err := fault.Load(); err != nil {
			return *err
		}
	}
	return nil
}

// readPart reads rows. What one time-out is too short for is read by the next calls, as long as each reads something.
func (f *filler) readPart(p *part, rows []int64) error {
	t := f.set.Tables[p.table]
	p.rows = slices.Grow(p.rows[:0], len(rows))[:len(rows)]
	const bytes = 1 << 40 // the cursor's upper bits count rows, the others their bytes
	var cursor atomic.Int64
	for {
		var mu sync.Mutex
		var missing []int64
		first, why := int64(-1), error(nil)
		t.Cold.Read(f.o.Context, rows, func(i int, stored []byte, compressed bool, err error) {
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				if missing = append(missing, rows[i]); first < 0 || rows[i] < first {
					first, why = rows[i], err
				}
				return
			}
			n := int64(slab.SlotBytes(len(stored)))
			at := cursor.Add(bytes + n)
			offset := at%bytes - n
			copy(p.memory[offset:], stored)
			p.rows[at/bytes-1] = transfer.Staged{Row: rows[i], At: int(offset), Bytes: len(stored), Compressed: compressed}
		})
		if err := f.o.Context.Err(); err != nil {
			return err
		}
		switch len(missing) {
		case 0:
			return nil
		case len(rows):
			return why
		}
		rows = missing
	}
}

// byPage returns the rows in the order of the pages that they lie in.
func byPage(rows []int64, t *cold.Table) []int64 {
	pages := make([]uint32, len(rows))
	last := uint32(0)
	for i, row := range rows {
		pages[i] = t.PageOf(row)
		last = max(last, pages[i])
	}
	place := make([]int, int(last)+2) // where the rows of each page begin
	for _, p := range pages {
		place[p+1]++
	}
	for p := range place[1:] {
		place[p+1] += place[p]
	}
	sorted := make([]int64, len(rows))
	for i, row := range rows {
		sorted[place[pages[i]]] = row
		place[pages[i]]++
	}
	return sorted
}

// fillHosts fills the Partial host tiers: their main regions with the rows that the ranking has first, their rings with those that follow. Otherwise the ring would
// be empty until batches have read as many rows from below. A ring may stay empty: rows that cannot be read for it are for the batches that want them to report.
func (f *filler) fillHosts() error {
	if err := f.fromBelow(f.hosts, func(p *part) error {
		t := f.set.Tables[p.table]
		t.Cold.Counts.Promoted.Add(int64(t.Tier.Fill(p.memory, p.rows)))
		return nil
	}); err != nil {
		return err
	}
	err := f.fromBelow(f.rings, func(p *part) error {
		f.set.Tables[p.table].Tier.FillAhead(p.memory, p.rows)
		return nil
	})
	if err != nil && f.o.Context.Err() == nil {
		f.o.Log.Warn("rings of host tiers are not full: rows cannot be read", "error", err)
		return nil
	}
	return err
}

// admitBelow gives the rows of f.chosen places in slabs and writes them there.
func (f *filler) admitBelow(a *admitted, writers []*slabWriter) error {
	topology := f.store.Topology.Load()
	var mu sync.Mutex
	return f.fromBelow(f.chosen, func(p *part) error {
		entries, from := make([][]hashmap.Entry, len(writers)), make([][]int, len(writers)) // of this part, by device, and where they lie in its memory
		mu.Lock()
		for _, r := range p.rows {
			key := hashmap.Key(p.table, r.Row)
			places, _ := a.add(f, key, topology.Targets(key, false, place.Nowhere()), r.Bytes, r.Compressed)
			for l := range places.All() {
				entries[l.Slab()] = append(entries[l.Slab()], hashmap.Entry{Key: key, Location: l})
				from[l.Slab()] = append(from[l.Slab()], r.At)
			}
		}
		mu.Unlock()
		for i, w := range writers {
			if err := w.write(f.o.Context, entries[i], func(k int) []byte { return p.memory[from[i][k]:] }); err != nil {
				return err
			}
		}
		return nil
	})
}
