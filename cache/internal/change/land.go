package change

import (
	"errors"
	"runtime/pprof"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/transfer"
)

// landing shows rows of flights in the ring of a table's host tier until the cache closes.
func (w *Writer) landing(table int) {
	pprof.SetGoroutineLabels(w.watch.Labels(w.life, "land"))
	t := w.set.Tables[table].Cold
	for {
		select {
		case <-w.life.Done():
			return
		case f := <-t.Landings():
			err := w.land(table, f)
			t.Landed(f)
			if err != nil {
				return // the cache closes, or cannot be changed any more
			}
		}
	}
}

// land shows the rows of a flight. Segments of the ring whose rows give way are used an epoch later.
func (w *Writer) land(table int, f *cold.Flight) error {
	t := w.set.Tables[table]
	for from := 0; from < len(f.Rows); {
		n, full, err := w.landPart(table, f, from)
		if err != nil {
			return err
		}
		if from += n; !full {
			continue
		}
		w.mu.Lock()
		words, unused, some := t.Tier.Withdraw()
		t.Cold.Counts.Unused.Add(unused)
		err = errors.Join(w.showLocked(table, words), w.publishLocked())
		w.mu.Unlock()
		if !some {
			return nil // rows longer than a segment: there are none
		}
		if err == nil {
			err = w.set.WaitEpoch(w.life)
		}
		if err != nil {
			return err
		}
		w.mu.Lock()
		t.Tier.Reuse()
		w.mu.Unlock()
	}
	return nil
}

// landPart shows rows of a flight from one on, and returns how many it has dealt with. full says that the ring has no room for the next one.
func (w *Writer) landPart(table int, f *cold.Flight, from int) (n int, full bool, err error) {
	t := w.set.Tables[table]
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.err != nil {
		return 0, false, w.mu.err
	}
	var words []transfer.Written
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
			words = append(words, t.Tier.Show(row, at, unread))
			if unread && !f.Unread(i) { // a batch took it meanwhile
				t.Tier.AskedFor(row)
			}
		}
		n++
	}
	return n, full, errors.Join(w.showLocked(table, words), w.publishLocked())
}

// Prefetch has absent rows read and shown in the host tier, and returns.
func (w *Writer) Prefetch(table int, rows []int64) {
	w.set.Tables[table].Cold.Prefetch(rows, func(f func()) {
		w.tasks.Go(func() {
			pprof.SetGoroutineLabels(w.watch.Labels(w.life, "prefetch"))
			f()
		})
	})
}
