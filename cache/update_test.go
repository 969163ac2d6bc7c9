package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/slab"
)

// noise returns rows of random bytes, which no codec can compress.
func noise(rows, rowBytes int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 3))
	b := make([]byte, rows*rowBytes)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// settle waits until the overlay is empty.
func settle(t testing.TB, c *cache.Cache) cache.Stats {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		s := stats(t, c)
		if s.OverlayBytes == 0 && s.OverlayRows == 0 {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d rows stay in the overlay", s.OverlayRows)
		}
		time.Sleep(time.Millisecond)
	}
}

// gatherAll gathers all rows and compares them with data.
func gatherAll(t testing.TB, c *cache.Cache, data []byte) {
	t.Helper()
	rows := make([]int64, c.Rows(0))
	for i := range rows {
		rows[i] = int64(i)
	}
	out := make([]byte, len(rows)*c.RowBytes(0))
	if len(out) != len(data) {
		t.Fatalf("%d rows, want %d", len(rows), len(data)/c.RowBytes(0))
	}
	if err := c.Gather(ctx, cache.Request{Rows: rows, Out: out}); err != nil {
		t.Fatal(err)
	}
	checkRows(t, data, c.RowBytes(0), rows, out)
}

// TestUpdate_RowsThatGrowShrinkAndTurnRaw: in both layouts of the host tier, updated rows are right at once and after they are written to
// the host tier, cached or not. The tier's statistics equal those of a table loaded with these rows. Cached rows stay cached.
func TestUpdate_RowsThatGrowShrinkAndTurnRaw(t *testing.T) {
	race.SkipSequential(t)
	const rows = 300
	for _, rowBytes := range []int{16, 61, 512, 3000} {
		for _, mode := range []cache.HostTier{cache.InPlace, cache.Packed} {
			for _, codec := range []string{"none", "ibp4", "ibp8"} {
				t.Run(fmt.Sprintf("row=%d/%v/%s", rowBytes, mode, codec), func(t *testing.T) {
					small, large := normalTable(rows, (rowBytes+3)/4, 1)[:rows*rowBytes], noise(rows, rowBytes, 2)
					data := bytes.Clone(small)
					budget := int64(rows*rowBytes/2 + 9000)
					c := newCache(t, cache.Options{
						Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Codec: cache.Codec(codec), Host: cache.HostOptions{Tier: mode}, Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency()}, Budget: budget,
					})
					r := rand.New(rand.NewPCG(3, 3))
					cached := stats(t, c).Tables[0].CachedRows
					for round := range 6 {
						from := [][]byte{large, small, make([]byte, len(data))}[round%3]
						var ids []int64
						var updates []byte
						for range 200 { // duplicates: the last counts
							id := r.Int64N(rows)
							row := bytes.Clone(from[int(id)*rowBytes:][:rowBytes])
							row[r.IntN(rowBytes)] ^= byte(r.Uint32())
							ids, updates = append(ids, id), append(updates, row...)
							copy(data[int(id)*rowBytes:], row)
						}
						if err := c.Update(ctx, 0, ids, updates); err != nil {
							t.Fatal(err)
						}
						clear(updates) // they are the caller's again
						gatherAll(t, c, data)
						settle(t, c)
						gatherAll(t, c, data)
					}
					s := settle(t, c)
					fresh := newCache(t, cache.Options{
						Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Codec: cache.Codec(codec), Host: cache.HostOptions{Tier: mode}, Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency()}, Budget: budget,
					})
					// A codec trained on other rows may store rows differently; one that is none may not.
					if f := stats(t, fresh).Tables[0]; codec == "none" && (f.StoredBytes != s.Tables[0].StoredBytes || f.RawRows != s.Tables[0].RawRows) {
						t.Errorf("totals %+v, of a table loaded like that %+v", s.Tables[0], f)
					}
					if n := s.Tables[0].CachedRows; codec == "none" && n < cached*9/10 || n > cached { // some give their map slots
						t.Errorf("%d rows cached, %d before", n, cached)
					}
					if s.Changes.UpdatedRows != 1200 || s.ChangeError != "" {
						t.Errorf("%+v %s", s.Changes, s.ChangeError)
					}
				})
			}
		}
	}
}

// TestUpdate_AppendsUpToTheCapacity: appended rows follow the last row without a gap. A gap changes nothing.
func TestUpdate_AppendsUpToTheCapacity(t *testing.T) {
	const rows, capacity, rowBytes = 100, 1000, 36
	for _, mode := range []cache.HostTier{cache.InPlace, cache.Packed} {
		for _, codec := range []string{"none", "ibp4"} {
			data := normalTable(rows, rowBytes/4, 1)
			p := &scripted{}
			c := newCache(t, cache.Options{
				Tables: []cache.Table{fromBytes(t, "x", data, rowBytes).WithCapacity(capacity)}, Host: cache.HostOptions{Tier: mode}, Codec: cache.Codec(codec), Budget: 20_000, Admission: cache.AdmissionOptions{Policy: p},
			})
			if c.Rows(0) != rows {
				t.Fatalf("%d rows", c.Rows(0))
			}
			if err := c.Gather(ctx, cache.Request{Rows: []int64{rows}, Out: make([]byte, rowBytes)}); !errors.Is(err, cache.ErrRows) {
				t.Errorf("a row that is not there: %v", err)
			}
			more := noise(capacity, rowBytes, 5)
			rowsOf := func(ids []int64) (b []byte) {
				for _, id := range ids {
					b = append(b, more[int(id)*rowBytes:][:rowBytes]...)
				}
				return b
			}
			for _, gap := range [][]int64{{101}, {5, 999}, {100, 102}, {103, 100, 101}} {
				err := c.Update(ctx, 0, gap, rowsOf(gap))
				if !errors.Is(err, cache.ErrRows) || !strings.Contains(err.Error(), "of table x: rows are appended without a gap") {
					t.Errorf("Update of rows %d of %d: %v", gap, rows, err)
				}
				gatherAll(t, c, data)
			}
			order := make([]int64, 0, capacity)
			for _, i := range rand.New(rand.NewPCG(3, 3)).Perm(capacity - 300) {
				order = append(order, 300+int64(i))
			}
			for _, ids := range [][]int64{{100}, {102, 7, 101, 102}, rowsFrom(103, 300), order, {150}} {
				if err := c.Update(ctx, 0, ids, rowsOf(ids)); err != nil {
					t.Fatal(err)
				}
				longest := int(slices.Max(ids)+1) * rowBytes
				data = append(data, make([]byte, max(0, longest-len(data)))...)
				for _, id := range ids {
					copy(data[int(id)*rowBytes:], more[int(id)*rowBytes:][:rowBytes])
				}
				gatherAll(t, c, data)
			}
			settle(t, c)
			gatherAll(t, c, data)
			p.set("", rowKeys(90, 200))
			refresh(t, c)
			gatherAll(t, c, data)
			if s := stats(t, c).Tables[0]; s.Rows != capacity || s.RawBytes != capacity*rowBytes {
				t.Errorf("%+v", s)
			}
			for _, bad := range [][]int64{{1, capacity}, {-1}, {1 << 60}} {
				if err := c.Update(ctx, 0, bad, make([]byte, len(bad)*rowBytes)); !errors.Is(err, cache.ErrRows) {
					t.Errorf("Update of rows %d: %v", bad, err)
				}
			}
			gatherAll(t, c, data)
		}
	}
}

// rowsFrom returns the row numbers of a range.
func rowsFrom(from, to int64) (ids []int64) {
	for id := from; id < to; id++ {
		ids = append(ids, id)
	}
	return ids
}

// TestUpdate_AppendersInAnyOrder: goroutines that append rows of one table, many parts at a time, never leave a row that nobody has written, also if some
// of the Updates end half-way. Whoever comes too early is told so, and no reader sees a table that is longer than what was written.
func TestUpdate_AppendersInAnyOrder(t *testing.T) {
	const rows, capacity, rowBytes = 10, 6000, 16
	full := bytes.Repeat([]byte{0xa5}, rowBytes)
	for _, resident := range []bool{false, true} {
		table := fromBytes(t, "x", bytes.Repeat(full, rows), rowBytes).WithCapacity(capacity)
		if resident {
			table = table.ResidentWith(cache.ResidentOptions{Target: rowBytes})
		}
		c := newCache(t, cache.Options{Tables: []cache.Table{table}, Budget: 2 << 20, Codec: "none", Devices: cache.DeviceOptions{Backend: "host"}, Host: cache.HostOptions{Overlay: 64 << 10}})
		var refused atomic.Int64
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 4))
				for length := c.Rows(0); length < capacity; length = c.Rows(0) {
					ids := rowsFrom(length+r.Int64N(3), min(capacity, length+1+r.Int64N(1500)))
					r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
					some, cancel := context.WithCancel(ctx)
					if r.IntN(4) == 0 {
						go cancel()
					}
					err := c.Update(some, 0, ids, bytes.Repeat(full, len(ids)))
					cancel()
					switch {
					case errors.Is(err, cache.ErrRows):
						refused.Add(1)
					case err != nil && !errors.Is(err, context.Canceled):
						t.Error(err)
						return
					}
				}
			})
		}
		for seen := int64(0); seen < capacity && !t.Failed(); {
			seen = c.Rows(0)
			out := make([]byte, seen*rowBytes)
			if err := c.Gather(ctx, cache.Request{Rows: allRows(int(seen)), Out: out}); err != nil {
				t.Fatal(err)
			}
			if at := bytes.IndexByte(out, 0); at >= 0 {
				t.Fatalf("resident %v: row %d of %d was never written", resident, at/rowBytes, seen)
			}
		}
		wg.Wait()
		if refused.Load() == 0 {
			t.Error("no gap was refused")
		}
	}
}

// TestUpdate_InsertBesideRepack: rows inserted while a packed tier is packed anew are not lost.
func TestUpdate_InsertBesideRepack(t *testing.T) {
	const rows, capacity, rowBytes = 400, 460, 256
	for round := range 20 {
		table, err := cache.FromBytes("x", dtype.Uint8, make([]byte, rows*rowBytes), rowBytes)
		if err != nil {
			t.Fatal(err)
		}
		c := newCache(t, cache.Options{
			Tables: []cache.Table{table.WithCapacity(capacity)}, Codec: "ibp8", Host: cache.HostOptions{Tier: cache.Packed}, Budget: 8_000, Devices: cache.DeviceOptions{Backend: "host"}, Admission: cache.AdmissionOptions{Cold: true},
		})
		data := noise(capacity, rowBytes, uint64(round))
		var wg sync.WaitGroup
		for g := range 3 {
			wg.Go(func() {
				from, to, step := int64(g-1), int64(rows), int64(2) // grow
				if g == 0 {
					from, to, step = rows, capacity, 1 // insert
				}
				for id := from; id < to; id += step {
					if err := c.Update(ctx, 0, []int64{id}, data[id*rowBytes:][:rowBytes]); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		if s := settle(t, c); s.ChangeError != "" {
			t.Fatal(s.ChangeError)
		}
		out := make([]byte, rowBytes)
		for id := range int64(capacity) {
			if err := c.Gather(ctx, cache.Request{Rows: []int64{id}, Out: out}); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(out, data[id*rowBytes:][:rowBytes]) {
				t.Fatalf("round %d: row %d is lost", round, id)
			}
		}
	}
}

func TestUpdate_BadInput(t *testing.T) {
	data := normalTable(10, 4, 7)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "features", data, 16)}, Budget: 1000})
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	for want, err := range map[string]error{
		"cache: table (1) must be 0 to 0":                                                                                          c.Update(ctx, 1, nil, nil),
		"cache: wrong size: 15 bytes for 1 rows of table features must be 16":                                                      c.Update(ctx, 0, []int64{1}, make([]byte, 15)),
		"cache: row numbers out of range: row number (10) at position 1 must be 0 to 9, the capacity of table features":            c.Update(ctx, 0, []int64{1, 10}, make([]byte, 32)),
		"cache: Update of table features: 0 of 1 rows are updated: context canceled":                                               c.Update(canceled, 0, []int64{1}, make([]byte, 16)),
		"cache: row numbers out of range: row number (10) at position 0 must be 0 to 9 of table features; 1 of 1 are out of range": c.Invalidate(0, []int64{10}),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := errors.Join(c.Update(ctx, 0, nil, nil), c.Invalidate(0, nil)); err != nil {
		t.Error(err)
	}
	gatherAll(t, c, data)
	c.Close()
	if err := c.Update(ctx, 0, []int64{1}, make([]byte, 16)); !errors.Is(err, cache.ErrClosed) {
		t.Errorf("Update after Close: %v", err)
	}
	if err := c.Invalidate(0, nil); !errors.Is(err, cache.ErrClosed) {
		t.Errorf("Invalidate after Close: %v", err)
	}
}

func TestInvalidate_MissesUntilAdmittedAgain(t *testing.T) {
	const rows, rowBytes = 500, 64
	data := normalTable(rows, rowBytes/4, 1)
	p := &scripted{ranking: rowKeys(0, 100)}
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Codec: "none", Admission: cache.AdmissionOptions{Policy: p}, Budget: 100*(rowBytes+24) + 1000})
	cached := stats(t, c).Tables[0].CachedRows
	if cached < 100 || cached > 200 {
		t.Fatalf("%d rows cached", cached)
	}
	if err := c.Invalidate(0, []int64{3, 5, 400, 3}); err != nil {
		t.Fatal(err)
	}
	if hits, misses := reasonsOf(t, c, data, 0, 100); hits != 98 || misses[slab.Invalidated] != 2 {
		t.Fatalf("%d hits, misses %v", hits, misses)
	}
	if _, misses := reasonsOf(t, c, data, 400, 401); misses[slab.Invalidated] != 0 {
		t.Fatalf("a row that was not cached: %v", misses)
	}
	// An invalidated row in the overlay is withdrawn once it is in the host tier.
	if err := errors.Join(c.Update(ctx, 0, []int64{7}, data[:rowBytes]), c.Invalidate(0, []int64{7})); err != nil {
		t.Fatal(err)
	}
	copy(data[7*rowBytes:], data[:rowBytes])
	settle(t, c)
	if _, misses := reasonsOf(t, c, data, 7, 8); misses[slab.Invalidated] != 1 {
		t.Fatalf("an updated row: %v", misses)
	}
	if s := stats(t, c); s.Tables[0].CachedRows != cached-3 || s.Changes.InvalidatedRows != 3 {
		t.Fatalf("%d rows cached, %d before; %+v", s.Tables[0].CachedRows, cached, s.Changes)
	}
	refresh(t, c)
	// The last row's slot may still wait for its epoch. An unranked row is evicted then.
	hits, _ := reasonsOf(t, c, data, 0, 100)
	s := stats(t, c)
	if evicted := s.Changes.EvictedRows; hits != 100 || evicted > 1 || s.Tables[0].CachedRows+evicted != cached {
		t.Fatalf("%d hits after a refresh, %d rows cached, %d before; %+v", hits, s.Tables[0].CachedRows, cached, s.Changes)
	}
}

// heldDevice is a device whose lookups tests can block before they return.
type heldDevice struct {
	device.Device
	hold chan chan struct{} // a lookup takes a channel from here, and waits until it is closed
}

func (d heldDevice) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return heldStream{s, d.hold}, err
}

type heldStream struct {
	device.Stream
	hold chan chan struct{}
}

func (s heldStream) Launch(k device.Kernel) error {
	err := s.Stream.Launch(k)
	if k.Name() == "lookup" {
		select {
		case release := <-s.hold:
			<-release
		default:
		}
	}
	return err
}

// TestUpdate_FullOverlayBlocks: if the overlay is full and an older batch is under way, Update waits, and Gather does not.
func TestUpdate_FullOverlayBlocks(t *testing.T) {
	const rows, rowBytes = 200, 256
	hold := make(chan chan struct{}, 1)
	defer cache.ServeApart()()
	cache.OpenHostWith(t, func(n, workers int) []device.Device {
		return []device.Device{heldDevice{host.Open(1, workers)[0], hold}}
	})
	for _, mode := range []cache.HostTier{cache.InPlace, cache.Packed} {
		old, data := noise(rows, rowBytes, 1), noise(rows, rowBytes, 2)
		c := newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", old, rowBytes)}, Codec: "none", Host: cache.HostOptions{Tier: mode, Overlay: 20 * rowBytes}, Budget: 20_000, Devices: cache.DeviceOptions{Backend: "host"},
		})
		ids := make([]int64, rows)
		for i := range ids {
			ids[i] = int64(i)
		}
		release := make(chan struct{})
		held := make([]byte, rows*rowBytes)
		hold <- release
		pending := c.GatherAsync(ctx, cache.Request{Rows: ids, Out: held})
		for len(hold) > 0 { // until the batch has looked its rows up
			time.Sleep(time.Millisecond)
		}

		short, cancel := context.WithCancel(ctx)
		go func() {
			for stats(t, c).Changes.UpdateWaits == 0 {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		err := c.Update(short, 0, ids, data)
		if want := "cache: Update of table x: 20 of 200 rows are updated: context canceled"; err == nil || err.Error() != want {
			t.Fatalf("got %v, want %s", err, want)
		}
		if s := stats(t, c); s.OverlayBytes != s.OverlayCapacity || s.OverlayRows != 20 || s.Changes.UpdateWaits == 0 {
			t.Fatalf("%+v", s)
		}
		out := make([]byte, rows*rowBytes)
		if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
			t.Fatal(err)
		}
		checkRows(t, data, rowBytes, ids[:20], out[:20*rowBytes])
		if !bytes.Equal(out[20*rowBytes:], old[20*rowBytes:]) {
			t.Fatal("rows that were not updated have changed")
		}
		done := make(chan error)
		go func() { done <- c.Update(ctx, 0, ids, data) }()
		select {
		case err := <-done:
			t.Fatalf("Update returned while the overlay was full: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		close(release)
		if err := errors.Join(<-done, pending.Wait()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(held, old) { // what it had found was from before
			t.Fatal("the batch under way has seen new rows")
		}
		gatherAll(t, c, data)
		settle(t, c)
		gatherAll(t, c, data)
	}
}

// TestUpdate_FullMap: if the hashmap has no slot for an updated row, another row gives way.
func TestUpdate_FullMap(t *testing.T) {
	const rows, rowBytes = 5000, 16
	data := noise(rows, rowBytes, 1)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Codec: "none", Budget: 3000, Host: cache.HostOptions{Overlay: 1 << 20}})
	cached := stats(t, c).Tables[0].CachedRows
	next := noise(rows, rowBytes, 2)
	ids := make([]int64, rows)
	for i := range ids {
		ids[i] = int64(i)
	}
	if err := c.Update(ctx, 0, ids, next); err != nil {
		t.Fatal(err)
	}
	gatherAll(t, c, next)
	s := settle(t, c)
	gatherAll(t, c, next)
	if s.Changes.EvictedRows == 0 || s.Tables[0].CachedRows >= cached {
		t.Fatalf("%d rows cached, %d before, %+v", s.Tables[0].CachedRows, cached, s.Changes)
	}
	byUpdate := explainedRows(t, c, func(e cache.Explanation) bool { return !e.Cached && e.Eviction != nil && e.Eviction.By == "update" })
	if int64(len(byUpdate)) != s.Changes.EvictedRows {
		t.Errorf("%d rows were evicted by the update, %d in all", len(byUpdate), s.Changes.EvictedRows)
	}
	if cold := explainedRows(t, c, func(e cache.Explanation) bool { return e.Eviction != nil && e.Reason == slab.Cold && !e.Cached }); len(cold) > 0 {
		t.Errorf("%d rows that were evicted count as never offered", len(cold))
	}
}

// TestUpdate_OversizeRows: rows longer than a slab can be updated.
func TestUpdate_OversizeRows(t *testing.T) {
	race.SkipSequential(t)
	const rowBytes = 100_000
	data := make([]byte, 3*rowBytes)
	copy(data, noise(1, rowBytes, 1))
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "f", data, rowBytes)}, Budget: 50_000, Codec: "ibp8", Host: cache.HostOptions{Overlay: 1}})
	for i := range 6 {
		row := noise(1, rowBytes, uint64(i))
		if i%3 == 2 {
			row = make([]byte, rowBytes)
		}
		copy(data[i%3*rowBytes:], row)
		if err := c.Update(ctx, 0, []int64{int64(i % 3)}, row); err != nil {
			t.Fatal(err)
		}
		gatherAll(t, c, data)
	}
	settle(t, c)
	gatherAll(t, c, data)
}

// brokenDevice is a device on which changes fail once a test says so.
type brokenDevice struct {
	device.Device
	broken *atomic.Bool
}

func (d brokenDevice) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return brokenStream{s, d.broken}, err
}

type brokenStream struct {
	device.Stream
	broken *atomic.Bool
}

func (s brokenStream) Launch(k device.Kernel) error {
	if (k.Name() == "store" || k.Name() == "scatter") && s.broken.Load() {
		return errors.New("scripted to break")
	}
	return s.Stream.Launch(k)
}

// TestUpdate_DeviceFails: after a change has failed half way, all changes return its error. No call is left waiting, and rows that were not
// being changed are served.
func TestUpdate_DeviceFails(t *testing.T) {
	const rows, rowBytes = 400, 64
	for round := range 10 {
		var broken atomic.Bool
		cache.OpenHostWith(t, func(n, workers int) []device.Device {
			devices := host.Open(n, workers)
			for i, d := range devices {
				devices[i] = brokenDevice{d, &broken}
			}
			return devices
		})
		data := noise(rows, rowBytes, 1)
		c := newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Codec: "none", Budget: 8_000, Devices: cache.DeviceOptions{Count: 2, Backend: "host"}, Host: cache.HostOptions{Overlay: 1},
			Admission: cache.AdmissionOptions{Policy: &randomPolicy{}}, Refresh: cache.RefreshOptions{Interval: time.Millisecond},
		})
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), uint64(round)))
				for {
					var err error
					switch row := r.Int64N(rows / 2); g {
					case 0:
						err = c.Refresh(ctx)
					case 1:
						err = c.Invalidate(0, []int64{row})
					default:
						err = c.Update(ctx, 0, []int64{row, row + 1}, data[:2*rowBytes])
					}
					if err != nil {
						if !strings.Contains(err.Error(), "cache: changing what is cached: ") || !strings.Contains(err.Error(), "scripted to break") {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(round) * 300 * time.Microsecond)
		broken.Store(true)
		wg.Wait()
		if s := stats(t, c); !strings.Contains(s.ChangeError, "scripted to break") {
			t.Errorf("ChangeError is %q", s.ChangeError)
		}
		ids := []int64{rows - 1, rows - 7}
		out := make([]byte, len(ids)*rowBytes)
		for i := range 2 {
			if err := c.On(i).Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
				t.Fatal(err)
			}
			checkRows(t, data, rowBytes, ids, out)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSetBudget_AfterDeviceFailed: after a failed change some slots cannot be freed. SetBudget returns an error instead of waiting for them.
func TestSetBudget_AfterDeviceFailed(t *testing.T) {
	var broken atomic.Bool
	cache.OpenHostWith(t, func(n, workers int) []device.Device {
		return []device.Device{brokenDevice{host.Open(n, workers)[0], &broken}}
	})
	const rows, rowBytes = 40, 64
	data := noise(rows, rowBytes, 1)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Codec: "none", Budget: 8_000, Devices: cache.DeviceOptions{Backend: "host"}})
	if s := stats(t, c); s.Tables[0].CachedRows != rows {
		t.Fatalf("%d rows cached", s.Tables[0].CachedRows)
	}
	ids := make([]int64, rows)
	for i := range ids {
		ids[i] = int64(i)
	}
	broken.Store(true)
	if err := c.Update(ctx, 0, ids, data); err != nil {
		t.Fatal(err)
	}
	for stats(t, c).ChangeError == "" {
		time.Sleep(time.Millisecond)
	}
	done := make(chan error, 1)
	go func() { done <- c.SetBudget(ctx, stats(t, c).MetadataBytes+4*rowBytes) }()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "scripted to break") {
			t.Errorf("SetBudget: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("SetBudget hangs")
	}
	gatherAll(t, c, data)
}

// batchlessDevice is a device on which batches fail while broken is true; changes work.
type batchlessDevice struct {
	device.Device
	broken *atomic.Bool
}

func (d batchlessDevice) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return batchlessStream{s, d.broken}, err
}

func (d batchlessDevice) WrapStream(handle uintptr) (device.Stream, error) {
	s, err := d.Device.WrapStream(handle)
	return batchlessStream{s, d.broken}, err
}

type batchlessStream struct {
	device.Stream
	broken *atomic.Bool
}

func (s batchlessStream) Launch(k device.Kernel) error {
	if name := k.Name(); name != "store" && name != "scatter" && s.broken.Load() {
		return errors.New("scripted to break")
	}
	return s.Stream.Launch(k)
}

// TestUpdate_EpochsPass: epochs pass even if Wait is not called for batches, and even if batches fail while they are enqueued.
func TestUpdate_EpochsPass(t *testing.T) {
	var broken atomic.Bool
	cache.OpenHostWith(t, func(n, workers int) []device.Device {
		return []device.Device{batchlessDevice{host.Open(n, workers)[0], &broken}}
	})
	const rows, rowBytes = 100, 32
	data := normalTable(rows, rowBytes/4, 1)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: 4096, Devices: cache.DeviceOptions{Backend: "host"}, Host: cache.HostOptions{Overlay: 1}})
	bounded, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for round := range 300 {
		ids, out := []int64{1, 2, 3}, make([]byte, 3*rowBytes)
		broken.Store(round%3 == 0)
		_, err := c.On(0).Enqueue(bounded, 0, cache.Request{DeviceRows: device.HostBuffer(cache.AsBytes(ids)), DeviceOut: device.HostBuffer(out)})
		if failed := c.Gather(bounded, cache.Request{Rows: []int64{5}, Out: make([]byte, rowBytes)}); (err != nil) != broken.Load() || (failed != nil) != broken.Load() {
			t.Fatalf("%v, %v", err, failed)
		}
		broken.Store(false)
		// The overlay holds one row at a time, so each update waits for the epochs of the one before.
		if err := c.Update(bounded, 0, []int64{4, 5, 6, 7, 8}, data[4*rowBytes:9*rowBytes]); err != nil {
			t.Fatal(err)
		}
		if err := c.Refresh(bounded); err != nil {
			t.Fatal(err)
		}
	}
	gatherAll(t, c, data)
}

// TestUpdate_SupersededRowIsNeverSeen: if a row is given twice in one Update, no Gather returns the first version, even if the overlay is full.
func TestUpdate_SupersededRowIsNeverSeen(t *testing.T) {
	const rows, rowBytes = 1000, 64
	data := make([]byte, rows*rowBytes)
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: 40_000, Codec: "none",
		Devices: cache.DeviceOptions{Backend: "host"}, Host: cache.HostOptions{Overlay: 4096},
	})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		out := make([]byte, rowBytes)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := c.Gather(ctx, cache.Request{Rows: []int64{7}, Out: out}); err != nil {
				t.Error(err)
				return
			}
			if out[0] == 1 {
				t.Error("the superseded version was served")
				return
			}
		}
	})
	for range 50 {
		ids, versions := []int64{7}, bytes.Repeat([]byte{1}, rowBytes) // superseded
		for i := range int64(300) {                                    // more than the overlay holds
			ids, versions = append(ids, 100+i), append(versions, make([]byte, rowBytes)...)
		}
		ids, versions = append(ids, 7), append(versions, bytes.Repeat([]byte{2}, rowBytes)...)
		if err := c.Update(ctx, 0, ids, versions); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
}

// TestSetBudget_StatsStayWithin: while the budget shrinks, the cached bytes in Stats never exceed the budget in Stats.
func TestSetBudget_StatsStayWithin(t *testing.T) {
	const rows, rowBytes = 20_000, 128
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", noise(rows, rowBytes, 1), rowBytes)}, Budget: 2 << 20, Codec: "none",
		Devices: cache.DeviceOptions{Backend: "host"},
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 20 {
			if err := c.SetBudget(ctx, []int64{1 << 20, 2 << 20}[i%2]); err != nil {
				t.Error(err)
			}
			if err := c.Refresh(ctx); err != nil {
				t.Error(err)
			}
		}
	}()
	for {
		s := stats(t, c)
		if s.MetadataBytes+s.PayloadBytes > s.BudgetBytes {
			t.Fatalf("%d + %d bytes of a budget of %d", s.MetadataBytes, s.PayloadBytes, s.BudgetBytes)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// TestRestore_NotARegularFile: New neither hangs on a pipe nor reads an endless device.
func TestRestore_NotARegularFile(t *testing.T) {
	for _, path := range []string{"/dev/zero", t.TempDir()} {
		c := newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", make([]byte, 6400), 64)}, Budget: 4096, Devices: cache.DeviceOptions{Backend: "host"},
			Admission: cache.AdmissionOptions{Restore: path},
		})
		if s := stats(t, c); !strings.Contains(s.RestoreError, "must be a regular file") {
			t.Errorf("%s: %q", path, s.RestoreError)
		}
	}
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", make([]byte, 6400), 64)}, Budget: 4096, Devices: cache.DeviceOptions{Backend: "host"}})
	if err := c.Snapshot(""); err == nil || err.Error() != "cache: snapshot: path must not be empty" {
		t.Errorf("Snapshot: %v", err)
	}
}

// TestNew_EmptyTable: tables may begin without rows; those that Update inserts are served, and cached by the next cycle.
func TestNew_EmptyTable(t *testing.T) {
	const capacity, rowBytes = 1000, 64
	for _, tier := range []cache.HostTier{cache.InPlace, cache.Packed} {
		for _, codec := range []cache.Codec{"none", "auto", "ibp4"} {
			t.Run(fmt.Sprint(tier, "/", codec), func(t *testing.T) {
				c := newCache(t, cache.Options{
					Tables: []cache.Table{fromBytes(t, "x", nil, rowBytes).WithCapacity(capacity)}, Budget: 60_000, Codec: codec,
					Devices: cache.DeviceOptions{Backend: "host"}, Host: cache.HostOptions{Tier: tier}, Refresh: cache.RefreshOptions{Accesses: 1},
				})
				if n := c.Rows(0); n != 0 {
					t.Fatalf("%d rows", n)
				}
				out := make([]byte, capacity*rowBytes)
				if err := c.Gather(ctx, cache.Request{Rows: []int64{0}, Out: out[:rowBytes]}); !errors.Is(err, cache.ErrRows) {
					t.Errorf("a row of none: %v", err)
				}
				if err := errors.Join(c.Refresh(ctx), c.SetBudget(ctx, 50_000), c.SetBudget(ctx, 60_000)); err != nil {
					t.Fatal(err)
				}
				if s := stats(t, c); s.Tables[0].Rows != 0 || s.Tables[0].CachedRows != 0 {
					t.Errorf("%+v", s.Tables[0])
				}
				data, ids := noise(capacity, rowBytes, 1), make([]int64, capacity)
				for i := range ids {
					ids[i] = int64(i)
				}
				for from := 0; from < capacity; from += 100 {
					if err := c.Update(ctx, 0, ids[from:from+100], data[from*rowBytes:][:100*rowBytes]); err != nil {
						t.Fatal(err)
					}
				}
				for range 3 {
					if err := errors.Join(c.Gather(ctx, cache.Request{Rows: ids, Out: out}), c.Refresh(ctx)); err != nil {
						t.Fatal(err)
					}
					checkRows(t, data, rowBytes, ids, out)
				}
				if s := stats(t, c); s.Tables[0].Rows != capacity || s.Tables[0].CachedRows < 500 {
					t.Errorf("%d rows, %d cached", s.Tables[0].Rows, s.Tables[0].CachedRows)
				}
			})
		}
	}
	if _, err := cache.New(cache.Options{Tables: []cache.Table{fromBytes(t, "x", nil, 64)}, Budget: 60_000}); err == nil || !strings.Contains(err.Error(), "rows (0)") {
		t.Errorf("no rows and no capacity: %v", err)
	}
}
