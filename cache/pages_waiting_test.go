package cache_test

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/pages"
)

// besidePages is a cache of a table of pages and a table in memory, of the same rows, in a process with two processors, on which a device has four lanes.
type besidePages struct {
	*cache.Cache
	faults faults
	table  *pages.Table
	data   []byte
	absent []int64 // rows of different pages which neither slabs nor host tier hold
	there  []int64 // rows of the table of pages that these hold
}

const besideLanes = 4

func openBesidePages(t *testing.T) *besidePages {
	t.Helper()
	procs := runtime.GOMAXPROCS(besideLanes / 2)
	t.Cleanup(func() { runtime.GOMAXPROCS(procs) })
	b := &besidePages{data: versionedRows(pagedRows, pagedRowBytes)}
	b.table = packed(t, b.data, pagedRowBytes, "none", b.faults.page)
	paged, err := cache.FromPages(b.table)
	if err != nil {
		t.Fatal(err)
	}
	b.Cache = newCache(t, cache.Options{
		Tables: []cache.Table{paged, fromBytes(t, "plain", b.data[:1000*pagedRowBytes], pagedRowBytes)}, Budget: 100 << 10,
		Devices: cache.DeviceOptions{Backend: pagesBackend}, Host: cache.HostOptions{Memory: 700 << 10, ColdTimeout: time.Hour},
	})
	all, err := b.Explain(0, allOf(pagedRows))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint32]bool{}
	for row, e := range all {
		if page := b.table.PageOf(int64(row)); e.Tier != "pages" {
			b.there = append(b.there, int64(row))
		} else if !seen[page] {
			seen[page] = true
			b.absent = append(b.absent, int64(row))
		}
	}
	if len(b.absent) < 2*besideLanes || len(b.there) < 100 {
		t.Fatalf("%d pages with absent rows, %d rows that are not absent", len(b.absent), len(b.there))
	}
	return b
}

// within fails the test unless an error that is not nil, or nil, comes soon. The time is one that only a hang takes.
func within(t *testing.T, what string, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s waits for batches that wait for pages", what)
	}
}

// async runs f in a goroutine.
func async(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// arrivals waits for n reads of pages.
func arrivals(t *testing.T, arrived <-chan struct{}, n int) {
	t.Helper()
	for i := range n {
		select {
		case <-arrived:
		case <-time.After(2 * time.Minute):
			t.Fatalf("%d batches wait for pages at the same time, want %d", i, n)
		}
	}
}

// TestFromPages_WaitingBatchesHoldNothing: more batches than a device has lanes wait for pages, and batches of a table in memory, and of rows of the same
// table that are in memory, do not wait for them.
func TestFromPages_WaitingBatchesHoldNothing(t *testing.T) {
	for _, route := range []struct {
		name  string
		serve func() (undo func())
	}{{"one launch", func() func() { return func() {} }}, {"hits first", cache.ServeHitsFirst}, {"side by side", cache.ServeApart}} {
		t.Run(route.name, func(t *testing.T) {
			defer route.serve()()
			b := openBesidePages(t)
			arrived, free := b.faults.held()
			defer free()
			var waiting []<-chan error
			for _, row := range b.absent[:2*besideLanes] {
				rows := append([]int64{row}, b.there[:50]...)
				waiting = append(waiting, async(func() error { return compare(b.Cache, b.data, rows) }))
			}
			arrivals(t, arrived, besideLanes+1)
			for range 3 {
				out := make([]byte, 3*pagedRowBytes)
				within(t, "a batch of the other table", async(func() error { return b.Gather(ctx, cache.Request{Table: 1, Rows: []int64{7, 8, 9}, Out: out}) }))
				if !bytes.Equal(out, b.data[7*pagedRowBytes:][:len(out)]) {
					t.Error("the batch of the other table has other rows")
				}
				within(t, "a batch of rows in memory", async(func() error { return compare(b.Cache, b.data, b.there[:100]) }))
			}
			free()
			for _, done := range waiting {
				within(t, "a batch whose pages have come", done)
			}
		})
	}
}

// TestGPU_FromPages_WaitingBatchesHoldNothing is the same on a GPU, to Go memory, and on streams, where batches wait on the GPU.
func TestGPU_FromPages_WaitingBatchesHoldNothing(t *testing.T) {
	onGPU(t)
	t.Run("to Go memory", TestFromPages_WaitingBatchesHoldNothing)
	t.Run("on streams", func(t *testing.T) {
		gpu := gputest.Open(t)
		b := openBesidePages(t)
		arrived, free := b.faults.held()
		defer free()
		enqueue := func(table int, rows []int64) (*deviceBatch, *cache.Batch) {
			t.Helper()
			s, err := gpu.NewStream()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			mem := putBatch(t, gpu, rows, pagedRowBytes)
			var batch *cache.Batch
			within(t, "Enqueue", async(func() (err error) {
				batch, err = b.On(0).Enqueue(ctx, streamHandle(s), cache.Request{Table: table, DeviceRows: mem.rows, DeviceOut: mem.out})
				return err
			}))
			return mem, batch
		}
		var waiting []*cache.Batch
		var outs []*deviceBatch
		for _, row := range b.absent[:besideLanes+2] {
			out, batch := enqueue(0, []int64{row})
			waiting, outs = append(waiting, batch), append(outs, out)
			arrivals(t, arrived, 1)
		}
		for range 3 {
			out, batch := enqueue(1, []int64{7, 8, 9})
			within(t, "a batch of the other table", async(batch.Wait))
			if !equalRows(b.data, pagedRowBytes, []int64{7, 8, 9}, out.read(t)) {
				t.Error("the batch of the other table has other rows")
			}
			out, batch = enqueue(0, b.there[:100])
			within(t, "a batch of rows in memory", async(batch.Wait))
			if !equalRows(b.data, pagedRowBytes, b.there[:100], out.read(t)) {
				t.Error("the batch of rows in memory has other rows")
			}
		}
		free()
		for i, batch := range waiting {
			within(t, "a batch whose page has come", async(batch.Wait))
			if !equalRows(b.data, pagedRowBytes, b.absent[i:i+1], outs[i].read(t)) {
				t.Errorf("batch %d has other rows", i)
			}
		}
	})
}

// TestFromPages_CloseUnderReaders: of calls under way that wait for pages when a cache is closed each returns ErrClosed, and nothing of rows that cannot
// be read: nothing is wrong with them.
func TestFromPages_CloseUnderReaders(t *testing.T) {
	const rows, columns, bytesOfRow = 20_000, 32, 128
	var f faults
	table := packedAs(t, floatTable(rows, columns, dtype.Float32, false, 9), bytesOfRow, dtype.Float32, "none", f.page)
	c := overPages(t, table, cache.Options{Budget: 100 << 10, Host: cache.HostOptions{Memory: 500 << 10, ColdTimeout: time.Hour}})
	var absent []int64
	for row, page := int64(rows-1), uint32(0); len(absent) < 5; row-- { // nothing is known of what is read: the first rows are in memory
		if at := table.PageOf(row); len(absent) == 0 || at != page {
			absent, page = append(absent, row), at
		}
	}
	wait := func(b *cache.Batch, err error) error {
		if err == nil {
			err = b.Wait()
		}
		return err
	}
	one := func() []byte { return make([]byte, bytesOfRow) }
	doors := map[string]func() error{
		"Gather": func() error { return c.Gather(ctx, cache.Request{Rows: absent[:1], Out: one()}) },
		"GatherPooled": func() error {
			return c.Gather(ctx, cache.Request{Rows: absent[2:3], Out: one(), Pool: &cache.Pooling{Bag: 1}})
		},
		"Explain": func() error {
			_, err := c.Explain(0, absent[4:])
			return err
		},
	}
	if pagesBackend == cache.BackendHost { // TestGPU_FromPages_CloseBesideBatch is of streams
		doors["Enqueue"] = func() error {
			return wait(c.On(0).Enqueue(ctx, 0, cache.Request{DeviceRows: bytesOf(absent[1:2]), DeviceOut: device.HostBuffer(one())}))
		}
		doors["GatherPooledDevice"] = func() error {
			return wait(c.On(0).Enqueue(ctx, 0, cache.Request{DeviceRows: bytesOf(absent[3:4]), DeviceOut: device.HostBuffer(one()), Pool: &cache.Pooling{Bag: 1}}))
		}
	}
	arrived, free := f.held()
	defer free()
	errs := map[string]<-chan error{}
	for name, call := range doors {
		errs[name] = async(call)
	}
	arrivals(t, arrived, len(doors))
	within(t, "Close", async(c.Close))
	for name, err := range errs {
		if err := <-err; !errors.Is(err, cache.ErrClosed) || errors.Is(err, cache.ErrCold) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Prefetch(0, absent); !errors.Is(err, cache.ErrClosed) {
		t.Errorf("Prefetch: %v", err)
	}
}
