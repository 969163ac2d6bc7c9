package fill

import (
	"errors"
	"slices"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache/internal/change"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/kernels"
)

// buildMaps builds the hashmaps of all devices from the entries. Rows that find no slot are rejected. differing are the rows whose
// location is not the same on every device, in the order of entries.
func (f *filler) buildMaps(entries []hashmap.Entry, differing []change.Entry) error {
	rejected, err := f.buildOnDevices(entries, differing)
	if errors.Is(err, errBuildOnHost) {
		rejected, err = f.buildOnHost(entries, differing)
	}
	if err != nil {
		return err
	}
	if len(rejected) > 0 {
		copied := map[uint64]place.Locations{}
		for _, e := range differing {
			copied[e.Key] = e.Locations
		}
		for _, e := range rejected {
			table, row := hashmap.SplitKey(e.Key)
			t := f.set.Tables[table]
			t.Rejected.Add(row)
			p, ok := copied[e.Key]
			if !ok {
				p = place.Locations{First: e.Location}
			}
			for l := range p.All() {
				if last, _ := f.store.Release(l, false); last {
					f.store.Slabs[l.Slab()].Slots.Free(l.Offset(), f.store.SlotBytes(e.Key, l))
				}
			}
			t.Counts.Cached.Add(-1)
		}
	}
	host.Workers(0).For(len(entries), admitGrain, func(from, to int) {
		cached := make([]int64, len(f.set.Tables))
		for _, e := range entries[from:to] {
			table, _ := hashmap.SplitKey(e.Key)
			cached[table]++
		}
		for i, n := range cached {
			f.set.Tables[i].Counts.Cached.Add(n)
		}
	})
	return nil
}

// errBuildOnHost is returned by buildOnDevices if the host must build the maps, for example because entries do not fit: the kernel does not
// report which.
var errBuildOnHost = errors.New("cache: the hashmap is to be built on the host")

// seenBy sets the locations of the entries that are in differing to what device i sees. Both slices have the same order.
func (f *filler) seenBy(i int, entries []hashmap.Entry, differing []change.Entry) {
	at := 0
	for _, e := range differing {
		for entries[at].Key != e.Key {
			at++
		}
		entries[at].Location = f.store.Words(e.Locations)[i]
	}
}

// buildOnDevices builds the hashmap of every device there.
func (f *filler) buildOnDevices(entries []hashmap.Entry, differing []change.Entry) (rejected []hashmap.Entry, err error) {
	layout, n := f.set.Devices[0].Layout, int64(len(entries))
	if f.set.Devices[0].Map.Bytes() != nil || n == 0 || !(&kernels.Build{Layout: layout}).Fits(n) {
		return nil, errBuildOnHost
	}
	own := entries
	if len(differing) > 0 {
		own = slices.Clone(entries)
	}
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(own))), n*hashmap.SlotBytes)
	for _, d := range f.set.Devices {
		f.seenBy(d.Index, own, differing)
		k := kernels.Build{Map: d.Map, Layout: layout}
		sizes := []int64{int64(len(raw)), k.ScratchBytes(n), 4}
		buffers := []*device.Buffer{&k.Entries, &k.Scratch, &k.Failed}
		defer func() {
			for _, b := range buffers {
				d.Device.Free(*b)
			}
		}()
		for i, b := range buffers {
			if *b, err = d.Device.Alloc(sizes[i], "building the hashmap"); errors.Is(err, device.ErrOutOfMemory) {
				return nil, errBuildOnHost
			} else if err != nil {
				return nil, err
			}
		}
		s, err := d.Device.NewStream()
		if err != nil {
			return nil, err
		}
		defer s.Close()
		var failed [4]byte
		if err := errors.Join(
			s.Copy(k.Entries, device.HostBuffer(raw)), s.Launch(&k), s.Copy(device.HostBuffer(failed[:]), k.Failed), s.Synchronize(),
		); err != nil {
			return nil, err
		}
		if failed != [4]byte{} {
			return nil, errBuildOnHost
		}
	}
	return nil, nil
}

// buildOnHost builds the hashmap in host memory and copies it to every device. It returns the entries that do not fit.
func (f *filler) buildOnHost(entries []hashmap.Entry, differing []change.Entry) (rejected []hashmap.Entry, err error) {
	layout := f.set.Devices[0].Layout
	image := f.set.Devices[0].Map.Bytes()
	if image == nil {
		memory, err := numa.New(layout.Bytes())
		if err != nil {
			return nil, err
		}
		defer memory.Free()
		image = memory.Bytes()
	}
	built := hashmap.View(image, layout)
	if rejected, err = built.BuildContext(f.o.Context, entries); err != nil {
		return nil, err
	}
	for i := range f.set.Devices {
		d := f.set.Devices[len(f.set.Devices)-1-i] // the first device is last, because the image may be its map
		for _, e := range differing {
			if _, ok := built.Slot(e.Key); ok {
				built.Insert(e.Key, f.store.Words(e.Locations)[d.Index])
			}
		}
		if b := d.Map.Bytes(); b != nil && &b[0] == &image[0] {
			continue
		}
		if err := device.Upload(d.Device, d.Map, image); err != nil {
			return nil, err
		}
	}
	return rejected, nil
}
