package change

import (
	"errors"
	"sync"

	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// index holds the location of every cached row. It is a hashmap in host memory, and the devices' maps are copies of it; on the host
// backend with one device it is that device's map itself. Changes reach the devices with publish. Changing the index requires Writer.mu.
// find and locations need no more than swap's read lock; their results may then be out of date.
type index struct {
	set     *read.Set
	store   *place.Store
	retire  *retirement
	devices []*deviceWriter // one a device
	// m has the first location of a row that has more than one; copies has all of them.
	m      *hashmap.Map
	image  *numa.Memory // m's memory, nil if it is a device's
	swap   sync.RWMutex // locked while m is replaced, and for reading by those who read it without Writer.mu and without the cycle's lock
	copies place.Copies
	// residents are words of resident tables that the devices do not have yet.
	residents residentWords
	log       redoLog // stores that the devices' maps have not seen yet
	// reasonKeys are the keys without a location whose map slots hold the reason, oldest first.
	reasonKeys []uint64
	// rejected are words of the rejected rows' bits that the devices do not have yet, and tiers words of host tiers that say where or in which form rows
	// lie there; both by table and by index.
	rejected, tiers []map[uint64]uint64
}

// newIndex reads the index from the first device's map. differing are the rows for which the devices' maps have different locations.
func newIndex(store *place.Store, retire *retirement, differing []Entry) (*index, error) {
	x := &index{set: store.Set, store: store, retire: retire, residents: residentWords{}}
	for range x.set.Tables {
		x.rejected, x.tiers = append(x.rejected, map[uint64]uint64{}), append(x.tiers, map[uint64]uint64{})
	}
	first := x.set.Devices[0]
	layout, image := first.Layout, first.Map.Bytes()
	mirrored := 0 // devices whose map is the index itself
	if image == nil || len(x.set.Devices) > 1 {
		var err error
		if x.image, err = numa.New(layout.Bytes()); err != nil {
			return nil, err
		}
		image = x.image.Bytes()
		if err := device.Download(first.Device, image, first.Map); err != nil {
			return x, err
		}
	} else {
		mirrored = 1
	}
	x.m = hashmap.View(image, layout)
	for _, e := range differing {
		if _, ok := x.m.Slot(e.Key); ok { // else there was no room in the map
			x.m.Insert(e.Key, e.Locations.First)
			x.copies.Put(e.Key, e.Locations)
		}
	}
	if mirrored < len(x.set.Devices) {
		x.m.OnStore(x.log.add)
	}
	for i, d := range x.set.Devices {
		m, err := newDeviceWriter(d, x.set.Tables, i >= mirrored)
		if err != nil {
			return x, err
		}
		x.devices = append(x.devices, m)
	}
	return x, nil
}

func (x *index) close() {
	for _, m := range x.devices {
		m.close()
	}
	x.image.Free()
}

// find returns the word of a key: its first location, or why there is none.
func (x *index) find(key uint64) slab.Location { return x.m.Find(key) }

// locations returns the locations of a row.
func (x *index) locations(key uint64) place.Locations { return x.locationsAt(key, x.m.Find(key)) }

// locationsAt is locations for a key whose word is l.
func (x *index) locationsAt(key uint64, l slab.Location) place.Locations {
	if l.Valid() && x.copies.Rows.Load() > 0 {
		return x.copies.Get(key, l)
	}
	return place.Locations{First: l}
}

// cached returns the locations of a row in slabs, none if it lies in the overlay.
func (x *index) cached(key uint64) place.Locations { return x.cachedAt(key, x.m.Find(key)) }

// cachedAt is cached for a key whose word is l.
func (x *index) cachedAt(key uint64, l slab.Location) place.Locations {
	p := x.locationsAt(key, l)
	if !p.Valid() || x.store.Overlay.Has(p.First) {
		return place.Nowhere()
	}
	return p
}

// insert sets the locations of a row. It returns false if the map has no slot for the row.
func (x *index) insert(key uint64, p place.Locations) bool {
	x.log.operation()
	x.log.views = x.store.Words(p)
	defer func() { x.log.views = nil }()
	if !x.m.Insert(key, p.First) {
		return false
	}
	x.copies.Put(key, p)
	return true
}

// At most one in reasonShare map slots says why a row was withdrawn.
const reasonShare = 16

// withdraw removes a key's location. Its map slot keeps the reason for a while.
func (x *index) withdraw(key uint64, why slab.Reason) {
	x.copies.Put(key, place.Nowhere())
	x.log.operation()
	x.m.Erase(key, why)
	if why == slab.Cold || why == slab.Rejected || why == slab.Oversize { // the row bits say so too
		x.delete(key)
		return
	}
	x.reasonKeys = append(x.reasonKeys, key)
	// Reasons must leave room for locations. A row whose reason is dropped counts as rejected.
	for int64(len(x.reasonKeys)) > x.m.Layout().Slots()/reasonShare {
		oldest := x.reasonKeys[0]
		if x.reasonKeys = x.reasonKeys[1:]; x.delete(oldest) {
			x.reject(oldest)
		}
	}
}

// delete removes a key without a location from the maps, so that its slot can be another key's after an epoch.
func (x *index) delete(key uint64) bool {
	x.log.operation()
	s, ok := x.m.Delete(key)
	if ok {
		x.retire.open.mapSlots = append(x.retire.open.mapSlots, s)
	}
	return ok
}

// reject notes a row as rejected by admission.
func (x *index) reject(key uint64) {
	table, row := hashmap.SplitKey(key)
	if t := x.set.Tables[table]; !t.Rejected.Has(row) {
		t.Rejected.AddShared(row)
		x.rejected[table][uint64(row>>6)] = t.Rejected[row>>6]
	}
}

// publish lets every device see the index: batches that begin after it returns do.
func (x *index) publish() error {
	errs := []error{x.storeWords(x.tiers, func(t *read.TableView) device.Buffer {
		if t.Rows.Index.Size() == 0 { // rows lie in place
			return t.Rows.Compressed
		}
		return t.Rows.Index
	})}
	for wave := range x.log.waves {
		errs = append(errs, x.onDevices(func(i int, m *deviceWriter) error {
			if !m.hasMap {
				return nil
			}
			return m.store(x.set.Devices[i].Map, x.log.wave(wave, i))
		}))
	}
	x.log.clear()
	errs = append(errs, x.storeWords(x.rejected, func(t *read.TableView) device.Buffer { return t.Rejected }))
	errs = append(errs, x.publishResident(), x.onDevices(func(_ int, m *deviceWriter) error { return m.finish() }))
	return errors.Join(errs...)
}

// storeWords stores words of tables, by index, where a device has them, and forgets them.
func (x *index) storeWords(changed []map[uint64]uint64, where func(*read.TableView) device.Buffer) error {
	var errs []error
	for table, changed := range changed {
		if len(changed) == 0 {
			continue
		}
		words := make([]word, 0, len(changed))
		for index, value := range changed {
			words = append(words, word{index, value})
		}
		clear(changed)
		errs = append(errs, x.onDevices(func(i int, m *deviceWriter) error {
			return m.store(where(x.set.Devices[i].Table(table)), words)
		}))
	}
	return errors.Join(errs...)
}

// tierWord notes a word of a host tier that has changed.
func (x *index) tierWord(table int, w transfer.Written) { x.tiers[table][w.Index] = w.Value }

// onDevices calls f for every device that is not lost. It ignores the error of a device that f finds lost, if another device is left.
func (x *index) onDevices(f func(i int, m *deviceWriter) error) error {
	var errs []error
	for i, d := range x.set.Devices {
		if d.IsLost() {
			continue
		}
		if err := f(i, x.devices[i]); err != nil && !x.set.Survives(d) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// put writes a row to a slot that no batch reads, unless the device is lost. publish waits for it.
func (x *index) put(l slab.Location, stored []byte) error {
	d := x.set.Devices[l.Slab()]
	if d.IsLost() {
		return nil
	}
	if err := x.devices[d.Index].put(l.Offset(), stored); err != nil && !x.set.Survives(d) {
		return err
	}
	return nil
}

// setHostRow writes a row to the host tier, where no batch reads it, and lets the devices know where it lies.
func (x *index) setHostRow(table int, row int64, stored []byte, compressed bool) error {
	t := x.set.Tables[table]
	written, changed, err := t.Tier.Write(row, stored, compressed)
	if changed {
		x.tierWord(table, written)
	}
	return err
}
