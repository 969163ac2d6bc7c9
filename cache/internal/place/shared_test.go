package place

import (
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// TestSharedSlots_EqualsMap gives and takes words of slots at random, some while words move to another slot, and compares what Shared says with a Go map.
func TestSharedSlots_EqualsMap(t *testing.T) {
	type model struct {
		group Group
		words int64
		twin  slab.Location
	}
	const groups, slabs, steps = 300, 3, 30_000
	none := slab.NoLocation(slab.Cold)
	r := rand.New(rand.NewPCG(7, 7))
	var s SharedSlots
	words, open := map[slab.Location]*model{}, map[groupAt]slab.Location{}
	var list []slab.Location
	next := int64(0)
	slot := func(id int) slab.Location {
		next += slab.Align
		return slab.Raw(id, next)
	}
	group := func(i int) Group { return Group{transfer.Place(i / 2), uint32(i % 2)} }
	var loaded []SharedSlot
	for i := range groups {
		g, l := group(i), slot(i%slabs)
		loaded = append(loaded, SharedSlot{g, l, int64(i%4 + 1)})
		words[l], open[groupAt{g, i % slabs}] = &model{group: g, words: int64(i%4 + 1), twin: none}, l
		list = append(list, l)
	}
	s.Load(host.Workers(4), loaded)
	for step := range steps {
		switch r.IntN(3) {
		case 0:
			g, id := group(r.IntN(groups)), r.IntN(slabs)
			l, ok := s.Take(g, id, none)
			want, there := open[groupAt{g, id}]
			if ok != there || ok && l != want {
				t.Fatalf("step %d: Take gives %v, %t, want %v, %t", step, l, ok, want, there)
			}
			if !ok {
				l = slot(id)
				s.Add(g, l, none)
				words[l], open[groupAt{g, id}] = &model{group: g, twin: none}, l
				list = append(list, l)
			}
			words[l].words++
		case 1:
			if len(list) == 0 {
				continue
			}
			i := r.IntN(len(list))
			l := list[i]
			m := words[l]
			m.words--
			shared, last, reserved := s.Release(l)
			if !shared || last != (m.words == 0) || reserved != (last && m.twin != none) {
				t.Fatalf("step %d: Release says %t, %t, %t of %+v", step, shared, last, reserved, m)
			}
			if last {
				if m.twin != none {
					words[m.twin].twin = none
				}
				if at := (groupAt{m.group, l.Slab()}); open[at] == l {
					delete(open, at)
				}
				delete(words, l)
				list[i] = list[len(list)-1]
				list = list[:len(list)-1]
			}
		case 2: // words begin to move
			if len(list) == 0 {
				continue
			}
			from := list[r.IntN(len(list))]
			m := words[from]
			if at := (groupAt{m.group, from.Slab()}); m.twin != none || open[at] != from {
				continue
			}
			l := slot(from.Slab())
			s.Add(m.group, l, from)
			words[l], open[groupAt{m.group, l.Slab()}], m.twin = &model{m.group, 1, from}, l, l
			list = append(list, l)
		}
		if step%500 != 0 {
			continue
		}
		saved, all := [2]int64{}, 0
		for l, m := range words {
			saved[m.group.table] += m.words - 1
			g, n, ok := s.Of(l)
			if !ok || g != m.group || n != m.words || s.Moves(l) != (m.twin != none) {
				t.Fatalf("step %d: slot %v is %v, %d, %t, moves %t, want %+v", step, l, g, n, ok, s.Moves(l), m)
			}
		}
		for l, n := range s.Words {
			if all++; words[l] == nil || words[l].words != n {
				t.Fatalf("step %d: slot %v has %d words", step, l, n)
			}
		}
		if all != len(words) || s.Any() != (all > 0) || s.Saved(0) != saved[0] || s.Saved(1) != saved[1] || s.Saved(2) != 0 {
			t.Fatalf("step %d: %d slots, saved %d, %d, want %d, %v", step, all, s.Saved(0), s.Saved(1), len(words), saved)
		}
		for i := range groups {
			want := uint8(0)
			for id := range slabs {
				if _, ok := open[groupAt{group(i), id}]; ok {
					want |= 1 << id
				}
			}
			if got := s.Slabs(group(i)); got != want {
				t.Fatalf("step %d: slabs of group %d are %b, want %b", step, i, got, want)
			}
		}
	}
	if got := s.Bytes(0) + s.Bytes(1); got < int64(len(list))*40 || got > int64(cap(s.slots))*100 {
		t.Errorf("%d slots take %d bytes", len(list), got)
	}
}

type groupAt struct {
	group Group
	slab  int
}
