//go:build cuda && linux

package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/kernels"
)

// What the cases of pooled batches are measured with: rows of 128 elements of two types, added up in bags of these sizes.
var (
	pooledBags   = []int{1, 10, 40, 200}
	pooledCodecs = []cache.Codec{registry.None, codecName, "rank"}
	pooledFloats = []dtype.Type{dtype.Float32, dtype.BFloat16}
)

const (
	pooledColumns = 128
)

// floatRows returns the shared table of N(0,1) elements of a type.
func (r *runner) floatRows(of dtype.Type) *table {
	if of == dtype.Float32 {
		return r.normalRows()
	}
	return r.halfRows()
}

// pooledCache returns a cache of floats that holds about a share of them, and how many rows are cached: the first ones.
func (r *runner) pooledCache(t *table, of dtype.Type, codec cache.Codec, budget int64) (c *cache.Cache, cached int64) {
	rowBytes := pooledColumns * of.Size()
	source := whole(t.host.Bytes(), rowBytes)
	x := get(cache.FromBytes("normals", of, source, rowBytes))
	c = get(cache.New(cache.Options{
		Tables: []cache.Table{x}, Budget: budget, Codec: codec, Seed: seed, Devices: cache.DeviceOptions{Backend: "cuda"},
		Host: cache.HostOptions{NoEqualRows: true}, Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency()},
	}))
	return c, get(c.Stats()).Tables[0].CachedRows
}

// timePooled returns the median seconds of a pooled batch into float32 sums, and compares the first bags of the last one with sums on the host.
func (r *runner) timePooled(c *cache.Cache, t *table, of dtype.Type, bag int, batches turns, out device.Buffer) float64 {
	g := gathererOf(c, 0, r.stream)
	out = out.Slice(0, int64(batches.size()/bag*pooledColumns*4))
	var pending []*cache.Batch
	var seconds float64
	err := try(func() {
		seconds = r.time(func(i int) error {
			b, err := g.view.Enqueue(context.Background(), g.handle, cache.Request{DeviceRows: batches.rows[i%sets], DeviceOut: out, As: dtype.Float32, Pool: &cache.Pooling{Bag: bag}})
			if err == nil {
				pending = append(pending, b)
			}
			return err
		})
	})
	for _, b := range pending {
		err = errors.Join(err, b.Wait())
	}
	must(err)
	n := min(batches.size()/bag, max(1, 2000/bag))
	got, want := make([]byte, n*pooledColumns*4), make([]byte, n*pooledColumns*4)
	must(device.Download(r.d, got, out.Slice(0, int64(len(got)))))
	sumsOf(want, t.host.Bytes(), of, batches.last(r.o.Runs)[:n*bag], bag)
	if !bytes.Equal(got, want) {
		must(fmt.Errorf("pooled batch of bags of %d: sums differ from those on the host", bag))
	}
	return seconds
}

// sumsOf writes sums in the order that package reduce documents, for bags of at most a group.
func sumsOf(out, table []byte, of dtype.Type, rows []int64, bag int) {
	at := func(row int64, column int) float32 {
		if of == dtype.Float32 {
			return math.Float32frombits(le32(table[(row*pooledColumns+int64(column))*4:]))
		}
		return math.Float32frombits(le32(append([]byte{0, 0}, table[(row*pooledColumns+int64(column))*2:][:2]...)))
	}
	for b := range len(rows) / bag {
		for column := range pooledColumns {
			sum := float32(math.Copysign(0, -1))
			for run := 0; run < bag; run += 32 {
				part := float32(math.Copysign(0, -1))
				for _, row := range rows[b*bag+run : b*bag+min(run+32, bag)] {
					part += at(row, column)
				}
				sum += part
			}
			bits := math.Float32bits(sum)
			copy(out[(b*pooledColumns+column)*4:], []byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)})
		}
	}
}

func le32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// plainSums returns the median seconds of plain sums of the same rows, uncompressed in memory of any kind.
func (r *runner) plainSums(mem device.Buffer, of dtype.Type, bag int, batches turns, out device.Buffer) float64 {
	var all [sets]device.Kernel
	for i := range all {
		all[i] = (&kernels.Gather{Mem: mem, Rows: batches.rows[i], Out: out, RowBytes: pooledColumns * of.Size()}).Sums(bag, of)
	}
	return r.launches(all)
}

// pooledHits measures bags of hits, beside plain sums.
func (r *runner) pooledHits() {
	for _, of := range pooledFloats {
		t := r.floatRows(of)
		for _, codec := range pooledCodecs {
			c, cached := r.pooledCache(t, of, codec, r.o.TableBytes/2)
			err := try(func() {
				for _, n := range []int{r.o.Batch, pooledLarge} {
					for _, bag := range pooledBags {
						batches := r.batches(func(set uint64) []int64 { return randomRows(n/bag*bag, 0, cached, set) })
						out := r.alloc(int64(batches.size() / bag * pooledColumns * 4))
						rowBytes, seconds := pooledColumns*of.Size(), r.timePooled(c, t, of, bag, batches, out)
						speed := func(seconds float64) float64 { return float64(batches.size()*rowBytes) / 1e9 / seconds }
						x := Result{
							Case: "pooled-hits", RowBytes: rowBytes, Codec: string(codec), TableBytes: r.o.TableBytes, Batch: batches.size(), Unit: "GB/s", DType: of.String(), Bag: bag,
							Value: speed(seconds), Detail: fmt.Sprintf("bag %d, %.1f µs", bag, seconds*1e6),
						}
						x.Baseline, x.BaselineValue = "plain sums of uncompressed rows", speed(r.plainSums(t.mem, of, bag, batches, out))
						r.add(x)
						r.free()
					}
				}
			})
			must(errors.Join(err, c.Close()))
		}
	}
}
