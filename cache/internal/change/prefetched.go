package change

import (
	"runtime/pprof"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/transfer"
)

func (p *paged) start() { p.w.tasks.Go(p.insertPrefetched) }

// insertPrefetched puts rows of flights in the ring of the host tier until the cache closes.
func (p *paged) insertPrefetched() {
	w, t := p.w, p.t.Cold
	pprof.SetGoroutineLabels(w.watch.Labels(w.life, "insert"))
	for {
		select {
		case <-w.life.Done():
			return
		case f := <-t.Completed():
			err := p.insert(f)
			t.Release(f)
			if err != nil {
				return // the cache closes, or cannot be changed any more
			}
		}
	}
}

// insert puts the rows of a flight in the ring. Segments of the ring whose rows give way are used an epoch later.
func (p *paged) insert(f *cold.Flight) error {
	w, t, table := p.w, p.t, p.table
	for from := 0; from < len(f.Rows); {
		n, full, err := p.insertPart(f, from)
		if err != nil {
			return err
		}
		if from += n; !full {
			continue
		}
		some := false
		err = w.change(func() error {
			var words []transfer.Written
			var unused int64
			words, unused, some = t.Tier.Withdraw()
			t.Cold.Counts.Unused.Add(unused)
			for _, word := range words {
				w.mu.index.tierWord(table, word)
			}
			return w.publishLocked()
		})
		if err != nil {
			return err
		}
		if !some {
			return nil // rows longer than a segment: there are none
		}
		if err := w.waitEpoch(w.life); err != nil {
			if w.life.Err() == nil {
				w.fail(err) // else the segment would be withdrawn for good, and nobody would know
			}
			return err
		}
		w.change(func() error {
			t.Tier.Reuse()
			return nil
		})
	}
	return nil
}

// insertPart inserts rows of a flight from number from on, and returns how many it has dealt with. full says that the ring has no room for the next one.
func (p *paged) insertPart(f *cold.Flight, from int) (n int, full bool, err error) {
	w, t, table := p.w, p.t, p.table
	err = w.change(func() error {
		for i := from; i < len(f.Rows) && n < changedRows; i++ {
			row := f.Rows[i]
			key := hashmap.Key(table, row)
			if f.Stored[i] != nil && !t.Tier.Holds(row) && t.Cold.Version(row) == f.Versions[i] && !w.mu.index.find(key).Valid() {
				at, ok := t.Tier.PutAhead(row, f.Stored[i], f.Compressed[i])
				if !ok {
					full = true
					break
				}
				unread := f.Unread(i)
				w.mu.index.tierWord(table, t.Tier.Show(row, at, unread))
				if unread && !f.Unread(i) { // a batch took it meanwhile
					t.Tier.AskedFor(row)
				}
			}
			n++
		}
		return w.publishLocked()
	})
	return n, full, err
}

// Prefetch begins to read those of rows that neither slabs nor host memory have, and returns.
func (w *Writer) Prefetch(table int, rows []int64) { w.sources[table].prefetch(rows) }

func (p *paged) prefetch(rows []int64) {
	var absent []int64
	for _, row := range rows {
		if !p.t.Tier.Holds(row) && !p.has(row) {
			absent = append(absent, row)
		}
	}
	if len(absent) == 0 {
		return
	}
	p.t.Cold.Prefetch(absent, func(read func()) {
		p.w.tasks.Go(func() {
			pprof.SetGoroutineLabels(p.w.watch.Labels(p.w.life, "prefetch"))
			read()
		})
	})
}
