package cache_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
)

// TestOf reads rows as values of the table's own type, and as float32 where that is wider.
func TestOf(t *testing.T) {
	const rows, columns = 100, 8
	values, halves := make([]float32, rows*columns), make([]uint16, rows*columns)
	for i := range values {
		values[i] = float32(i)
		halves[i] = uint16(math.Float32bits(float32(i%200)) >> 16) // bfloat16
	}
	wide, err := cache.FromSlice("wide", values, columns)
	if err != nil {
		t.Fatal(err)
	}
	narrow, err := cache.FromBytes("narrow", dtype.BFloat16, cache.AsBytes(halves), 2*columns)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := cache.FromSlice("whole", make([]int32, rows*columns), columns)
	if err != nil {
		t.Fatal(err)
	}
	c := newCache(t, cache.Options{Tables: []cache.Table{wide, narrow, whole}, Budget: 12 << 10})
	ids, out := []int64{99, 3, 3}, make([]float32, 3*columns)
	for table, modulus := range []int{rows * columns, 200} {
		if err := cache.Of[float32](c, table).Gather(ctx, ids, out); err != nil {
			t.Fatal(err)
		}
		for i, x := range out {
			if want := float32((int(ids[i/columns])*columns + i%columns) % modulus); x != want {
				t.Fatalf("table %d: value %d is %v, want %v", table, i, x, want)
			}
		}
	}
	bits := make([]int16, 3*columns)
	if err := cache.Of[int16](c, 1).Gather(ctx, ids, bits); !errors.Is(err, cache.ErrOutput) || !strings.Contains(err.Error(), "values of int16 cannot be read of table narrow, which has bfloat16") {
		t.Errorf("%v", err)
	}
	if err := cache.Of[float32](c, 2).Gather(ctx, ids, out); !errors.Is(err, cache.ErrOutput) || !strings.Contains(err.Error(), "values of float32 cannot be read of table whole, which has int32") {
		t.Errorf("%v", err)
	}
	if err := cache.Of[float32](c, 3).Gather(ctx, ids, out); !errors.Is(err, cache.ErrTable) {
		t.Errorf("%v", err)
	}
	if err := cache.Of[float32](c, 0).Gather(ctx, ids, out[1:]); !errors.Is(err, cache.ErrOutput) {
		t.Errorf("%v", err)
	}
	s := stats(t, c)
	if got := s.HitRatio(); got <= 0 || got > 1 || got != float64(s.Tables[0].Hits+s.Tables[1].Hits)/float64(s.Tables[0].Lookups+s.Tables[1].Lookups) {
		t.Errorf("hit ratio %v", got)
	}
	if text := s.String(); !strings.Contains(text, "wide") || !strings.Contains(text, "6 lookups") && !strings.Contains(text, "3 lookups") {
		t.Error(text)
	}
	if text := c.String(); !strings.HasPrefix(text, "cache of wide, narrow, whole on") {
		t.Error(text)
	}
}
