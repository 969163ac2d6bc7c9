//go:build cuda && linux

package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
)

// TestGPU_PooledTablesShareLaunches pins which tables share a launch: those with one kernel; of windows those of the same offsets that have no position in common.
func TestGPU_PooledTablesShareLaunches(t *testing.T) {
	gpu := gputest.Open(t)
	s, err := gpu.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	batch := func(of dtype.Type, columns, rows int) *kernels.Serve {
		return &kernels.Serve{
			Lookup: kernels.Lookup{RowBytes: columns * of.Size(), Rows: device.DeviceBuffer(1<<20, int64(rows)*8)},
			Pool:   &reduce.Batch{Row: of, Out: of, Columns: columns, Rows: rows, Bags: rows / 10, Size: 10, Padding: reduce.NoPadding, Stride: int64(columns * of.Size())},
		}
	}
	offsets := device.DeviceBuffer(1<<22, 101*8)
	window := func(whole device.Buffer, first, bags int) *kernels.Serve {
		w := batch(dtype.Float32, 64, 1000)
		w.Pool.Size, w.Pool.Bags, w.Pool.Whole, w.Pool.Offsets = 0, bags, whole, whole.Slice(int64(first)*8, int64(first+bags+1)*8)
		return w
	}
	other := device.DeviceBuffer(1<<23, 101*8)
	many := make([]*kernels.Serve, 70)
	for i := range many {
		many[i] = batch(dtype.Float32, 64, 100)
	}
	for name, c := range map[string]struct {
		tables []*kernels.Serve
		want   string
	}{
		"lengths with one tile":      {[]*kernels.Serve{batch(dtype.Float32, 64, 100), batch(dtype.Float32, 60, 20), batch(dtype.Float32, 64, 10)}, "[[0 1 2]]"},
		"element types and tiles":    {[]*kernels.Serve{batch(dtype.Float32, 64, 100), batch(dtype.BFloat16, 64, 100), batch(dtype.Float32, 128, 100), batch(dtype.BFloat16, 60, 10)}, "[[0] [1 3] [2]]"},
		"windows":                    {[]*kernels.Serve{window(offsets, 0, 20), window(offsets, 20, 20), window(offsets, 80, 20)}, "[[0 1 2]]"},
		"overlapping windows":        {[]*kernels.Serve{window(offsets, 0, 20), window(offsets, 19, 20), window(offsets, 40, 20), window(offsets, 0, 20)}, "[[0 2] [1] [3]]"},
		"windows of other offsets":   {[]*kernels.Serve{window(offsets, 0, 20), window(other, 20, 20), window(offsets, 20, 10), batch(dtype.Float32, 64, 100)}, "[[0] [1] [2] [3]]"},
		"more positions than 32 bit": {[]*kernels.Serve{batch(dtype.Float32, 64, math.MaxInt32-9), batch(dtype.Float32, 64, 10)}, "[[0] [1]]"},
		"more tables than a launch":  {many, ""},
	} {
		k := &kernels.PooledTables{Tables: c.tables, Partials: device.DeviceBuffer(1<<24, 1<<40)}
		got, err := k.TablesOfLaunches(s.(*cuda.Stream))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if text := fmt.Sprint(got); c.want != "" && text != c.want || c.want == "" && (len(got) != 2 || len(got[0]) != 64 || len(got[1]) != 6) {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
}
