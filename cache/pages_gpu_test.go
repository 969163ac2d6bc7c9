package cache_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// onGPU has tests of tables of pages use a GPU.
func onGPU(t *testing.T) {
	t.Helper()
	gputest.Require(t)
	pagesBackend = cache.BackendCUDA
	t.Cleanup(func() { pagesBackend = cache.BackendHost })
}

// TestGPU_FromPages runs tests of tables of pages on a GPU.
func TestGPU_FromPages(t *testing.T) {
	onGPU(t)
	for _, one := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"ServesAllRows", TestFromPages_ServesAllRows}, {"AllFits", TestFromPages_AllFits}, {"PageFails", TestFromPages_PageFails},
		{"SlowPage", TestFromPages_SlowPage}, {"CloseWhileReading", TestFromPages_CloseWhileReading}, {"CloseUnderReaders", TestFromPages_CloseUnderReaders}, {"Prefetch", TestFromPages_Prefetch},
		{"PrefetchUnderWay", TestFromPages_PrefetchUnderWay}, {"Updates", TestFromPages_Updates}, {"ManyBatches", TestFromPages_ManyBatches},
		{"Pooled", TestFromPages_Pooled}, {"HoldsWhatBothHold", TestExclusive_HoldsWhatBothHold},
		{"OtherTablesBeside", TestFromPages_OtherTablesBeside}, {"UpdatesSurvive", TestOpen_UpdatesOfPagesSurvive},
		{"EvictedRowGoesBack", TestExclusive_EvictedRowGoesBack}, {"KilledWhileUpdating", TestOpen_KilledWhileUpdating},
		{"DamagedPage", TestOpen_DamagedPage}, {"NoPageLeft", TestOpen_NoPageLeft},
	} {
		t.Run(one.name, one.test)
	}
}

// TestGPU_FromPages_ManyRounds: batches whose absent rows pass in up to 16 rounds, with their misses read in the order of addresses.
func TestGPU_FromPages_ManyRounds(t *testing.T) {
	onGPU(t)
	pagesGPU = gputest.Open(t)
	defer func() { pagesGPU = nil }()
	defer cache.ServeInRounds(1 << 10)()
	t.Run("rows", TestFromPages_ServesAllRows)
	t.Run("page fails", TestFromPages_PageFails)
	t.Run("goroutines", TestFromPages_ManyBatches)
}

// TestGPU_FromPages_DriverReturnsLate: absent rows are read before the calls of the driver that enqueue their batch have returned. A call that frees memory
// for another batch can hold these up until the GPU is idle, which waits for the rows.
func TestGPU_FromPages_DriverReturnsLate(t *testing.T) {
	c, data, gpu, _ := deviceCache(t, &faults{}, cache.Options{Host: cache.HostOptions{ColdTimeout: time.Minute}})
	pagesGPU = gpu
	defer func() { pagesGPU = nil }()
	defer cache.EnqueueLate()()
	check(t, c, data, allOf(pagedRows))
	if s := stats(t, c); s.Tables[0].Tiers.AbsentRows == 0 {
		t.Error("no row was absent")
	}
}

// deviceCache returns a cache of pages on a GPU, its rows, and a stream of the GPU.
func deviceCache(t *testing.T, f *faults, o cache.Options) (*cache.Cache, []byte, device.Device, device.Stream) {
	t.Helper()
	onGPU(t)
	gpu := gputest.Open(t)
	s, err := gpu.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	data := versionedRows(pagedRows, pagedRowBytes)
	table, err := cache.FromPages(packed(t, data, pagedRowBytes, "ibp4", f.page))
	if err != nil {
		t.Fatal(err)
	}
	o.Tables, o.Devices.Backend = []cache.Table{table.WithLog(t.TempDir(), false)}, cache.BackendCUDA
	o.Budget, o.Host.Memory = 100<<10, 500<<10
	return newCache(t, o), data, gpu, s
}

// held makes reads of pages wait until free is called, or the context ends. arrived gets a value for each.
func (f *faults) held() (arrived chan struct{}, free func()) {
	arrived = make(chan struct{}, 1000)
	gate := make(chan struct{})
	f.set(func(ctx context.Context, _ uint32) error {
		arrived <- struct{}{}
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return arrived, sync.OnceFunc(func() { close(gate) })
}

// TestGPU_FromPages_StreamOrder: Enqueue returns while its rows are not read yet, and what is enqueued behind it finds them, also when the caller's
// context has ended meanwhile.
func TestGPU_FromPages_StreamOrder(t *testing.T) {
	var f faults
	c, data, gpu, s := deviceCache(t, &f, cache.Options{Host: cache.HostOptions{ColdTimeout: 2 * time.Minute}})
	const batches, n = 3, 2000
	r := rand.New(rand.NewPCG(7, 7))
	arrived, free := f.held()
	defer free()
	var rows [batches][]int64
	var outs [batches][]byte
	for i := range batches {
		rows[i] = append(randomRows(r, n, pagedRows), pagedRows-1)
		b := putBatch(t, gpu, rows[i], pagedRowBytes)
		if err := s.Fill(b.out, 0xee); err != nil {
			t.Fatal(err)
		}
		within, cancel := context.WithCancel(ctx)
		batch, err := c.On(0).Enqueue(within, streamHandle(s), cache.Request{DeviceRows: b.rows, DeviceOut: b.out})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if done, err := batch.Done(); done || err != nil {
			t.Fatalf("batch %d has ended, %v", i, err)
		}
		received, err := gpu.AllocHost(b.out.Size(), "test")
		if err != nil {
			t.Fatal(err)
		}
		defer gpu.Free(received)
		if err := s.Copy(received, b.out); err != nil {
			t.Fatal(err)
		}
		outs[i] = received.Bytes()
	}
	<-arrived
	free()
	if err := s.Synchronize(); err != nil {
		t.Fatal(err)
	}
	for i := range batches {
		if !equalRows(data, pagedRowBytes, rows[i], outs[i]) {
			t.Errorf("batch %d: rows differ", i)
		}
	}
}

// TestGPU_FromPages_DeviceBatchFails: of a batch in device memory whose pages do not come, rows that are not on pages are right, the others are zeros,
// Wait's error says why, and a later batch is right.
func TestGPU_FromPages_DeviceBatchFails(t *testing.T) {
	var f faults
	c, data, gpu, s := deviceCache(t, &f, cache.Options{Host: cache.HostOptions{ColdTimeout: time.Second}})
	all := allOf(pagedRows)
	b := putBatch(t, gpu, all, pagedRowBytes)
	gather := func() error {
		t.Helper()
		if err := s.Fill(b.out, 0xee); err != nil {
			t.Fatal(err)
		}
		batch, err := c.On(0).Enqueue(ctx, streamHandle(s), cache.Request{DeviceRows: b.rows, DeviceOut: b.out})
		if err != nil {
			t.Fatal(err)
		}
		return batch.Wait()
	}
	_, free := f.held()
	defer free()
	err := gather()
	if !errors.Is(err, cache.ErrCold) || !strings.Contains(err.Error(), "no answer within 1s") || !strings.Contains(err.Error(), "page") {
		t.Errorf("error %v", err)
	}
	right, zeros := 0, 0
	for row, out := 0, b.read(t); row < pagedRows; row++ {
		switch got := out[row*pagedRowBytes:][:pagedRowBytes]; {
		case bytes.Equal(got, data[row*pagedRowBytes:][:pagedRowBytes]):
			right++
		case bytes.Equal(got, make([]byte, pagedRowBytes)):
			zeros++
		default:
			t.Fatalf("row %d is %x", row, got)
		}
	}
	if right == 0 || zeros == 0 {
		t.Errorf("%d rows are right, %d are zeros", right, zeros)
	}
	if err := c.Update(ctx, 0, []int64{3}, data[3*pagedRowBytes:][:pagedRowBytes]); err != nil {
		t.Error(err)
	}
	free()
	f.set(nil)
	for begun := time.Now(); err != nil; { // a busy machine may take longer than a second
		if err = gather(); err != nil && time.Since(begun) > time.Minute {
			t.Fatalf("later batches: %v", err)
		}
	}
	if !equalRows(data, pagedRowBytes, all, b.read(t)) {
		t.Error("a later batch is wrong")
	}
}

// TestGPU_FromPages_ChangesDoNotWait: once a batch has read slabs and host tier, changes do not wait for the pages that it waits for.
func TestGPU_FromPages_ChangesDoNotWait(t *testing.T) {
	var f faults
	c, data, gpu, s := deviceCache(t, &f, cache.Options{Host: cache.HostOptions{ColdTimeout: 2 * time.Minute, Overlay: 1}})
	b := putBatch(t, gpu, []int64{pagedRows - 1}, pagedRowBytes)
	arrived, free := f.held()
	defer free()
	batch, err := c.On(0).Enqueue(ctx, streamHandle(s), cache.Request{DeviceRows: b.rows, DeviceOut: b.out})
	if err != nil {
		t.Fatal(err)
	}
	<-arrived
	begun := time.Now()
	for row := range 5 { // the overlay has room for one row, which leaves it when batches have ended that may read it
		if err := c.Update(ctx, 0, []int64{int64(row)}, data[row*pagedRowBytes:][:pagedRowBytes]); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("updates took %v", took)
	}
	free()
	if err := batch.Wait(); err != nil || !equalRows(data, pagedRowBytes, []int64{pagedRows - 1}, b.read(t)) {
		t.Errorf("the batch: %v", err)
	}
}

// TestGPU_FromPages_CloseBesideBatch: Close ends the reading for a batch on a stream, whose error says so.
func TestGPU_FromPages_CloseBesideBatch(t *testing.T) {
	var f faults
	c, _, gpu, s := deviceCache(t, &f, cache.Options{Host: cache.HostOptions{ColdTimeout: time.Hour}})
	b := putBatch(t, gpu, []int64{pagedRows - 1}, pagedRowBytes)
	arrived, free := f.held()
	defer free()
	batch, err := c.On(0).Enqueue(ctx, streamHandle(s), cache.Request{DeviceRows: b.rows, DeviceOut: b.out})
	if err != nil {
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
	if err := batch.Wait(); !errors.Is(err, cache.ErrClosed) {
		t.Errorf("the batch under way: %v", err)
	}
}
