//go:build cuda && linux

package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
)

// What the cases of pooled batches are measured with: rows of 128 elements of two types, added up in bags of these sizes.
var (
	pooledBags   = []int{1, 10, 40, 200}
	pooledCodecs = []cache.Codec{registry.None, codecName, "rank"}
)

const (
	pooledColumns = 128
	bagBytes      = pooledColumns * 4 // of sums
	// pooledTables is the number of tables of pooled-tables, as DLRM on Criteo's data has, and tableBag the size of their bags.
	pooledTables = 26
	tableBag     = 20
	plainPooled  = "plain sums of uncompressed rows"
)

// pooled is a cache whose rows are added up.
type pooled struct {
	*served
	of    dtype.Type
	codec cache.Codec
	table *table
}

// eachFloat calls do with the shared table of each type of elements.
func (r *runner) eachFloat(do func(t *table, of dtype.Type)) {
	do(r.normalRows(), dtype.Float32)
	do(r.halfRows(), dtype.BFloat16)
}

// eachPooled calls do with a cache of about half of a table, for each type and codec.
func (r *runner) eachPooled(codecs []cache.Codec, do func(p *pooled)) {
	r.eachFloat(func(t *table, of dtype.Type) {
		rowBytes := pooledColumns * of.Size()
		for _, codec := range codecs {
			x := get(cache.FromBytes("floats", of, whole(t.host.Bytes(), rowBytes), rowBytes))
			p := &pooled{r.serve(t.host.Bytes(), rowBytes, cache.Options{Tables: []cache.Table{x}, Budget: r.o.TableBytes / 2, Codec: codec}), of, codec, t}
			err := try(func() { do(p) })
			must(errors.Join(err, p.cache.Close()))
		}
	})
}

// timeSums times batches of bags, each after what before enqueues, if it is not nil. It compares sums of the last one.
func (p *pooled) timeSums(bag int, before func() error, t turns, out device.Buffer) float64 {
	out = out.Slice(0, int64(t.size()/bag*bagBytes))
	seconds := p.timeBatches(p.o.Runs, before, func(i int) (*cache.Batch, error) {
		return p.view.Enqueue(context.Background(), p.handle, cache.Request{DeviceRows: t.rows[i%sets], DeviceOut: out, As: dtype.Float32, Pool: &cache.Pooling{Bag: bag}})
	})
	p.checkSums(p.of, bag, out, p.source, t.last(p.o.Runs))
	return seconds
}

// checkSums compares the first sums of an output with those on the host.
func (r *runner) checkSums(of dtype.Type, bag int, out device.Buffer, table []byte, rows []int64) {
	n, rowBytes := min(len(rows)/bag, max(1, 2000/bag)), int64(pooledColumns*of.Size())
	got, want := r.download(out.Slice(0, int64(n*bagBytes))), make([]byte, n*bagBytes)
	var sums reduce.Sums
	sums.Reset(&reduce.Batch{Row: of, Out: dtype.Float32, Columns: pooledColumns})
	for b := range n {
		sums.Begin(true)
		for i, row := range rows[b*bag:][:bag] {
			if i > 0 && i%reduce.Run == 0 {
				sums.EndRun()
			}
			sums.Add(table[row*rowBytes:][:rowBytes])
		}
		sums.EndRun()
		sums.Finish(want[b*bagBytes:][:bagBytes])
	}
	if !bytes.Equal(got, want) {
		must(fmt.Errorf("pooled batch of bags of %d: sums differ from those on the host", bag))
	}
}

// pooledResult is a result whose speeds are of the rows read, uncompressed.
func pooledResult(name string, codec cache.Codec, of dtype.Type, bag, rows int, tableBytes int64, seconds float64, baseline string, besides float64) Result {
	rowBytes := pooledColumns * of.Size()
	speed := func(seconds float64) float64 { return float64(rows*rowBytes) / 1e9 / seconds }
	return Result{
		Case: name, RowBytes: rowBytes, Codec: string(codec), Variant: bagOf(bag), TableBytes: tableBytes, Batch: rows, Unit: "GB/s", DType: of.String(),
		Value: speed(seconds), Baseline: baseline, BaselineValue: speed(besides), Detail: fmt.Sprintf("%.1f µs", seconds*1e6),
	}
}

// pooledHits measures bags of hits, beside plain sums (pooled-hits) and beside a Gather of the same rows and sums of what it wrote (pooled-gather).
func (r *runner) pooledHits() {
	r.eachPooled(pooledCodecs, func(p *pooled) {
		for _, n := range []int{r.o.Batch, min(pooledLarge, 6*r.o.Batch)} {
			for _, bag := range pooledBags {
				t := p.mixed(n/bag*bag, 0)
				out := p.alloc(int64(t.size() / bag * bagBytes))
				seconds := p.timeSums(bag, nil, t, out)
				add := func(name, baseline string, besides float64) {
					r.add(pooledResult(name, p.codec, p.of, bag, t.size(), r.o.TableBytes, seconds, baseline, besides))
				}
				if r.has("pooled-hits") {
					var plain [sets]device.Kernel
					for i := range plain {
						plain[i] = (&kernels.Gather{Mem: p.table.mem, Rows: t.rows[i], Out: out, RowBytes: p.rowBytes}).Sums(bag, p.of)
					}
					add("pooled-hits", plainPooled, r.launches(plain))
				}
				if r.has("pooled-gather") {
					add("pooled-gather", "Gather, then sums of its output", p.gatherThenSum(bag, t, out))
				}
				r.free()
			}
		}
	})
}

// gatherThenSum times a Gather and sums of the rows that it wrote.
func (p *pooled) gatherThenSum(bag int, t turns, out device.Buffer) float64 {
	rows, order := p.alloc(int64(t.size()*p.rowBytes)), make([]int64, t.size())
	for i := range order {
		order[i] = int64(i)
	}
	sum := (&kernels.Gather{Mem: rows, Rows: p.put(asBytes(order)), Out: out, RowBytes: p.rowBytes}).Sums(bag, p.of)
	return p.timeBatches(p.o.Runs, nil, func(i int) (*cache.Batch, error) {
		b, err := p.begin(t.rows[i%sets], rows)
		if err != nil {
			return nil, err
		}
		return b, p.stream.Launch(sum)
	})
}

// pooled80 compares batches of 80 % hits with the slower of their hits and their misses alone, each behind other work that clears the caches.
func (r *runner) pooled80() {
	r.eachPooled([]cache.Codec{codecName}, func(p *pooled) {
		for _, bag := range pooledBags[1:] {
			hits, misses := max(1, r.o.Batch*8/10/bag)*bag, r.o.Batch*2/10/bag*bag+bag
			busy, out := r.alloc(r.busyBytes()), r.alloc(int64((hits+misses)/bag*bagBytes))
			var seconds [3]float64
			for i, t := range []turns{p.mixed(hits, misses), p.mixed(hits, 0), p.mixed(0, misses)} {
				seconds[i] = p.timeSums(bag, func() error { return r.stream.Fill(busy, 0) }, t, out)
			}
			x := pooledResult("pooled-80", codecName, p.of, bag, hits+misses, r.o.TableBytes, seconds[0], "the slower of its hits and its misses alone", max(seconds[1], seconds[2]))
			x.Detail += fmt.Sprintf(", behind other work; hits alone %.0f, misses alone %.0f", seconds[1]*1e6, seconds[2]*1e6)
			r.add(x)
			r.free()
		}
	})
}

// pooledOfTables measures bags of hits of several tables in one call, beside plain sums of one table after the other.
func (r *runner) pooledOfTables() {
	r.eachFloat(func(all *table, of dtype.Type) {
		rowBytes := int64(pooledColumns * of.Size())
		part := r.o.TableBytes / pooledTables / rowBytes * rowBytes
		var tables []cache.Table
		for k := range int64(pooledTables) {
			tables = append(tables, get(cache.FromBytes(fmt.Sprint("table", k), of, all.host.Bytes()[k*part:][:part], int(rowBytes))))
		}
		c := newCache(nil, 0, cache.Options{Tables: tables, Budget: 2 * r.o.TableBytes, Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency()}})
		err := try(func() {
			n := max(1, r.o.Batch/pooledTables/tableBag) * tableBag
			t := r.batches(func(set uint64) []int64 { return randomRows(n, 0, part/rowBytes, set) })
			out := r.alloc(int64(pooledTables * n / tableBag * bagBytes))
			outOf := func(k int) device.Buffer {
				return out.Slice(int64(k)*out.Size()/pooledTables, int64(k+1)*out.Size()/pooledTables)
			}
			g := gathererOf(c, 0, r.stream)
			seconds := r.timeBatches(r.o.Runs, nil, func(i int) (*cache.Batch, error) {
				var requests []cache.Request
				for k := range pooledTables {
					requests = append(requests, cache.Request{Table: k, DeviceRows: t.rows[(i+k)%sets], DeviceOut: outOf(k), As: dtype.Float32, Pool: &cache.Pooling{Bag: tableBag}})
				}
				return g.view.Enqueue(context.Background(), g.handle, requests...)
			})
			for k := range pooledTables {
				r.checkSums(of, tableBag, outOf(k), all.host.Bytes()[int64(k)*part:], t.last(r.o.Runs+k))
			}
			plain := r.time(func(i int) (err error) {
				for k := range pooledTables {
					mem := all.mem.Slice(int64(k)*part, int64(k+1)*part)
					err = errors.Join(err, r.stream.Launch((&kernels.Gather{Mem: mem, Rows: t.rows[(i+k)%sets], Out: outOf(k), RowBytes: int(rowBytes)}).Sums(tableBag, of)))
				}
				return err
			})
			x := pooledResult("pooled-tables", codecName, of, tableBag, pooledTables*n, r.o.TableBytes, seconds, plainPooled+", a kernel a table", plain)
			x.Detail += fmt.Sprintf(", %d tables in one call", pooledTables)
			r.add(x)
			r.free()
		})
		must(errors.Join(err, c.Close()))
	})
}
