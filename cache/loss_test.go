package cache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/slab"
)

// settled waits until the cache has withdrawn the slabs of lost devices.
func settled(t *testing.T, c *cache.Cache, lost ...int) cache.Stats {
	t.Helper()
	out := make([]byte, c.RowBytes(0))
	if err := c.Gather(ctx, cache.Request{Rows: []int64{0}, Out: out}); err != nil { // waits for that
		t.Fatal(err)
	}
	s := stats(t, c)
	for _, i := range lost {
		if d := s.Devices[i]; !d.Lost || !strings.Contains(d.Error, "scripted to be lost") || d.PayloadBytes != 0 || d.BudgetBytes < 0 {
			t.Fatalf("device %d: %+v", i, d)
		}
	}
	return s
}

// TestLoss_OthersServeOn loses devices one by one. The others return right rows whatever the lost slabs hold, rows are admitted to the
// remaining slabs, and updates work. Only the loss of the last device ends that.
func TestLoss_OthersServeOn(t *testing.T) {
	const rows, rowBytes = 600, 64
	for _, n := range []int{2, 3, 8} {
		for _, placement := range []cache.PlacementMode{cache.PlacementPartition, cache.PlacementReplicate} {
			t.Run(fmt.Sprintf("%d devices/%s", n, placement), func(t *testing.T) {
				f := openFaulty(t, nil)
				m := newModel(rows, rows, rowBytes)
				c := newCache(t, cache.Options{
					Tables: []cache.Table{fromBytes(t, "x", m.source(), rowBytes)}, Budget: 16_000, Devices: cache.DeviceOptions{Count: n, Backend: "host", Placement: placement},
					Admission: cache.AdmissionOptions{Policy: &randomPolicy{}},
				})
				ids := make([]int64, rows)
				for i := range ids {
					ids[i] = int64(i)
				}
				before := stats(t, c)
				if n > 1 && (before.Placement.CopiedRows > 0) != (placement == cache.PlacementReplicate) {
					t.Fatalf("%d rows are copied", before.Placement.CopiedRows)
				}
				for lost := range n - 1 {
					if err := m.update(c, 0, []int64{5, 7, 9, int64(20 + lost)}); err != nil { // on their way when the device is lost
						t.Fatal(err)
					}
					f.lose(lost)
					if err := c.On(lost).Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, rows*rowBytes)}); !errors.Is(err, cache.ErrDevice) || !strings.Contains(err.Error(), fmt.Sprintf("device %d: scripted", lost)) {
						t.Fatalf("Gather on the lost device: %v", err)
					}
					if _, err := c.On(lost).Enqueue(ctx, 0, cache.Request{DeviceRows: device.HostBuffer(cache.AsBytes(ids)), DeviceOut: device.HostBuffer(make([]byte, rows*rowBytes))}); !errors.Is(err, cache.ErrDevice) {
						t.Fatalf("Enqueue on the lost device: %v", err)
					}
					s := settled(t, c, lost)
					if s.ChangeError != "" {
						t.Fatal(s.ChangeError)
					}
					f.spoil(lost)
					for i := lost + 1; i < n; i++ {
						if err := m.gather(func(rows []int64, out []byte) error { return c.On(i).Gather(ctx, cache.Request{Rows: rows, Out: out}) }, ids); err != nil {
							t.Fatalf("device %d after losing %d: %v", i, lost, err)
						}
					}
					for range 2 * n { // none is sent to the lost one
						if err := m.gather(func(rows []int64, out []byte) error {
							return c.GatherAsync(ctx, cache.Request{Rows: rows, Out: out}).Wait()
						}, ids); err != nil {
							t.Fatal(err)
						}
					}
					if err := m.update(c, 0, ids[:50]); err != nil {
						t.Fatal(err)
					}
					for range 3 {
						if err := c.Refresh(ctx); err != nil {
							t.Fatal(err)
						}
					}
					if err := m.gather(func(rows []int64, out []byte) error { return c.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, ids); err != nil {
						t.Fatal(err)
					}
				}
				s := settled(t, c)
				left := s.Devices[n-1]
				if s.PayloadBytes != left.PayloadBytes || left.PayloadBytes < 4*left.FreeBytes || s.BudgetBytes != left.BudgetBytes {
					t.Errorf("the last slab holds %d bytes and has %d free; all hold %d; budgets %d, %d", left.PayloadBytes, left.FreeBytes, s.PayloadBytes, left.BudgetBytes, s.BudgetBytes)
				}
				if placement == cache.PlacementPartition && s.Placement.LostRows == 0 {
					t.Error("no row was lost with its slab")
				}
				f.lose(n - 1)
				if err := c.Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, rows*rowBytes)}); !errors.Is(err, cache.ErrDevice) {
					t.Errorf("Gather without devices: %v", err)
				}
				if _, err := c.Stats(); !errors.Is(err, cache.ErrDevice) {
					t.Errorf("Stats without devices: %v", err)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestLoss_BesideClose: Close returns although a device is lost meanwhile.
func TestLoss_BesideClose(t *testing.T) {
	const rows, rowBytes = 300, 64
	for round := range 40 {
		f := openFaulty(t, nil)
		m := newModel(rows, rows, rowBytes)
		c := newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", m.source(), rowBytes)}, Budget: 10_000, Devices: cache.DeviceOptions{Count: []int{2, 8}[round%2], Backend: "host"}, Host: cache.HostOptions{Overlay: 1},
			Admission: cache.AdmissionOptions{Policy: &randomPolicy{}}, Refresh: cache.RefreshOptions{Interval: time.Millisecond},
		})
		var wg sync.WaitGroup
		var stop atomic.Bool
		for g := range 4 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), uint64(round)))
				for !stop.Load() {
					ids := []int64{r.Int64N(rows)}
					var err error
					if g == 0 {
						err = m.update(c, 0, ids)
					} else {
						err = m.gather(func(rows []int64, out []byte) error { return c.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, ids)
					}
					if errors.Is(err, cache.ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(round) * 50 * time.Microsecond)
		f.lose(0)
		time.Sleep(time.Duration(round%7) * 50 * time.Microsecond)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		stop.Store(true)
		wg.Wait()
	}
}

// TestLoss_OverlayInLostSlab: where the overlay is the front of the first device's slab and that device is lost, a batch that had begun before does not
// look for an updated row there, which the row never reached.
func TestLoss_OverlayInLostSlab(t *testing.T) {
	const rows, rowBytes = 300, 64
	f := openFaulty(t, nil)
	m := newModel(rows, rows, rowBytes)
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", m.source(), rowBytes)}, Budget: 10_000, Devices: cache.DeviceOptions{Count: slab.MaxSlabs, Backend: "host"}, Host: cache.HostOptions{Overlay: 1 << 12},
	})
	hold := make(chan struct{})
	f.serves.Store(&hold)
	gathered, updated := make(chan error), make(chan error)
	go func() {
		gathered <- m.gather(func(rows []int64, out []byte) error { return c.On(1).Gather(ctx, cache.Request{Rows: rows, Out: out}) }, []int64{7})
	}()
	<-hold // the batch has begun
	f.serves.Store(nil)
	f.lose(0)
	go func() { updated <- m.update(c, 0, []int64{7}) }()
	select {
	case err := <-updated:
		t.Errorf("an update in the overlay was published (%v) while a batch read by the lost slab", err)
		go func() { updated <- nil }()
	case <-time.After(20 * time.Millisecond):
	}
	close(hold)
	if err := <-gathered; err != nil {
		t.Error(err)
	}
	if err := <-updated; err != nil {
		t.Error(err)
	}
	if err := m.gather(func(rows []int64, out []byte) error { return c.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, []int64{7}); err != nil {
		t.Error(err)
	}
}

// TestLoss_BesideUpdates: an updated row is not published in a slab that is lost before the row has left the overlay.
func TestLoss_BesideUpdates(t *testing.T) {
	const rows, rowBytes, devices = 4000, 64, 3
	for round := range gputest.Few(20, 9) {
		f := openFaulty(t, nil)
		m := newModel(rows, rows, rowBytes)
		c := newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", m.source(), rowBytes)}, Budget: 80_000, Devices: cache.DeviceOptions{Count: devices, Backend: "host"},
			Host: cache.HostOptions{Overlay: 1 << 20}, Admission: cache.AdmissionOptions{Policy: &randomPolicy{}},
		})
		var wg sync.WaitGroup
		var stop atomic.Bool
		for g := range 2 {
			wg.Go(func() {
				for from := int64(0); !stop.Load(); from = (from + 250) % rows {
					var ids []int64
					for id := from + int64(g); id < from+250; id += 2 {
						ids = append(ids, id)
					}
					if err := m.update(c, 0, ids); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		lost := round % devices
		all := make([]int64, rows)
		for i := range all {
			all[i] = int64(i)
		}
		time.Sleep(time.Duration(1+round%5) * 300 * time.Microsecond)
		f.lose(lost)
		for range 4 {
			for i := range devices {
				if i != lost {
					if err := m.gather(func(rows []int64, out []byte) error { return c.On(i).Gather(ctx, cache.Request{Rows: rows, Out: out}) }, all); err != nil {
						t.Error(err)
					}
				}
			}
		}
		stop.Store(true)
		wg.Wait()
		if s := settled(t, c, lost); s.ChangeError != "" {
			t.Fatal(s.ChangeError)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLoss_CannotBeWithdrawn: when the rows of a lost device cannot be taken out of the maps of the others, no batch may find them: all return an error.
func TestLoss_CannotBeWithdrawn(t *testing.T) {
	const rows, rowBytes = 600, 64
	for _, before := range []bool{false, true} { // the writer has failed before the device is lost
		f := openFaulty(t, nil)
		var refusing atomic.Bool
		f.refused = func(device int, kernel string) error {
			if device == 1 && kernel == "store" && refusing.Load() {
				return errScripted
			}
			return nil
		}
		data := noise(rows, rowBytes, 1)
		c := newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Codec: "none", Budget: 30_000, Devices: cache.DeviceOptions{Count: 3, Backend: "host"},
		})
		refusing.Store(true)
		if before {
			if err := c.Update(ctx, 0, []int64{5}, data[5*rowBytes:6*rowBytes]); !errors.Is(err, errScripted) {
				t.Fatal(err)
			}
			gatherAll(t, c, data)
		}
		f.lose(2)
		f.spoil(2)
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		out := make([]byte, rows*rowBytes)
		for i := range 3 {
			err := c.On(i%2).Gather(limited, cache.Request{Rows: allRows(rows), Out: out})
			if !errors.Is(err, cache.ErrDevice) || !strings.Contains(err.Error(), "device 2") {
				t.Errorf("writer failed before: %v: %v", before, err)
			}
		}
		cancel()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A device is lost while SetBudget takes memory of it, and a batch notices first. The others grow.
func TestLoss_WhileBudgetGrows(t *testing.T) {
	const rows, rowBytes, devices = 600, 64, 3
	f := openFaulty(t, nil)
	data := noise(rows, rowBytes, 1)
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Codec: "none", Budget: 10_000, Devices: cache.DeviceOptions{Count: devices, Backend: "host"},
	})
	f.allocating = func(device int, what string) {
		if device != 1 || what != "slab" {
			return
		}
		f.allocating = nil
		f.lose(1)
		if err := c.On(1).Gather(ctx, cache.Request{Rows: []int64{1}, Out: make([]byte, rowBytes)}); !errors.Is(err, cache.ErrDevice) {
			t.Errorf("a batch on the lost device: %v", err)
		}
	}
	const budget = 40_000
	if err := c.SetBudget(ctx, budget); err != nil {
		t.Fatal(err)
	}
	if f.allocating != nil {
		t.Fatal("the budget did not grow")
	}
	gatherAll(t, c, data)
	for i, d := range stats(t, c).Devices {
		if d.Lost != (i == 1) || !d.Lost && d.BudgetBytes != budget {
			t.Errorf("device %d: %+v", i, d)
		}
	}
}
