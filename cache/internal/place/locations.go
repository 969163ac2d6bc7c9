package place

import (
	"iter"
	"slices"

	"github.com/tensorcache/tensorcache/slab"
)

// Locations are the locations of a row: its slots, at most one in each slab, or its slot in the overlay. They are immutable.
type Locations struct {
	First slab.Location
	More  []slab.Location
}

// Nowhere returns no locations.
func Nowhere() Locations { return Locations{First: slab.NoLocation(slab.Cold)} }

// Of returns the given locations. The first is the one in the index.
func Of(all []slab.Location) Locations {
	if len(all) == 0 {
		return Nowhere()
	}
	return Locations{all[0], all[1:len(all):len(all)]}
}

// Valid says whether there is a location.
func (p Locations) Valid() bool { return p.First.Valid() }

// All yields the locations.
func (p Locations) All() iter.Seq[slab.Location] {
	return func(yield func(slab.Location) bool) {
		if p.Valid() && yield(p.First) {
			for _, l := range p.More {
				if !yield(l) {
					return
				}
			}
		}
	}
}

// List returns the locations in a slice of its own.
func (p Locations) List() []slab.Location { return slices.Collect(p.All()) }

// In returns the location in a slab.
func (p Locations) In(id int) (slab.Location, bool) {
	for l := range p.All() {
		if l.Slab() == id {
			return l, true
		}
	}
	return 0, false
}

// Slabs returns the slabs as bits.
func (p Locations) Slabs() (bits uint8) {
	for l := range p.All() {
		bits |= 1 << l.Slab()
	}
	return bits
}

// Equal says whether p and q are the same locations in the same order.
func (p Locations) Equal(q Locations) bool { return p.First == q.First && slices.Equal(p.More, q.More) }

// Within returns the locations in the given slabs, and the others.
func (p Locations) Within(bits uint8) (in, out Locations) {
	if p.Slabs()&^bits == 0 {
		return p, Nowhere()
	}
	var kept, dropped []slab.Location
	for l := range p.All() {
		if bits>>l.Slab()&1 != 0 {
			kept = append(kept, l)
		} else {
			dropped = append(dropped, l)
		}
	}
	return Of(kept), Of(dropped)
}

// Without returns the locations of p that q does not have.
func (p Locations) Without(q Locations) Locations {
	if !p.Valid() || !q.Valid() {
		return p
	}
	var left []slab.Location
	other := q.List()
	for l := range p.All() {
		if !slices.Contains(other, l) {
			left = append(left, l)
		}
	}
	return Of(left)
}
