//go:build cuda && linux

package kernels_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/transfer"
)

// floatRows returns N(0,1) elements of a type, but for a few rows of random bits, which do not shrink.
func floatRows(r *rand.Rand, rows, columns int, of dtype.Type) (data []byte) {
	for i := range rows {
		for range columns {
			x := math.Float32bits(float32(r.NormFloat64()))
			if i%17 == 0 {
				x = r.Uint32()
			}
			if of == dtype.Float32 {
				data = binary.LittleEndian.AppendUint32(data, x)
			} else {
				data = binary.LittleEndian.AppendUint16(data, uint16(x>>16))
			}
		}
	}
	return data
}

// bagOffsets returns offsets of bags of all kinds for n positions.
func bagOffsets(r *rand.Rand, n int) (offsets []int64) {
	for at := 0; at < n; at += []int{0, 1, 3, 10, 31, 32, 33, 40, 64, 65, 200, 1024, 1025, 1500}[r.IntN(14)] {
		offsets = append(offsets, int64(at))
	}
	return offsets
}

// TestGPU_PooledEqualsHost adds up batches of hits, misses, and rows of other devices, out of range and corrupt, on the host and on a GPU whose tiles have many rows or few.
func TestGPU_PooledEqualsHost(t *testing.T) {
	gpu := gputest.Open(t)
	for i, name := range []string{"none", "ibp4", "ibp8", "rank", "rank vectors"} {
		name, vectors := strings.CutSuffix(name, " vectors")
		for j, of := range []dtype.Type{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			lengths := []int{128, 62, 20}
			if vectors {
				lengths = []int{128, 64}
			}
			for k, columns := range lengths {
				if !vectors && testing.Short() && (i+j+k)%3 != 0 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d/vectors=%v", name, of, columns, vectors), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(i), uint64(j*8+k)))
					rows, rowsOf := 90, floatRows
					if vectors {
						rows, rowsOf = 600, vectorRows
					}
					n, blocks := 3000, 1
					if k == 1 {
						n, blocks = 400, 0
					}
					defer kernels.LimitLaunch(blocks, 0)()
					mode := []transfer.Mode{transfer.InPlace, transfer.Packed}[(i+j+k)/3%2]
					in := newServeInputOf(t, rowsOf(r, rows, columns, of), columns*of.Size(), n, name, of, mode, .8, r)
					if vectors { // of float16 with symbols that are no bytes
						params := in.codec.(codec.OnDevice).DeviceForm().Params
						if symbol := params[1] >> 8 & 0xff; (symbol == 8) != (of != dtype.Float16) || params[3]>>9 == 0 {
							t.Fatalf("symbols of %d bits, %d classes", symbol, 1<<(params[3]>>9))
						}
					}
					for range 3 { // corrupt some
						s := in.slabs[r.IntN(len(in.slabs))]
						s[r.IntN(len(s))] ^= 1 << r.IntN(8)
					}
					p := reduce.Batch{Mode: reduce.Mode((i + k) % 3), Row: of, Out: []dtype.Type{dtype.Float32, dtype.BFloat16}[r.IntN(2)], Columns: columns, Rows: n, Padding: int64(r.IntN(rows))}
					offsets := bagOffsets(r, n)
					if p.Bags = len(offsets); k == 2 {
						p.Size = []int{10, 50, 100}[r.IntN(3)]
						p.Bags = n / p.Size
					}
					p.Stride = int64(p.OutBytes())
					var weights []byte
					for range n {
						weights = binary.LittleEndian.AppendUint32(weights, math.Float32bits(float32(r.NormFloat64())))
					}
					both(t, gpu, nil, func(b *bench) (got serveResult) {
						p := p
						if p.Size == 0 {
							p.Offsets = b.put(asBytes(offsets))
						}
						if p.Mode == reduce.Sum && j > 0 {
							p.Weights = b.put(weights)
						}
						in.attached(b, func(rows kernels.HostRows, c kernels.Codec) { got = in.poolFrom(b, rows, c, &p) })
						return got
					}, func(t *testing.T, want, got serveResult) {
						want.count.CorruptPosition, got.count.CorruptPosition = 0, 0 // of any
						if want.count != got.count || got.left != (kernels.Counters{}) {
							t.Errorf("counters %+v, want %+v; left %+v", got.count, want.count, got.left)
						}
						if !bytes.Equal(want.out, got.out) {
							for at := range want.out {
								if want.out[at] != got.out[at] {
									t.Fatalf("byte %d of bag %d is %#x, want %#x", at%p.OutBytes(), at/p.OutBytes(), got.out[at], want.out[at])
								}
							}
						}
					})
				})
			}
		}
	}
}

// poolFrom adds the batch's rows up.
func (in *serveInput) poolFrom(b *bench, rows kernels.HostRows, attached kernels.Codec, p *reduce.Batch) serveResult {
	b.t.Helper()
	out := b.output(int64(p.Bags)*p.Stride, 0)
	result, err := b.d.AllocHost(kernels.CountersBytes, "test")
	b.check(err)
	defer b.d.Free(result)
	k := kernels.Serve{
		Lookup: kernels.Lookup{
			Map: b.put(asBytes(in.image)), Layout: in.layout, Table: serveTable, Limit: int64(in.rows), Rows: b.putRows(in.batch, p.Size != 0), Int32: p.Size != 0,
			Rejected: b.put(asBytes(in.rejected)), Oversize: b.put(asBytes(in.oversize)), Out: out.rows, RowBytes: in.rowBytes, Counters: b.alloc(kernels.CountersBytes),
			Peers: 1 << 1,
		},
		Codec: attached, Tier: rows, Result: result, Batch: 7, Pool: p, Partials: b.alloc(max(16, p.PartialBytes())),
	}
	for _, s := range in.slabs {
		k.Slabs = append(k.Slabs, b.put(s))
	}
	b.launch(k.Pooled())
	return serveResult{*kernels.CountersView(result), b.counters(k.Lookup.Counters), out.read(b)}
}
