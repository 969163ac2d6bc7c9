package tinylfu

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestCache_HoldsWhatItAdmitted compares with the set of keys that the calls and what refused is told leave: what is accessed is held
// unless it is refused, and what is held fits.
func TestCache_HoldsWhatItAdmitted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		capacity := rapid.Int64Range(1, 200).Draw(rt, "capacity")
		model := map[uint64]Entry{}
		var current uint64
		rejected := false
		c := New(capacity, capacity/4, 3, func(key uint64) {
			if _, held := model[key]; held == (key == current) {
				rt.Fatalf("%d is refused, held: %v", key, held)
			}
			delete(model, key)
			rejected = rejected || key == current
		})
		for range 2000 {
			key := r.Uint64N(60) * r.Uint64N(60) / 60
			switch x := r.IntN(100); {
			case x == 0:
				capacity = r.Int64N(250)
				c.Resize(capacity)
			case x < 5:
				c.Remove(key)
				delete(model, key)
			default:
				size := 1 + int64(key%7)*int64(key%7)
				e, want := model[key]
				current, rejected = key, false
				if c.Access(key, size) != want {
					rt.Fatalf("hit %v, want %v", !want, want)
				}
				if want {
					e.Hits++
					model[key] = e
				} else if !rejected {
					model[key] = Entry{key, size, 1}
					used := int64(0)
					for _, e := range model {
						used += e.Size
					}
					if used > capacity {
						rt.Fatalf("%d of %d are used", used, capacity)
					}
				}
			}
		}
		got := map[uint64]Entry{}
		for _, e := range c.Entries() {
			if got[e.Key] = e; c.held[c.at[e.Key]] != e {
				rt.Fatalf("%+v is not found", e)
			}
		}
		if !maps.Equal(got, model) {
			rt.Fatalf("holds %v, want %v", got, model)
		}
	})
}

// TestCache_FrequentKeysStay: keys of a scan, each accessed once, do not evict keys that are accessed again and again.
func TestCache_FrequentKeysStay(t *testing.T) {
	c := New(100, 100, 1, nil)
	for i := range uint64(100_000) {
		c.Access(i%80, 1)
		c.Access(1000+i, 1)
	}
	frequent := 0
	for key := range uint64(80) {
		if _, ok := c.Entry(key); ok {
			frequent++
		}
	}
	// LRU would hold 50.
	if frequent < 60 || len(c.Entries()) != 100 {
		t.Errorf("%d of 80 frequent keys are held, of %d", frequent, len(c.Entries()))
	}
}

// TestCache_CountsAge: keys that are no longer accessed give way to those that are.
func TestCache_CountsAge(t *testing.T) {
	c := New(50, 50, 1, nil)
	for phase := range uint64(4) {
		for i := range uint64(20_000) {
			c.Access(1000*phase+i%40, 1)
		}
		held := slices.DeleteFunc(slices.Clone(c.Entries()), func(e Entry) bool { return e.Key/1000 != phase })
		if len(held) != 40 {
			t.Errorf("phase %d: %d of 40 keys are held", phase, len(held))
		}
	}
}
