package place

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// Store is the data store: the slabs of all devices, the overlay, and what says where rows may lie. Package change guards the slabs
// and the overlay by its lock.
type Store struct {
	Set         *read.Set
	Topology    atomic.Pointer[Topology]
	Space       atomic.Pointer[Space]
	Slabs       []*Slab // one a device
	SharedSlots SharedSlots
	Overlay     *Overlay
	Hot         *Hot
	Nodes       *HostNodes
	// Costs is the time that lookups of each table's rows take, as admission.Problem has it. Policies and placement weigh rows by it.
	Costs []admission.Cost
	// Link is the rate of a device's reads of host memory in bytes a second; 0 or less: a default.
	Link float64
}

// OverflowTimes returns the times of the rows of a resident table. A device has this number of rows.
func (s *Store) OverflowTimes(table int, t *read.Table, devices int, rows int64) buddy.Times {
	link := buddy.HostLink(s.Link)
	if t.WantResident.Buddy == read.BuddyPeer && devices > 1 || t.Resident != nil && t.Resident.Rows.Ranges != nil && t.Resident.Rows.OnPeers() {
		link = buddy.PeerLink()
	}
	return link.Times(s.cost(table).Hit, rows)
}

// cost returns the cost of a table's rows.
func (s *Store) cost(table int) admission.Cost {
	return (&admission.Problem{Costs: s.Costs}).Cost(table)
}

// Release notes that one word less names a slot, and returns whether it was the last one. reserved says whether the slot is to be counted in Slab.Reserved
// until it is free. For a slot that is not in SharedSlots it is true if the row has moved.
func (s *Store) Release(l slab.Location, moved bool) (last, reserved bool) {
	shared, last, reserved := s.SharedSlots.Release(l)
	return last, reserved || last && !shared && moved
}

// Slab is the slots of one device.
type Slab struct {
	Slots *slab.Allocator
	Limit int64 // bytes of slots that rows may take
	// Reserved is the bytes of slots that compaction has taken. They hold free space, or a second copy of a row that moves.
	Reserved int64
}

// Used returns the bytes of the slots that rows take.
func (s *Slab) Used() int64 { return s.Slots.Used() - s.Reserved }

// Alloc returns a slot within the limit.
func (s *Slab) Alloc(bytes int) (offset int64, ok bool) {
	if s.Used()+int64(bytes) > s.Limit {
		return 0, false
	}
	return s.Slots.Alloc(bytes)
}

// Location returns the location word of a row in a slot.
func Location(id int, offset int64, stored int, compressed bool) slab.Location {
	if compressed {
		return slab.Compressed(id, offset, stored)
	}
	return slab.Raw(id, offset)
}

// SlotBytes returns what a row takes at a location in a slab.
func (s *Store) SlotBytes(key uint64, l slab.Location) int {
	table, _ := hashmap.SplitKey(key)
	return s.Set.Tables[table].SlotBytes(l)
}

// LongestSlot returns the bytes of the longest slot that a row can need.
func (s *Store) LongestSlot() int {
	longest := 0
	for t := range cacheable(s.Set.Tables) {
		longest = max(longest, slab.SlotBytes(t.Tier.RowBytes()))
	}
	return longest
}

// Words returns the location word that each device is to have of a row, nil where all are p.First.
func (s *Store) Words(p Locations) []slab.Location {
	topology := s.Topology.Load()
	if !p.Valid() || s.Overlay.Has(p.First) || len(topology.Cliques) == 1 && len(p.More) == 0 {
		return nil
	}
	words := make([]slab.Location, len(s.Set.Devices))
	same := true
	for i := range words {
		words[i] = topology.Seen(i, p)
		same = same && words[i] == p.First
	}
	if same {
		return nil
	}
	return words
}

// SetTopology makes batches that begin from now on read the slabs by another topology.
func (s *Store) SetTopology(topology *Topology) {
	s.Topology.Store(topology)
	s.PublishSlabs()
}

// PublishSlabs makes batches that begin from now on read the hashmaps, the slabs of each device's clique, and the overlay as they are now.
func (s *Store) PublishSlabs() {
	topology, o := s.Topology.Load(), s.Overlay
	for i, d := range s.Set.Devices {
		v := &read.View{Map: d.Map, Layout: d.Layout, Slabs: make([]device.Buffer, len(s.Set.Devices), len(s.Set.Devices)+1), Peers: topology.Peers(i)}
		for j, other := range s.Set.Devices {
			if topology.Reads(i, j) || i == j {
				v.Slabs[j] = other.Slab
			}
		}
		switch {
		case o.Front == 0:
			v.Slabs = append(v.Slabs, o.Mem)
		case !topology.Reads(i, 0):
			v.Slabs[0] = o.Mem
		}
		d.SetView(v)
	}
}

// Limits returns the bytes of slots that rows may take on each device.
func (s *Store) Limits() []int64 {
	limits := make([]int64, len(s.Slabs))
	for i, one := range s.Slabs {
		limits[i] = one.Limit
	}
	return limits
}

// HostCapacity returns how many slot bytes of chosen rows the Partial host tiers hold, of tables that do not fit.
func HostCapacity(tables []*read.Table) (bytes int64) {
	for _, t := range tables {
		if t.Tier.Partial() {
			if main, _ := t.Tier.MainBytes(); main < t.Tier.Totals().SlotBytes {
				bytes += main
			}
		}
	}
	return bytes
}

// Capacity returns about how many slot bytes of different rows slabs of the given payloads hold, and Partial host tiers beside them: policies rank rows
// for both.
func (s *Store) Capacity(payload []int64) (most int64) {
	topology, hot := s.Topology.Load(), s.Hot.Bytes.Load()
	for _, members := range topology.Cliques {
		largest, rest := int64(0), int64(0)
		for _, i := range members {
			if topology.Live>>i&1 != 0 {
				largest = max(largest, payload[i])
				rest += max(0, payload[i]-hot)
			}
		}
		most = max(most, min(hot, largest)+rest)
	}
	slots := int64(0)
	for _, t := range s.Set.Tables {
		slots += fullBytes(t)
	}
	return min(most+HostCapacity(s.Set.Tables), slots)
}
