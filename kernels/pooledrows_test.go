package kernels_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
)

// TestSumRows_EqualsHost adds up rows in memory in one launch and in several, on the host and on a GPU: all give the same bits and the same counters.
func TestSumRows_EqualsHost(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for i, of := range []dtype.Type{dtype.Float32, dtype.Float16, dtype.BFloat16, dtype.Float8E4M3FN} {
		for j, columns := range []int{8, 104, 1, 128, 300, 2056} {
			t.Run(fmt.Sprintf("%s/%d", of, columns), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				const n, limit, padding = 700, 90, 3
				b := reduce.Batch{Mode: reduce.Mode(r.IntN(3)), Row: of, Out: []dtype.Type{dtype.Float32, dtype.BFloat16}[r.IntN(2)], Columns: columns, Rows: n, Padding: padding}
				rowBytes := columns * of.Size()
				if of == dtype.Float8E4M3FN {
					if columns%8 != 0 {
						t.Skip("float8 values come in eights")
					}
					b.Row, b.Float8 = dtype.Float32, reduce.Float8{Values: of, Scales: dtype.Float8E8M0FNU, Block: 8, Factor: 0.5}
					rowBytes += columns / 8
				}
				b.Stride = int64(b.OutBytes())
				rows, ids := make([]byte, n*rowBytes), make([]int64, n)
				for i := range rows {
					rows[i] = byte(r.Uint32()) & 0xbf // no NaN or infinity
				}
				for i := range ids {
					ids[i] = r.Int64N(limit + 2)
				}
				var offsets []int64
				for at := int64(0); at < n; at += int64([]int{0, 1, 10, 33, 100}[r.IntN(5)]) {
					offsets = append(offsets, at)
				}
				var weights []byte
				if b.Mode == reduce.Sum {
					for range n {
						weights = binary.LittleEndian.AppendUint32(weights, math.Float32bits(float32(r.NormFloat64())))
					}
				}
				b.Bags = len(offsets)
				// launches runs the batch in parts of so many rows.
				launches := func(d *bench, part int) (out []byte, counters kernels.Counters) {
					b := b
					b.Offsets = d.put(asBytes(offsets))
					if weights != nil {
						b.Weights = d.put(weights)
					}
					sums := d.output(int64(b.Bags)*b.Stride, 0)
					partials, numbers := d.alloc(b.PartialBytes()), d.put(asBytes(ids))
					count, result := d.put(make([]byte, kernels.CountersBytes)), d.alloc(kernels.CountersBytes)
					for at, kept, from := 0, 0, 0; at < n; {
						m := min(part, n-at)
						next := at + m
						if next < n {
							next -= reduce.Run - 1
						}
						round := kernels.Counters{Hits: uint32(m), OutOfRange: 1, NotFirst: ^uint32(2)}
						mem := d.put(append(bytes.Clone(rows[(at-kept)*rowBytes:(at+m)*rowBytes]), make([]byte, kernels.SumRowsSlack)...))
						d.launch(&kernels.SumRows{
							Pool: &b, Rows: numbers, Limit: limit, Mem: mem, RowBytes: rowBytes, Base: at - kept, End: at + m, From: from, Next: next, Out: sums.rows,
							Partials: partials, Round: d.put(asBytes([]kernels.Counters{round})), Counters: count, Added: at, Ending: kernels.Ending{Result: result, Batch: 7, Kernels: 1},
						})
						at, kept, from = at+m, reduce.Run-1, next
					}
					return sums.read(d), d.counters(result)
				}
				both(t, gpu, reason, func(d *bench) [3][]byte {
					var all [3][]byte
					for i, part := range []int{n, 64, 250} {
						out, c := launches(d, part)
						parts := uint32((n + part - 1) / part)
						if c.Hits != n || c.OutOfRange != parts || c.FirstOutOfRange() != 2 || c.Batch != 7 {
							t.Errorf("parts of %d: counted %+v", part, c)
						}
						all[i] = out
					}
					return all
				}, func(t *testing.T, want, got [3][]byte) {
					for i := range got {
						if !bytes.Equal(got[i], want[0]) {
							t.Errorf("part size %d: sums differ", i)
						}
					}
				})
			})
		}
	}
}
