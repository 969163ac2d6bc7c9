package trace

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/hashmap"
)

// TestCapture: a trace of all accesses to the sampled IDs, in order, with the misses that the cache counts; and one of a share
// of all accesses.
func TestCapture(t *testing.T) {
	const rows, columns, batches = 1000, 16, 40
	values := make([]float32, rows*columns)
	for i := range values {
		values[i] = float32(i % 97)
	}
	for _, c := range []struct {
		sampling       Sampling
		accesses, keys float64
		rate           float64
		devices        int
	}{{ByID, 0, 1, 1, 1}, {ByID, 0.5, 0.25, 0.25, 1}, {ByAccess, 1, 0, 1, 2}, {ByAccess, 0.25, 0.1, 0.25, 1}} {
		var out bytes.Buffer
		capture, err := NewCapture(&out, c.sampling, c.rate, []int64{0, columns * 4})
		if err != nil {
			t.Fatal(err)
		}
		first, err := cache.FromSlice("a", []float32{1, 2, 3, 4}, 4)
		if err != nil {
			t.Fatal(err)
		}
		table, err := cache.FromSlice("b", values, columns)
		if err != nil {
			t.Fatal(err)
		}
		cc, err := cache.New(cache.Options{
			Tables: []cache.Table{first, table}, Budget: 20_000, Devices: cache.DeviceOptions{Backend: "host", Count: c.devices}, Codec: "none",
			Refresh: cache.RefreshOptions{Accesses: c.accesses, Keys: c.keys}, Capture: capture.Add,
		})
		if err != nil {
			t.Fatal(err)
		}
		w, err := workload.NewMix(workload.MixOptions{Rows: rows, BatchSize: 500, Batches: batches})
		if err != nil {
			t.Fatal(err)
		}
		var want []Request
		cursor := w.NewCursor()
		var ids []int64
		gathered := make([]byte, 500*columns*4)
		for i := range batches {
			ids = cursor.Batch(i, ids[:0])
			cached, err := cc.Cached(1, ids, nil)
			if err != nil {
				t.Fatal(err)
			}
			for j, row := range ids {
				r := Request{ID: hashmap.Key(1, row), Size: columns * 4, Next: Unknown, Outcome: Miss}
				if cached[j] {
					r.Outcome = Hit
				}
				want = append(want, r)
			}
			if err := cc.Gather(context.Background(), cache.Request{Table: 1, Rows: ids, Out: gathered}); err != nil {
				t.Fatal(err)
			}
		}
		stats, err := cc.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(cc.Close(), capture.Close()); err != nil {
			t.Fatal(err)
		}
		s, err := newSource("x", &out)
		if err != nil {
			t.Fatal(err)
		}
		r, err := newReader(s, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if a := Describe(r); a.Header.Sampling != c.sampling || a.Header.Rate != c.rate || a.Lost != 0 {
			t.Errorf("%+v: %+v", c, a)
		}
		for i := range got {
			got[i].Time = 0
		}
		if c.rate == 1 && c.devices == 1 {
			if i := firstDifference(sorted(got, 500), sorted(want, 500)); i >= 0 || len(got) != len(want) {
				t.Fatalf("%+v: %d accesses, want %d; number %d differs", c, len(got), len(want), i)
			}
		}
		if c.rate == 1 {
			misses := int64(0)
			for _, q := range got {
				if q.Outcome == Miss {
					misses++
				}
			}
			if n := stats.Tables[1]; misses != n.Misses || int64(len(got)) != n.Lookups || misses == 0 || misses == n.Lookups {
				t.Errorf("%+v: %d of %d missed, the cache counts %d of %d", c, misses, len(got), n.Misses, n.Lookups)
			}
		}
		if c.sampling == ByID && c.rate < 1 {
			chosen := map[uint64]bool{}
			for _, q := range got {
				chosen[q.ID] = true
			}
			all := slices.DeleteFunc(slices.Clone(want), func(q Request) bool { return !chosen[q.ID] })
			if len(all) != len(got) || len(chosen) < rows/8 || len(chosen) > rows/3 {
				t.Errorf("%+v: %d accesses to %d IDs, of %d to them", c, len(got), len(chosen), len(all))
			}
		}
		if n := float64(len(got)) / float64(len(want)); c.sampling == ByAccess && (n < c.rate-0.02 || n > c.rate+0.02) {
			t.Errorf("%+v: %.3f of the accesses", c, n)
		}
	}
}

// sorted sorts each batch: its accesses have no order among themselves.
func sorted(all []Request, batch int) []Request {
	for part := range slices.Chunk(all, batch) {
		slices.SortFunc(part, func(a, b Request) int {
			if a.ID != b.ID {
				return int(int64(a.ID) - int64(b.ID))
			}
			return int(a.Outcome) - int(b.Outcome)
		})
	}
	return all
}

func TestNewCapture_Refuses(t *testing.T) {
	for want, f := range map[string]func() error{
		"trace: capture: sampling (all) must be by access or by ID":                   func() error { _, err := NewCapture(io.Discard, All, 1, nil); return err },
		"trace: header: rate (2) must be above 0 and up to 1, and 1 for all accesses": func() error { _, err := NewCapture(io.Discard, ByID, 2, nil); return err },
		"cache: Capture needs Refresh.Accesses or Refresh.Keys (0, 0) above 0": func() error {
			table, err := cache.FromSlice("a", []float32{1}, 1)
			if err != nil {
				return err
			}
			_, err = cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 1 << 20, Devices: cache.DeviceOptions{Backend: "host"}, Capture: func([]cache.Sample, int64) {}})
			return err
		},
	} {
		if err := f(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestFromWorkload: the requests of a workload's trace are its batches.
func TestFromWorkload(t *testing.T) {
	w, err := workload.NewPopularity(workload.PopularityOptions{Buckets: []int64{3, 50}, Weights: []float64{1, 2}, Sizes: []int64{64 << 10}, SizeWeights: []float64{1}, BatchSize: 90, Batches: 20})
	if err != nil {
		t.Fatal(err)
	}
	got, err := readAll(FromWorkload(w, 7))
	if err != nil {
		t.Fatal(err)
	}
	var want []Request
	c := w.NewCursor()
	for i := range w.Batches() {
		for _, row := range c.Batch(i, nil) {
			want = append(want, Request{ID: uint64(row), Size: 64 << 10, Next: Unknown, Time: int64(i)})
		}
	}
	if !slices.Equal(got, want) {
		t.Error("they differ")
	}
	replay, err := workload.NewReplay([]int64{3, 1, 3}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(FromWorkload(replay, 7)); err != nil || !slices.Equal(got, []Request{
		{ID: 3, Size: 7, Next: Unknown}, {ID: 1, Size: 7, Next: Unknown}, {ID: 3, Size: 7, Next: Unknown, Time: 1},
	}) {
		t.Errorf("%+v, %v", got, err)
	}
}
