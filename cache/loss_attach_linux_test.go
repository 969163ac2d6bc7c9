package cache_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/serve"
)

// sharer is the device that shares memory. Memory of a lost device cannot be shared.
func (d *faultyDevice) sharer() device.Sharer {
	return d.Device.(slowDevice).Device.(device.Sharer)
}

func (d *faultyDevice) AllocShared(bytes int64, what string) (device.Buffer, error) {
	if err := d.Err(); err != nil {
		return device.Buffer{}, err
	}
	b, err := d.sharer().AllocShared(bytes, what)
	if what == "slab" {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.slab = b
	}
	return b, err
}

func (d *faultyDevice) AllocSharedHost(nodes []int, bytes int64, what string) (device.Buffer, error) {
	return d.sharer().AllocSharedHost(nodes, bytes, what)
}

func (d *faultyDevice) Export(b device.Buffer) (*os.File, error) { return d.sharer().Export(b) }

func (d *faultyDevice) Import(f *os.File, bytes int64, writable bool, what string) (device.Buffer, error) {
	return d.sharer().Import(f, bytes, writable, what)
}

func (d *faultyDevice) ImportHost(f *os.File, bytes int64, writable bool, what string) (device.Buffer, error) {
	return d.sharer().ImportHost(f, bytes, writable, what)
}

// shareFaulty opens a shared cache of the model, each of whose slabs has a part of the rows, and attaches a client to it, whose devices work unless
// the second result makes them fail.
func shareFaulty(t *testing.T, n int, m *model) (owner *faulty, client *faulty, c, a *cache.Cache, s *serve.Server) {
	owner = openFaulty(t, nil)
	c = newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", m.source(), m.rowBytes)}, Budget: 16_000, Devices: cache.DeviceOptions{Count: n, Backend: "host", Placement: cache.PlacementPartition},
		Admission: cache.AdmissionOptions{Policy: &randomPolicy{}}, Refresh: cache.RefreshOptions{Accesses: 1}, Shared: true,
	})
	s, err := serve.Listen(c, serve.Options{Address: "unix:" + filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	client = &faulty{}
	cache.AttachHostWith(t, client.open)
	a, err = cache.Attach(ctx, s.Address(), cache.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return owner, client, c, a, s
}

// TestLoss_OfOwner: when the owner of a shared cache loses a device, Gathers of clients on that device return an error that names it, others go on, and
// their rows are right whatever the lost slab holds.
func TestLoss_OfOwner(t *testing.T) {
	const rows, rowBytes, n = 600, 64, 3
	m := newModel(rows, rows, rowBytes)
	f, _, c, a, s := shareFaulty(t, n, m)
	ids := make([]int64, rows)
	for i := range ids {
		ids[i] = int64(i)
	}
	for lost := range n - 1 {
		var wg sync.WaitGroup
		var stop atomic.Bool
		for i := range n {
			wg.Go(func() {
				for !stop.Load() {
					err := m.gather(func(rows []int64, out []byte) error { return a.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, ids)
					if err != nil {
						t.Error(err)
					}
					err = m.gather(func(rows []int64, out []byte) error { return a.On(i).Gather(ctx, cache.Request{Rows: rows, Out: out}) }, ids)
					if err != nil && (i > lost || !errors.Is(err, cache.ErrDevice)) {
						t.Errorf("device %d: %v", i, err)
					}
				}
			})
		}
		f.lose(lost)
		if err := c.On(lost).Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, rows*rowBytes)}); !errors.Is(err, cache.ErrDevice) {
			t.Fatal(err)
		}
		settled(t, c, lost)
		want := fmt.Sprintf("device %d: the owner has lost it: scripted to be lost", lost)
		for begun := time.Now(); ; time.Sleep(time.Millisecond) {
			err := a.On(lost).Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, rows*rowBytes)})
			if errors.Is(err, cache.ErrDevice) && strings.Contains(err.Error(), want) {
				break
			}
			if time.Since(begun) > time.Minute {
				t.Fatalf("the client gathers on the lost device: %v", err)
			}
		}
		if _, err := a.On(lost).Enqueue(ctx, 0, cache.Request{DeviceRows: device.HostBuffer(cache.AsBytes(ids)), DeviceOut: device.HostBuffer(make([]byte, rows*rowBytes))}); !errors.Is(err, cache.ErrDevice) || !strings.Contains(err.Error(), want) {
			t.Fatalf("Enqueue on the lost device: %v", err)
		}
		stop.Store(true)
		wg.Wait()
		f.spoil(lost)
		for range 5 {
			if err := m.update(a, 0, ids[:50]); err != nil {
				t.Fatal(err)
			}
			if err := a.Refresh(ctx); err != nil {
				t.Fatal(err)
			}
			for i := lost + 1; i < n; i++ {
				if err := m.gather(func(rows []int64, out []byte) error { return a.On(i).Gather(ctx, cache.Request{Rows: rows, Out: out}) }, ids); err != nil {
					t.Fatalf("device %d after losing %d: %v", i, lost, err)
				}
			}
			for range n {
				if err := m.gather(func(rows []int64, out []byte) error { return a.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, ids); err != nil {
					t.Fatal(err)
				}
			}
		}
		if s := stats(t, a); !s.Devices[lost].Lost || s.Devices[n-1].Lost {
			t.Errorf("after losing %d: %+v", lost, s.Devices)
		}
	}
	late, err := cache.Attach(ctx, s.Address(), cache.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if err := m.gather(func(rows []int64, out []byte) error { return late.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, ids); err != nil {
		t.Error(err)
	}
	if err := late.On(0).Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, rows*rowBytes)}); !errors.Is(err, cache.ErrDevice) {
		t.Error(err)
	}
}

// TestLoss_Pauses: while the owner withdraws the rows of a lost device, no batch of a client begins. They begin when it is done, and when the owner ends
// meanwhile.
func TestLoss_Pauses(t *testing.T) {
	for _, ends := range []bool{false, true} {
		t.Run(fmt.Sprintf("owner ends %v", ends), func(t *testing.T) {
			m := newModel(600, 600, 64)
			f, _, c, a, s := shareFaulty(t, 2, m)
			hold := make(chan struct{})
			f.stores.Store(&hold)
			f.lose(0)
			if err := c.On(0).Gather(ctx, cache.Request{Rows: []int64{1}, Out: make([]byte, 64)}); !errors.Is(err, cache.ErrDevice) {
				t.Fatal(err)
			}
			gather := func(wait time.Duration) error {
				short, cancel := context.WithTimeout(ctx, wait)
				defer cancel()
				return a.Gather(short, cache.Request{Rows: []int64{1}, Out: make([]byte, 64)})
			}
			for begun := time.Now(); !errors.Is(gather(20*time.Millisecond), context.DeadlineExceeded); {
				if time.Since(begun) > time.Minute {
					t.Fatal("batches of the client begin")
				}
			}
			if err := gather(100 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if ends {
				s.Close()
				if err := gather(time.Minute); err != nil {
					t.Error(err)
				}
			}
			close(hold)
			if err := gather(time.Minute); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLoss_CannotBeWithdrawnOfOwner: when the owner cannot withdraw the rows of a lost device, batches of clients return an error, and no client may attach. Nobody waits.
func TestLoss_CannotBeWithdrawnOfOwner(t *testing.T) {
	for _, before := range []bool{false, true} { // the writer has failed before the device is lost
		t.Run(fmt.Sprintf("failed before %v", before), func(t *testing.T) {
			const rows, rowBytes = 600, 64
			m := newModel(rows, rows, rowBytes)
			f, _, c, a, s := shareFaulty(t, 3, m)
			var refusing atomic.Bool
			f.refused = func(device int, kernel string) error {
				if device == 1 && kernel == "store" && refusing.Load() {
					return errScripted
				}
				return nil
			}
			limited, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			out := make([]byte, rows*rowBytes)
			all := cache.Request{Rows: allRows(rows), Out: out}
			if err := errors.Join(c.Gather(limited, all), a.Gather(limited, all)); err != nil {
				t.Fatal(err)
			}
			refusing.Store(true)
			if before {
				if err := c.Update(ctx, 0, []int64{5}, out[5*rowBytes:6*rowBytes]); !errors.Is(err, errScripted) {
					t.Fatal(err)
				}
				if err := a.Gather(limited, all); err != nil {
					t.Fatal(err)
				}
			}
			f.lose(2)
			for i := range 3 {
				if err := c.On(i).Gather(limited, all); !errors.Is(err, cache.ErrDevice) {
					t.Errorf("owner: device %d: %v", i, err)
				}
			}
			want := "rows of lost device 2 cannot be withdrawn: "
			for i := range 2 {
				for { // the owner tells it
					err := a.On(i).Gather(limited, all)
					if errors.Is(err, cache.ErrDevice) && strings.Contains(err.Error(), want) {
						break
					}
					if err != nil {
						t.Fatalf("client: device %d: %v", i, err)
					}
				}
			}
			if err := a.Gather(limited, all); !errors.Is(err, cache.ErrDevice) {
				t.Errorf("client: %v", err)
			}
			if late, err := cache.Attach(limited, s.Address(), cache.AttachOptions{}); err == nil {
				late.Close()
				t.Error("a client attaches")
			} else if !strings.Contains(err.Error(), want) {
				t.Errorf("Attach: %v", err)
			}
		})
	}
}

// TestLoss_OfClient: a device that fails in a client only is not used there any more. The owner goes on with it.
func TestLoss_OfClient(t *testing.T) {
	m := newModel(600, 600, 64)
	_, f, c, a, _ := shareFaulty(t, 2, m)
	f.lose(1)
	ids := []int64{5, 7, 9}
	for range 6 {
		for _, on := range []*cache.Cache{a, c} {
			if err := m.gather(func(rows []int64, out []byte) error { return on.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, ids); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := a.On(1).Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, 3*64)}); !errors.Is(err, cache.ErrDevice) || !strings.Contains(err.Error(), "device 1: scripted to be lost") {
		t.Error(err)
	}
	if err := c.On(1).Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, 3*64)}); err != nil {
		t.Error(err)
	}
	f.lose(0)
	if err := a.Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, 3*64)}); !errors.Is(err, cache.ErrDevice) {
		t.Errorf("Gather without devices: %v", err)
	}
}

// TestLoss_ResidentOfOwner: when the owner loses a device that has rows of a resident table, Gathers of the table fail in clients, too, in those that attach
// afterwards among them, and rows of other tables are served.
func TestLoss_ResidentOfOwner(t *testing.T) {
	const rows, rowBytes, n = 600, 64, 2
	m := newModel(rows, rows, rowBytes)
	owner := openFaulty(t, nil)
	c := newCache(t, cache.Options{
		Tables:  []cache.Table{fromBytes(t, "x", m.source(), rowBytes), fromBytes(t, "y", m.source(), rowBytes).ResidentWith(cache.ResidentOptions{Target: 32})},
		Budget:  40_000,
		Devices: cache.DeviceOptions{Count: n, Backend: "host"}, Shared: true,
	})
	s, err := serve.Listen(c, serve.Options{Address: "unix:" + filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client := &faulty{}
	cache.AttachHostWith(t, client.open)
	attach := func() *cache.Cache {
		t.Helper()
		a, err := cache.Attach(ctx, s.Address(), cache.AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.Close() })
		return a
	}
	first := attach()
	ids, out := allRows(rows), make([]byte, rows*rowBytes)
	read := func(a *cache.Cache, table int) error {
		return m.gather(func(rows []int64, out []byte) error {
			return a.Gather(ctx, cache.Request{Table: table, Rows: rows, Out: out})
		}, ids)
	}
	if err := errors.Join(read(first, 0), read(first, 1)); err != nil {
		t.Fatal(err)
	}
	owner.lose(0)
	if err := c.On(0).Gather(ctx, cache.Request{Rows: ids, Out: out}); !errors.Is(err, cache.ErrDevice) {
		t.Fatal(err)
	}
	settled(t, c, 0)
	for begun := time.Now(); first.Gather(ctx, cache.Request{Table: 1, Rows: ids, Out: out}) == nil; time.Sleep(time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatal("the client reads on")
		}
	}
	for i, a := range []*cache.Cache{first, attach()} {
		for range n {
			if err := a.Gather(ctx, cache.Request{Table: 1, Rows: ids, Out: out}); !errors.Is(err, cache.ErrDevice) || !strings.Contains(err.Error(), "device 0: the owner has lost it") {
				t.Errorf("client %d: %v", i, err)
			}
			if err := read(a, 0); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		}
	}
}
