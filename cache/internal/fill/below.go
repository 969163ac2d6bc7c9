package fill

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/numa"
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
	unread []uint32 // the page of each row that cannot be read
	err    error    // why one of them cannot
}

// unread are the pages of a table whose rows could not be read from below the host tier, such as damaged ones. Their rows are cached nowhere: each batch that needs them
// tries again, and reports it. Rows are only counted, because a table may have billions of them.
type unread struct {
	name   string // of the table
	mu     sync.Mutex
	read   int64 // rows that could be
	failed int64 // reads of rows that failed
	parts  int   // that had such rows
	pages  map[uint32]struct{}
	err    error         // why one could not
	slow   time.Duration // that parts with such rows took, if they took slowPart
}

const (
	// A damaged page fails at once. Parts that fail and take slowPart come from a store that does not respond: New ends with an error when it has waited for
	// them for mostSlow together, because a table may have thousands of them.
	slowPart = time.Second
	mostSlow = 10 * time.Second
	// mostFailed is how many parts may fail before any row of a table has been read. New ends with an error then: the rest would fail, too.
	mostFailed = 1000
	// mostNamed is how many pages a line of the log names.
	mostNamed = 16
)

// add notes what became of the rows of a part, which took so long.
func (u *unread) add(p *part, took time.Duration) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.read += int64(len(p.rows))
	if len(p.unread) == 0 {
		return nil
	}
	if u.pages == nil {
		u.pages = map[uint32]struct{}{}
	}
	for _, page := range p.unread {
		u.pages[page] = struct{}{}
	}
	u.failed += int64(len(p.unread))
	u.parts++
	u.err = cmp.Or(u.err, p.err)
	slow := took >= slowPart
	if slow {
		u.slow += took
	}
	switch {
	case slow && u.slow > mostSlow:
		return fmt.Errorf("%w: table %s: %d rows within %v: %w", cold.ErrCold, u.name, u.failed, u.slow.Round(time.Second), u.err)
	case u.read == 0 && u.parts >= mostFailed:
		return u.none()
	}
	return nil
}

// none is the error of a table none of whose rows could be read. REQUIRES: u.mu is locked, or no part is being read.
func (u *unread) none() error {
	return fmt.Errorf("%w: table %s: none of %d rows could be read: %w", cold.ErrCold, u.name, u.failed, u.err)
}

// reportUnread logs which pages could not be read. If none of a table's rows could be read, it is an error: the cache would serve nothing but errors.
func (f *filler) reportUnread() error {
	for table := range f.unread {
		u := &f.unread[table]
		if u.failed == 0 {
			continue
		}
		if u.read == 0 {
			return u.none()
		}
		named := slices.Sorted(maps.Keys(u.pages))
		f.o.Log.Warn("rows cannot be read from their pages, and are in no tier", slog.String("table", u.name), slog.Int64("failed_reads", u.failed), slog.Int("pages", len(named)),
			slog.Any("first_pages", named[:min(mostNamed, len(named))]), slog.Any("error", u.err))
	}
	return nil
}

// fromBelow reads the rows of keys, each page once or twice, and calls put with parts of them, for several parts at once. Rows that cannot be read are left out, and
// noted in f.unread. No answer in time is an error.
func (f *filler) fromBelow(keys []uint64, put func(p *part) error) error {
	counts := make([]int64, len(f.set.Tables))
	for _, key := range keys {
		table, _ := hashmap.SplitKey(key)
		counts[table]++
	}
	for table, n := range counts {
		if n == 0 {
			continue
		}
		t := f.set.Tables[table]
		rows, memory := byPage(keys, table, n, t.Cold)
		most := max(1, min(partRows, partBytes/slab.SlotBytes(t.Tier.RowBytes())))
		var next atomic.Int64
		var failed atomic.Pointer[error]
		var readers sync.WaitGroup
		for range min(partsRead, (len(rows)-1)/most+1) {
			readers.Go(func() {
				memory, mapped := numa.Make[byte](int64(most * slab.SlotBytes(t.Tier.RowBytes())))
				defer mapped.Free()
				p := &part{table: table, memory: memory}
				for failed.Load() == nil {
					from := int(next.Add(int64(most))) - most
					if from >= len(rows) {
						return
					}
					begun := time.Now()
					err := f.readPart(p, rows[from:min(from+most, len(rows))])
					if err == nil {
						err = f.unread[table].add(p, time.Since(begun))
					}
					if err == nil {
						err = put(p)
					}
					if err != nil {
						failed.CompareAndSwap(nil, &err)
					}
				}
			})
		}
		readers.Wait()
		memory.Free()
		if err := failed.Load(); err != nil {
			return *err
		}
	}
	return nil
}

// readPart reads rows. What one time-out is too short for is read by the next calls, as long as each reads something.
func (f *filler) readPart(p *part, rows []int64) error {
	t := f.set.Tables[p.table]
	p.unread, p.err = p.unread[:0], nil
	p.rows = slices.Grow(p.rows[:0], len(rows))[:len(rows)]
	const bytes = 1 << 40 // the cursor's upper bits count rows, the others their bytes
	var cursor atomic.Int64
	for {
		var mu sync.Mutex
		var missing []int64 // the time-out was too short for them
		var why error
		t.Cold.Read(f.o.Context, rows, func(i int, stored []byte, compressed bool, err error) {
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				if _, late := errors.AsType[cold.NoAnswer](err); late {
					missing, why = append(missing, rows[i]), err
				} else {
					p.unread, p.err = append(p.unread, t.Cold.PageOf(rows[i])), cmp.Or(p.err, err)
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
			p.rows = p.rows[:cursor.Load()/bytes]
			return nil
		case len(rows):
			return why
		}
		rows = missing
	}
}

// byPage returns the n rows of a table among keys in the order of the pages that they lie in, and their memory. It is outside the Go heap, which would keep it.
func byPage(keys []uint64, table int, n int64, t *cold.Table) ([]int64, *numa.Memory) {
	pages, unused := numa.Make[uint32](n)
	defer unused.Free()
	last, at := uint32(0), 0
	for _, key := range keys {
		if of, row := hashmap.SplitKey(key); of == table {
			pages[at] = t.PageOf(row)
			last = max(last, pages[at])
			at++
		}
	}
	place := make([]int, int(last)+2) // where the rows of each page begin
	for _, p := range pages {
		place[p+1]++
	}
	for p := range place[1:] {
		place[p+1] += place[p]
	}
	sorted, memory := numa.Make[int64](n)
	at = 0
	for _, key := range keys {
		if of, row := hashmap.SplitKey(key); of == table {
			sorted[place[pages[at]]] = row
			place[pages[at]]++
			at++
		}
	}
	return sorted, memory
}

// fillHosts fills the Partial host tiers: their main regions with the rows that the ranking has first, their rings with those that follow. Otherwise the ring would
// be empty until batches have read as many rows from below. A ring may stay empty: what does not answer in time is for the batches that want it to report.
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

// admitBelow gives the rows of f.chosen slots in slabs and writes them there.
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
