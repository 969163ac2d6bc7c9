package buddy

import (
	"math"
	"math/rand/v2"
	"testing"
)

// times are those of a row of 256 bytes on a GPU with host memory at 50 GB/s.
var times = Times{Hit: 0.2e-9, Overflow: func(n, _ int) float64 { return max(9.5e-9, float64(n)/50e9) }}

func TestHistogram_ChoosesByThresholdAndTime(t *testing.T) {
	h := NewHistogram(256)
	h.Add(100, 600)
	h.Add(200, 380)
	h.Add(256, 20)
	for _, c := range []struct {
		most   int
		share  float64
		target int
		over   float64
		ok     bool
	}{
		{256, Threshold, 208, 0.02, true}, // 2 % of 9.5 ns are hidden behind the slots
		{256, 0, 256, 0, true},
		{240, 0, 0, 0, false},
		{207, Threshold, 0, 0, false}, // 40 % would overflow
		{207, 0.4, 112, 0.4, true},    // as fast as 192: a row that overflows costs the same whatever its length
		{100000, 1, 208, 0.02, true},
	} {
		got, ok := h.Choose(c.most, c.share, times)
		if ok != c.ok || got.Target != c.target || math.Abs(got.Overflow-c.over) > 1e-12 {
			t.Errorf("at most %d bytes and %v: %+v, %v; want %+v", c.most, c.share, got, ok, c)
		}
	}
	if c := h.Least(Threshold); c.Target != 208 || c.Gain != 256./208 {
		t.Errorf("the paper's choice is %+v", c)
	}
	if c := h.Least(0.5); c.Target != 112 {
		t.Errorf("at 50 %%: %+v", c)
	}
	if c := NewHistogram(10).Least(Threshold); c.Target != 16 || c.Overflow != 0 {
		t.Errorf("no rows: %+v", c)
	}
}

// Least and Choose agree with trying every target.
func TestHistogram_ChoosesAsATrialOfAll(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 3))
	for range 300 {
		rowBytes := 1 + r.IntN(2000)
		h := NewHistogram(rowBytes)
		for range 1 + r.IntN(20) {
			h.Add(1+r.IntN(rowBytes), 1+r.Int64N(1000))
		}
		share, most := r.Float64(), 16*(1+r.IntN(MaxTarget(rowBytes)/16))
		least, best := 0, math.Inf(1)
		for target := MaxTarget(rowBytes); target >= 16; target -= 16 {
			c := h.Of(target, times)
			if c.Overflow > share {
				break
			}
			if least = target; target <= most {
				best = min(best, c.Seconds)
			}
		}
		if got := h.Least(share).Target; got != least {
			t.Fatalf("least target %d, want %d", got, least)
		}
		want := 0
		for target := least; target <= most; target += 16 {
			if h.Of(target, times).Seconds <= best*slower {
				want = target
				break
			}
		}
		if got, ok := h.Choose(most, share, times); ok != (least <= most) || got.Target != want {
			t.Fatalf("target %d, %v; want %d", got.Target, ok, want)
		}
	}
}
