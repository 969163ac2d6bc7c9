//go:build cuda && linux

package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

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
	// pooledTables is the number of tables of pooled-tables, as DLRM on Criteo's data has, and tableBag the size of their bags.
	pooledTables = 26
	tableBag     = 20
	plainPooled  = "plain sums of uncompressed rows"
)

// floatRows returns the shared table of N(0,1) elements of a type.
func (r *runner) floatRows(of dtype.Type) *table {
	if of == dtype.Float32 {
		return r.normalRows()
	}
	return r.halfRows()
}

// pooledCache returns a cache of floats that holds about a share of them, and how many rows are cached. Those are the first rows.
func (r *runner) pooledCache(t *table, of dtype.Type, codec cache.Codec, budget int64) (c *cache.Cache, rows, cached int64) {
	rowBytes := pooledColumns * of.Size()
	source := whole(t.host.Bytes(), rowBytes)
	x := get(cache.FromBytes("normals", of, source, rowBytes))
	c = get(cache.New(cache.Options{
		Tables: []cache.Table{x}, Budget: budget, Codec: codec, Seed: seed, Devices: cache.DeviceOptions{Backend: "cuda"},
		Host: cache.HostOptions{NoEqualRows: true}, Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency()},
	}))
	return c, int64(len(source) / rowBytes), get(c.Stats()).Tables[0].CachedRows
}

// pooledTurns are batches of row numbers whose length is a multiple of a bag.
func (r *runner) pooledTurns(bag, hits, misses int, cached, rows int64) turns {
	n := (hits + misses) / bag * bag
	return r.batches(func(set uint64) []int64 {
		all := append(randomRows(hits, 0, cached, set), randomRows(misses, cached, rows, set)...)
		if misses > 0 {
			rand.New(rand.NewPCG(set, 3)).Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
		}
		return all[:n]
	})
}

// timePooled returns the median seconds of a pooled batch into float32 sums, and compares the first bags of the last one with sums on the host. before,
// if not nil, is enqueued untimed before each.
func (r *runner) timePooled(c *cache.Cache, t *table, of dtype.Type, bag int, batches turns, out device.Buffer, before func() error) float64 {
	g := gathererOf(c, 0, r.stream)
	out = out.Slice(0, int64(batches.size()/bag*pooledColumns*4))
	var pending []*cache.Batch
	var seconds float64
	err := try(func() {
		seconds = r.timeAfter(r.o.Runs, before, func(i int) error {
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

// pooledResult has what all results of pooled batches share. Its speed is of the rows read, uncompressed.
func pooledResult(name string, codec cache.Codec, of dtype.Type, bag, rows int, tableBytes int64, seconds float64) Result {
	rowBytes := pooledColumns * of.Size()
	return Result{
		Case: name, RowBytes: rowBytes, Codec: string(codec), TableBytes: tableBytes, Batch: rows, Unit: "GB/s", DType: of.String(), Bag: bag,
		Value: float64(rows*rowBytes) / 1e9 / seconds, Detail: fmt.Sprintf("bag %d, %.1f µs", bag, seconds*1e6),
	}
}

// pooledHits measures bags of hits, beside plain sums and beside a Gather of the same rows that is followed by sums of what it wrote: pooledHitCases.
func (r *runner) pooledHits() {
	for _, of := range pooledFloats {
		t := r.floatRows(of)
		for _, codec := range pooledCodecs {
			c, rows, cached := r.pooledCache(t, of, codec, r.o.TableBytes/2)
			err := try(func() {
				for _, n := range []int{r.o.Batch, pooledLarge} {
					for _, bag := range pooledBags {
						batches := r.pooledTurns(bag, n, 0, cached, rows)
						out := r.alloc(int64(batches.size() / bag * pooledColumns * 4))
						x := pooledResult("pooled-hits", codec, of, bag, batches.size(), r.o.TableBytes, r.timePooled(c, t, of, bag, batches, out, nil))
						speed := func(seconds float64) float64 { return float64(batches.size()*x.RowBytes) / 1e9 / seconds }
						if r.has("pooled-hits") {
							x.Baseline, x.BaselineValue = plainPooled, speed(r.plainSums(t.mem, of, bag, batches, out))
							r.add(x)
						}
						if r.has("pooled-gather") {
							x.Case, x.Baseline, x.BaselineValue = "pooled-gather", "Gather, then sums of its output", speed(r.gatherThenSum(c, of, bag, batches, out))
							r.add(x)
						}
						r.free()
					}
				}
			})
			must(errors.Join(err, c.Close()))
		}
	}
}

// gatherThenSum returns the median seconds of a Gather and of sums of the rows that it wrote.
func (r *runner) gatherThenSum(c *cache.Cache, of dtype.Type, bag int, batches turns, out device.Buffer) float64 {
	rowBytes := pooledColumns * of.Size()
	rows, order := r.alloc(int64(batches.size()*rowBytes)), make([]int64, batches.size())
	for i := range order {
		order[i] = int64(i)
	}
	sum := (&kernels.Gather{Mem: rows, Rows: r.put(asBytes(order)), Out: out, RowBytes: rowBytes}).Sums(bag, of)
	g := gathererOf(c, 0, r.stream)
	return r.time(func(i int) error {
		if _, err := g.begin(batches.rows[i%sets], rows); err != nil {
			return err
		}
		return r.stream.Launch(sum)
	})
}

// pooled80 compares batches of 80 % hits with the slower of their hits and their misses alone, each behind other work that clears the caches.
func (r *runner) pooled80() {
	for _, of := range pooledFloats {
		t := r.floatRows(of)
		c, rows, cached := r.pooledCache(t, of, codecName, r.o.TableBytes/2)
		err := try(func() {
			for _, bag := range pooledBags[1:] {
				hits := r.o.Batch * 8 / 10 / bag * bag
				misses := r.o.Batch*2/10/bag*bag + bag
				busy := r.alloc(r.busyBytes())
				out := r.alloc(int64((hits + misses) / bag * pooledColumns * 4))
				var seconds [3]float64
				var n int
				for i, part := range [3][2]int{{hits, misses}, {hits, 0}, {0, misses}} {
					batches := r.pooledTurns(bag, part[0], part[1], cached, rows)
					seconds[i] = r.timePooled(c, t, of, bag, batches, out, func() error { return r.stream.Fill(busy, 0) })
					n = max(n, batches.size())
				}
				x := pooledResult("pooled-80", codecName, of, bag, n, r.o.TableBytes, seconds[0])
				x.Baseline, x.BaselineValue = "the slower of its hits and its misses alone", float64(n*x.RowBytes)/1e9/max(seconds[1], seconds[2])
				x.Detail += fmt.Sprintf(", behind other work; hits alone %.0f, misses alone %.0f", seconds[1]*1e6, seconds[2]*1e6)
				r.add(x)
				r.free()
			}
		})
		must(errors.Join(err, c.Close()))
	}
}

// pooledOfTables measures a batch of bags of hits of several tables in one call, as batches of their own and as features of one array of row numbers, beside plain
// sums of one table after the other.
func (r *runner) pooledOfTables() {
	for _, of := range pooledFloats {
		t := r.floatRows(of)
		rowBytes := pooledColumns * of.Size()
		part := r.o.TableBytes / pooledTables / int64(rowBytes) * int64(rowBytes)
		var tables []cache.Table
		for i := range int64(pooledTables) {
			tables = append(tables, get(cache.FromBytes(fmt.Sprint("table", i), of, t.host.Bytes()[i*part:][:part], rowBytes)))
		}
		c := get(cache.New(cache.Options{
			Tables: tables, Budget: 2 * r.o.TableBytes, Codec: codecName, Seed: seed, Devices: cache.DeviceOptions{Backend: "cuda"},
			Host: cache.HostOptions{NoEqualRows: true}, Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency()},
		}))
		err := try(func() {
			n := r.o.Batch / pooledTables / tableBag * tableBag
			batches := r.pooledTurns(tableBag, n, 0, part/int64(rowBytes), part/int64(rowBytes))
			bytes := int64(n / tableBag * pooledColumns * 4)
			out := r.alloc(pooledTables * bytes)
			g := gathererOf(c, 0, r.stream)
			// As KeyedJaggedTensor has them: the row numbers of all tables one behind the other, and the offsets of all bags.
			var keyed [sets]device.Buffer
			for i := range keyed {
				var ids []int64
				for k := range pooledTables {
					ids = append(ids, batches.numbers[(i+k)%sets]...)
				}
				keyed[i] = r.put(asBytes(ids))
			}
			offsets := make([]int64, pooledTables*n/tableBag+1)
			for i := range offsets {
				offsets[i] = int64(i * tableBag)
			}
			bounds := r.put(asBytes(offsets))
			all := make([]cache.Request, pooledTables)
			var last *cache.Batch
			enqueue := func(of func(i, k int) (device.Buffer, *cache.Pooling)) float64 {
				return r.time(func(i int) (err error) {
					for k := range pooledTables {
						rows, p := of(i, k)
						all[k] = cache.Request{Table: k, DeviceRows: rows, DeviceOut: out.Slice(int64(k)*bytes, int64(k+1)*bytes), As: dtype.Float32, Pool: p}
					}
					last, err = g.view.Enqueue(context.Background(), g.handle, all...)
					return err
				})
			}
			seconds := enqueue(func(i, k int) (device.Buffer, *cache.Pooling) {
				return batches.rows[(i+k)%sets], &cache.Pooling{Bag: tableBag}
			})
			must(errors.Join(last.Wait(), c.Check(true)))
			r.checkTables(t, of, batches, part, out, bytes)
			jagged := enqueue(func(i, k int) (device.Buffer, *cache.Pooling) {
				return keyed[i%sets], &cache.Pooling{DeviceOffsets: bounds, FirstBag: k * n / tableBag, Bags: n / tableBag}
			})
			must(errors.Join(last.Wait(), c.Check(true)))
			r.checkTables(t, of, batches, part, out, bytes)
			plain := r.time(func(i int) error {
				for k := range int64(pooledTables) {
					if err := r.stream.Launch((&kernels.Gather{
						Mem: t.mem.Slice(k*part, (k+1)*part), Rows: batches.rows[(i+int(k))%sets], Out: out.Slice(k*bytes, (k+1)*bytes), RowBytes: rowBytes,
					}).Sums(tableBag, of)); err != nil {
						return err
					}
				}
				return nil
			})
			x := pooledResult("pooled-tables", codecName, of, tableBag, pooledTables*n, r.o.TableBytes, seconds)
			x.Baseline, x.BaselineValue = plainPooled+", a kernel a table", float64(pooledTables*n*rowBytes)/1e9/plain
			x.Further = []Further{{"features of one array of row numbers", float64(pooledTables*n*rowBytes) / 1e9 / jagged}}
			x.Detail += fmt.Sprintf(", %d tables in one call", pooledTables)
			r.add(x)
			r.free()
		})
		must(errors.Join(err, c.Close()))
	}
}

// checkTables compares the first bags of each table in the output of the last of the runs of pooledOfTables with sums on the host.
func (r *runner) checkTables(t *table, of dtype.Type, batches turns, part int64, out device.Buffer, bytesOfTable int64) {
	n := 10 * tableBag
	got, want := make([]byte, n/tableBag*pooledColumns*4), make([]byte, n/tableBag*pooledColumns*4)
	for k := range int64(pooledTables) {
		must(device.Download(r.d, got, out.Slice(k*bytesOfTable, k*bytesOfTable+int64(len(got)))))
		sumsOf(want, t.host.Bytes()[k*part:], of, batches.last(r.o.Runs + int(k))[:n], tableBag)
		if !bytes.Equal(got, want) {
			must(fmt.Errorf("pooled batch of several tables: sums of table %d differ from those on the host", k))
		}
	}
}
