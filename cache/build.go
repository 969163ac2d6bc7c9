package cache

import (
	"errors"
	"slices"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/kernels"
)

// buildMaps builds the hashmaps.
func (c *Cache) buildMaps(entries []hashmap.Entry, several []entry) error {
	rejected, err := c.buildOnDevices(entries, several)
	if errors.Is(err, errBuildOnHost) {
		rejected, err = c.buildOnHost(entries, several)
	}
	if err != nil {
		return err
	}
	if len(rejected) > 0 {
		copied := map[uint64]places{}
		for _, e := range several {
			copied[e.key] = e.places
		}
		for _, e := range rejected {
			table, row := hashmap.SplitKey(e.Key)
			t := c.tables[table]
			t.rejected.add(row)
			p, ok := copied[e.Key]
			if !ok {
				p = places{first: e.Location}
			}
			for l := range p.all() {
				c.devices[l.Slab()].slots.Free(l.Offset(), c.slotBytes(e.Key, l))
			}
			t.counts.cached.Add(-1)
		}
	}
	for _, e := range entries {
		table, _ := hashmap.SplitKey(e.Key)
		c.tables[table].counts.cached.Add(1)
	}
	return nil
}

// errBuildOnHost says that the host must build the maps: devices do not say which entries do not fit.
var errBuildOnHost = errors.New("cache: the hashmap is to be built on the host")

// seenBy sets the locations of those entries that several names, in the same order, to what device i is to see.
func (c *Cache) seenBy(i int, entries []hashmap.Entry, several []entry) {
	at := 0
	for _, e := range several {
		for entries[at].Key != e.key {
			at++
		}
		entries[at].Location = c.views(e.places)[i]
	}
}

// buildOnDevices has every device build its hashmap.
func (c *Cache) buildOnDevices(entries []hashmap.Entry, several []entry) (rejected []hashmap.Entry, err error) {
	layout, n := c.devices[0].layout, int64(len(entries))
	if c.devices[0].hashes.Bytes() != nil || n == 0 || !(&kernels.Build{Layout: layout}).Fits(n) {
		return nil, errBuildOnHost
	}
	own := entries
	if len(several) > 0 {
		own = slices.Clone(entries)
	}
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(own))), n*hashmap.SlotBytes)
	for _, d := range c.devices {
		c.seenBy(d.index, own, several)
		k := kernels.Build{Map: d.hashes, Layout: layout}
		sizes := []int64{int64(len(raw)), k.ScratchBytes(n), 4}
		buffers := []*device.Buffer{&k.Entries, &k.Scratch, &k.Failed}
		defer func() {
			for _, b := range buffers {
				d.device.Free(*b)
			}
		}()
		for i, b := range buffers {
			if *b, err = d.device.Alloc(sizes[i], "building the hashmap"); errors.Is(err, device.ErrOutOfMemory) {
				return nil, errBuildOnHost
			} else if err != nil {
				return nil, err
			}
		}
		s, err := d.device.NewStream()
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

// buildOnHost builds the hashmap, where it rejects what does not fit, and copies it to every device.
func (c *Cache) buildOnHost(entries []hashmap.Entry, several []entry) (rejected []hashmap.Entry, err error) {
	layout := c.devices[0].layout
	image := c.devices[0].hashes.Bytes()
	if image == nil {
		image = make([]byte, layout.Bytes())
	}
	built := hashmap.View(image, layout)
	if rejected, err = built.Build(entries); err != nil {
		return nil, err
	}
	for i := range c.devices {
		d := c.devices[len(c.devices)-1-i] // the first one's map may be the image
		for _, e := range several {
			if _, ok := built.Slot(e.key); ok {
				built.Insert(e.key, c.views(e.places)[d.index])
			}
		}
		if b := d.hashes.Bytes(); b != nil && &b[0] == &image[0] {
			continue
		}
		if err := device.Upload(d.device, d.hashes, image); err != nil {
			return nil, err
		}
	}
	return rejected, nil
}
