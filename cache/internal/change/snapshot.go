package change

import (
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/atomicfile"
	"github.com/tensorcache/tensorcache/internal/snapshot"
)

// WriteSnapshot implements Cache.Snapshot. It returns the length of the file in bytes.
func (w *Writer) WriteSnapshot(path string) (int, error) {
	w.snapshot.Lock()
	defer w.snapshot.Unlock()
	contents := w.encodeSnapshot()
	return len(contents), atomicfile.Write(path, contents)
}

// encodeSnapshot returns the content of a snapshot of the admitted rows.
func (w *Writer) encodeSnapshot() []byte {
	tables := SnapshotTables(w.set.Tables)
	add := func(key uint64) {
		table, row := hashmap.SplitKey(key)
		tables[table].Rows = append(tables[table].Rows, uint64(row))
	}
	var updated []uint64
	func() {
		w.mu.index.swap.RLock()
		defer w.mu.index.swap.RUnlock()
		for key, l := range w.mu.index.m.All() { // may be read beside its writer
			if w.store.Overlay.Has(l) {
				updated = append(updated, key)
				continue
			}
			add(key)
		}
	}()
	func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, key := range updated {
			l := w.mu.index.find(key)
			if f := w.mu.updated[key]; f != nil && f.admitted || f == nil && l.Valid() { // the row may have left the overlay since
				add(key)
			}
		}
	}()
	return snapshot.Encode(tables)
}

// SnapshotTables describes tables for package snapshot.
func SnapshotTables(tables []*read.Table) (all []snapshot.Table) {
	for _, t := range tables {
		all = append(all, snapshot.Table{Name: t.Name, DType: t.DType, RowBytes: t.Tier.RowBytes()})
	}
	return all
}
