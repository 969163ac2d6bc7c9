package gpu

import (
	"math"
	"testing"
)

// Borders are interpolated between the skews at which one way to read is faster and those at which the other is, the last crossing where there are several.
func TestBorders(t *testing.T) {
	t.Parallel()
	at := func(codec string, skew, own float64, others ...Further) Result {
		return Result{Case: "buddy-budget", RowBytes: 512, Codec: codec, Skew: &skew, Value: own, Further: others}
	}
	got := borders([]Result{
		{Case: "buddy-hits", RowBytes: 512, Codec: "rank", Value: 1, Further: []Further{{"a", 2}}},
		// Not in the order of their skews.
		at("rank", 1.2, 100, Further{"crosses", 400}, Further{"slower", 50}, Further{"faster", 101}, Further{"twice", 200}, Further{"not everywhere", 200}),
		at("rank", 0, 100, Further{"crosses", 25}, Further{"slower", 50}, Further{"faster", 101}, Further{"twice", 200}, Further{"not everywhere", 20}),
		at("rank", 0.6, 100, Further{"crosses", 50}, Further{"slower", 100}, Further{"faster", 101}, Further{"twice", 50}),
		at("ibp4", 0, 100, Further{"crosses", 100}),
		at("ibp4", 1, 100, Further{"crosses", 1000}),
	})
	want := []struct {
		codec, against string
		from, to, skew float64
	}{
		// From 0.6 to 1.2 the ratio falls from 2 to 1/4: it is 1 after a third.
		{"rank", "crosses", 0, 1.2, 0.8}, {"rank", "slower", 0, 1.2, math.NaN()}, {"rank", "faster", 0, 1.2, 0}, {"rank", "twice", 0, 1.2, 0.9},
		{"ibp4", "crosses", 0, 1, 0},
	}
	if len(got) != len(want) {
		t.Fatalf("%d borders, want %d: %+v", len(got), len(want), got)
	}
	for i, w := range want {
		b := got[i]
		if b.Case != "buddy-budget" || b.RowBytes != 512 || b.Codec != w.codec || b.Against != w.against || b.From != w.from || b.To != w.to {
			t.Errorf("%+v, want %+v", b, w)
		}
		if (b.Skew == nil) != math.IsNaN(w.skew) || b.Skew != nil && math.Abs(*b.Skew-w.skew) > 1e-9 {
			t.Errorf("%s: skew %v, want %g", b.Against, b.Skew, w.skew)
		}
	}
}
