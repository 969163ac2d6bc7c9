package clients

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/wire"
)

// regions numbers the memory that clients map. Owner.mu guards it.
//
// A region is known by its address while a layout names it, or for ever. An address that is freed and used again cannot be
// mistaken for the old region: memory is freed only after Owner.Wait has described a layout without it.
type regions struct {
	owner *Owner
	last  uint64
	all   map[place]*region
	// without says which devices are lost and have no rows any more. Their memory may not be exported, and nobody reads it.
	without []bool
}

// place is an address.
type place struct {
	host bool // in this process, not of a device
	at   uint64
}

func placeOf(b device.Buffer) place {
	if mem := b.Bytes(); mem != nil {
		return place{true, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))}
	}
	return place{false, b.Addr()}
}

type region struct {
	wire.Region
	buffer device.Buffer
	named  uint64 // generation of the last layout that names it; forever for memory that every layout needs
}

const forever = ^uint64(0)

// ref returns the number of memory of a device, 0 if there is no memory or the device has no rows. generation is that of the layout which names it.
func (r *regions) ref(b device.Buffer, of int, host, writable bool, what string, generation uint64) uint64 {
	if b.Size() == 0 || !host && r.without[of] {
		return 0
	}
	key := placeOf(b)
	one := r.all[key]
	if one == nil {
		r.last++
		one = &region{Region: wire.Region{ID: r.last, Bytes: b.Size(), Device: of, Host: host, Writable: writable, What: what}, buffer: b}
		r.all[key] = one
	}
	one.named = max(one.named, generation)
	return one.ID
}

// forget drops the regions that no layout from a generation on names.
func (r *regions) forget(generation uint64) {
	for key, one := range r.all {
		if one.named < generation {
			delete(r.all, key)
		}
	}
}

// export returns a descriptor of a region.
func (r *regions) export(one *region) (*os.File, error) {
	s, err := device.SharerOf(r.owner.set.Devices[one.Device].Device)
	if err != nil {
		return nil, err
	}
	f, err := s.Export(one.buffer)
	if err != nil {
		return nil, fmt.Errorf("cache: %s: %w", one.What, err)
	}
	return f, nil
}

// layoutLocked describes what batches read now.
func (w *Owner) layoutLocked() wire.Layout {
	r := &w.mu.regions
	l := wire.Layout{Generation: w.set.Generation()} // before what is described
	lost := make([]bool, len(w.set.Devices))
	for i, d := range w.set.Devices {
		lost[i] = d.IsLost()
	}
	l.Paused = w.set.Paused() // after lost: if it is not paused any more, their rows have been withdrawn
	if !l.Paused {
		r.without = lost
	}
	for i, d := range w.set.Devices {
		v := d.View()
		one := wire.DeviceView{Map: r.ref(v.Map, i, false, false, "hashmap", l.Generation), Buckets: v.Layout.Buckets, Peers: v.Peers}
		if lost[i] {
			one.Lost = d.LostReason().Error()
		}
		for id, s := range v.Slabs {
			if s.Bytes() != nil && (id == len(w.set.Devices) || d.Device.NeedsStaging()) { // host memory of the first device, not a slab
				one.Slabs = append(one.Slabs, r.ref(s, 0, true, false, "overlay", l.Generation))
			} else {
				one.Slabs = append(one.Slabs, r.ref(s, id, false, false, "slab", l.Generation))
			}
		}
		for t := range w.set.Tables {
			one.Tables = append(one.Tables, w.tableViewLocked(i, d.Table(t), l.Generation))
		}
		l.Devices = append(l.Devices, one)
	}
	for t, kind := range w.kinds {
		if one := kind.residentLocked(r, l.Generation); one != nil {
			if l.Residents == nil {
				l.Residents = make([]*wire.Resident, len(w.kinds))
			}
			l.Residents[t] = one
		}
	}
	r.forget(l.Generation)
	w.mu.described = l.Generation
	return l
}

func (w *Owner) tableViewLocked(i int, t *read.TableView, generation uint64) wire.TableView {
	r := &w.mu.regions
	return wire.TableView{
		Mem: r.ref(t.Rows.Mem, 0, true, false, "host tier", generation), Stride: t.Rows.Stride, Ahead: t.Rows.Ahead, Common: t.Rows.Common,

		Compressed: r.ref(t.Rows.Compressed, i, false, false, "row bits", generation),
		Index:      r.ref(t.Rows.Index, i, false, false, "host tier index", generation),
		Rejected:   r.ref(t.Rejected, i, false, false, "rejected rows", generation),
		Oversize:   r.ref(t.Oversize, i, false, false, "oversize rows", generation),
	}
}

// newLocked returns the regions that a client has not been sent yet, with descriptors, in messages of at most wire.MaxFiles each. What it was sent
// and is not known any more is forgotten. The caller closes the files.
func (c *Client) newLocked() (messages []*wire.Message, err error) {
	r := &c.owner.mu.regions
	known := map[uint64]bool{}
	var notice wire.MemoryNotice
	var files []*os.File
	flush := func() {
		if len(files) > 0 {
			messages = append(messages, notification(wire.Memory, notice, files))
			notice.Regions, files = nil, nil
		}
	}
	for _, one := range r.all {
		if known[one.ID] = true; c.sent[one.ID] || one.client() && one.ID != c.boardID {
			continue
		}
		f, err := r.export(one)
		if err != nil {
			flush()
			return messages, err
		}
		c.sent[one.ID] = true
		notice.Regions, files = append(notice.Regions, one.Region), append(files, f)
		if len(files) == wire.MaxFiles {
			flush()
		}
	}
	flush()
	for id := range c.sent {
		if !known[id] {
			delete(c.sent, id)
		}
	}
	return messages, nil
}

// client says whether a region is a board, which only its client maps.
func (r *region) client() bool { return r.What == boardName }

const boardName = "board"
