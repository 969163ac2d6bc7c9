//go:build linux

package serve_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/wire"
	"github.com/tensorcache/tensorcache/serve"
	"github.com/tensorcache/tensorcache/slab"
)

// shared sets what a cache needs for clients to attach.
func shared(o *cache.Options) { o.Shared = true }

// attach attaches to a server from this process.
func attach(t testing.TB, s *serve.Server, o cache.AttachOptions) *cache.Cache {
	t.Helper()
	c, err := cache.Attach(ctx, s.Address(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// checkRows gathers random rows of open's table and checks them.
func checkRows(t testing.TB, c *cache.Cache, rows int, r *rand.Rand) {
	t.Helper()
	ids := make([]int64, 1+r.IntN(300))
	for i := range ids {
		ids[i] = int64(r.IntN(rows))
	}
	out := make([]byte, len(ids)*64)
	if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 64)
	for i, id := range ids {
		for k := range 8 {
			binary.LittleEndian.PutUint64(want[8*k:], uint64(id)*8+uint64(k))
		}
		if got := out[64*i:][:64]; !bytes.Equal(got, want) {
			t.Fatalf("row %d is %x, want %x", id, got, want)
		}
	}
}

// TestAttach_Gathers: every codec, layout and number of devices reads the same rows through an attached cache.
func TestAttach_Gathers(t *testing.T) {
	const rows = 5000
	for name, change := range map[string]func(*cache.Options){
		"raw":     func(o *cache.Options) {},
		"auto":    func(o *cache.Options) { o.Codec = cache.CodecAuto },
		"ibp4":    func(o *cache.Options) { o.Codec = "ibp4" },
		"packed":  func(o *cache.Options) { o.Codec, o.Host.Tier = "ibp8", cache.Packed },
		"devices": func(o *cache.Options) { o.Devices.Count = 3 },
		"eight":   func(o *cache.Options) { o.Devices.Count, o.Codec = 8, "ibp4" },
		"samples": func(o *cache.Options) { o.Refresh.Accesses, o.Refresh.Keys = 1, 1 },
		"cold":    func(o *cache.Options) { o.Admission.Cold = true },
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, rows, func(o *cache.Options) { shared(o); change(o) })
			a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{})
			if a.Rows(0) != rows || a.RowBytes(0) != 64 || a.Devices() != c.Devices() {
				t.Errorf("%d rows of %d B on %d devices", a.Rows(0), a.RowBytes(0), a.Devices())
			}
			r := rand.New(rand.NewPCG(1, 2))
			for range 50 {
				checkRows(t, a, rows, r)
			}
			if err := a.On(a.Devices()-1).Gather(ctx, cache.Request{Rows32: []int32{7}, Out: make([]byte, 64)}); err != nil {
				t.Error(err)
			}
			if err := a.Gather(ctx, cache.Request{Rows: []int64{rows}, Out: make([]byte, 64)}); !errors.Is(err, cache.ErrRows) {
				t.Error(err)
			}
		})
	}
}

// TestAttach_Stats: the owner's counters are its own and its clients', those of clients that have left included, and a client has its own beside
// the owner's.
func TestAttach_Stats(t *testing.T) {
	const rows = 1000
	c := open(t, rows, func(o *cache.Options) { shared(o); o.Devices.Count, o.Codec = 2, cache.CodecAuto })
	s := listen(t, c, serve.Options{})
	a, b := attach(t, s, cache.AttachOptions{Name: "a"}), attach(t, s, cache.AttachOptions{Name: "b"})
	gather := func(c *cache.Cache, n int) {
		t.Helper()
		ids := make([]int64, n)
		for i := range ids {
			ids[i] = int64(i)
		}
		if err := c.Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, n*64)}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		gather(c, 100)
		gather(a, 1000)
	}
	gather(b, 10)
	check := func() {
		t.Helper()
		all, err := c.Stats()
		if err != nil {
			t.Fatal(err)
		}
		one := all.Tables[0]
		misses := int64(0)
		for r := range slab.NumReasons {
			misses += one.MissesByReason[r]
		}
		lookups, gathers := int64(0), int64(0)
		for _, d := range all.Devices {
			lookups, gathers = lookups+d.Lookups, gathers+d.Gathers
		}
		if one.Lookups != 3310 || one.Gathers != 7 || one.Hits+misses != 3310 || one.Misses != misses || lookups != 3310 || gathers != 7 {
			t.Errorf("%+v, devices %d of %d Gathers", one, lookups, gathers)
		}
	}
	check()
	all, _ := c.Stats()
	if len(all.Clients) != 2 || !strings.HasPrefix(all.Clients[0].Name, "a (process ") || all.Clients[0].Lookups != 3000 || all.Clients[0].Gathers != 3 || all.Clients[1].Lookups != 10 {
		t.Errorf("%+v", all.Clients)
	}
	own, err := a.Stats()
	if err != nil || own.Tables[0].Lookups != 3000 || own.Tables[0].Gathers != 3 || own.OwnerError != "" || own.Machine == nil ||
		own.Machine.Tables[0].Lookups != 3310 || own.Tables[0].CachedRows != all.Tables[0].CachedRows || own.BudgetBytes != all.BudgetBytes || own.Devices[0].Lookups+own.Devices[1].Lookups != 3000 {
		t.Errorf("%v, %+v", err, own)
	}
	if got, want := own.Machine.Tables[0].Choice, all.Tables[0].Choice; got == nil || got.Reason != want.Reason || len(got.Candidates) != len(want.Candidates) {
		t.Errorf("%+v, want %+v", got, want)
	}
	status, err := s.Status()
	if err != nil || status.Clients != 2 || status.Lookups != 3310 || status.Attached[0].Name != "a" || status.Attached[0].Lookups != 3000 || status.Attached[1].Gathers != 1 {
		t.Errorf("%v, %+v", err, status)
	}
	a.Close()
	check()
	b.Close()
	check()
	if all, _ := c.Stats(); len(all.Clients) != 0 {
		t.Errorf("%+v", all.Clients)
	}
}

// TestAttach_Changes: changes through the owner are seen by Gathers of clients that begin afterwards, and the reverse.
func TestAttach_Changes(t *testing.T) {
	const rows = 1000
	c := open(t, rows, shared)
	a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{})
	out := make([]byte, 64)
	for i, by := range []*cache.Cache{a, c} {
		want := bytes.Repeat([]byte{byte(i + 1)}, 64)
		if err := by.Update(ctx, 0, []int64{5}, want); err != nil {
			t.Fatal(err)
		}
		for _, reader := range []*cache.Cache{a, c} {
			if err := reader.Gather(ctx, cache.Request{Rows: []int64{5}, Out: out}); err != nil || !bytes.Equal(out, want) {
				t.Errorf("%v, %x", err, out)
			}
		}
	}
	if in, err := a.Cached(0, []int64{5, 6, rows}, nil); err != nil || !in[0] || in[2] {
		t.Error(in, err)
	}
	if err := a.Invalidate(0, []int64{5}); err != nil {
		t.Error(err)
	}
	if err := a.Refresh(ctx); err != nil {
		t.Error(err)
	}
	if err := a.SetBudget(ctx, 20000); err != nil {
		t.Error(err)
	}
	if s, err := c.Stats(); err != nil || s.Changes.Cycles != 2 || s.BudgetBytes != 20000 {
		t.Errorf("%v, %+v", err, s)
	}
	all, err := a.Explain(0, []int64{5, 6})
	want, err2 := c.Explain(0, []int64{5, 6})
	if err != nil || err2 != nil || len(all) != 2 || all[0].Row != 5 || all[1].Reason != want[1].Reason || all[0].StoredBytes != want[0].StoredBytes {
		t.Errorf("%v, %v: %+v, want %+v", err, err2, all, want)
	}
	path := t.TempDir() + "/snapshot"
	if err := a.Snapshot(path); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"table":  a.Invalidate(3, []int64{1}),
		"rows":   a.Update(ctx, 0, []int64{rows}, out),
		"output": a.Update(ctx, 0, []int64{1}, out[1:]),
		"budget": a.SetBudget(ctx, 3),
	} {
		if !errors.Is(err, map[string]error{"table": cache.ErrTable, "rows": cache.ErrRows, "output": cache.ErrOutput, "budget": cache.ErrBudget}[what]) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestAttach_Samples: the owner's policy learns from what clients gather.
func TestAttach_Samples(t *testing.T) {
	c := open(t, 10_000, func(o *cache.Options) {
		shared(o)
		o.Admission.Cold, o.Refresh.Accesses, o.Refresh.MaxChurn, o.Budget = true, 1, 1, 20_000
	})
	a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{})
	ids, out := make([]int64, 50), make([]byte, 50*64)
	for i := range ids {
		ids[i] = int64(i * 100)
	}
	for range 5 {
		if err := a.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	if s, err := a.Stats(); err != nil || s.Tables[0].Hits != 0 || s.Changes.SampledAccesses != 250 {
		t.Errorf("%v, %d hits, %+v", err, s.Tables[0].Hits, s.Changes)
	}
	if err := a.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
		t.Fatal(err)
	}
	if s, err := a.Stats(); err != nil || s.Tables[0].Hits != 50 {
		t.Errorf("%v, %d hits of 50 rows that were gathered five times", err, s.Tables[0].Hits)
	}
}

// TestAttach_Lanes: a client that asks for more lanes than the owner allows is refused. One that leaves them to the default runs no more batches at a
// time than the owner allows; others wait.
func TestAttach_Lanes(t *testing.T) {
	c := open(t, 10_000, shared)
	s := listen(t, c, serve.Options{MaxLanes: 1})
	if _, err := cache.Attach(ctx, s.Address(), cache.AttachOptions{Lanes: 2}); !errors.Is(err, cache.ErrOwner) || !strings.Contains(err.Error(), "serve: lanes (2) must be 1 to 1, the owner's limit for a client") {
		t.Error(err)
	}
	attach(t, s, cache.AttachOptions{Lanes: 1}).Close()
	a := attach(t, s, cache.AttachOptions{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for range 50 {
				checkRows(t, a, 10_000, r)
			}
		})
	}
	wg.Wait()
	if s, err := c.Stats(); err != nil || s.Tables[0].Gathers != 400 || s.Clients[0].Gathers != 400 {
		t.Errorf("%v, %+v", err, s.Clients)
	}
}

// TestAttach_Scratch: a client allocates no more memory on a device than the owner allows. Batches that can be served otherwise are.
func TestAttach_Scratch(t *testing.T) {
	const rows, n, most = 10_000, 50_000, 1 << 20
	c := open(t, rows, shared)
	ids, out := make([]int64, n), make([]byte, n*64)
	for i := range ids {
		ids[i] = int64(i * 7 % rows)
	}
	for limit, within := range map[int64]bool{0: false, most: true} {
		a := attach(t, listen(t, c, serve.Options{MaxScratch: limit}), cache.AttachOptions{Threads: -1})
		for range 3 {
			clear(out)
			if err := a.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
				t.Fatal(err)
			}
			for i, id := range ids {
				if got := binary.LittleEndian.Uint64(out[64*i:]); got != uint64(id)*8 {
					t.Fatalf("row %d begins with %d", id, got)
				}
			}
		}
		if s, err := a.Stats(); err != nil || (s.ScratchBytes <= most) != within {
			t.Errorf("limit %d: %v, %d bytes of scratch", limit, err, s.ScratchBytes)
		}
	}
}

// TestAttach_ScratchAsked: a client that says how much memory it will allocate on each device is refused if that is more than the owner allows. Otherwise the
// owner knows the figure, and the client keeps to it.
func TestAttach_ScratchAsked(t *testing.T) {
	const rows, n, mib = 10_000, 50_000, 1 << 20
	c := open(t, rows, shared)
	s := listen(t, c, serve.Options{MaxScratch: 4 * mib})
	_, err := cache.Attach(ctx, s.Address(), cache.AttachOptions{Scratch: 4*mib + 1})
	if !errors.Is(err, cache.ErrOwner) || !strings.Contains(err.Error(), "serve: scratch (4194305 B a device) must be at most 4194304, the owner's limit for a client") {
		t.Error(err)
	}
	_, err = cache.Attach(ctx, s.Address(), cache.AttachOptions{Scratch: 7})
	if _, err := cache.Attach(ctx, s.Address(), cache.AttachOptions{Timeout: time.Millisecond}); !errors.Is(err, cache.ErrOptions) ||
		!strings.Contains(err.Error(), "cache: Timeout (1ms) must be 0, for 10s, or at least 100ms") {
		t.Errorf("time-out of 1 ms: %v", err)
	}
	if !errors.Is(err, cache.ErrOptions) || !strings.Contains(err.Error(), "cache: Scratch (7 B) must be 0, for what the owner allows, or at least 1048576") {
		t.Error(err)
	}
	for _, least := range []int64{-1, 7} { // what another program may send
		peer, _, err := wire.Dial(ctx, s.Address(), "other", wire.DefaultTimeout, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("serve: scratch (%d B a device) must be 0, for what the owner allows, or at least 1048576", least)
		if _, err := peer.Call(ctx, wire.Attach, wire.AttachRequest{Lanes: 1, Scratch: least}, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		peer.Close()
	}
	ids, out := make([]int64, n), make([]byte, n*64)
	for i := range ids {
		ids[i] = int64(i * 7 % rows)
	}
	free := listen(t, open(t, rows, shared), serve.Options{})
	for _, test := range []struct {
		server        *serve.Server
		asked, allows int64
	}{{s, mib, mib}, {s, 4 * mib, 4 * mib}, {s, 0, 4 * mib}, {free, mib, mib}, {free, 0, 0}} {
		a := attach(t, test.server, cache.AttachOptions{Scratch: test.asked, Threads: -1})
		if err := a.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
			t.Fatal(err)
		}
		if got, err := a.Stats(); err != nil || test.allows > 0 && got.ScratchBytes > test.allows {
			t.Errorf("%+v: %v, %d bytes of scratch", test, err, got.ScratchBytes)
		}
		status, err := test.server.Status()
		if err != nil || len(status.Attached) != 1 || status.Attached[0].MaxScratch != test.allows {
			t.Errorf("%+v: %v, %+v", test, err, status.Attached)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		until(t, "the client has left", func() bool { s, err := test.server.Status(); return err == nil && s.Clients == 0 })
	}
}

// TestAttach_Waits: a client that is started before its owner waits for it.
func TestAttach_Waits(t *testing.T) {
	c, address := open(t, 100, shared), "unix:"+filepath.Join(t.TempDir(), "s")
	if _, err := cache.Attach(ctx, address, cache.AttachOptions{Wait: 20 * time.Millisecond}); !errors.Is(err, cache.ErrOwner) {
		t.Error(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { listen(t, c, serve.Options{Address: address}) })
	a, err := cache.Attach(ctx, address, cache.AttachOptions{Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	checkRows(t, a, 100, rand.New(rand.NewPCG(1, 1)))
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// TestAttach_Forgotten: a batch of Enqueue that the client never asks about holds nothing back once it has finished.
func TestAttach_Forgotten(t *testing.T) {
	c := open(t, 10_000, func(o *cache.Options) { shared(o); o.Host.Overlay = 64 << 10 })
	a := attach(t, listen(t, c, serve.Options{StoppedAfter: 300 * time.Millisecond}), cache.AttachOptions{})
	rows, out := make([]byte, 8*10), make([]byte, 64*10)
	for range 5 {
		if _, err := a.On(0).Enqueue(ctx, 0, cache.Request{DeviceRows: device.HostBuffer(rows), DeviceOut: device.HostBuffer(out)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3000 { // more than the overlay holds
		if err := c.Update(ctx, 0, []int64{int64(i)}, out[:64]); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAttach_Refused: who is not let in learns why.
func TestAttach_Refused(t *testing.T) {
	plain := listen(t, open(t, 10, nil), serve.Options{})
	if _, err := cache.Attach(ctx, plain.Address(), cache.AttachOptions{}); !errors.Is(err, cache.ErrOwner) || !strings.Contains(err.Error(), "Options.Shared must be set") {
		t.Error(err)
	}
	s := listen(t, open(t, 10, shared), serve.Options{MaxClients: 1})
	a := attach(t, s, cache.AttachOptions{})
	if _, err := cache.Attach(ctx, s.Address(), cache.AttachOptions{}); !errors.Is(err, cache.ErrOwner) || !strings.Contains(err.Error(), "serve: clients (2) must be at most 1") {
		t.Error(err)
	}
	a.Close()
	for range 100 { // the place of a client that has left is free
		attach(t, s, cache.AttachOptions{}).Close()
	}
	if err := s.Drain(ctx); err != nil {
		t.Error(err)
	}
	if _, err := cache.Attach(ctx, s.Address(), cache.AttachOptions{}); !errors.Is(err, cache.ErrOwner) || !strings.Contains(err.Error(), "the owner is about to end") {
		t.Error(err)
	}
	for address, want := range map[string]string{
		"unix:" + t.TempDir() + "/none": "connect: no such file or directory",
		"tcp:localhost":                 `address ("tcp:localhost") must be unix:PATH`,
	} {
		if _, err := cache.Attach(ctx, address, cache.AttachOptions{}); !errors.Is(err, cache.ErrOwner) || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
	if _, err := cache.Attach(ctx, s.Address(), cache.AttachOptions{Lanes: -1}); !errors.Is(err, cache.ErrOptions) {
		t.Error(err)
	}
}
