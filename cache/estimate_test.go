package cache_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/mrc"
	"github.com/tensorcache/tensorcache/internal/race"
)

// TestStats_Estimate: the estimate from sampled keys agrees with the exact hit rates of LRU at other budgets.
func TestStats_Estimate(t *testing.T) {
	race.SkipSequential(t)
	const rows, rowBytes, budget = 20_000, 64, 200_000
	data := make([]byte, rows*rowBytes)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: budget, Codec: "none", Admission: cache.AdmissionOptions{Policy: admission.NewFrequency()},
		Refresh: cache.RefreshOptions{Accesses: 1. / 16, Keys: 0.25},
	})
	if s := stats(t, c); s.Estimate != nil {
		t.Errorf("estimate of nothing: %+v", s.Estimate)
	}
	var seen []int64
	for range 100 {
		ids := make([]int64, 2000)
		for i := range ids {
			ids[i] = min(rows-1, int64(r.ExpFloat64()*2500))
		}
		if err := c.Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, len(ids)*rowBytes)}); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, ids...)
		refresh(t, c)
	}
	s := stats(t, c)
	if s.Estimate == nil || s.Estimate.Accesses != int64(len(seen)) || s.Estimate.Rate != 0.25 || s.Estimate.Keys < 1500 || len(s.Estimate.Budgets) != 4 {
		t.Fatalf("%+v", s.Estimate)
	}
	for i, b := range s.Estimate.Budgets {
		times := []float64{0.5, 1, 2, 4}[i]
		slots := int64(times * float64(s.PayloadBytes+s.FreeBytes))
		exact, err := mrc.NewExact([]int64{slots})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range seen {
			exact.Access(uint64(id), rowBytes)
		}
		want := 1 - exact.Curve()[0].MissRatio
		t.Logf("%g times the budget: %.3f, exactly %.3f", b.Times, b.HitRate, want)
		if b.Times != times || math.Abs(b.HitRate-want) > 0.06 {
			t.Errorf("%g times the budget: %.3f, want %.3f", b.Times, b.HitRate, want)
		}
	}
}

// TestStats_NoEstimate: as long as no row has been looked up of those that the estimate follows, there is none, rather than one of hits only.
func TestStats_NoEstimate(t *testing.T) {
	const rows = 1000
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", make([]byte, rows*64), 64)}, Budget: 20_000, Codec: "none", Refresh: cache.RefreshOptions{Accesses: 1, Keys: 1. / 16},
	})
	for row := int64(1); row < rows; row++ { // row 0 is always followed: its hash is 0
		if err := c.Gather(ctx, cache.Request{Rows: []int64{row}, Out: make([]byte, 64)}); err != nil {
			t.Fatal(err)
		}
		refresh(t, c)
		if s := stats(t, c); s.Estimate != nil {
			if s.Estimate.Keys != 1 || row == 1 {
				t.Errorf("after %d rows: %+v", row, s.Estimate)
			}
			return
		}
	}
	t.Error("no estimate after all rows")
}
