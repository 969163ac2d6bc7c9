package place

import (
	"math/bits"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/placement"
)

// Topology says which devices read which slabs, and in which slabs rows are to lie. It is immutable: losing a device makes another
// one.
//
// A clique is a set of devices that all read each other's slabs, and no others. Each clique has every cached row once, as far as its
// slabs have room. Rows that are to be copied lie in every slab.
type Topology struct {
	Cliques [][]int
	Of      [slab.MaxSlabs]int // the clique of each device
	Live    uint8              // bits of the devices that are not lost
	parts   []*placement.Partition
}

// NewTopology returns the topology of devices with the given cliques. Rows are divided over a clique by the weights of its devices.
func NewTopology(cliques [][]int, weights []int64) *Topology {
	s := &Topology{Cliques: cliques, Live: uint8(1<<len(weights) - 1)}
	for q, members := range cliques {
		own := make([]int64, len(weights))
		for _, i := range members {
			s.Of[i] = q
			own[i] = max(1, weights[i])
		}
		s.parts = append(s.parts, placement.NewPartition(own))
	}
	return s
}

// Without returns the Topology after a device is lost.
func (s *Topology) Without(i int) *Topology {
	t := *s
	t.Live &^= 1 << i
	t.parts = append([]*placement.Partition(nil), s.parts...)
	if q := s.Of[i]; t.parts[q] != nil {
		t.parts[q] = t.parts[q].Without(i)
	}
	return &t
}

// Reads says whether device i reads a slab.
func (s *Topology) Reads(i, id int) bool { return s.Of[i] == s.Of[id] && s.Live>>id&1 != 0 }

// Peers returns the bits of the other devices whose slabs device i reads.
func (s *Topology) Peers(i int) (bits uint8) {
	for _, j := range s.Cliques[s.Of[i]] {
		if j != i && s.Reads(i, j) {
			bits |= 1 << j
		}
	}
	return bits
}

// Targets returns the bits of the slabs that a row is to lie in: all, if it is to be copied; else one of each clique, where
// it lies already if it does.
func (s *Topology) Targets(key uint64, copied bool, now Locations) (slabs uint8) {
	return s.targets(key, copied, now.Slabs()&s.Live)
}

// targets is Targets for a row that has slots in some live slabs.
func (s *Topology) targets(key uint64, copied bool, have uint8) (slabs uint8) {
	if copied {
		return s.Live
	}
	for q, part := range s.parts {
		if part == nil {
			continue
		}
		owner := uint8(1) << part.Owner(key)
		if here := have & s.Members(q); here != 0 && here&owner == 0 {
			owner = here & -here
		}
		slabs |= owner
	}
	return slabs
}

// Members returns the bits of the devices of clique q, lost ones included.
func (s *Topology) Members(q int) (bits uint8) {
	for _, i := range s.Cliques[q] {
		bits |= 1 << i
	}
	return bits
}

// Seen returns the word that a device's map is to have of a row: its own copy, else one in a slab that it reads.
func (s *Topology) Seen(i int, p Locations) slab.Location {
	if l, ok := p.In(i); ok {
		return l
	}
	var there [slab.MaxSlabs]slab.Location
	n := 0
	for l := range p.All() {
		if s.Reads(i, l.Slab()) {
			there[n] = l
			n++
		}
	}
	if n == 0 {
		return slab.NoLocation(slab.Rejected)
	}
	return there[i%n] // so that the readers of few copies are spread over them
}

// FindCliques divides devices into sets whose members all read each other's memory, each device into the first that it fits.
func FindCliques(devices []device.Device) (cliques [][]int) {
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

// SlabsOf yields the slabs of the given bits.
func SlabsOf(set uint8) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for ; set != 0; set &= set - 1 {
			if !yield(bits.TrailingZeros8(set)) {
				return
			}
		}
	}
}
