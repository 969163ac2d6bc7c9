package cache

import (
	"math"
	"testing"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/internal/lookups"
)

// powerLawDemand is the demand of rows of which row k is looked up about as often as 1/k.
func powerLawDemand(rows int, n float64) *lookups.Demand {
	d := &lookups.Demand{Rows: float64(rows), Lookups: n}
	sum := 0.0
	for k := 1; k <= rows; k++ {
		sum += 1 / float64(k)
	}
	for k := 1; k <= rows; k++ {
		d.Drawn = append(d.Drawn, registry.Drawn{Row: int64(k), Rows: 1, Lookups: 1 / float64(k) / sum})
	}
	return d
}

// TestDemand_Absent: the share of the misses that lie below the host tier is that of the lookups, and falls with the memory.
func TestDemand_Absent(t *testing.T) {
	d := powerLawDemand(1000, 1)
	if got, want := d.Found(10), (1+1./2+1./3+1./4+1./5+1./6+1./7+1./8+1./9+1./10)/7.485470860550345; math.Abs(got-want) > 1e-9 {
		t.Errorf("10 rows find %g, want %g", got, want)
	}
	unknown := &lookups.Demand{Rows: 1000}
	for _, d := range []*lookups.Demand{d, unknown} {
		last := 1.0
		for _, inHost := range []float64{0, 100, 500, 899, 901} {
			got := d.Absent(100, inHost)
			if got > last || (inHost == 0) != (got == 1) || (inHost > 900) != (got == 0) {
				t.Errorf("with %g rows in the host tier %g of the misses are absent, before %g", inHost, got, last)
			}
			last = got
		}
		if d.Absent(1000, 0) != 0 {
			t.Error("a table that slabs hold has absent rows")
		}
	}
}

// TestDivideHost: host memory goes where it saves most time, if that is known, and else is divided by raw bytes; each table has what it needs.
func TestDivideHost(t *testing.T) {
	part := func(n, cold float64, known bool) *hostPart {
		d := powerLawDemand(10_000, n)
		if !known {
			d = &lookups.Demand{Rows: 10_000}
		}
		return &hostPart{least: 1000, most: 1_001_000, raw: 1e6, slot: 100, slabs: 100, weight: n * cold, d: d}
	}
	// leaps has the lookups of every 400 rows in the last 200 of them, as samples may.
	leaps := func(p *hostPart) *hostPart {
		for i := range p.d.Drawn {
			if i%400 < 200 && i+200 < len(p.d.Drawn) {
				p.d.Drawn[i+200].Lookups += p.d.Drawn[i].Lookups
				p.d.Drawn[i].Lookups = 0
			}
		}
		return p
	}
	for _, c := range []struct {
		name   string
		parts  []*hostPart
		memory int64
		check  func(a, b int64) bool
	}{
		{"alike", []*hostPart{part(1, 1, true), part(1, 1, true)}, 402_000, func(a, b int64) bool { return math.Abs(float64(a-b)) < 10_000 }},
		{"more lookups", []*hostPart{part(1, 1, true), part(9, 1, true)}, 402_000, func(a, b int64) bool { return b > 5*a && a > 50_000 }},
		{"more lookups, in leaps", []*hostPart{part(1, 1, true), leaps(part(9, 1, true))}, 402_000, func(a, b int64) bool { return b > 5*a && a > 50_000 }},
		{"a slower tier", []*hostPart{part(1, 9, true), part(1, 1, true)}, 402_000, func(a, b int64) bool { return a > 5*b && b > 50_000 }},
		{"nothing known", []*hostPart{part(1, 9, true), part(1, 1, false)}, 402_000, func(a, b int64) bool { return a == b }},
		{"room for all", []*hostPart{part(1, 1, true), part(5, 1, true)}, 4_000_000, func(a, b int64) bool { return a >= 1_001_000 && b >= 1_001_000 }},
		{"the least", []*hostPart{part(1, 1, true), part(5, 1, true)}, 2000, func(a, b int64) bool { return a == 1000 && b == 1000 }},
	} {
		divideHost(c.memory, c.parts)
		a, b := c.parts[0].bytes, c.parts[1].bytes
		if a+b != c.memory || a < 1000 || b < 1000 || !c.check(a, b) {
			t.Errorf("%s: %d and %d of %d", c.name, a, b, c.memory)
		}
	}
}
