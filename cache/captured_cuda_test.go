//go:build cuda && linux

package cache_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/device/cuda/emulator"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// captured is a batch in a graph of its own.
type captured struct {
	*deviceBatch
	stream *cuda.Stream
	graph  *cuda.Graph
	batch  *cache.Batch
}

// captureBatch captures a Gather of some rows, in CUDA's strictest mode.
func captureBatch(t testing.TB, c *cache.Cache, gpu device.Device, rows []int64, rowBytes int) *captured {
	t.Helper()
	s, err := gpu.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	b := &captured{deviceBatch: putBatch(t, gpu, rows, rowBytes), stream: s.(*cuda.Stream)}
	if b.graph, err = b.stream.Capture(true, func() (err error) {
		b.batch, err = c.On(0).Enqueue(ctx, b.stream.Handle(), cache.Request{DeviceRows: b.rows, DeviceOut: b.out})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.graph.Close)
	return b
}

// replay runs the graph for other row numbers and returns the output.
func (b *captured) replay(t testing.TB, rows []int64) []byte {
	t.Helper()
	out := make([]byte, b.out.Size())
	if err := errors.Join(
		device.Upload(b.d, b.rows, cache.AsBytes(rows)), b.stream.Fill(b.out, 0xee), b.graph.Launch(b.stream), b.stream.Synchronize(), device.Download(b.d, out, b.out),
	); err != nil {
		t.Error(err)
	}
	return out
}

// TestGPU_CapturedReplays: each replay returns the rows of the numbers that are there then, and counts hits and misses.
func TestGPU_CapturedReplays(t *testing.T) {
	gpu := gputest.Open(t)
	for _, tier := range []cache.HostTier{cache.InPlace, cache.Packed} {
		for _, codec := range []cache.Codec{"none", "ibp4", "ibp8"} {
			t.Run(fmt.Sprint(tier, "/", codec), func(t *testing.T) {
				const rows, rowBytes, n, times = 3000, 256, 700, 4
				data := normalTable(rows, rowBytes/4, 1)
				c := newCache(t, cache.Options{
					Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: int64(len(data) / 3), Codec: codec, Host: cache.HostOptions{Tier: tier},
					Devices: cache.DeviceOptions{Backend: "cuda"},
				})
				r := rand.New(rand.NewPCG(1, 1))
				b := captureBatch(t, c, gpu, make([]int64, n), rowBytes)
				if s := stats(t, c).Tables[0]; s.Gathers != 0 || s.Lookups != 0 {
					t.Errorf("%d Gathers, %d lookups before a replay", s.Gathers, s.Lookups)
				}
				for range times {
					ids := zipf(r, rows, n)
					checkRows(t, data, rowBytes, ids, b.replay(t, ids))
				}
				if err := b.batch.Wait(); err != nil {
					t.Fatal(err)
				}
				s := stats(t, c)
				if one := s.Tables[0]; one.Gathers != times || one.Lookups != times*n || one.Hits == 0 || one.Misses == 0 || one.HostBytesMoved == 0 {
					t.Errorf("%+v", one)
				}
				if one := s.Devices[0]; one.Gathers != times || one.Lookups != times*n {
					t.Errorf("%+v", one)
				}
				bad := zipf(r, rows, n)
				bad[5], bad[7] = rows, -1
				out := b.replay(t, bad)
				if err := b.batch.Wait(); !errors.Is(err, cache.ErrRows) || !strings.Contains(err.Error(), "2 of 700 are not 0 to 2999 of table x, the first at position 5") {
					t.Errorf("Wait: %v", err)
				}
				if !bytes.Equal(out[5*rowBytes:][:rowBytes], make([]byte, rowBytes)) {
					t.Error("the row of a number out of range is not zeroed")
				}
				if err := b.batch.Wait(); err != nil {
					t.Errorf("second Wait: %v", err)
				}
				if done, err := b.batch.Done(); !done || err != nil {
					t.Errorf("Done: %v, %v", done, err)
				}
			})
		}
	}
}

// TestGPU_CapturedScratch: a captured batch's memory is given back by Release, and when its graph is destroyed.
func TestGPU_CapturedScratch(t *testing.T) {
	gpu := gputest.Open(t)
	data := gputest.Rows("mixed", 3000, 512, 1)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, 512)}, Budget: 1 << 20, Codec: "ibp4", Devices: cache.DeviceOptions{Backend: "cuda"}})
	ids := []int64{1, 2, 3}
	before := stats(t, c).ScratchBytes
	first := captureBatch(t, c, gpu, ids, 512)
	free, one := freeMemory(t, gpu), stats(t, c).ScratchBytes
	if one <= before || one > before+8192 {
		t.Errorf("%d bytes of scratch with a captured batch, %d before", one, before)
	}
	for range 20 {
		b := captureBatch(t, c, gpu, ids, 512)
		checkRows(t, data, 512, ids, b.replay(t, ids))
		b.batch.Release()
		b.batch.Release()
		if err := b.batch.Wait(); err != nil {
			t.Error(err)
		}
	}
	if now := stats(t, c).ScratchBytes; now != one {
		t.Errorf("%d bytes of scratch after releases, want %d", now, one)
	}
	for range 20 {
		b := captureBatch(t, c, gpu, ids, 512)
		checkRows(t, data, 512, ids, b.replay(t, ids))
		b.graph.Close()
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // the driver says so some time later
		now := stats(t, c).ScratchBytes
		if now == one {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d bytes of scratch after graphs were destroyed, want %d", now, one)
		}
	}
	checkRows(t, data, 512, ids, first.replay(t, ids))
	if now := freeMemory(t, gpu); emulator.Present() && free-now > 1<<20 { // other processes may use a GPU's
		t.Errorf("%d bytes lost", free-now)
	}
	first.batch.Release()
	if now := stats(t, c); now.ScratchBytes != before || now.Tables[0].Gathers != 41 {
		t.Errorf("%d bytes of scratch at the end, want %d; %d Gathers", now.ScratchBytes, before, now.Tables[0].Gathers)
	}
}

// TestGPU_CaptureGoesOn: what cannot be captured is refused, and the capture is as good as before. Calls of the cache by other threads do not
// break it either.
func TestGPU_CaptureGoesOn(t *testing.T) {
	gpu := gputest.Open(t)
	long, short := gputest.Rows("mixed", 50, 9000, 1), gputest.Rows("mixed", 600, 128, 1)
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", short, 128), fromBytes(t, "long", long, 9000)}, Budget: 50_000, Codec: "ibp4", Devices: cache.DeviceOptions{Backend: "cuda"},
		Refresh: cache.RefreshOptions{Accesses: 1},
	})
	s, err := gpu.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stream, ids := s.(*cuda.Stream), []int64{1, 2, 3}
	good, bad, other := putBatch(t, gpu, ids, 128), putBatch(t, gpu, ids, 9000), putBatch(t, gpu, ids, 128)
	untouched := other.read(t)
	graph, err := stream.Capture(true, func() error {
		if _, err := c.On(0).Enqueue(ctx, stream.Handle(), cache.Request{Table: 1, DeviceRows: bad.rows, DeviceOut: bad.out}); !errors.Is(err, cache.ErrCapturing) || !strings.Contains(err.Error(), "row length (9000) must be below 8192") {
			t.Errorf("rows of 9000 bytes: %v", err)
		}
		if _, err := c.On(0).Enqueue(ctx, stream.Handle(), cache.Request{DeviceRows: good.rows, DeviceOut: bad.out}); !errors.Is(err, cache.ErrOutput) {
			t.Errorf("an output of the wrong size: %v", err)
		}
		if _, err := c.On(0).Enqueue(ctx, stream.Handle(), cache.Request{DeviceRows: other.rows, DeviceOut: other.out}, cache.Request{Table: 1, DeviceRows: bad.rows, DeviceOut: bad.out}); !errors.Is(err, cache.ErrCapturing) || !strings.HasPrefix(err.Error(), "batch 1: ") {
			t.Errorf("rows of 9000 bytes behind others: %v", err)
		}
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				out := make([]byte, 200*128)
				err := errors.Join(c.Gather(ctx, cache.Request{Rows: zipf(rand.New(rand.NewPCG(1, uint64(i))), 600, 200), Out: out}), c.Update(ctx, 0, ids, short[128:4*128]), c.Refresh(ctx))
				if _, e := c.Stats(); err != nil || e != nil {
					t.Error(err, e)
				}
				if err := c.SetBudget(ctx, int64(40_000+20_000*i)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		_, err := c.On(0).Enqueue(ctx, stream.Handle(), cache.Request{DeviceRows: good.rows, DeviceOut: good.out})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer graph.Close()
	if err := errors.Join(graph.Launch(stream), stream.Synchronize()); err != nil {
		t.Fatal(err)
	}
	checkRows(t, short, 128, ids, good.read(t))
	if !bytes.Equal(other.read(t), untouched) {
		t.Error("the first request of a call that was refused is in the graph")
	}
	b, err := c.On(0).Enqueue(ctx, stream.Handle(), cache.Request{DeviceRows: good.rows, DeviceOut: good.out})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestGPU_CaptureBesideInsertion captures while a row is inserted: replays return the row once Update has.
func TestGPU_CaptureBesideInsertion(t *testing.T) {
	gpu := gputest.Open(t)
	const rows, rowBytes = 100, 64
	rounds := gputest.Few(1000, 300)
	data := noise(rows+rounds, rowBytes, 1)
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", data[:rows*rowBytes], rowBytes).WithCapacity(rows + int64(rounds))}, Budget: 50_000, Codec: "none",
		Devices: cache.DeviceOptions{Backend: "cuda"},
	})
	s, err := gpu.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stream, batch := s.(*cuda.Stream), putBatch(t, gpu, []int64{0}, rowBytes)
	for id := int64(rows); id < int64(rows+rounds); id++ {
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := c.Update(ctx, 0, []int64{id}, data[id*rowBytes:][:rowBytes]); err != nil {
				t.Error(err)
			}
		})
		var captured *cache.Batch
		graph, err := stream.Capture(true, func() (err error) {
			captured, err = c.On(0).Enqueue(ctx, stream.Handle(), cache.Request{DeviceRows: batch.rows, DeviceOut: batch.out})
			return err
		})
		wg.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(device.Upload(gpu, batch.rows, cache.AsBytes([]int64{id})), graph.Launch(stream), captured.Wait(), stream.Synchronize()); err != nil {
			t.Fatal(err)
		}
		checkRows(t, data, rowBytes, []int64{id}, batch.read(t))
		captured.Release()
		graph.Close()
	}
}

// TestGPU_CapturedWhileClosing destroys graphs, and releases batches, while the cache is being closed.
func TestGPU_CapturedWhileClosing(t *testing.T) {
	gpu := gputest.Open(t)
	data := gputest.Rows("mixed", 600, 128, 1)
	ids := make([]int64, 300)
	for range gputest.Few(10, 3) {
		before := freeMemory(t, gpu)
		c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, 128)}, Budget: 40_000, Codec: "ibp4", Devices: cache.DeviceOptions{Backend: "cuda"}})
		var wg sync.WaitGroup
		for i := range 6 {
			b := captureBatch(t, c, gpu, ids, 128)
			if err := b.graph.Launch(b.stream); err != nil { // runs when Close begins
				t.Fatal(err)
			}
			wg.Go(func() {
				switch i % 3 {
				case 0:
					b.graph.Close()
				case 1:
					b.batch.Release()
				case 2:
					if err := b.batch.Wait(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if after := freeMemory(t, gpu); emulator.Present() && before-after > 6*(300*136+1024) { // the test's own batches
			t.Errorf("%d bytes lost", before-after)
		}
	}
}

// versions is a table whose rows say which version of them they are.
type versions struct {
	rowBytes     int
	begun, ended []atomic.Uint32 // by row: versions that Update was called with, and has returned from
}

// row is a version of a row: long or short when it is compressed, so that slots and places change.
func (v *versions) row(id int64, version uint32) []byte {
	b := make([]byte, v.rowBytes)
	r := rand.New(rand.NewPCG(uint64(id), uint64(version)))
	for i := 0; i+4 <= len(b); i += 4 {
		word := uint32(id)<<8 | version
		if version%3 == 2 && i >= 8 {
			word = r.Uint32()
		}
		binary.LittleEndian.PutUint32(b[i:], word)
	}
	return b
}

// check reports an error unless a row is one of the versions from to through, as it must be.
func (v *versions) check(id int64, row []byte, from, through uint32) error {
	word := binary.LittleEndian.Uint32(row)
	version := word & 0xff
	if word>>8 != uint32(id) || version < from || version > through || !bytes.Equal(row, v.row(id, version)) {
		return fmt.Errorf("row %d is not one of its versions %d to %d: %x", id, from, through, row[:16])
	}
	return nil
}

// TestGPU_CapturedBesideChanges replays several graphs on several streams while rows are updated and inserted, cycles run, and the budget
// changes: each row is a version that it had while the replay ran.
func TestGPU_CapturedBesideChanges(t *testing.T) {
	gpu := gputest.Open(t)
	for _, tier := range []cache.HostTier{cache.InPlace, cache.Packed}[gputest.Few(0, 1):] {
		t.Run(fmt.Sprint(tier), func(t *testing.T) { testCapturedBesideChanges(t, gpu, tier, 40_000, "") })
	}
	t.Run("resident", func(t *testing.T) { testCapturedBesideChanges(t, gpu, cache.InPlace, 400_000, "resident") })
	t.Run("pages", func(t *testing.T) { testCapturedBesideChanges(t, gpu, cache.InPlace, 40_000, "pages") })
	t.Run("pages, many rounds", func(t *testing.T) {
		defer cache.ServeInRounds(1 << 10)()
		testCapturedBesideChanges(t, gpu, cache.InPlace, 40_000, "pages")
	})
}

// testCapturedBesideChanges has a table that is resident, or one of pages, which does not grow.
func testCapturedBesideChanges(t *testing.T, gpu device.Device, tier cache.HostTier, budget int64, kind string) {
	resident, paged := kind == "resident", kind == "pages"
	const first, rowBytes = 800, 128
	capacity, graphs := int64(1000), 4
	if paged {
		capacity, graphs = first, 8
	}
	v := &versions{rowBytes: rowBytes, begun: make([]atomic.Uint32, capacity), ended: make([]atomic.Uint32, capacity)}
	var data []byte
	for id := range int64(first) {
		data = append(data, v.row(id, 0)...)
	}
	x, codec := fromBytes(t, "x", data, rowBytes).WithCapacity(capacity), cache.Codec("ibp4")
	host := cache.HostOptions{Tier: tier}
	if paged {
		var err error
		if x, err = cache.FromPages(packed(t, data, rowBytes, "ibp4", nil)); err != nil {
			t.Fatal(err)
		}
		x, codec, host = x.WithLog(t.TempDir(), false), "", cache.HostOptions{Memory: 40_000, Overlay: 10_000}
	}
	if resident {
		x = x.ResidentWith(cache.ResidentOptions{Target: 64, MaxTarget: rowBytes})
	}
	c := newCache(t, cache.Options{
		Tables: []cache.Table{x}, Budget: budget, Codec: codec, Host: host, Devices: cache.DeviceOptions{Backend: "cuda"},
		Refresh: cache.RefreshOptions{Accesses: 1, MaxChurn: 1},
	})
	end := make(chan struct{})
	var others, replays sync.WaitGroup
	stop := sync.OnceFunc(func() { close(end); others.Wait() })
	defer stop()
	defer replays.Wait()
	beside := func(f func(r *rand.Rand) error) {
		seed := rand.Uint64()
		others.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			for {
				select {
				case <-end:
					return
				default:
				}
				if err := f(r); err != nil {
					t.Error(err)
					return
				}
				runtime.Gosched()
			}
		})
	}
	length := int64(first)
	beside(func(r *rand.Rand) error {
		ids := []int64{}
		for range 1 + r.IntN(20) {
			if id := r.Int64N(length); !slices.Contains(ids, id) && v.begun[id].Load() < 200 {
				ids = append(ids, id)
			}
		}
		if length < capacity && r.IntN(3) == 0 {
			ids = append(ids, length)
			length++
		}
		var rows []byte
		for _, id := range ids {
			rows = append(rows, v.row(id, v.begun[id].Add(1))...)
		}
		err := c.Update(ctx, 0, ids, rows)
		for _, id := range ids {
			v.ended[id].Store(v.begun[id].Load())
		}
		return err
	})
	beside(func(r *rand.Rand) error {
		ids := zipf(r, first, 300)
		if paged {
			if err := c.Prefetch(0, ids[:50]); err != nil {
				return err
			}
		}
		return errors.Join(c.Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, len(ids)*rowBytes)}), c.Refresh(ctx))
	})
	beside(func(r *rand.Rand) error {
		time.Sleep(10 * time.Millisecond)
		if resident {
			return c.Retarget(ctx, 0, 16*(1+r.IntN(rowBytes/16)))
		}
		if r.IntN(2) == 0 && budget < 400_000 { // larger than all before it: slabs and maps move
			budget += 20_000
			return c.SetBudget(ctx, budget)
		}
		return c.SetBudget(ctx, 20_000+r.Int64N(budget-20_000))
	})
	for g := range graphs {
		n := []int{1, 33, 300, 1000}[g%4]
		b := captureBatch(t, c, gpu, make([]int64, n), rowBytes)
		replays.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 7))
			for round := range gputest.Few(400, 60) {
				ids, from := make([]int64, n), make([]uint32, n)
				for i := range ids {
					ids[i] = r.Int64N(capacity)
					from[i] = v.ended[ids[i]].Load()
				}
				exists := make([]bool, n)
				for i, id := range ids {
					exists[i] = id < first || from[i] > 0
				}
				out := b.replay(t, ids)
				for i, id := range ids {
					row := out[i*rowBytes:][:rowBytes]
					if !exists[i] && bytes.Equal(row, make([]byte, rowBytes)) {
						continue // out of range when the replay looked
					}
					if err := v.check(id, row, from[i], v.begun[id].Load()); err != nil {
						t.Errorf("graph %d, replay %d: %v", g, round, err)
						return
					}
				}
			}
		})
	}
	replays.Wait()
	stop()
	s := settle(t, c)
	if s.ChangeError != "" {
		t.Error(s.ChangeError)
	}
	if paged && s.Tables[0].Tiers.AbsentRows == 0 {
		t.Error("no row was absent")
	}
	t.Logf("%d Gathers, %d hits, %d misses, changes %+v", s.Tables[0].Gathers, s.Tables[0].Hits, s.Tables[0].Misses, s.Changes)
}

// TestGPU_ReadsBesideCaptures: a captured batch costs other reads no call of the driver, and what was wrong with a replay is known without waiting.
func TestGPU_ReadsBesideCaptures(t *testing.T) {
	gpu := gputest.Open(t)
	defer cache.LookForReplays(time.Hour)()
	const rows, rowBytes, reads = 3000, 256, 50
	data := normalTable(rows, rowBytes/4, 1)
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: int64(len(data) / 3), Codec: "ibp4", Devices: cache.DeviceOptions{Backend: "cuda"},
	})
	ids := []int64{1, 2, 3, 4}
	b := putBatch(t, gpu, ids, rowBytes)
	// calls are those of the driver for some reads, each with a Check before it, as Python makes them.
	calls := func() uint64 {
		t.Helper()
		before := emulator.Calls()
		for range reads {
			if err := c.Check(false); err != nil {
				t.Fatal(err)
			}
			batch, err := c.On(0).Enqueue(ctx, 0, cache.Request{DeviceRows: b.rows, DeviceOut: b.out})
			if err == nil {
				err = batch.Wait()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return emulator.Calls() - before
	}
	calls()
	without := calls()
	graph := captureBatch(t, c, gpu, ids, rowBytes)
	checkRows(t, data, rowBytes, ids, graph.replay(t, ids))
	if err := c.Check(false); err != nil { // looks for replays: no other call does, for an hour
		t.Fatal(err)
	}
	cache.AwaitLooks(c)
	if with := calls(); with != without {
		t.Errorf("%d reads make %d calls of the driver with a captured batch, %d without", reads, with, without)
	}
	checkRows(t, data, rowBytes, ids, b.read(t))
}

// TestGPU_CheckOfReplays: Check without waiting returns what was wrong with a replay, soon after it has ended.
func TestGPU_CheckOfReplays(t *testing.T) {
	gpu := gputest.Open(t)
	data := normalTable(1000, 64, 1)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, 256)}, Budget: 1 << 16, Devices: cache.DeviceOptions{Backend: "cuda"}})
	graph := captureBatch(t, c, gpu, []int64{1, 2, 3, 4}, 256)
	graph.replay(t, []int64{1, 1000, -1, 4})
	var err error
	for until := time.Now().Add(time.Minute); err == nil && time.Now().Before(until); time.Sleep(time.Millisecond) {
		err = c.Check(false)
	}
	if !errors.Is(err, cache.ErrRows) || !strings.Contains(err.Error(), "2 of 4 are not 0 to 999 of table x") {
		t.Errorf("Check after a replay with row numbers out of range: %v", err)
	}
}

// TestGPU_CapturedStrided: rows of replays lie apart, and what lies between them stays as it is: of tables of every kind. Release gives back the memory that they pass through.
func TestGPU_CapturedStrided(t *testing.T) {
	onGPU(t)
	gpu := gputest.Open(t)
	const rowBytes, n, stride = pagedRowBytes, 700, pagedRowBytes + 24
	data := versionedRows(pagedRows, rowBytes)
	for kind, c := range map[string]*cache.Cache{
		"cached":   newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: 300 << 10, Devices: cache.DeviceOptions{Backend: "cuda"}}),
		"resident": openResident(t, data, rowBytes, "none", cache.ResidentOptions{Target: rowBytes &^ 15}, 1, func(o *cache.Options) { onCUDA(o) }),
		"pages":    overPages(t, packed(t, data, rowBytes, "ibp4", nil), cache.Options{Budget: 300 << 10, Host: cache.HostOptions{Memory: 800 << 10}}),
	} {
		t.Run(kind, func(t *testing.T) {
			before := stats(t, c).ScratchBytes
			b := &captured{deviceBatch: putBatch(t, gpu, make([]int64, n), 0)}
			s, err := gpu.NewStream()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			b.stream = s.(*cuda.Stream)
			if b.out, err = gpu.Alloc((n-1)*stride+rowBytes, "test"); err != nil {
				t.Fatal(err)
			}
			if b.graph, err = b.stream.Capture(true, func() (err error) {
				b.batch, err = c.On(0).Enqueue(ctx, b.stream.Handle(), cache.Request{DeviceRows: b.rows, DeviceOut: b.out, Stride: stride})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer b.graph.Close()
			r := rand.New(rand.NewPCG(1, 1))
			out := make([]byte, b.out.Size())
			for range 3 {
				ids := randomRows(r, n, pagedRows)
				fill(out)
				if err := errors.Join(
					device.Upload(gpu, b.rows, cache.AsBytes(ids)), device.Upload(gpu, b.out, out), b.graph.Launch(b.stream), b.stream.Synchronize(), device.Download(gpu, out, b.out),
				); err != nil {
					t.Fatal(err)
				}
				checkStrided(t, data, rowBytes, stride, ids, out)
			}
			if err := b.batch.Wait(); err != nil {
				t.Fatal(err)
			}
			if held := stats(t, c).ScratchBytes - before; held < n*rowBytes {
				t.Errorf("the batch holds %d bytes, less than its rows", held)
			}
			b.batch.Release()
			if held := stats(t, c).ScratchBytes - before; held != 0 {
				t.Errorf("%d bytes are held after Release", held)
			}
		})
	}
}
