//go:build linux

package serve_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/statjson"
	"github.com/tensorcache/tensorcache/serve"
)

const (
	lifeRows  = 20000
	lifeBatch = 50000
)

func init() {
	// gather ADDRESS: gathers batches of lifeBatch rows of open's table, and checks a row of each, until the test ends.
	roles["gather"] = func(p *parent, args []string) error {
		c, err := cache.Attach(context.Background(), args[0], cache.AttachOptions{Name: "gatherer"})
		if err != nil {
			return err
		}
		r := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
		ids, out := make([]int64, lifeBatch), make([]byte, lifeBatch*64)
		for i := range ids {
			ids[i] = r.Int64N(lifeRows)
		}
		p.say("attached")
		for {
			if err := c.Gather(context.Background(), cache.Request{Rows: ids, Out: out}); err != nil {
				return err
			}
			if i := r.IntN(len(ids)); out[64*i] != byte(ids[i]*8) && out[64*i] != updated {
				return fmt.Errorf("row %d is %x", ids[i], out[64*i:][:64])
			}
		}
	}
	// own ADDRESS BACKEND: owns a cache of open's table until it is killed, or told to end.
	roles["own"] = func(p *parent, args []string) error {
		values := make([]int64, lifeRows*8)
		for i := range values {
			values[i] = int64(i)
		}
		table, err := cache.FromSlice("rows", values, 8)
		if err != nil {
			return err
		}
		if len(args) > 2 {
			table = table.ResidentWith(cache.ResidentOptions{Target: 16})
		}
		return p.own(args[0], cache.Options{
			Tables: []cache.Table{table}, Budget: lifeRows * 32, Codec: "ibp8", Devices: cache.DeviceOptions{Backend: cache.Backend(args[1])}, Shared: true,
		})
	}
}

// updated is the first byte of rows that tests update.
const updated = 0xee

// footprint is what this process holds: open descriptors, mappings of shared memory (boards among them) and pages of it, goroutines, and bytes of the
// Go heap.
type footprint struct {
	Open, Mapped, SharedBytes, Goroutines, HeapBytes int
}

func footprintNow(t testing.TB) (f footprint) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if _, of, ok := strings.Cut(string(status), "RssShmem:"); ok {
		fmt.Sscan(of, &f.SharedBytes)
	}
	runtime.GC()
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	f.Open, f.Mapped, f.Goroutines, f.HeapBytes = len(all), strings.Count(string(maps), "memfd:tensorcache"), runtime.NumGoroutine(), int(heap.HeapAlloc)
	f.SharedBytes *= 1 << 10
	return f
}

// notGrown fails the test unless this process soon holds no more than before, but for so many bytes of shared memory and of the heap.
func notGrown(t testing.TB, before footprint, bytes int) {
	t.Helper()
	var now footprint
	defer func() {
		if t.Failed() {
			t.Errorf("before %+v, now %+v", before, now)
		}
	}()
	until(t, "nothing is left behind", func() bool {
		now = footprintNow(t)
		return now.Open <= before.Open && now.Mapped <= before.Mapped && now.Goroutines <= before.Goroutines &&
			now.HeapBytes <= before.HeapBytes+bytes && now.SharedBytes <= before.SharedBytes+bytes
	})
}

// updateMany updates more rows than an overlay of 64 KiB holds, so that an epoch that a client holds back holds it back.
func updateMany(ctx context.Context, c *cache.Cache) error {
	const batch = 100 // one row at a time takes minutes where processes take turns on a GPU
	rows, data := make([]int64, batch), bytes.Repeat([]byte{updated}, batch*64)
	for first := range 30 {
		for i := range rows {
			rows[i] = int64(first*batch + i)
		}
		if err := c.Update(ctx, 0, rows, data); err != nil {
			return err
		}
	}
	return nil
}

// killClients kills clients in the middle of their batches, and checks that nothing of them is left but exact counters.
func killClients(t *testing.T, times int, role string, change func(*cache.Options)) {
	c := open(t, lifeRows, func(o *cache.Options) { shared(o); o.Host.Overlay = 64 << 10; change(o) })
	s := listen(t, c, serve.Options{StoppedAfter: time.Minute})
	var before footprint
	gathers := int64(0)
	for n := range times {
		child := start(t, role, s.Address())
		child.expect("attached")
		until(t, "the client has gathered", func() bool {
			all, err := c.Stats()
			return err == nil && len(all.Clients) == 1 && all.Clients[0].Gathers > 0
		})
		time.Sleep(time.Duration(n%7) * 300 * time.Microsecond)
		child.kill()
		if err := updateMany(ctx, c); err != nil {
			t.Fatal(err)
		}
		until(t, "the client is gone", func() bool { all, err := c.Stats(); return err == nil && len(all.Clients) == 0 })
		all, err := c.Stats()
		if err != nil {
			t.Fatal(err)
		}
		one := all.Tables[0]
		if one.Lookups != one.Gathers*lifeBatch || one.Gathers <= gathers {
			t.Fatalf("%d lookups in %d Gathers of %d rows; %d before", one.Lookups, one.Gathers, lifeBatch, gathers)
		}
		gathers = one.Gathers
		if n == 0 { // what the first client makes the owner allocate is kept
			before = footprintNow(t)
		}
	}
	notGrown(t, before, 1<<20)
}

func TestClient_KilledInBatch(t *testing.T) { killClients(t, 20, "gather", func(*cache.Options) {}) }

// gathered returns the Gathers that a cache's only client has counted.
func gathered(t testing.TB, c *cache.Cache) int64 {
	t.Helper()
	all, err := c.Stats()
	if err != nil || len(all.Clients) != 1 {
		t.Fatalf("%v, %+v", err, all.Clients)
	}
	return all.Clients[0].Gathers
}

// TestClient_Stopped: a stopped client holds back changes, which fail after a while with its name, until it goes on.
func TestClient_Stopped(t *testing.T) {
	c := open(t, lifeRows, func(o *cache.Options) { shared(o); o.Host.Overlay = 64 << 10 })
	listen(t, c, serve.Options{StoppedAfter: time.Hour}).Close()
	s := listen(t, c, serve.Options{StoppedAfter: 300 * time.Millisecond}) // the last server's option counts
	child := start(t, "gather", s.Address())
	child.expect("attached")
	row := make([]byte, 64)
	row[0] = updated
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var err error
	for range 20 { // the client may be stopped between two batches
		child.signal(syscall.SIGSTOP)
		begun := time.Now()
		if err = updateMany(ctx, c); err != nil {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatal("changes waited")
		}
		before := gathered(t, c)
		child.signal(syscall.SIGCONT)
		until(t, "the client goes on", func() bool { return gathered(t, c) > before })
	}
	name := fmt.Sprintf("gatherer (process %d)", child.cmd.Process.Pid)
	if !errors.Is(err, cache.ErrHeld) || !strings.Contains(err.Error(), name) {
		t.Fatal(err)
	}
	if all, err := c.Stats(); err != nil || len(all.Clients) != 1 || all.Clients[0].Name != name || all.Clients[0].HoldsFor < 300*time.Millisecond {
		t.Errorf("%v, %+v", err, all.Clients)
	}
	// An update in several requests says how many of all its rows are updated.
	const many = 70_000
	ids := make([]int64, many)
	for i := range ids {
		ids[i] = int64(i) % lifeRows
	}
	a := attach(t, s, cache.AttachOptions{Name: "updater"})
	err = a.Update(ctx, 0, ids, bytes.Repeat(row, many))
	if want := regexp.MustCompile(`^cache: Update of table rows: \d+ of 70000 rows are updated: cache: a client holds back changes: gatherer`); !errors.Is(err, cache.ErrHeld) || !want.MatchString(err.Error()) {
		t.Errorf("%v, want %v", err, want)
	}
	if err := c.Gather(ctx, cache.Request{Rows: []int64{9000}, Out: row}); err != nil {
		t.Error(err)
	}
	listen(t, c, serve.Options{StoppedAfter: time.Hour}) // on a busy machine a batch may take longer than 300 ms without being stopped
	child.signal(syscall.SIGCONT)
	until(t, "changes go on", func() bool { return updateMany(ctx, c) == nil })
}

// TestClient_Evicted: with EvictStopped, a client that holds back changes is killed, and they go on.
func TestClient_Evicted(t *testing.T) {
	c := open(t, lifeRows, func(o *cache.Options) { shared(o); o.Host.Overlay = 64 << 10 })
	s := listen(t, c, serve.Options{StoppedAfter: 300 * time.Millisecond, EvictStopped: true})
	child := start(t, "gather", s.Address())
	child.expect("attached")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		child.cmd.Wait()
	}()
	row := make([]byte, 64)
	row[0] = updated
	for n := 0; ; n++ {
		child.cmd.Process.Signal(syscall.SIGSTOP)
		for i := range 3000 {
			c.Update(ctx, 0, []int64{int64(i)}, row) // until it is killed, updates fail
		}
		select {
		case <-ended:
			until(t, "changes go on", func() bool { return c.Update(ctx, 0, []int64{1}, row) == nil })
			if all, err := c.Stats(); err != nil || len(all.Clients) != 0 {
				t.Errorf("%v, %+v", err, all.Clients)
			}
			return
		case <-time.After(50 * time.Millisecond):
		}
		if n == 50 {
			t.Fatal("the client was not killed")
		}
		child.cmd.Process.Signal(syscall.SIGCONT)
		time.Sleep(5 * time.Millisecond)
	}
}

// TestOwner_Killed: when the owner is killed, clients go on reading, say so, and refuse changes; they attach by themselves when an owner is back.
func TestOwner_Killed(t *testing.T) { killOwner(t, "host") }

func killOwner(t *testing.T, own ...string) {
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	owner := start(t, append([]string{"own", address}, own...)...)
	owner.expect("ready")
	c, err := cache.Attach(ctx, address, cache.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	opened := footprintNow(t).Open
	row := make([]byte, 64)
	for i := range row {
		row[i] = updated
	}
	r := rand.New(rand.NewPCG(1, 1))
	for round := range 3 {
		if err := c.Update(ctx, 0, []int64{7}, row); err != nil {
			t.Fatal(err)
		}
		owner.kill()
		got := make([]byte, 64)
		if err := c.Gather(ctx, cache.Request{Rows: []int64{7}, Out: got}); err != nil || string(got) != string(row) {
			t.Fatalf("%v, %x", err, got)
		}
		for range 20 {
			ids := []int64{8 + r.Int64N(lifeRows-8)}
			if err := c.Gather(ctx, cache.Request{Rows: ids, Out: got}); err != nil || got[0] != byte(ids[0]*8) {
				t.Fatalf("%v, row %d is %x", err, ids[0], got)
			}
		}
		until(t, "the client knows", func() bool { s, err := c.Stats(); return err == nil && s.OwnerError != "" })
		s, err := c.Stats()
		if err != nil || s.Tables[0].Lookups != int64(round+1)*21+int64(round) || s.BudgetBytes != lifeRows*32 || !strings.Contains(s.OwnerError, "no owner: "+address) {
			t.Errorf("%v, %+v", err, s)
		}
		for what, err := range map[string]error{
			"update": c.Update(ctx, 0, []int64{1}, row), "refresh": c.Refresh(ctx), "invalidate": c.Invalidate(0, []int64{1}), "budget": c.SetBudget(ctx, 1<<20),
		} {
			if !errors.Is(err, cache.ErrOwner) {
				t.Errorf("%s: %v", what, err)
			}
		}
		owner = start(t, append([]string{"own", address}, own...)...)
		owner.expect("ready")
		until(t, "the client has attached again", func() bool { s, err := c.Stats(); return err == nil && s.OwnerError == "" })
		if err := c.Gather(ctx, cache.Request{Rows: []int64{7}, Out: got}); err != nil || got[0] != 7*8 { // the new owner knows nothing of the update
			t.Fatalf("%v, %x", err, got)
		}
	}
	until(t, "no descriptor is left", func() bool { return footprintNow(t).Open <= opened })
	if s, err := c.Stats(); err != nil || s.Tables[0].Lookups != 66 || s.Tables[0].Gathers != 66 || s.Machine.Tables[0].Lookups != 1 {
		t.Errorf("%v, %+v", err, s.Tables)
	}
}

// TestOwner_Closed: clients of a server that is closed go on, and attach to the next one, also in the same process.
func TestOwner_Closed(t *testing.T) {
	c := open(t, 1000, shared)
	s := listen(t, c, serve.Options{})
	a := attach(t, s, cache.AttachOptions{})
	r := rand.New(rand.NewPCG(1, 1))
	for range 3 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		checkRows(t, a, 1000, r)
		until(t, "its statistics say that the owner is gone, also as JSON", func() bool {
			all, err := statjson.Of(a)
			return err == nil && strings.Contains(all.Errors["owner"], "no owner") && all.Machine != nil
		})
		row := make([]byte, 64)
		for i := range 50 { // the client still reads the cache's memory: the owner minds its batches
			if err := c.Update(ctx, 0, []int64{int64(i)}, row); err != nil {
				t.Fatal(err)
			}
			if err := a.Gather(ctx, cache.Request{Rows: []int64{int64(i)}, Out: row}); err != nil || string(row) != string(make([]byte, 64)) {
				t.Fatal(err, row)
			}
			for k := range 8 {
				row[8*k], row[8*k+1] = byte(i*8+k), byte((i*8+k)>>8)
			}
			if err := c.Update(ctx, 0, []int64{int64(i)}, row); err != nil {
				t.Fatal(err)
			}
			clear(row)
		}
		s = listen(t, c, serve.Options{Address: s.Address()})
		until(t, "attached again", func() bool { all, err := a.Stats(); return err == nil && all.OwnerError == "" })
		until(t, "one client", func() bool { all, err := c.Stats(); return err == nil && len(all.Clients) == 1 })
		checkRows(t, a, 1000, r)
		own, err := statjson.Of(a)
		if err != nil {
			t.Fatal(err)
		}
		if all, err := statjson.Of(c); err != nil || len(own.Errors) > 0 || own.Machine == nil || own.Machine.Lookups != all.Lookups || own.Lookups == 0 {
			t.Errorf("%v: %+v of %+v, owner %+v", err, own, own.Machine, all)
		}
	}
}

// TestAttach_Often: attaching and leaving 1,000 times leaves nothing behind: no descriptor, mapping, goroutine, place of a client or memory.
func TestAttach_Often(t *testing.T) {
	attachOften(t, 200, 1000, func(*cache.Options) {}, func() {})
}

// attachOften attaches so many times, after some first ones that are not counted, which the runtime's and the kernels' own memory comes with. It calls begin
// in between.
func attachOften(t *testing.T, first, times int, change func(*cache.Options), begin func()) {
	c := open(t, 1000, func(o *cache.Options) { shared(o); change(o) })
	s := listen(t, c, serve.Options{MaxClients: 1})
	r := rand.New(rand.NewPCG(1, 1))
	attachOnce := func() {
		a, err := cache.Attach(ctx, s.Address(), cache.AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		checkRows(t, a, 1000, r)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range first {
		attachOnce()
	}
	before := footprintNow(t)
	begin()
	for range times {
		attachOnce()
	}
	notGrown(t, before, 256<<10) // 263 bytes each time would be too much
	if all, err := c.Stats(); err != nil || len(all.Clients) != 0 || all.Tables[0].Gathers != int64(first+times) {
		t.Errorf("%v, %d clients, %d Gathers", err, len(all.Clients), all.Tables[0].Gathers)
	}
}
