package change

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// A host tier that is Partial holds a part of its table's rows: those that the policy ranks highest among the rows that are in no slab, and for a
// while rows that batches have read from below, or that were prefetched. A row that a slab holds gives way first, unless the tiers are to
// include such rows. Where the host tier and the slabs do not hold a row, pages below do.

// fetched is the stored form of a row that the host tier does not hold: read from below, or kept when the row left its slab.
type fetched struct {
	stored     []byte
	compressed bool
	version    uint32 // of cold.Table, before the row was read
}

// demotedRow is the slot in a host tier of a row that was made absent. It is freed an epoch later.
type demotedRow struct {
	tier *transfer.Tier
	at   slab.Location
}

// storedLocked finds rows in the host tier, in a slab that the host can read, or among what the cycle has fetched.
func (p *paged) storedLocked(row int64, now place.Locations) (stored []byte, compressed, ok bool) {
	if stored, compressed, err := p.t.Tier.Stored(row); !errors.Is(err, transfer.ErrAbsent) {
		return stored, compressed, err == nil // a corrupt row is for Gather to report
	}
	if stored, compressed, ok := p.w.inSlab(p.table, now); ok {
		return stored, compressed, true
	}
	f, ok := p.w.cycle.fetched[hashmap.Key(p.table, row)]
	if !ok || p.t.Cold.Version(row) != f.version {
		return nil, false, false
	}
	return f.stored, f.compressed, true
}

// inSlab returns the stored form of a row in a slab, if the host can read that.
func (w *Writer) inSlab(table int, p place.Locations) (stored []byte, compressed, ok bool) {
	for l := range p.All() {
		d := w.set.Devices[l.Slab()]
		if mem := d.Slab.Bytes(); mem != nil && !d.IsLost() {
			return mem[l.Offset():][:l.Stored(w.set.Tables[table].Tier.RowBytes())], l.Compressed(), true
		}
	}
	return nil, false, false
}

func (p *paged) updatedLocked(row int64) {
	p.t.Cold.Changed(row)
	p.t.Tier.Touch(row)
}

// evicting keeps the row's stored form, for the host tier to take it up in the same cycle.
func (p *paged) evicting(row int64, from place.Locations) {
	w := p.w
	if p.t.Tier.Holds(row) || w.cycle.kept >= w.o.MaxBytes {
		return
	}
	if stored, compressed, ok := w.inSlab(p.table, from); ok {
		w.cycle.kept += int64(len(stored))
		w.cycle.fetched[hashmap.Key(p.table, row)] = fetched{slices.Clone(stored), compressed, p.t.Cold.Version(row)}
	}
}

// fetch reads absent rows from below the host tier.
func (p *paged) fetch(ctx context.Context, rows []int64) {
	w, t := p.w, p.t
	var absent []int64
	for _, row := range rows {
		if _, known := w.cycle.fetched[hashmap.Key(p.table, row)]; !known && !t.Tier.Holds(row) {
			absent = append(absent, row)
		}
	}
	if len(absent) == 0 {
		return
	}
	slices.Sort(absent)
	versions := make([]uint32, len(absent))
	for i, row := range absent {
		versions[i] = t.Cold.Version(row)
	}
	var mu sync.Mutex
	t.Cold.Read(ctx, absent, func(i int, stored []byte, compressed bool, err error) {
		if err != nil {
			return
		}
		f := fetched{slices.Clone(stored), compressed, versions[i]}
		mu.Lock()
		defer mu.Unlock()
		w.cycle.fetched[hashmap.Key(p.table, absent[i])] = f
	})
}

// fetch has rows ready for storedLocked. Rows that cannot be read are left out.
func (w *Writer) fetch(ctx context.Context, keys []uint64) error {
	rows := make([][]int64, len(w.sources))
	for _, key := range keys {
		table, row := hashmap.SplitKey(key)
		rows[table] = append(rows[table], row)
	}
	for table, rows := range rows {
		if len(rows) > 0 {
			w.sources[table].fetch(ctx, rows)
		}
	}
	return ctx.Err()
}

// fetchUnread is fetch for rows that are to move within the slab of a device, unless the host can read them there.
func (w *Writer) fetchUnread(ctx context.Context, device int, rows []wanted) error {
	if w.set.Devices[device].Slab.Bytes() != nil {
		return nil
	}
	keys := make([]uint64, len(rows))
	for i := range rows {
		keys[i] = rows[i].key
	}
	return w.fetch(ctx, keys)
}

// demote makes rows absent, and frees their slots an epoch later.
func (p *paged) demote(ctx context.Context, rows []int64) error {
	w, t := p.w, p.t
	err := inParts(w, nil, rows, func(row int64) {
		if !t.Tier.InMain(row) { // an update has made it absent
			return
		}
		word, at := t.Tier.Hide(row)
		w.mu.index.tierWord(p.table, word)
		w.cycle.demoted = append(w.cycle.demoted, demotedRow{t.Tier, at})
		t.Cold.Counts.Demoted.Add(1)
	})
	if err != nil {
		return err
	}
	return w.freeDemoted(ctx)
}

// freeDemoted frees the slots of rows that were made absent, also by a cycle that ended early.
func (w *Writer) freeDemoted(ctx context.Context) error {
	if len(w.cycle.demoted) == 0 {
		return nil
	}
	if err := w.waitEpoch(ctx); err != nil {
		return err
	}
	return w.change(func() error {
		for _, h := range w.cycle.demoted {
			h.tier.Free(h.at)
		}
		w.cycle.demoted = w.cycle.demoted[:0]
		return nil
	})
}

// promote puts rows in the main region of a host tier, as far as it has room, from what is fetched or lies in the ring or in slabs. It returns their bytes.
func (p *paged) promote(ctx context.Context, rows []int64) (bytes int64, err error) {
	w, t, table := p.w, p.t, p.table
	type put struct {
		row     int64
		at      slab.Location
		version uint32
	}
	var puts []put
	err = inParts(w, nil, rows, func(row int64) {
		key := hashmap.Key(table, row)
		if t.Tier.InMain(row) || w.mu.updated[key] != nil {
			return
		}
		version := t.Cold.Version(row)
		stored, compressed, ok := p.storedLocked(row, w.mu.index.cached(key))
		if !ok {
			return
		}
		if at, ok := t.Tier.Put(stored, compressed); ok {
			puts = append(puts, put{row, at, version})
			bytes += int64(len(stored))
		}
	})
	if err != nil || len(puts) == 0 {
		return bytes, err
	}
	waited := w.waitEpoch(ctx) // no kernel that runs has read the slot before it had the row
	err = inParts(w, nil, puts, func(p put) {
		if waited != nil || t.Tier.InMain(p.row) || t.Cold.Version(p.row) != p.version {
			t.Tier.Free(p.at) // nobody has seen it
			return
		}
		if t.Tier.Holds(p.row) { // in the ring, whose slots are freed together
			t.Tier.Hide(p.row)
		}
		w.mu.index.tierWord(table, t.Tier.Show(p.row, p.at, false))
		t.Cold.Counts.Promoted.Add(1)
	})
	if err != nil {
		return bytes, err
	}
	return bytes, waited
}

// tierPlan is what a cycle is to do with a Partial host tier.
type tierPlan struct {
	newcomers []int64 // rows to take up, best first
	want      read.Bitset
	victims   [3]int64 // the row from which makeRoom goes on, for each of its kinds of rows
}

// plan chooses the rows of the host tier by the ranking: the best rows that no slab holds.
func (p *paged) plan(r *ranking) *tierPlan {
	w, t := p.w, p.t
	plan := &tierPlan{want: read.NewBitset(t.Tier.Capacity())}
	capacity, _ := t.Tier.MainBytes()
	capacity -= capacity / tierSpare
	bytes := int64(0)
	for _, keys := range r.blocks {
		for _, key := range keys {
			table, row := hashmap.SplitKey(key)
			if table != p.table || row >= t.Tier.Rows() || plan.want.Has(row) || !w.o.Inclusive && w.mu.index.cached(key).Valid() {
				continue
			}
			n, err := t.Tier.SlotBytes(row)
			if err != nil {
				continue
			}
			if bytes += int64(n); bytes > capacity {
				return plan
			}
			plan.want.Add(row)
			if !t.Tier.InMain(row) {
				plan.newcomers = append(plan.newcomers, row)
			}
		}
	}
	return plan
}

// tierSpare: a cycle leaves one in tierSpare bytes of a host tier free, because slots of different lengths leave holes.
const tierSpare = 64

// refresh moves rows up to MaxBytes.
func (p *paged) refresh(ctx context.Context, r *ranking, ranked read.Bitset) error {
	w, t := p.w, p.t
	if err := w.freeDemoted(ctx); err != nil {
		return err
	}
	plan := p.plan(r)
	moved := int64(0)
	for from := 0; from < len(plan.newcomers) && moved < w.o.MaxBytes; {
		to, bytes := from, int64(0)
		for ; to < len(plan.newcomers) && to-from < sliceRows && bytes < sliceBytes && moved+bytes < w.o.MaxBytes; to++ {
			n, _ := t.Tier.SlotBytes(plan.newcomers[to])
			bytes += int64(n)
		}
		slice := plan.newcomers[from:to]
		from = to
		moved += bytes
		if err := p.makeRoom(ctx, plan, bytes, ranked); err != nil {
			return err
		}
		p.fetch(ctx, slice)
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := p.promote(ctx, slice); err != nil {
			return err
		}
		for _, row := range slice {
			delete(w.cycle.fetched, hashmap.Key(p.table, row))
		}
	}
	return nil
}

// makeRoom makes rows absent until this number of bytes of the main region is free: first those that a slab holds, then those that are not ranked,
// then those ranked too low. A cycle looks at each row once for each of these.
func (p *paged) makeRoom(ctx context.Context, plan *tierPlan, bytes int64, ranked read.Bitset) error {
	w, t := p.w, p.t
	capacity, used := t.Tier.MainBytes()
	need := bytes + bytes/tierSpare - (capacity - used)
	if need <= 0 {
		return nil
	}
	chosen := map[int64]bool{}
	var rows []int64
	for kind, keep := range []func(row int64) bool{
		func(row int64) bool { return w.o.Inclusive || !w.mu.index.cached(hashmap.Key(p.table, row)).Valid() },
		ranked.Has,
		plan.want.Has,
	} {
		if need <= 0 {
			break
		}
		from := len(rows)
		rows, plan.victims[kind], need = t.Tier.Victims(rows, plan.victims[kind], need, func(row int64) bool { return chosen[row] || keep(row) })
		for _, row := range rows[from:] {
			chosen[row] = true
		}
	}
	return p.demote(ctx, rows)
}
