package change

import (
	"errors"

	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// residentRow is a row of a resident table whose newest version is in the overlay. It leaves the overlay as an updatedRow does, an epoch after each step:
// its slot and overflow place are written, which no batch reads; its word says so; its place in the overlay is retired.
type residentRow struct {
	key        uint64
	place      place.OverlaySlot
	bytes      int
	compressed bool
	replaced   bool // a newer version exists
	written    bool // slot and overflow place have this version
}

// residentWords are words of resident tables that the devices do not have yet: by table and device. Of a row there is one word between two publications.
type residentWords map[int]*[8][]word

// set adds a row's word.
func (r residentWords) set(table int, rows *buddy.Layout, row int64, w buddy.Word) {
	if r[table] == nil {
		r[table] = new([8][]word)
	}
	d := rows.Device(row)
	r[table][d] = append(r[table][d], word{uint64(rows.Local(row)), uint64(w)})
}

// publishResident has the devices store the words of resident tables. finish waits for it.
func (x *index) publishResident() error {
	var errs []error
	for table, words := range x.residents {
		r := x.set.Tables[table].Resident.Rows
		errs = append(errs, x.onMirrors(func(i int, m *mirror) error {
			if len(words[i]) == 0 {
				return nil
			}
			return m.store(r.Words[i], words[i])
		}))
		delete(x.residents, table)
	}
	return errors.Join(errs...)
}

// updateResidentLocked puts a new version of a row of a resident table in the overlay, and in the row's word. If there is no room yet, it returns a
// channel to wait for.
func (w *Writer) updateResidentLocked(t *read.Table, key uint64, stored []byte, compressed bool) (wait <-chan struct{}, err error) {
	slot, wait, err := w.overlayLocked(stored, compressed)
	if wait != nil || err != nil {
		return wait, err
	}
	if before := w.mu.residents[key]; before != nil {
		before.replaced = true
		w.mu.retire.open.overlay = append(w.mu.retire.open.overlay, overlaySlot{OverlaySlot: before.place})
	}
	f := &residentRow{key: key, place: slot, bytes: len(stored), compressed: compressed}
	table, row := hashmap.SplitKey(key)
	w.mu.index.residents.set(table, &t.Resident.Rows.Layout, row, buddy.At(w.store.Overlay.Location(slot, len(stored), compressed)))
	if old := t.Resident.Set(row, len(stored)); row < t.Tier.Rows() {
		t.Tier.Replaced(old, len(stored))
	}
	w.mu.residents[key] = f
	w.mu.retire.open.residents = append(w.mu.retire.open.residents, f)
	w.Counts.Updated.Add(1)
	return nil, nil
}

// advanceResidentLocked takes a row of a resident table one step out of the overlay. REQUIRES: an epoch has passed since the last step.
func (w *Writer) advanceResidentLocked(f *residentRow) error {
	table, row := hashmap.SplitKey(f.key)
	r := w.set.Tables[table].Resident.Rows
	if f.written {
		delete(w.mu.residents, f.key)
		w.mu.retire.open.overlay = append(w.mu.retire.open.overlay, overlaySlot{OverlaySlot: f.place})
		w.mu.index.residents.set(table, &r.Layout, row, buddy.Home(f.bytes, f.compressed))
		return nil
	}
	f.written = true
	w.mu.retire.open.residents = append(w.mu.retire.open.residents, f)
	d := r.Device(row)
	slot, overflow := r.Split(w.store.Overlay.Stored(f.place, f.bytes))
	if len(overflow) > 0 {
		copy(r.Buddy[d].Bytes()[r.Overflow(row):], overflow)
		w.Counts.HostBytes.Add(int64(len(overflow)))
	}
	on := w.set.Devices[d]
	if on.IsLost() {
		return nil
	}
	if err := w.mu.index.mirrors[d].putIn(r.Slots[d], r.Slot(row), slot); err != nil && !w.set.Survives(on) {
		return err
	}
	return nil
}

// putIn is put for memory other than the slab.
func (m *mirror) putIn(target device.Buffer, offset int64, stored []byte) error {
	if m.target.Addr() != target.Addr() || m.target.Size() != target.Size() {
		if err := m.finishRows(); err != nil {
			return err
		}
		m.target = target
	}
	return m.putRow(offset, stored)
}
