//go:build long

package hashmap

import (
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/slab"
)

// TestLong_CommandsAgainstMap runs 20 M inserts, erases, deletes and finds against a Go map, near full load.
func TestLong_CommandsAgainstMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const keys = 4000
	m := newMap(LayoutFor(3000))
	model := map[uint64]slab.Location{}
	for i := range 20_000_000 {
		key := Key(0, r.Int64N(keys))
		have, known := model[key]
		switch r.IntN(5) {
		case 0, 1:
			l := slab.Raw(i%8, int64(i)%(1<<30)*16)
			if m.Insert(key, l) {
				model[key] = l
			} else if known {
				t.Fatalf("command %d: a known key was refused", i)
			}
		case 2:
			if m.Erase(key, slab.Evicted) != known {
				t.Fatalf("command %d: Erase disagrees", i)
			}
			if known {
				model[key] = slab.NoLocation(slab.Evicted)
			}
		case 3:
			if slot, ok := m.Delete(key); ok != (known && !have.Valid()) {
				t.Fatalf("command %d: Delete disagrees", i)
			} else if ok {
				m.Reclaim(slot)
				delete(model, key)
			}
		default:
			if !known {
				have = slab.NoLocation(slab.Cold)
			}
			if got := m.Find(key); got != have {
				t.Fatalf("command %d: Find(%#x) = %v, want %v", i, key, got, have)
			}
		}
	}
}
