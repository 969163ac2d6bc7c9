package cache

import (
	"math/bits"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/placement"
)

// spread says which devices read which slabs, and in which slabs rows are to lie. It is never changed: losing a device makes
// another one.
//
// A clique are devices that all read each other's slabs. Each clique has every cached row once, as far as its slabs have room,
// and reads no others; rows that are to be copied lie in every slab of it.
type spread struct {
	cliques [][]int
	of      [slab.MaxSlabs]int // the clique of each device
	parts   []*placement.Partition
	live    uint8 // bits of the devices that are not lost
}

func newSpread(cliques [][]int, weights []int64) *spread {
	s := &spread{cliques: cliques, live: uint8(1<<len(weights) - 1)}
	for q, members := range cliques {
		own := make([]int64, len(weights))
		for _, i := range members {
			s.of[i] = q
			own[i] = max(1, weights[i])
		}
		s.parts = append(s.parts, placement.NewPartition(own))
	}
	return s
}

// without returns the spread after a device is lost.
func (s *spread) without(i int) *spread {
	t := *s
	t.live &^= 1 << i
	t.parts = append([]*placement.Partition(nil), s.parts...)
	if q := s.of[i]; t.parts[q] != nil {
		t.parts[q] = t.parts[q].Without(i)
	}
	return &t
}

// reads says whether device i reads a slab.
func (s *spread) reads(i, id int) bool { return s.of[i] == s.of[id] && s.live>>id&1 != 0 }

// peers returns the bits of the other devices whose slabs device i reads.
func (s *spread) peers(i int) (bits uint8) {
	for _, j := range s.cliques[s.of[i]] {
		if j != i && s.reads(i, j) {
			bits |= 1 << j
		}
	}
	return bits
}

// targets returns the bits of the slabs that a row is to lie in: all, if it is to be copied; else one of each clique, where
// it lies already if it does.
func (s *spread) targets(key uint64, copied bool, now places) (slabs uint8) {
	if copied {
		return s.live
	}
	have := now.slabs() & s.live
	for q, part := range s.parts {
		if part == nil {
			continue
		}
		owner := uint8(1) << part.Owner(key)
		if here := have & s.members(q); here != 0 && here&owner == 0 {
			owner = here & -here
		}
		slabs |= owner
	}
	return slabs
}

func (s *spread) members(q int) (bits uint8) {
	for _, i := range s.cliques[q] {
		bits |= 1 << i
	}
	return bits
}

// seen returns the word that a device's map is to have of a row: its own copy, else one in a slab that it reads.
func (s *spread) seen(i int, p places) slab.Location {
	if l, ok := p.in(i); ok {
		return l
	}
	var there [slab.MaxSlabs]slab.Location
	n := 0
	for l := range p.all() {
		if s.reads(i, l.Slab()) {
			there[n] = l
			n++
		}
	}
	if n == 0 {
		return slab.NoLocation(slab.Rejected)
	}
	return there[i%n] // so that readers of few copies are spread over them
}

// views returns the word of each device's map where they are not all the same, else nil.
func (c *Cache) views(p places) []slab.Location {
	s := c.spread.Load()
	if !p.valid() || len(s.cliques) == 1 && len(p.more) == 0 && !c.overlay.has(p.first) {
		return nil
	}
	if c.overlay.has(p.first) && !c.overlay.far {
		return nil
	}
	views := make([]slab.Location, len(c.devices))
	same := true
	for i := range views {
		if c.overlay.has(p.first) {
			views[i] = c.overlay.seen(s, i, p.first)
		} else {
			views[i] = s.seen(i, p)
		}
		same = same && views[i] == p.first
	}
	if same {
		return nil
	}
	return views
}

// slabsFor returns the slabs that location words name on a device: its clique's, and the overlay.
func (c *Cache) slabsFor(s *spread, i int) (slabs []device.Buffer) {
	for j, d := range c.devices {
		if s.reads(i, j) || i == j {
			slabs = append(slabs, d.slab)
		} else {
			slabs = append(slabs, device.Buffer{})
		}
	}
	switch o := &c.overlay; {
	case !o.far:
		slabs = append(slabs, o.mem)
	case !s.reads(i, 0):
		slabs[0] = o.mem
	}
	return slabs
}

// findCliques divides devices into sets whose members all read each other's memory, each device into the first that it fits.
func findCliques(devices []device.Device) (cliques [][]int) {
	fits := func(i int, members []int) bool {
		for _, j := range members {
			if !canRead(devices[i], devices[j]) || !canRead(devices[j], devices[i]) {
				return false
			}
		}
		return true
	}
next:
	for i := range devices {
		for q, members := range cliques {
			if fits(i, members) {
				cliques[q] = append(members, i)
				continue next
			}
		}
		cliques = append(cliques, []int{i})
	}
	return cliques
}

// canRead says whether kernels of a device read another's memory.
func canRead(d, of device.Device) bool {
	p, ok := d.(device.PeerReader)
	return !ok || p.CanRead(of)
}

// slabsOf yields the slabs of the given bits.
func slabsOf(set uint8) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for ; set != 0; set &= set - 1 {
			if !yield(bits.TrailingZeros8(set)) {
				return
			}
		}
	}
}
