package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/pages"
)

// rowsSource is rows in memory, to be packed.
type rowsSource struct {
	data     []byte
	rowBytes int
	next     int
}

func (s *rowsSource) Rows() int     { return len(s.data) / s.rowBytes }
func (s *rowsSource) RowBytes() int { return s.rowBytes }
func (s *rowsSource) Close() error  { return nil }

func (s *rowsSource) Read(dst []byte) (int, error) {
	n := copy(dst, s.data[s.next:])
	if s.next += n; n == 0 {
		return 0, io.EOF
	}
	return n / s.rowBytes, nil
}

// packed returns rows in pages of 64 KiB. fault, if not nil, is called for each page that is read.
func packed(t testing.TB, data []byte, rowBytes int, codec string, fault func(ctx context.Context, page uint32) error) *pages.Table {
	t.Helper()
	return packedAs(t, data, rowBytes, dtype.Uint8, codec, fault)
}

// packedAs is packed for elements of a type.
func packedAs(t testing.TB, data []byte, rowBytes int, of dtype.Type, codec string, fault func(ctx context.Context, page uint32) error) *pages.Table {
	t.Helper()
	place := pages.NewMemory()
	source := func() (pages.Source, error) { return &rowsSource{data: data, rowBytes: rowBytes}, nil }
	o := pages.PackOptions{Name: "features", DType: of, Codec: codec, PageBytes: 64 << 10, Stage: "none", Workers: 1}
	if _, err := pages.Pack(ctx, source, place.Writer(), o); err != nil {
		t.Fatal(err)
	}
	store, err := place.Open()
	if err != nil {
		t.Fatal(err)
	}
	store.Fault = fault
	table, err := pages.OpenStores(ctx, store)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// pagesBackend is the backend of tests of tables of pages: TestGPU_FromPages runs them on a GPU.
var pagesBackend = cache.BackendHost

// overPages returns a cache of one table of pages.
func overPages(t testing.TB, table *pages.Table, o cache.Options) *cache.Cache {
	t.Helper()
	one, err := cache.FromPages(table)
	if err != nil {
		t.Fatal(err)
	}
	o.Tables, o.Devices.Backend = []cache.Table{one}, pagesBackend
	return newCache(t, o)
}

// versionedRows returns version 0 of rows: some compress.
func versionedRows(rows, rowBytes int) []byte { return newModel(rows, rows, rowBytes).source() }

// check gathers rows and compares them with data.
func check(t testing.TB, c *cache.Cache, data []byte, rows []int64) {
	t.Helper()
	if err := compare(c, data, rows); err != nil {
		t.Fatal(err)
	}
}

// pagesGPU, if not nil, is the GPU on whose streams tests of tables of pages gather, as that is another way than to Go memory.
var pagesGPU device.Device

// gatherPaged gathers rows of the first table.
func gatherPaged(c *cache.Cache, rows []int64, out []byte) error {
	d := pagesGPU
	if d == nil {
		return c.Gather(ctx, cache.Request{Rows: rows, Out: out})
	}
	ids, err := d.Alloc(int64(len(rows))*8, "test")
	if err != nil {
		return err
	}
	defer d.Free(ids)
	to, err := d.Alloc(int64(len(out)), "test")
	if err != nil {
		return err
	}
	defer d.Free(to)
	s, err := d.NewStream()
	if err != nil {
		return err
	}
	defer s.Close()
	if err := errors.Join(device.Upload(d, ids, cache.AsBytes(rows)), device.Upload(d, to, out)); err != nil {
		return err
	}
	b, err := c.On(0).Enqueue(ctx, streamHandle(s), cache.Request{DeviceRows: ids, DeviceOut: to})
	if err != nil {
		return err
	}
	return errors.Join(b.Wait(), device.Download(d, out, to))
}

func compare(c *cache.Cache, data []byte, rows []int64) error {
	n := c.RowBytes(0)
	out := bytes.Repeat([]byte{0xee}, len(rows)*n)
	if err := gatherPaged(c, rows, out); err != nil {
		return err
	}
	for i, row := range rows {
		if !bytes.Equal(out[i*n:][:n], data[int(row)*n:][:n]) {
			return fmt.Errorf("row %d at position %d: %x, want %x", row, i, out[i*n:][:n], data[int(row)*n:][:n])
		}
	}
	return nil
}

func randomRows(r *rand.Rand, n, rows int) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = r.Int64N(int64(rows))
	}
	return all
}

func allOf(rows int) []int64 {
	all := make([]int64, rows)
	for i := range all {
		all[i] = int64(i)
	}
	return all
}

const (
	pagedRows     = 20_000
	pagedRowBytes = 120
)

// TestFromPages_ServesAllRows reads rows by every route of a batch, of which the slab, the host tier and the pages hold a part each.
func TestFromPages_ServesAllRows(t *testing.T) {
	data := versionedRows(pagedRows, pagedRowBytes)
	for _, codec := range []string{"none", "ibp4"} {
		for route, serve := range map[string]func() func(){"as decided": func() func() { return func() {} }, "apart": cache.ServeApart, "hits first": cache.ServeHitsFirst} {
			t.Run(codec+"/"+route, func(t *testing.T) {
				const memory = 800 << 10
				c := overPages(t, packed(t, data, pagedRowBytes, codec, nil), cache.Options{Budget: 300 << 10, Host: cache.HostOptions{Memory: memory}})
				defer serve()()
				r := rand.New(rand.NewPCG(1, 1))
				for range gputest.Few(20, 6) {
					check(t, c, data, randomRows(r, 1+r.IntN(3000), pagedRows))
				}
				check(t, c, data, allOf(pagedRows))
				s := stats(t, c).Tables[0]
				tiers := s.Tiers
				if tiers.HostMemory > memory || tiers.HostMemory < memory*9/10 || tiers.HostBytes > tiers.HostCapacity {
					t.Errorf("host memory of %d: %+v", memory, tiers)
				}
				if s.Hits == 0 || tiers.HostRows == 0 || tiers.AbsentRows == 0 || tiers.PagesRead == 0 || tiers.BytesRead < tiers.PagesRead*1000 {
					t.Errorf("%d hits: %+v", s.Hits, tiers)
				}
				if s.Hits+s.Misses != s.Lookups || tiers.AbsentRows >= s.Misses || tiers.FailedRows != 0 {
					t.Errorf("%+v", s)
				}
				if held := s.CachedRows + tiers.HostRows; held > pagedRows || held < pagedRows/4 {
					t.Errorf("slab and host tier hold %d of %d rows", held, pagedRows)
				}
			})
		}
	}
}

// TestFromPages_AllFits keeps all rows in the host tier if there is room, and reads no page for a batch.
func TestFromPages_AllFits(t *testing.T) {
	data := versionedRows(pagedRows, pagedRowBytes)
	c := overPages(t, packed(t, data, pagedRowBytes, "ibp4", nil), cache.Options{Budget: 300 << 10})
	before := stats(t, c).Tables[0].Tiers
	check(t, c, data, allOf(pagedRows))
	if after := stats(t, c).Tables[0].Tiers; after.HostRows != pagedRows || after.AbsentRows != 0 || after.PagesRead != before.PagesRead {
		t.Errorf("%+v, then %+v", before, after)
	}
}

// TestFromPages_MemoryTooSmall is an error that says what is needed.
func TestFromPages_MemoryTooSmall(t *testing.T) {
	one, err := cache.FromPages(packed(t, versionedRows(pagedRows, pagedRowBytes), pagedRowBytes, "none", nil))
	if err != nil {
		t.Fatal(err)
	}
	_, err = cache.New(cache.Options{Tables: []cache.Table{one}, Budget: 1 << 20, Devices: cache.DeviceOptions{Backend: cache.BackendHost}, Host: cache.HostOptions{Memory: 100 << 10}})
	if err == nil || !strings.Contains(err.Error(), "host memory") || !strings.Contains(err.Error(), "(102400 B) must be at least 24") {
		t.Errorf("error %v", err)
	}
}

// faults makes pages fail or wait while it is set.
type faults struct {
	fail atomic.Pointer[func(ctx context.Context, page uint32) error]
}

func (f *faults) set(fail func(ctx context.Context, page uint32) error) { f.fail.Store(&fail) }

func (f *faults) page(ctx context.Context, page uint32) error {
	if fail := f.fail.Load(); fail != nil && *fail != nil {
		return (*fail)(ctx, page)
	}
	return nil
}

// A page that cannot be read, of which New wants rows for the ring of the host tier only, is for the batches that want its rows to report.
func TestFromPages_RingPageFails(t *testing.T) {
	data := versionedRows(pagedRows, pagedRowBytes)
	var f faults
	table := packed(t, data, pagedRowBytes, "none", f.page)
	var mu sync.Mutex
	var read []uint32
	f.set(func(_ context.Context, page uint32) error {
		mu.Lock()
		defer mu.Unlock()
		read = append(read, page)
		return nil
	})
	o := cache.Options{Budget: 100 << 10, Host: cache.HostOptions{Memory: 500 << 10}}
	if err := overPages(t, table, o).Close(); err != nil {
		t.Fatal(err)
	}
	bad := slices.Max(read) // without a ranking, slabs and the main region have the first rows
	f.set(func(_ context.Context, page uint32) error {
		if page == bad {
			return errors.New("the drive is on fire")
		}
		return nil
	})
	c := overPages(t, table, o)
	rows := slices.DeleteFunc(allOf(pagedRows), func(row int64) bool { return table.PageOf(row) == bad })
	check(t, c, data, rows)
	var page *pages.PageError
	err := c.Gather(ctx, cache.Request{Rows: allOf(pagedRows), Out: make([]byte, pagedRows*pagedRowBytes)})
	if !errors.As(err, &page) || page.Page != bad {
		t.Errorf("error %v, want one of page %d", err, bad)
	}
}

// TestFromPages_PageFails: a page that cannot be read fails the batches that need it, with an error that names tier, page and cause. The other rows of
// the batch are right, those of the page are zeros, and later batches find all.
func TestFromPages_PageFails(t *testing.T) {
	data := versionedRows(pagedRows, pagedRowBytes)
	var f faults
	table := packed(t, data, pagedRowBytes, "none", f.page)
	c := overPages(t, table, cache.Options{Budget: 100 << 10, Host: cache.HostOptions{Memory: 500 << 10}})
	const bad = 30
	f.set(func(_ context.Context, page uint32) error {
		if page == bad {
			return errors.New("the drive is on fire")
		}
		return nil
	})
	rows := allOf(pagedRows)
	out := bytes.Repeat([]byte{0xee}, pagedRows*pagedRowBytes)
	err := gatherPaged(c, rows, out)
	var page *pages.PageError
	if !errors.Is(err, cache.ErrCold) || !errors.As(err, &page) || page.Page != bad || !strings.Contains(err.Error(), "the drive is on fire") || !strings.Contains(err.Error(), "memory") {
		t.Fatalf("error %v", err)
	}
	failed := 0
	for row := range rows {
		got := out[row*pagedRowBytes:][:pagedRowBytes]
		switch {
		case bytes.Equal(got, data[row*pagedRowBytes:][:pagedRowBytes]):
		case table.PageOf(int64(row)) == bad && bytes.Equal(got, make([]byte, pagedRowBytes)):
			failed++
		default:
			t.Fatalf("row %d of page %d is %x", row, table.PageOf(int64(row)), got)
		}
	}
	if want := fmt.Sprintf("%d of %d rows", failed, pagedRows); failed == 0 || !strings.Contains(err.Error(), want) {
		t.Errorf("%d rows failed: %v", failed, err)
	}
	f.set(nil)
	check(t, c, data, rows)
}

// TestFromPages_SlowPage: a batch whose page does not come fails after the time-out, other batches do not wait for it, and updates neither.
func TestFromPages_SlowPage(t *testing.T) {
	data := versionedRows(pagedRows, pagedRowBytes)
	var f faults
	open := func(timeout time.Duration) *cache.Cache {
		return overPages(t, packed(t, data, pagedRowBytes, "none", f.page), cache.Options{
			Budget: 100 << 10, Host: cache.HostOptions{Memory: 500 << 10, ColdTimeout: timeout},
		})
	}
	c, impatient := open(2*time.Minute), open(time.Second)
	arrived := make(chan struct{}, 1)
	f.set(func(ctx context.Context, page uint32) error {
		select {
		case arrived <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return ctx.Err()
	})
	of, end := context.WithCancel(ctx)
	slow := c.GatherAsync(of, cache.Request{Rows: []int64{pagedRows - 1}, Out: make([]byte, pagedRowBytes)})
	<-arrived
	begun := time.Now()
	check(t, c, data, []int64{0, 1, 2})
	if err := c.Update(ctx, 0, []int64{5}, data[:pagedRowBytes]); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("beside a slow page a batch and an update took %v", took)
	}
	end()
	if err := slow.Wait(); !errors.Is(err, cache.ErrCold) || !errors.Is(err, context.Canceled) {
		t.Errorf("the slow batch: %v", err)
	}
	if err := impatient.Gather(ctx, cache.Request{Rows: []int64{pagedRows - 1}, Out: make([]byte, pagedRowBytes)}); !errors.Is(err, cache.ErrCold) || !strings.Contains(err.Error(), "no answer within 1s") {
		t.Errorf("error %v", err)
	}
	for wait := 10 * time.Millisecond; ; wait *= 4 { // until the batch has begun within the time
		short, cancel := context.WithTimeout(ctx, wait)
		err := c.Gather(short, cache.Request{Rows: []int64{pagedRows - 1}, Out: make([]byte, pagedRowBytes)})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cache.ErrCold) && wait > time.Minute {
			t.Fatalf("with a deadline of %v: %v", wait, err)
		}
		if errors.Is(err, cache.ErrCold) {
			break
		}
	}
	f.set(nil)
	check(t, c, data, []int64{pagedRows - 1})
}

// TestFromPages_CloseWhileReading: Close ends the reading of pages, and the batches that wait for it.
func TestFromPages_CloseWhileReading(t *testing.T) {
	var f faults
	data := versionedRows(pagedRows, pagedRowBytes)
	c := overPages(t, packed(t, data, pagedRowBytes, "none", f.page), cache.Options{Budget: 100 << 10, Host: cache.HostOptions{Memory: 500 << 10, ColdTimeout: time.Hour}})
	arrived := make(chan struct{}, 100)
	f.set(func(ctx context.Context, page uint32) error {
		arrived <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	slow := c.GatherAsync(ctx, cache.Request{Rows: []int64{pagedRows - 1}, Out: make([]byte, pagedRowBytes)})
	if err := c.Prefetch(0, []int64{pagedRows - 1000}); err != nil {
		t.Fatal(err)
	}
	<-arrived
	closed := make(chan error)
	go func() { closed <- c.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Close waits for pages")
	}
	if err := slow.Wait(); !errors.Is(err, cache.ErrClosed) {
		t.Errorf("the batch under way: %v", err)
	}
}

// TestFromPages_Prefetch: rows that were prefetched are in the host tier when a batch asks for them; rows that no batch asks for are counted.
func TestFromPages_Prefetch(t *testing.T) {
	data := versionedRows(pagedRows, pagedRowBytes)
	c := overPages(t, packed(t, data, pagedRowBytes, "none", nil), cache.Options{Budget: 100 << 10, Host: cache.HostOptions{Memory: 600 << 10}})
	landed := func(rows []int64) {
		t.Helper()
		for range 60_000 { // a minute and more
			all, err := c.Explain(0, rows)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(all, func(e cache.Explanation) bool { return e.Tier != "host" }) {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Fatalf("prefetched rows do not arrive: %+v", stats(t, c).Tables[0].Tiers)
	}
	rows := allOf(pagedRows)[pagedRows-300:]
	if err := c.Prefetch(0, rows); err != nil {
		t.Fatal(err)
	}
	landed(rows)
	check(t, c, data, rows[:200])
	after := stats(t, c).Tables[0].Tiers
	if after.AbsentRows != 0 || after.PrefetchedRows != 300 || after.UsedRows != 200 || after.UnusedRows != 0 {
		t.Errorf("%+v", after)
	}
	if err := c.Prefetch(0, rows); err != nil || stats(t, c).Tables[0].Tiers.PrefetchedRows != 300 {
		t.Errorf("rows that are there are prefetched again: %v, %+v", err, stats(t, c).Tables[0].Tiers)
	}
	// Until the first ones have left. What is read while the ring is behind does not go there, so that it may take more than once.
	for begun, from := time.Now(), 0; after.UnusedRows < 100 && time.Since(begun) < time.Minute; from = (from + 250) % 5000 {
		check(t, c, data, allOf(pagedRows)[10_000+from:][:250])
		after = stats(t, c).Tables[0].Tiers
	}
	if after.UnusedRows != 100 || after.UsedRows != 200 {
		t.Errorf("unused rows: %+v", after)
	}
	if err := c.Prefetch(0, []int64{pagedRows}); !errors.Is(err, cache.ErrRows) {
		t.Errorf("row out of range: %v", err)
	}
}

// TestFromPages_PrefetchUnderWay: a batch that asks for rows which are being prefetched waits for them and reads no page again.
func TestFromPages_PrefetchUnderWay(t *testing.T) {
	data := versionedRows(pagedRows, pagedRowBytes)
	var f faults
	c := overPages(t, packed(t, data, pagedRowBytes, "none", f.page), cache.Options{Budget: 100 << 10, Host: cache.HostOptions{Memory: 600 << 10, ColdTimeout: 2 * time.Minute}})
	// A busy GPU may take longer than wait to ask for the rows: then they have arrived, and two others get more time.
	for i, wait := int64(0), 20*time.Millisecond; ; i, wait = i+1, 2*wait {
		before := stats(t, c).Tables[0].Tiers
		arrived, free := make(chan struct{}, 100), make(chan struct{})
		f.set(func(context.Context, uint32) error {
			arrived <- struct{}{}
			<-free
			return nil
		})
		rows := []int64{pagedRows - 1000*i - 3, pagedRows - 1000*i - 2}
		if err := c.Prefetch(0, rows); err != nil {
			t.Fatal(err)
		}
		<-arrived
		out := make([]byte, 2*pagedRowBytes)
		batch := c.GatherAsync(ctx, cache.Request{Rows: rows, Out: out})
		select {
		case <-batch.Done():
			t.Fatalf("the batch has not waited: %v", batch.Wait())
		case <-time.After(wait):
		}
		close(free)
		if err := batch.Wait(); err != nil || !bytes.Equal(out, data[rows[0]*pagedRowBytes:][:2*pagedRowBytes]) {
			t.Fatalf("%v, rows %x", err, out)
		}
		after := stats(t, c).Tables[0].Tiers
		if after.PagesRead == before.PagesRead+1 && after.FlightRows == before.FlightRows+2 {
			return
		}
		if wait > 10*time.Second || after.PagesRead != before.PagesRead+1 {
			t.Fatalf("%+v, then %+v", before, after)
		}
	}
}

// TestFromPages_PrefetchedOnce: a prefetched row counts as taken while it was being read, or as used in memory, or as unused, whatever comes first.
func TestFromPages_PrefetchedOnce(t *testing.T) {
	data := versionedRows(pagedRows, pagedRowBytes)
	c := overPages(t, packed(t, data, pagedRowBytes, "none", nil), cache.Options{Budget: 100 << 10, Host: cache.HostOptions{Memory: 600 << 10}})
	for from := 10_000; from < 15_000; from += 50 { // as many rows as the ring holds several times
		rows := allOf(pagedRows)[from : from+50]
		if err := c.Prefetch(0, rows); err != nil {
			t.Fatal(err)
		}
		check(t, c, data, rows)
	}
	s := stats(t, c).Tables[0].Tiers
	// A row that comes to memory after the batch has looked there, and before the batch asks for its read, is read by the batch, and is unused.
	if s.PrefetchedRows < 1000 || s.FlightRows == 0 || s.UsedRows+s.FlightRows+s.UnusedRows > s.PrefetchedRows {
		t.Errorf("%d rows were prefetched, %d used, %d taken under way, and %d unused", s.PrefetchedRows, s.UsedRows, s.FlightRows, s.UnusedRows)
	}
}

// TestFromPages_Updates: updated rows are read back from every tier, and updates beyond the memory for them are errors that change nothing.
func TestFromPages_Updates(t *testing.T) {
	const rows = 3000
	m := newModel(rows, rows, pagedRowBytes)
	c := overPages(t, packed(t, m.source(), pagedRowBytes, "ibp4", nil), cache.Options{Budget: 60 << 10, Host: cache.HostOptions{Memory: 150 << 10, Overlay: 300 << 10}})
	gather := func(rows []int64, out []byte) error { return c.Gather(ctx, cache.Request{Rows: rows, Out: out}) }
	r := rand.New(rand.NewPCG(3, 3))
	for range 50 {
		from := r.Int64N(rows - 10)
		if err := m.update(c, 0, allOf(rows)[from:from+10]); err != nil {
			t.Fatal(err)
		}
		if err := m.gather(gather, randomRows(r, 100, rows)); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.gather(gather, allOf(rows)); err != nil {
		t.Fatal(err)
	}
	var err error
	for from := 0; from < rows && err == nil; from += 500 {
		err = m.update(c, 0, allOf(rows)[from:from+500])
	}
	if err == nil || !strings.Contains(err.Error(), "must fit in 307200 bytes") {
		t.Errorf("error %v", err)
	}
	if err := m.gather(gather, allOf(rows)); err != nil {
		t.Fatal(err)
	}
	if s := stats(t, c).Tables[0].Tiers; s.UpdateBytes == 0 || s.LogRows == 0 {
		t.Errorf("%+v", s)
	}
}

// TestFromPages_ManyBatches reads and prefetches from several goroutines while the ring of rows read lately turns.
func TestFromPages_ManyBatches(t *testing.T) {
	data := versionedRows(pagedRows, pagedRowBytes)
	c := overPages(t, packed(t, data, pagedRowBytes, "ibp4", nil), cache.Options{
		Budget: 100 << 10, Host: cache.HostOptions{Memory: 500 << 10}, Refresh: cache.RefreshOptions{Interval: time.Millisecond, Accesses: 1},
	})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 5))
			for range gputest.Few(150, 50) {
				rows := randomRows(r, 1+r.IntN(100), pagedRows)
				if r.IntN(2) == 0 {
					if err := c.Prefetch(0, rows); err != nil {
						t.Error(err)
					}
				}
				if err := compare(c, data, rows); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%+v", stats(t, c).Tables[0].Tiers)
}

// TestFromPages_Pooled: sums of rows of which some are absent are those of the definition, to the bit; rows that cannot be read are an error.
func TestFromPages_Pooled(t *testing.T) {
	race.SkipSequential(t)
	const rows, columns = 20_000, 30
	fault := &faults{}
	for _, of := range []dtype.Type{dtype.Float32, dtype.BFloat16} {
		data := floatTable(rows, columns, of, false, 9)
		c := overPages(t, packedAs(t, data, columns*of.Size(), of, "none", fault.page), cache.Options{Budget: 100 << 10, Host: cache.HostOptions{Memory: 400 << 10}})
		r := rand.New(rand.NewPCG(7, 7))
		for i := range gputest.Few(60, 20) {
			p, ids := drawPooling(r, rows, 1+r.IntN(4000))
			if i == 0 {
				p, ids = pooling{Pooling: cache.Pooling{Offsets: []int64{0, 0, 5000}}}, randomRows(r, 6000, rows)
			}
			size, _ := pooledOut(&p, of, columns, len(ids))
			out := make([]byte, size)
			if err := c.Gather(ctx, p.host(0, ids, out)); err != nil {
				t.Fatal(err)
			}
			checkPooled(t, data, of, columns, ids, &p, out, fmt.Sprintf("batch %d", i))
		}
		if s := stats(t, c).Tables[0].Tiers; s.AbsentRows == 0 || s.HostRows == 0 {
			t.Errorf("%+v", s)
		}
		if of != dtype.Float32 {
			continue
		}
		out := make([]byte, columns*4)
		fault.set(func(context.Context, uint32) error { return errors.New("gone") })
		if err := c.Gather(ctx, cache.Request{Rows: allOf(rows), Out: out, Pool: &cache.Pooling{Bag: rows}}); !errors.Is(err, cache.ErrCold) || !strings.Contains(err.Error(), "gone") {
			t.Errorf("rows that cannot be read: %v", err)
		}
		fault.set(func(context.Context, uint32) error { return nil })
	}
}

// TestFromPages_PooledDevice: enqueued batches of the host backend add rows up, too, and leave out row numbers out of range, which they report.
func TestFromPages_PooledDevice(t *testing.T) {
	const rows, columns = 20_000, 30
	data := floatTable(rows, columns, dtype.Float32, false, 9)
	c := overPages(t, packedAs(t, data, columns*4, dtype.Float32, "none", nil), cache.Options{Budget: 100 << 10, Host: cache.HostOptions{Memory: 400 << 10}})
	ids := []int64{1, rows - 1, 7, 9}
	p := pooling{Pooling: cache.Pooling{Bag: 2}}
	out := make([]byte, 2*columns*4)
	b, err := c.On(0).Enqueue(ctx, 0, p.device(0, bytesOf(ids), device.HostBuffer(out)))
	if err == nil {
		err = b.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	checkPooled(t, data, dtype.Float32, columns, ids, &p, out, "all in range")
	p.Padding, p.PaddingRow = true, 1
	b, err = c.On(0).Enqueue(ctx, 0, p.device(0, bytesOf([]int64{1, rows - 1, rows, -4}), device.HostBuffer(out)))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Wait(); !errors.Is(err, cache.ErrRows) || !strings.Contains(err.Error(), "2 row numbers are not 0 to 19999") || !strings.Contains(err.Error(), "position 2") {
		t.Errorf("error %v", err)
	}
	if !bytes.Equal(out[:columns*4], data[(rows-1)*columns*4:]) || !bytes.Equal(out[columns*4:], make([]byte, columns*4)) {
		t.Error("other sums")
	}
}

// TestFromPages_PooledFloat8: sums of float8 rows of which some are absent are those of the same table in host memory.
func TestFromPages_PooledFloat8(t *testing.T) {
	race.SkipSequential(t)
	const rows, columns = 20_000, 64
	data := make([]byte, rows*columns)
	r := rand.New(rand.NewPCG(8, 8))
	for i := range data {
		data[i] = byte(r.IntN(0x7f)) | byte(r.IntN(2))<<7 // no NaN
	}
	of := dtype.Float8E4M3FN
	paged := overPages(t, packedAs(t, data, columns, of, "none", nil), cache.Options{Budget: 100 << 10, Host: cache.HostOptions{Memory: 500 << 10}})
	table, err := cache.FromBytes("x", of, data, columns)
	if err != nil {
		t.Fatal(err)
	}
	whole := newCache(t, cache.Options{Tables: []cache.Table{table}, Budget: 100 << 10, Devices: cache.DeviceOptions{Backend: cache.BackendHost}})
	ids := randomRows(r, 6000, rows)
	p := pooling{Pooling: cache.Pooling{Offsets: []int64{0, 10, 10, 3000}}, Output: dtype.Float32}
	got, want := make([]byte, 4*columns*4), make([]byte, 4*columns*4)
	if err := errors.Join(paged.Gather(ctx, p.host(0, ids, got)), whole.Gather(ctx, p.host(0, ids, want))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) || stats(t, paged).Tables[0].Tiers.AbsentRows == 0 {
		t.Error("other sums than of the table in host memory")
	}
}
