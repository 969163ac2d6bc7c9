//go:build cuda && linux

package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// capturedPages returns a cache of pages on a GPU, its rows, and a captured batch of n of them.
func capturedPages(t *testing.T, f *faults, n int, host cache.HostOptions) (*cache.Cache, []byte, *captured) {
	t.Helper()
	c, data, gpu, _ := deviceCache(t, f, cache.Options{Host: host})
	return c, data, captureBatch(t, c, gpu, make([]int64, n), pagedRowBytes)
}

// rowsOf returns those of n rows that lie on a tier, and how many rows do not.
func rowsOf(t *testing.T, c *cache.Cache, n int, tier string) (rows []int64, others int) {
	t.Helper()
	all, err := c.Explain(0, allOf(n))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if one.Tier == tier {
			rows = append(rows, one.Row)
		} else {
			others++
		}
	}
	return rows, others
}

// TestGPU_CapturedPages: replays return the rows of the numbers that are there then, also those that neither slab nor host tier has, in one round and in
// many, and count them.
func TestGPU_CapturedPages(t *testing.T) {
	for _, one := range []struct {
		name       string
		n          int
		roundBytes int64
	}{{"one round", 700, 0}, {"many rounds", 700, 1 << 10}, {"one row", 1, 0}, {"all rows", pagedRows, 0}} {
		t.Run(one.name, func(t *testing.T) {
			if one.roundBytes != 0 {
				defer cache.ServeInRounds(one.roundBytes)()
			}
			var f faults
			c, data, b := capturedPages(t, &f, one.n, cache.HostOptions{})
			here, below := rowsOf(t, c, pagedRows, "host")
			absent := int64(0)
			replay := func(rows []int64) int64 {
				t.Helper()
				out := b.replay(t, rows)
				if err := b.batch.Wait(); err != nil {
					t.Fatal(err)
				}
				if !equalRows(data, pagedRowBytes, rows, out) {
					t.Fatal("rows differ")
				}
				before := absent
				absent = stats(t, c).Tables[0].Tiers.AbsentRows
				return absent - before
			}
			if len(here) == 0 || below == 0 {
				t.Fatalf("%d rows in the host tier, %d elsewhere", len(here), below)
			}
			of := func(rows []int64) []int64 {
				many := make([]int64, one.n)
				for i := range many {
					many[i] = rows[i%len(rows)]
				}
				return many
			}
			if n := replay(of(here)); n != 0 {
				t.Errorf("%d absent rows among those of the host tier", n)
			}
			if n := replay(of([]int64{pagedRows - 1})); n != int64(one.n) {
				t.Errorf("%d absent rows of %d", n, one.n)
			}
			r := rand.New(rand.NewPCG(uint64(one.n), 1))
			for range 4 {
				replay(randomRows(r, one.n, pagedRows))
			}
			s := stats(t, c).Tables[0]
			if s.Gathers != 6 || s.Lookups != 6*int64(one.n) || s.Misses < absent {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestGPU_CapturedPages_Pooled: replays of pooled batches add up rows of all tiers, in the documented order, and say what was wrong with theirs.
func TestGPU_CapturedPages_Pooled(t *testing.T) {
	onGPU(t)
	gpu := gputest.Open(t)
	const rows, columns, rowBytes = 20_000, 30, 120
	data := floatTable(rows, columns, dtype.Float32, false, 9)
	for _, p := range []pooling{
		{Pooling: cache.Pooling{Bag: 10, Mode: cache.PoolMean}}, {Pooling: cache.Pooling{Offsets: []int64{0, 5, 5, 300, 1500}}, Output: dtype.BFloat16}, {Pooling: cache.Pooling{Bag: 1}, Output: dtype.Float16},
		{Pooling: cache.Pooling{Bag: 75, Mode: cache.PoolMax, Padding: true, PaddingRow: 3}},
	} {
		t.Run(fmt.Sprintf("%d/%d", p.Bag, len(p.Offsets)), func(t *testing.T) {
			var fault faults
			c := overPages(t, packedAs(t, data, rowBytes, dtype.Float32, "ibp4", fault.page), cache.Options{Budget: 100 << 10, Host: cache.HostOptions{Memory: 400 << 10}})
			const n = 3000
			size, _ := pooledOut(&p, dtype.Float32, columns, n)
			numbers, buffer := upload(t, gpu, make([]int64, n)), upload(t, gpu, make([]byte, size))
			s, err := gpu.NewStream()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			stream := s.(*cuda.Stream)
			q := onDevice(t, gpu, p, true)
			var batch *cache.Batch
			graph, err := stream.Capture(true, func() (err error) {
				batch, err = c.On(0).Enqueue(ctx, stream.Handle(), q.device(0, numbers, buffer))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(graph.Close)
			replay := func(ids []int64) ([]byte, error) {
				t.Helper()
				out := make([]byte, size)
				if err := errors.Join(device.Upload(gpu, numbers, cache.AsBytes(ids)), stream.Fill(buffer, 0xee), graph.Launch(stream), stream.Synchronize(), device.Download(gpu, out, buffer)); err != nil {
					t.Fatal(err)
				}
				return out, batch.Wait()
			}
			r := rand.New(rand.NewPCG(8, 8))
			for i := range 4 {
				ids := randomRows(r, n, rows)
				if i%2 == 0 {
					ids = zipf(r, rows, n)
				}
				before := stats(t, c).Tables[0]
				out, err := replay(ids)
				if err != nil {
					t.Fatal(err)
				}
				checkPooled(t, data, dtype.Float32, columns, ids, &p, out, fmt.Sprint("replay ", i))
				after := stats(t, c).Tables[0]
				if after.Lookups-before.Lookups != n || i%2 == 1 && after.Tiers.AbsentRows == before.Tiers.AbsentRows {
					t.Errorf("replay %d: %+v, then %+v", i, before, after)
				}
			}
			fault.set(func(context.Context, uint32) error { return errors.New("gone") })
			if _, err := replay(randomRows(r, n, rows)); !errors.Is(err, cache.ErrCold) || !strings.Contains(err.Error(), "gone") {
				t.Errorf("rows that cannot be read: %v", err)
			}
			fault.set(nil)
			ids := randomRows(r, n, rows)
			ids[7] = rows
			if _, err := replay(ids); !errors.Is(err, cache.ErrRows) || !strings.Contains(err.Error(), "position 7") {
				t.Errorf("a row number out of range: %v", err)
			}
			ids[7] = 7
			if out, err := replay(ids); err != nil {
				t.Error(err)
			} else {
				checkPooled(t, data, dtype.Float32, columns, ids, &p, out, "after errors")
			}
		})
	}
}

// TestGPU_CapturedPages_NoRows: bags without rows of a table of pages become zeros.
func TestGPU_CapturedPages_NoRows(t *testing.T) {
	onGPU(t)
	gpu := gputest.Open(t)
	const columns = 30
	c := overPages(t, packedAs(t, floatTable(20_000, columns, dtype.Float32, false, 9), columns*4, dtype.Float32, "ibp4", nil), cache.Options{
		Budget: 100 << 10, Host: cache.HostOptions{Memory: 400 << 10},
	})
	s, err := gpu.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	stream := s.(*cuda.Stream)
	buffer, q := upload(t, gpu, bytes.Repeat([]byte{0xee}, 3*columns*4)), onDevice(t, gpu, pooling{Pooling: cache.Pooling{Offsets: []int64{0, 0, 0}}}, true)
	var batch *cache.Batch
	graph, err := stream.Capture(true, func() (err error) {
		batch, err = c.On(0).Enqueue(ctx, stream.Handle(), q.device(0, device.Buffer{}, buffer))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(graph.Close)
	out := make([]byte, buffer.Size())
	if err := errors.Join(graph.Launch(stream), stream.Synchronize(), batch.Wait(), device.Download(gpu, out, buffer)); err != nil {
		t.Fatal(err)
	}
	if len(bytes.Trim(out, "\x00")) != 0 {
		t.Errorf("bags without rows are %x", out)
	}
}

// TestGPU_CapturedPages_Prefetch: rows that were prefetched before a replay are in the host tier then, and count as used.
func TestGPU_CapturedPages_Prefetch(t *testing.T) {
	var f faults
	c, data, b := capturedPages(t, &f, 200, cache.HostOptions{})
	rows := allOf(pagedRows)[pagedRows-200:]
	if err := c.Prefetch(0, rows); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if here, _ := rowsOf(t, c, pagedRows, "host"); len(here) >= 200 && here[len(here)-200] == rows[0] {
			break
		}
		if time.Now().After(end) {
			t.Fatal("prefetched rows do not arrive")
		}
	}
	out := b.replay(t, rows)
	if err := b.batch.Wait(); err != nil || !equalRows(data, pagedRowBytes, rows, out) {
		t.Fatalf("rows differ, %v", err)
	}
	if s := stats(t, c).Tables[0].Tiers; s.AbsentRows != 0 || s.PrefetchedRows != 200 {
		t.Errorf("%+v", s)
	}
	// Until they have left the ring. What is read while it is behind does not go there, so that it may take more than once.
	for end := time.Now().Add(time.Minute); ; {
		for from := 5_000; from < 15_000; from += 250 {
			check(t, c, data, allOf(pagedRows)[from:from+250])
		}
		if left, _ := rowsOf(t, c, pagedRows, "host"); len(left) == 0 || left[len(left)-1] < rows[0] {
			break
		}
		if time.Now().After(end) {
			t.Fatal("prefetched rows have not left the ring")
		}
	}
	if s := stats(t, c).Tables[0].Tiers; s.UnusedRows != 0 {
		t.Errorf("%d rows count as unused that a replay has read", s.UnusedRows)
	}
}

// TestGPU_CapturedPages_Fails: of a replay whose pages do not come, rows that are not on pages are right, the others are zeros, Wait's error says why, and
// a later replay is right.
func TestGPU_CapturedPages_Fails(t *testing.T) {
	for why, patience := range map[string]time.Duration{"a failing page": time.Minute, "no answer within 1s": time.Second} {
		t.Run(why, func(t *testing.T) {
			var f faults
			_, data, b := capturedPages(t, &f, pagedRows, cache.HostOptions{ColdTimeout: patience})
			rows := allOf(pagedRows)
			free := func() {}
			if why == "a failing page" {
				f.set(func(context.Context, uint32) error { return errors.New(why) })
			} else {
				_, free = f.held()
			}
			defer free()
			out := b.replay(t, rows)
			err := b.batch.Wait()
			if !errors.Is(err, cache.ErrCold) || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "page") {
				t.Errorf("error %v", err)
			}
			zeros := 0
			for row := range rows {
				switch got := out[row*pagedRowBytes:][:pagedRowBytes]; {
				case bytes.Equal(got, data[row*pagedRowBytes:][:pagedRowBytes]):
				case bytes.Equal(got, make([]byte, pagedRowBytes)):
					zeros++
				default:
					t.Fatalf("row %d is %x", row, got)
				}
			}
			if want := fmt.Sprintf("%d of %d rows", zeros, pagedRows); zeros == 0 || !strings.Contains(err.Error(), want) {
				t.Errorf("%d rows are zeros: %v", zeros, err)
			}
			free()
			f.set(nil)
			for begun := time.Now(); ; { // a busy machine may take longer than a second
				out := b.replay(t, rows)
				if err := b.batch.Wait(); err == nil {
					if !equalRows(data, pagedRowBytes, rows, out) {
						t.Error("a later replay is wrong")
					}
					break
				} else if time.Since(begun) > time.Minute {
					t.Fatalf("later replays: %v", err)
				}
			}
		})
	}
}

// TestGPU_CapturedPages_ChangesDoNotWait: changes, and batches that are not captured, do not wait for the pages that a replay waits for.
func TestGPU_CapturedPages_ChangesDoNotWait(t *testing.T) {
	var f faults
	c, data, b := capturedPages(t, &f, 1, cache.HostOptions{ColdTimeout: 2 * time.Minute, Overlay: 1})
	arrived, free := f.held()
	defer free()
	last := []int64{pagedRows - 1}
	if err := errors.Join(device.Upload(b.d, b.rows, cache.AsBytes(last)), b.graph.Launch(b.stream)); err != nil {
		t.Fatal(err)
	}
	<-arrived
	begun := time.Now()
	for row := range 5 { // the overlay has room for one row, which leaves it when batches have ended that may read it
		if err := c.Update(ctx, 0, []int64{int64(row)}, data[row*pagedRowBytes:][:pagedRowBytes]); err != nil {
			t.Fatal(err)
		}
	}
	check(t, c, data, []int64{0, 1, 2})
	if done, err := b.batch.Done(); done || err != nil {
		t.Errorf("the replay has ended, %v", err)
	}
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("updates took %v", took)
	}
	free()
	if err := b.batch.Wait(); err != nil || !equalRows(data, pagedRowBytes, last, b.read(t)) {
		t.Errorf("the replay: %v", err)
	}
}

// TestGPU_CapturedPages_Close: Close ends the reading for a replay that runs, whose error says so.
func TestGPU_CapturedPages_Close(t *testing.T) {
	var f faults
	c, _, b := capturedPages(t, &f, 1, cache.HostOptions{ColdTimeout: time.Hour})
	arrived, free := f.held()
	defer free()
	if err := errors.Join(device.Upload(b.d, b.rows, cache.AsBytes([]int64{pagedRows - 1})), b.stream.Fill(b.out, 0xee), b.graph.Launch(b.stream)); err != nil {
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
	if err := b.batch.Wait(); !errors.Is(err, cache.ErrClosed) {
		t.Errorf("the replay: %v", err)
	}
	if out := b.read(t); !bytes.Equal(out, make([]byte, pagedRowBytes)) {
		t.Errorf("the row is %x", out)
	}
}

// TestGPU_CapturedPages_Released: what captured batches have is given back by Release, beside replays of others that read pages.
func TestGPU_CapturedPages_Released(t *testing.T) {
	var f faults
	c, data, gpu, _ := deviceCache(t, &f, cache.Options{})
	before := stats(t, c)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 9))
			for range gputest.Few(10, 3) {
				b := captureBatch(t, c, gpu, make([]int64, 100), pagedRowBytes)
				for range 3 {
					rows := randomRows(r, 100, pagedRows)
					out := b.replay(t, rows)
					if err := b.batch.Wait(); err != nil || !equalRows(data, pagedRowBytes, rows, out) {
						t.Errorf("rows differ: %v", err)
					}
				}
				b.batch.Release()
			}
		})
	}
	wg.Wait()
	if s := stats(t, c); s.ScratchBytes != before.ScratchBytes || s.StagingBytes != before.StagingBytes || s.Tables[0].Tiers.AbsentRows == 0 {
		t.Errorf("%d bytes of scratch, %d of staging, before %d and %d", s.ScratchBytes, s.StagingBytes, before.ScratchBytes, before.StagingBytes)
	}
}
