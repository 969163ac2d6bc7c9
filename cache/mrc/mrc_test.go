package mrc

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tensorcache/tensorcache/hashmap"
)

// TestExact_EqualsModel: the curve is that of a stack kept as a list, for rows with sizes.
func TestExact_EqualsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		rows := rapid.IntRange(1, 300).Draw(rt, "rows")
		accesses := rapid.IntRange(1, 3000).Draw(rt, "accesses")
		sizes := []int64{1, 2, 5, 40, 100, 1 << 40}
		e, err := NewExact(sizes)
		if err != nil {
			rt.Fatal(err)
		}
		// A sample of all is the curve itself.
		s, err := NewShards(ShardsOptions{Sizes: sizes, MaxIDs: 300})
		if err != nil {
			rt.Fatal(err)
		}
		var list []uint32 // the latest last
		misses, missBytes, bytes := make([]int64, len(sizes)), make([]int64, len(sizes)), int64(0)
		sizeOf := func(row uint32) int64 { return int64(row%3 + 1) }
		n := 0
		for range accesses {
			row := uint32(r.IntN(r.IntN(rows) + 1))
			if r.IntN(20) == 0 {
				e.Remove(uint64(row))
				s.Remove(uint64(row) << 40)
				list = slices.DeleteFunc(list, func(other uint32) bool { return other == row })
				continue
			}
			if r.IntN(20) == 0 {
				e.Touch(uint64(row), sizeOf(row))
				s.Touch(uint64(row)<<40, sizeOf(row))
				list = append(slices.DeleteFunc(list, func(other uint32) bool { return other == row }), row)
				continue
			}
			n++
			e.Access(uint64(row), sizeOf(row))
			s.Access(uint64(row)<<40, sizeOf(row))
			bytes += sizeOf(row)
			distance := int64(math.MaxInt64)
			if i := slices.Index(list, row); i >= 0 {
				distance = 0
				for _, other := range list[i:] {
					distance += sizeOf(other)
				}
				list = slices.Delete(list, i, i+1)
			}
			list = append(list, row)
			for j := range sizes {
				if distance > sizes[j] {
					misses[j]++
					missBytes[j] += sizeOf(row)
				}
			}
		}
		if n == 0 {
			return
		}
		for _, curve := range [][]Point{e.Curve(), s.Curve()} {
			for j, p := range curve {
				want, wantBytes := float64(misses[j])/float64(n), float64(missBytes[j])/float64(bytes)
				if p.Size != sizes[j] || math.Abs(p.MissRatio-want) > 1e-9 || math.Abs(p.ByteMissRatio-wantBytes) > 1e-9 {
					rt.Fatalf("%+v, want %g and %g", p, want, wantBytes)
				}
			}
		}
	})
}

// TestShards_Bounded: with MaxIDs, no more are kept, whatever comes, and the rate is the share of IDs that are.
func TestShards_Bounded(t *testing.T) {
	s, err := NewShards(ShardsOptions{Sizes: []int64{1000, 50_000, 100_000}, MaxIDs: 500})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 500_000 {
		s.Access(uint64(r.IntN(100_000)), 1)
		if s.IDs() > 500 || len(s.rows) != s.IDs() || len(s.ids) != s.IDs() {
			t.Fatalf("%d IDs are kept", s.IDs())
		}
	}
	if len(s.stack.at) > 501 || s.Rate() < 0.004 || s.Rate() > 0.006 {
		t.Errorf("rate %.4f, %d rows", s.Rate(), len(s.stack.at))
	}
	// Uniform accesses miss what is not there; the first access to each ID misses.
	for i, want := range []float64{0.99, 0.6, 0.2} {
		if p := s.Curve()[i]; math.Abs(p.MissRatio-want) > 0.1 {
			t.Errorf("%+v, want %.2f", p, want)
		}
	}
}

// TestShards_Given: told of a share of the IDs only, the estimate is for all.
func TestShards_Given(t *testing.T) {
	sizes := []int64{100, 1000, 5000}
	whole, err := NewShards(ShardsOptions{Sizes: sizes})
	if err != nil {
		t.Fatal(err)
	}
	part, err := NewShards(ShardsOptions{Sizes: sizes, GivenRate: 0.25, MaxIDs: 2000})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	const n = 300_000
	for range n {
		id := uint64(r.ExpFloat64() * 2000)
		whole.Access(id, 1)
		if id*0x9e3779b97f4a7c15>>62 == 0 {
			part.Access(id, 1)
		}
	}
	for i, p := range part.CurveOf(n, 0) {
		if want := whole.Curve()[i].MissRatio; math.Abs(p.MissRatio-want) > 0.06 {
			t.Errorf("size %d: %.3f, want %.3f", p.Size, p.MissRatio, want)
		}
	}
	if part.Rate() > 0.25 || part.IDs() > 2000 {
		t.Errorf("rate %.3f, %d IDs", part.Rate(), part.IDs())
	}
}

// TestDistinct: estimates are within four standard errors, from the first ID on.
func TestDistinct(t *testing.T) {
	d := newDistinct()
	next := 1.0
	for i := range uint64(3_000_000) {
		h := hashmap.Hash(i ^ 0x5555)
		d.add(h)
		d.add(h)
		if n := float64(i + 1); n >= next {
			if next *= 1.2; math.Abs(d.count()-n) > 0.033*n+0.5 {
				t.Errorf("%.0f IDs are taken for %.0f", n, d.count())
			}
		}
	}
}

func TestShards_BadOptions(t *testing.T) {
	for want, o := range map[string]ShardsOptions{
		"mrc: a curve must have at least 1 size":                         {},
		"mrc: sizes must be positive and increase: size 1 is 4":          {Sizes: []int64{4, 4}},
		"mrc: sizes must be positive and increase: size 0 is 0":          {Sizes: []int64{0, 4}},
		"mrc: Rate (2) must be above 0 and at most 1":                    {Rate: 2},
		"mrc: MaxIDs (-1) must not be negative":                          {MaxIDs: -1},
		"mrc: Part (3) must be below Parts (3), a power of two up to 64": {Parts: 3, Part: 3},
	} {
		if _, err := NewShards(o); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// BenchmarkAccess is the time of an access, Zipf-like over a million IDs.
func BenchmarkAccess(b *testing.B) {
	sizes := []int64{1000, 10_000, 100_000, 1_000_000}
	r := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(r, 1.01, 1, 1_000_000)
	ids := make([]uint32, 1<<20)
	for i := range ids {
		ids[i] = uint32(zipf.Uint64())
	}
	b.Run("method=exact", func(b *testing.B) {
		e, err := NewExact(sizes)
		if err != nil {
			b.Fatal(err)
		}
		for i := 0; b.Loop(); i++ {
			e.Access(uint64(ids[i&(1<<20-1)]), 1)
		}
	})
	for name, o := range map[string]ShardsOptions{"method=rate-0.01": {Rate: 0.01}, "method=ids-8192": {MaxIDs: 8192}} {
		b.Run(name, func(b *testing.B) {
			o.Sizes = sizes
			s, err := NewShards(o)
			if err != nil {
				b.Fatal(err)
			}
			for i := 0; b.Loop(); i++ {
				s.Access(uint64(ids[i&(1<<20-1)]), 1)
			}
		})
	}
}
