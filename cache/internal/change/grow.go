package change

import (
	"errors"
	"slices"

	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/slab"
)

// grow takes memory for a budget, in bytes per device, that is larger than all before it. Every device gets a longer slab with a copy of
// the rows, at the same offsets, and a larger hashmap with the same locations. Batches that have begun read the old memory, which is
// freed an epoch later; so devices need room for both. After an error nothing has changed. REQUIRES: the cycle's lock is held.
func (w *Writer) grow(budget int64) error {
	for {
		before := w.lostDevices()
		err := w.tryGrow(budget)
		if err == nil || w.set.Check() != nil || w.lostDevices() == before {
			return err
		} // else a device was lost meanwhile; the others grow
	}
}

// lostDevices returns how many devices the cache has given up. Reads give devices up beside the writer.
func (w *Writer) lostDevices() (n int) {
	for _, d := range w.set.Devices {
		if d.IsLost() {
			n++
		}
	}
	return n
}

func (w *Writer) tryGrow(budget int64) error {
	g := &growth{writer: w, space: *w.store.Space.Load()}
	g.plan(budget)
	replaced := false
	defer func() { // also after a panic
		if !replaced {
			g.free()
		}
	}()
	if err := g.allocate(); err != nil {
		return err
	}
	err := w.change(func() error {
		if err := w.publishLocked(); err != nil {
			return err
		}
		if err := g.fill(); err != nil {
			return err
		}
		replaced = true
		g.replaceLocked()
		return nil
	})
	if err != nil {
		return err
	}
	return w.set.Kept.Commit(nil, g.roles()...)
}

// roles returns the roles of the memory of all devices in a folder.
func (g *growth) roles() (all []string) {
	for i := range g.writer.set.Devices {
		all = append(all, read.SlabRole(i), read.MapRole(i))
	}
	return all
}

// growth is one run of grow.
type growth struct {
	writer *Writer
	space  place.Space
	slabs  []device.Buffer // new ones of each device, the zero Buffer where the old one is kept
	maps   []device.Buffer // new ones of each device; empty if the old ones are kept
	// The new index, if there are new maps, its memory unless it is a device's, and the times of admission by its slots.
	m     *hashmap.Map
	image *numa.Memory
	ages  *numa.Memory
	at    []uint32
	drop  []uint64 // keys whose reason finds no map slot in the new index
}

// plan divides the budget.
func (g *growth) plan(budget int64) {
	w, s := g.writer, &g.space
	s.Budgets = slices.Clone(s.Budgets)
	most := int64(0) // what all rows could take
	for _, t := range w.set.Tables {
		_, rows := t.Cacheable()
		most += rows * int64(slab.SlotBytes(t.Tier.RowBytes()))
	}
	for i := range s.Budgets {
		s.Budgets[i] = max(budget, s.Budgets[i])
	}
	_, rows := s.Estimate(w.set.Tables)
	if l := hashmap.LayoutFor(rows); l.Buckets > s.Layout.Buckets {
		s.Layout = l
	}
	s.Payload = slices.Clone(s.Payload)
	for i, b := range s.Budgets {
		s.Payload[i] = max(s.Payload[i], min(s.PayloadOf(i, b), most, slab.MaxBytes-slab.TailSlack-w.store.Overlay.In(i)))
	}
}

// allocate takes the new memory.
func (g *growth) allocate() (err error) {
	w := g.writer
	newMaps := g.space.Layout != w.set.Devices[0].Layout
	g.slabs, g.maps = make([]device.Buffer, len(w.set.Devices)), make([]device.Buffer, len(w.set.Devices))
	for i, d := range w.set.Devices {
		if d.IsLost() {
			continue
		}
		if bytes := w.store.Overlay.In(i) + g.space.Payload[i] + slab.TailSlack; bytes > d.Slab.Size() {
			if g.slabs[i], err = w.set.Alloc(d.Device, read.SlabRole(i), false, bytes, "slab"); err != nil {
				return err
			}
		}
		if newMaps {
			if g.maps[i], err = w.set.Alloc(d.Device, read.MapRole(i), false, g.space.Layout.Bytes(), "hashmap"); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill copies what the devices hold. REQUIRES: Writer.mu is held, and the devices' maps have all stores of the index.
func (g *growth) fill() error {
	w := g.writer
	for i, d := range w.set.Devices {
		if g.slabs[i].Size() == 0 {
			continue
		}
		s, err := d.Device.NewStream()
		if err != nil {
			return err
		}
		err = errors.Join(s.Copy(g.slabs[i].Slice(0, d.Slab.Size()), d.Slab), s.Synchronize())
		s.Close()
		if err != nil {
			return err
		}
	}
	if g.space.Layout == w.set.Devices[0].Layout {
		return nil
	}
	if err := g.fillIndex(); err != nil {
		return err
	}
	if w.mu.index.image == nil {
		return nil // the index is the device's map
	}
	for i, d := range w.set.Devices {
		if d.IsLost() {
			continue
		}
		for key, p := range g.differing() {
			g.m.Insert(key, w.store.Words(p)[i])
		}
		if err := device.Upload(d.Device, g.maps[i], g.image.Bytes()); err != nil {
			return err
		}
	}
	for key, p := range g.differing() {
		g.m.Insert(key, p.First)
	}
	return nil
}

// fillIndex makes the new index. A key that finds no slot in it is an error if it has a location; there is nearly always one.
func (g *growth) fillIndex() (err error) {
	w, layout := g.writer, g.space.Layout
	old := w.mu.index.m
	mem := g.maps[0].Bytes()
	if w.mu.index.image != nil {
		if g.image, err = numa.New(layout.Bytes()); err != nil {
			return err
		}
		mem = g.image.Bytes()
	}
	g.m = hashmap.View(mem, layout)
	g.m.Clear()
	g.at, g.ages = numa.Make[uint32](layout.Slots())
	for key, l := range old.All() {
		if !g.m.Insert(key, l) {
			return errors.New("the larger hashmap has no slot for a row: try another budget")
		}
		from, _ := old.Slot(key)
		to, _ := g.m.Slot(key)
		g.at[to] = w.mu.admittedAt[from]
	}
	for _, key := range w.mu.index.reasonKeys {
		if l := old.Find(key); !l.Valid() && l.Reason() != slab.Cold {
			if g.m.Insert(key, slab.Raw(0, 0)) {
				g.m.Erase(key, l.Reason())
			} else {
				g.drop = append(g.drop, key)
			}
		}
	}
	return nil
}

// differing yields the rows for which the devices' maps have different locations.
func (g *growth) differing() func(func(uint64, place.Locations) bool) {
	x := g.writer.mu.index
	return func(yield func(uint64, place.Locations) bool) {
		if len(x.set.Devices) == 1 {
			return
		}
		for key, l := range x.m.All() {
			if p := x.locationsAt(key, l); x.store.Words(p) != nil && !yield(key, p) {
				return
			}
		}
	}
}

// replaceLocked makes batches that begin from now on read the new memory, and retires the old.
func (g *growth) replaceLocked() {
	w, x := g.writer, g.writer.mu.index
	retire := func(d *read.Device, b *device.Buffer, by device.Buffer) {
		if by.Size() > 0 {
			w.mu.retire.open.buffers = append(w.mu.retire.open.buffers, retiredBuffer{d.Device, *b})
			*b = by
		}
	}
	for i, d := range w.set.Devices {
		retire(d, &d.Slab, g.slabs[i])
		retire(d, &d.Map, g.maps[i])
		if d.Layout = g.space.Layout; g.slabs[i].Size() > 0 {
			w.store.Slabs[i].Slots.Grow(g.space.Payload[i])
		}
	}
	if g.m != nil {
		g.replaceIndex(x)
	}
	w.store.Space.Store(&g.space)
	w.store.PublishSlabs()
	w.startProcessingLocked()
}

// replaceIndex puts the new index in the place of the old one.
func (g *growth) replaceIndex(x *index) {
	w := g.writer
	x.swap.Lock()
	defer x.swap.Unlock()
	if g.image != nil {
		g.m.OnStore(x.log.add)
		x.image.Free()
		x.image = g.image
	}
	x.m = g.m
	w.ages.Free()
	w.mu.admittedAt, w.ages = g.at, g.ages
	for _, key := range g.drop {
		x.reject(key)
	}
	// These were slots of the old maps.
	w.mu.retire.open.mapSlots = nil
	if group := w.mu.retire.processing; group != nil {
		group.mapSlots = nil
	}
}

// free frees the new memory.
func (g *growth) free() {
	for i, d := range g.writer.set.Devices {
		d.Device.Free(g.slabs[i])
		d.Device.Free(g.maps[i])
	}
	for _, role := range g.roles() {
		g.writer.set.Kept.Abandon(role)
	}
	g.image.Free()
	g.ages.Free()
}
