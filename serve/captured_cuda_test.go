//go:build cuda && linux

package serve_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/device/cuda/emulator"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/serve"
)

// captured is a Gather of an attached cache in a graph.
type captured struct {
	d         device.Device
	stream    *cuda.Stream
	graph     *cuda.Graph
	batch     *cache.Batch
	rows, out device.Buffer
}

// onDevice is a view of the cache on a device of this process.
func onDevice(c *cache.Cache, d device.Device) cache.View {
	i := 0
	for c.DeviceInfo(i).Index != d.Info().Index {
		i++
	}
	return c.On(i)
}

// capture captures a Gather of n rows of table 0.
func capture(c *cache.Cache, d device.Device, n int) (b *captured, err error) {
	b = &captured{d: d}
	defer func() {
		if err != nil {
			b.free()
		}
	}()
	s, err := d.NewStream()
	if err != nil {
		return nil, err
	}
	b.stream = s.(*cuda.Stream)
	if b.rows, err = d.Alloc(int64(n)*8, "row numbers"); err != nil {
		return nil, err
	}
	if b.out, err = d.Alloc(int64(n*c.RowBytes(0)), "output"); err != nil {
		return nil, err
	}
	b.graph, err = b.stream.Capture(true, func() (err error) {
		b.batch, err = onDevice(c, d).Enqueue(context.Background(), b.stream.Handle(), cache.Request{DeviceRows: b.rows, DeviceOut: b.out})
		return err
	})
	return b, err
}

// replay runs the graph for rows and returns the output.
func (b *captured) replay(rows []int64) ([]byte, error) {
	out := make([]byte, b.out.Size())
	numbers := unsafe.Slice((*byte)(unsafe.Pointer(&rows[0])), len(rows)*8)
	return out, errors.Join(
		device.Upload(b.d, b.rows, numbers), b.stream.Fill(b.out, 0xa5), b.graph.Launch(b.stream), b.stream.Synchronize(), device.Download(b.d, out, b.out),
	)
}

// free destroys the graph.
func (b *captured) free() {
	if b.graph != nil {
		b.graph.Close()
	}
	b.d.Free(b.rows)
	b.d.Free(b.out)
	if b.stream != nil {
		b.stream.Close()
	}
}

// checkReplay replays a graph for random rows of open's table, and checks them.
func checkReplay(t testing.TB, b *captured, rows int, r *rand.Rand) {
	t.Helper()
	ids := make([]int64, b.rows.Size()/8)
	for i := range ids {
		ids[i] = r.Int64N(int64(rows))
	}
	out, err := b.replay(ids)
	if err != nil {
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

func mustCapture(t testing.TB, c *cache.Cache, d device.Device, n int) *captured {
	t.Helper()
	b, err := capture(c, d, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.free)
	return b
}

// openDevice opens a GPU in a child.
func openDevice() (device.Device, error) {
	devices, err := cuda.Open(1)
	if err != nil {
		return nil, err
	}
	return devices[0], nil
}

func init() {
	// replay ADDRESS: replays a graph of lifeBatch rows of open's table, and checks a row of each, until the test ends.
	roles["replay"] = func(p *parent, args []string) error {
		d, err := openDevice()
		if err != nil {
			return err
		}
		c, err := cache.Attach(context.Background(), args[0], cache.AttachOptions{Name: "replayer"})
		if err != nil {
			return err
		}
		r := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
		b, err := capture(c, d, lifeBatch)
		if err != nil {
			return err
		}
		ids := make([]int64, lifeBatch)
		for i := range ids {
			ids[i] = r.Int64N(lifeRows)
		}
		p.say("attached")
		for {
			out, err := b.replay(ids)
			if err != nil {
				return err
			}
			if i := r.IntN(len(ids)); out[64*i] != byte(ids[i]*8) && out[64*i] != updated {
				return fmt.Errorf("row %d is %x", ids[i], out[64*i:][:64])
			}
		}
	}
	// replays ADDRESS FILE PROCESS BATCHES: replays graphs and updates rows of the model, then says how many rows it has looked up.
	roles["replays"] = func(p *parent, args []string) error {
		process, _ := strconv.Atoi(args[2])
		batches, _ := strconv.Atoi(args[3])
		m, err := openModel(args[1], process)
		if err != nil {
			return err
		}
		d, err := openDevice()
		if err != nil {
			return err
		}
		c, err := cache.Attach(context.Background(), args[0], cache.AttachOptions{Name: "model " + args[2]})
		if err != nil {
			return err
		}
		m.returned = true
		p.say("attached")
		failed := make(chan error, 2)
		for i := range cap(failed) {
			go func() {
				r := rand.New(rand.NewPCG(uint64(process), uint64(i)))
				failed <- m.replays(c, d, r, batches/cap(failed), i == 0)
			}()
		}
		for range cap(failed) {
			err = errors.Join(err, <-failed)
		}
		if err != nil {
			return fmt.Errorf("process %d: %w", process, err)
		}
		s, err := c.Stats()
		if err != nil {
			return err
		}
		p.tell([]int64{s.Tables[0].Lookups, s.Tables[0].Hits, s.Tables[0].Gathers})
		return c.Close()
	}
}

// replays replays graphs, captures others now and then, and updates rows, which one goroutine may. It returns an error unless each row is a version that was
// current while the graph ran.
func (m *model) replays(c *cache.Cache, d device.Device, r *rand.Rand, times int, updates bool) error {
	b, err := capture(c, d, modelBatch)
	if err != nil {
		return err
	}
	defer func() { b.free() }()
	for n := range times {
		if n%50 == 49 {
			if n%100 == 49 {
				b.batch.Release()
			}
			b.free()
			if b, err = capture(c, d, modelBatch); err != nil {
				return err
			}
		}
		if err := m.read(c, r, b.replay); err != nil {
			return err
		}
		if err := b.batch.Wait(); err != nil {
			return err
		}
		if updates && n%4 == 0 {
			if err := m.update(c, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestGPU_CapturedAttached: replays of an attached cache return its rows, whatever has changed, and both processes count them.
func TestGPU_CapturedAttached(t *testing.T) {
	d := gputest.Open(t)
	const rows, n = 5000, 300
	for name, change := range map[string]func(*cache.Options){
		"raw":     func(o *cache.Options) {},
		"ibp4":    func(o *cache.Options) { o.Codec = "ibp4" },
		"packed":  func(o *cache.Options) { o.Codec, o.Host.Tier = "ibp8", cache.Packed },
		"samples": func(o *cache.Options) { o.Refresh.Accesses, o.Refresh.Keys = 1, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, rows, func(o *cache.Options) { shared(o); onGPU(o); change(o) })
			a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{})
			r := rand.New(rand.NewPCG(1, 2))
			first, second := mustCapture(t, a, d, n), mustCapture(t, a, d, 1)
			replays, lookups := int64(0), int64(0)
			check := func() {
				t.Helper()
				own, err := a.Stats()
				if err != nil {
					t.Fatal(err)
				}
				for who, s := range map[string]*cache.Stats{"client": &own, "owner": own.Machine} {
					if one := s.Tables[0]; one.Gathers != replays || one.Lookups != lookups || one.Hits+one.Misses != lookups || s.Devices[0].Gathers != replays || s.Devices[0].Lookups != lookups {
						t.Errorf("%s: %d Gathers, %d lookups, want %d, %d: %+v", who, one.Gathers, one.Lookups, replays, lookups, s.Devices[0])
					}
				}
				if x, y := own.Tables[0], own.Machine.Tables[0]; x.Hits != y.Hits || x.HostBytesMoved != y.HostBytesMoved || x.MissesByReason != y.MissesByReason || replays > 0 && (x.Hits == 0 || x.Misses == 0) {
					t.Errorf("client %+v, owner %+v", x, y)
				}
			}
			check()
			for i := range 12 {
				checkReplay(t, first, rows, r)
				checkReplay(t, second, rows, r)
				replays, lookups = replays+2, lookups+n+1
				if i%4 == 3 {
					if err := errors.Join(a.SetBudget(ctx, int64(200_000+30_000*i)), c.Refresh(ctx)); err != nil { // new memory
						t.Fatal(err)
					}
				}
			}
			if err := errors.Join(first.batch.Wait(), second.batch.Wait()); err != nil {
				t.Error(err)
			}
			check()
			if _, err := second.replay([]int64{rows}); err != nil {
				t.Fatal(err)
			}
			if err := second.batch.Wait(); !errors.Is(err, cache.ErrRows) {
				t.Error(err)
			}
			replays++
			check()
			if s, err := c.Stats(); err != nil || len(s.Clients) != 1 || s.Clients[0].Gathers != replays || s.Clients[0].Lookups != lookups {
				t.Errorf("%v, %+v", err, s.Clients)
			}
		})
	}
}

// TestGPU_CapturedResident: replays of a resident table return its rows while it moves from target to target and is updated, and both processes count
// what they read from overflow places.
func TestGPU_CapturedResident(t *testing.T) {
	d := gputest.Open(t)
	const rows, n = 3000, 300
	c := open(t, rows, func(o *cache.Options) { shared(o); onGPU(o); residentRows(o) })
	a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{})
	r := rand.New(rand.NewPCG(1, 7))
	first := mustCapture(t, a, d, n)
	for _, target := range []int{64, 16, 48} {
		moved := make(chan error, 1)
		go func() { moved <- c.Retarget(ctx, 0, target) }()
		for range 5 {
			checkReplay(t, first, rows, r)
		}
		if err := <-moved; err != nil {
			t.Fatal(err)
		}
		checkReplay(t, first, rows, r)
		second := mustCapture(t, a, d, n) // by the ranges that there are now
		checkReplay(t, second, rows, r)
		if err := errors.Join(first.batch.Wait(), second.batch.Wait()); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all rows are in their own places", func() bool {
		s, err := c.Stats()
		return err != nil || s.OverlayRows == 0
	})
	before, err := a.Stats()
	if err != nil {
		t.Fatal(err)
	}
	checkReplay(t, first, rows, r)
	if err := first.batch.Wait(); err != nil {
		t.Fatal(err)
	}
	now, err := a.Stats()
	if err != nil {
		t.Fatal(err)
	}
	const replays = 3*7 + 1
	for who, of := range map[string][2]*cache.Stats{"client": {&before, &now}, "owner": {before.Machine, now.Machine}} {
		was, is := of[0].Tables[0], of[1].Tables[0]
		if is.Gathers != replays || is.Hits != replays*n || is.Misses != 0 || of[1].Devices[0].Misses != 0 ||
			is.Resident.OverflowReads-was.Resident.OverflowReads != n || is.Resident.OverflowBytesRead-was.Resident.OverflowBytesRead != n*16 {
			t.Errorf("%s: %d Gathers, %d hits, %d misses; of the last one %d overflow reads of %d B", who, is.Gathers, is.Hits, is.Misses,
				is.Resident.OverflowReads-was.Resident.OverflowReads, is.Resident.OverflowBytesRead-was.Resident.OverflowBytesRead)
		}
	}
}

// TestGPU_CapturedPages: replays of a client of a cache of a table of pages wait for rows that the owner reads, or fail as the owner says.
func TestGPU_CapturedPages(t *testing.T) {
	d := gputest.Open(t)
	pagesOnGPU = true
	defer func() { pagesOnGPU = false }()
	const rows, n = 20_000, 300
	var failing atomic.Bool
	c := openPaged(t, rows, func(context.Context, uint32) error {
		if failing.Load() {
			return errors.New("the drive is on fire")
		}
		return nil
	})
	a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{})
	r := rand.New(rand.NewPCG(1, 3))
	b := mustCapture(t, a, d, n)
	for range 10 {
		checkReplay(t, b, rows, r)
	}
	if err := b.batch.Wait(); err != nil {
		t.Fatal(err)
	}
	own, err := a.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if one := own.Machine.Tables[0]; own.Tables[0].Gathers != 10 || one.Gathers != 10 || one.Lookups != 10*n || one.Tiers.RowsRead == 0 {
		t.Errorf("%+v", one)
	}
	failing.Store(true)
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = r.Int64N(rows)
	}
	if _, err := b.replay(ids); err != nil {
		t.Fatal(err)
	}
	if err := b.batch.Wait(); !errors.Is(err, cache.ErrCold) || !strings.Contains(err.Error(), "the drive is on fire") {
		t.Errorf("error %v", err)
	}
	failing.Store(false)
	checkReplay(t, b, rows, r)
	if err := b.batch.Wait(); err != nil {
		t.Error(err)
	}
}

// TestGPU_CapturedPooled: replays that add rows up are counted like others, also when their offsets are bad.
func TestGPU_CapturedPooled(t *testing.T) {
	d := gputest.Open(t)
	const rows, columns, n, bag, bags = 500, 16, 40, 4, 100 // most bags have no rows
	values := make([]float32, rows*columns)
	for i := range values {
		values[i] = float32(i % 1000)
	}
	table, err := cache.FromSlice("x", values, columns)
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, rows, func(o *cache.Options) { shared(o); onGPU(o); o.Tables, o.Budget = []cache.Table{table}, rows*columns*2 })
	a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{})
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stream := s.(*cuda.Stream)
	memory := func(bytes int64) device.Buffer {
		b, err := d.AllocHost(bytes, "test")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Free(b) })
		return b
	}
	ids, offsets, out := memory(n*8), memory(bags*8), memory(bags*columns*4)
	words := func(b device.Buffer) []int64 {
		return unsafe.Slice((*int64)(unsafe.Pointer(&b.Bytes()[0])), b.Size()/8)
	}
	for i := range words(offsets) {
		words(offsets)[i] = min(int64(i*bag), n)
	}
	var batch *cache.Batch
	graph, err := stream.Capture(true, func() (err error) {
		batch, err = a.On(0).Enqueue(ctx, stream.Handle(), cache.Request{DeviceRows: ids, DeviceOut: out, Pool: &cache.Pooling{DeviceOffsets: offsets}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer graph.Close()
	r := rand.New(rand.NewPCG(1, 1))
	stats := func() (client, owner cache.TableStats) {
		t.Helper()
		own, err := a.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return own.Tables[0], own.Machine.Tables[0]
	}
	for i := range int64(5) {
		for j := range words(ids) {
			words(ids)[j] = r.Int64N(rows)
		}
		if err := errors.Join(graph.Launch(stream), stream.Synchronize(), batch.Wait()); err != nil {
			t.Fatal(err)
		}
		sums := unsafe.Slice((*float32)(unsafe.Pointer(&out.Bytes()[0])), bags*columns)
		for j, got := range sums {
			want := float32(0)
			from := words(offsets)[j/columns]
			for _, id := range words(ids)[from:min(from+bag, n)] {
				want += values[id*columns+int64(j%columns)]
			}
			if got != want {
				t.Fatalf("sum %d is %v, want %v", j, got, want)
			}
		}
		if client, owner := stats(); owner.Gathers != i+1 || owner.Lookups != (i+1)*n || client.Gathers != i+1 || client.Lookups != (i+1)*n {
			t.Errorf("%d replays of %d rows: client %+v, owner %+v", i+1, n, client, owner)
		}
	}
	for j := range words(offsets) { // more bad offsets than rows
		words(offsets)[j] = int64(bags - j)
	}
	if err := errors.Join(graph.Launch(stream), stream.Synchronize()); err != nil {
		t.Fatal(err)
	}
	if err := batch.Wait(); !errors.Is(err, cache.ErrRows) {
		t.Errorf("bad offsets: %v", err)
	}
	if _, owner := stats(); owner.Gathers != 6 || owner.Lookups != 5*n {
		t.Errorf("the owner has counted %d Gathers and %d lookups after bad offsets", owner.Gathers, owner.Lookups)
	}
}

// TestGPU_CapturedPlaces: places on the board are used again when their batches are gone, and what these have counted stays; there is an error when
// all are in use.
func TestGPU_CapturedPlaces(t *testing.T) {
	d := gputest.Open(t)
	const rows, n, rounds = 1000, 40, 50
	c := open(t, rows, func(o *cache.Options) { shared(o); onGPU(o) })
	a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{})
	r := rand.New(rand.NewPCG(1, 1))
	replays := int64(0)
	for i := range rounds { // more blocks of places than there are
		b := mustCapture(t, a, d, n)
		for range 1 + i%3 {
			checkReplay(t, b, rows, r)
			replays++
		}
		if i%2 == 0 {
			b.batch.Release()
		}
		b.free()
		b.graph = nil
		if s, err := c.Stats(); err != nil || s.Tables[0].Gathers != replays || s.Tables[0].Lookups != replays*n {
			t.Fatalf("round %d: %v, %d Gathers, %d lookups of %d replays", i, err, s.Tables[0].Gathers, s.Tables[0].Lookups, replays)
		}
	}
	if testing.Short() {
		return
	}
	var all []*captured
	for len(all) < 1024 {
		b, err := capture(a, d, 1)
		if err != nil {
			t.Fatalf("batch %d: %v", len(all)+1, err)
		}
		defer b.free()
		all = append(all, b)
	}
	if _, err := capture(a, d, 1); !errors.Is(err, cache.ErrCapturing) || !strings.Contains(err.Error(), "at most 1024") {
		t.Errorf("batch 1025: %v", err)
	}
	checkReplay(t, all[1023], rows, r)
	for _, b := range all {
		b.batch.Release()
	}
	checkReplay(t, mustCapture(t, a, d, n), rows, r)
	if s, err := c.Stats(); err != nil || s.Tables[0].Gathers != replays+2 || s.Tables[0].Lookups != replays*n+n+1 {
		t.Errorf("%v, %+v", err, s.Tables[0])
	}
}

// TestGPU_CapturedLength: a replay returns a row that the owner has inserted, once its Update has returned.
func TestGPU_CapturedLength(t *testing.T) {
	d := gputest.Open(t)
	const rows, more = 100, 50
	c := open(t, rows, func(o *cache.Options) { shared(o); onGPU(o); o.Tables[0] = o.Tables[0].WithCapacity(rows + more) })
	a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{})
	b := mustCapture(t, a, d, 1)
	for i := range more {
		row := bytes.Repeat([]byte{byte(i + 1)}, 64)
		if err := c.Update(ctx, 0, []int64{int64(rows + i)}, row); err != nil {
			t.Fatal(err)
		}
		got, err := b.replay([]int64{int64(rows + i)})
		if err := errors.Join(err, b.batch.Wait()); err != nil || !bytes.Equal(got, row) {
			t.Fatalf("row %d: %v, %x", rows+i, err, got)
		}
	}
}

// TestGPU_CapturedModel: clients replay graphs and update rows while the owner reads, updates, inserts, refreshes, and changes the budget.
func TestGPU_CapturedModel(t *testing.T) { modelOnGPU(t, "replays", gputest.Few(1000, 300)) }

// TestGPU_CapturedKilled: clients that are killed while a replay runs leave nothing behind but exact counters.
func TestGPU_CapturedKilled(t *testing.T) {
	gputest.Require(t)
	killClients(t, gputest.Few(20, 4), "replay", onGPU)
}

// TestGPU_CapturedStopped: a client that is stopped while a replay runs holds changes back, with its name, until it goes on. (On a GPU the replay ends all
// the same.)
func TestGPU_CapturedStopped(t *testing.T) {
	gputest.Require(t)
	c := open(t, lifeRows, func(o *cache.Options) { shared(o); onGPU(o); o.Host.Overlay = 64 << 10 })
	s := listen(t, c, serve.Options{StoppedAfter: 200 * time.Millisecond})
	child := start(t, "replay", s.Address())
	child.expect("attached")
	var held error
	for n := 0; held == nil && n < 20; n++ { // it may be stopped between two replays
		child.signal(syscall.SIGSTOP)
		held = updateMany(ctx, c)
		child.signal(syscall.SIGCONT)
		time.Sleep(time.Duration(n) * time.Millisecond)
	}
	if held == nil && emulator.Present() {
		t.Error("no change was held back")
	}
	if held != nil && (!errors.Is(held, cache.ErrHeld) || !strings.Contains(held.Error(), "replayer")) {
		t.Error(held)
	}
	until(t, "changes go on", func() bool { return c.Update(ctx, 0, []int64{1}, bytes.Repeat([]byte{updated}, 64)) == nil })
}

// TestGPU_CapturedOwnerKilled: replays go on with the memory of an owner that was killed, also when another one is there; then Wait says so, until the batch
// is captured again. The old memory goes with the graphs.
func TestGPU_CapturedOwnerKilled(t *testing.T) {
	d := gputest.Open(t)
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	owner := start(t, "own", address, "cuda")
	owner.expect("ready")
	c, err := cache.Attach(ctx, address, cache.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := rand.New(rand.NewPCG(1, 1))
	const n = 500
	b := mustCapture(t, c, d, n)
	checkReplay(t, b, lifeRows, r)
	mapped := footprintNow(t).Mapped
	replays := int64(1)
	for range 2 {
		if err := c.Update(ctx, 0, []int64{7}, bytes.Repeat([]byte{updated}, 64)); err != nil {
			t.Fatal(err)
		}
		owner.kill()
		ids := make([]int64, n)
		for i := range ids {
			ids[i] = 7
		}
		stale := func(when string, want error) {
			t.Helper()
			out, err := b.replay(ids)
			if err != nil || !bytes.Equal(out, bytes.Repeat([]byte{updated}, n*64)) {
				t.Fatalf("%s: %v, %x", when, err, out[:64])
			}
			replays++
			if err := b.batch.Wait(); !errors.Is(err, want) {
				t.Errorf("%s: Wait: %v", when, err)
			}
		}
		stale("without an owner", nil)
		until(t, "the client knows", func() bool { s, err := c.Stats(); return err == nil && s.OwnerError != "" })
		stale("without an owner", nil)
		owner = start(t, "own", address, "cuda")
		owner.expect("ready")
		until(t, "the client has attached again", func() bool { s, err := c.Stats(); return err == nil && s.OwnerError == "" })
		if err := c.Check(true); err != nil {
			t.Errorf("no replay since another owner is there: Check: %v", err)
		}
		stale("with another owner", cache.ErrOwner)
		if err := c.Check(true); !errors.Is(err, cache.ErrOwner) || !strings.Contains(err.Error(), "capture it again") {
			t.Errorf("Check: %v", err)
		}
		if err := c.Check(true); err != nil {
			t.Errorf("the second Check: %v", err)
		}
		stale("with another owner", cache.ErrOwner)
		again := mustCapture(t, c, d, n)
		checkReplay(t, again, lifeRows, r)
		replays++
		if err := again.batch.Wait(); err != nil {
			t.Error(err)
		}
		if s, err := c.Stats(); err != nil || s.Tables[0].Gathers != replays || s.Tables[0].Lookups != replays*n || s.Machine.Tables[0].Gathers != 1 {
			t.Errorf("%v: %d Gathers, %d lookups in %d replays; owner %+v", err, s.Tables[0].Gathers, s.Tables[0].Lookups, replays, s.Machine.Tables[0])
		}
		b.batch.Release()
		b = again
		until(t, "the old owner's memory is gone", func() bool { return footprintNow(t).Mapped <= mapped })
		if err := c.Check(true); !errors.Is(err, cache.ErrOwner) {
			t.Errorf("Check after the old graph is gone: %v", err)
		}
		checkReplay(t, b, lifeRows, r)
		replays++
	}
	owner.kill()
	until(t, "the client knows", func() bool { s, err := c.Stats(); return err == nil && s.OwnerError != "" })
	owner = start(t, "own", address, "cuda")
	owner.expect("ready")
	until(t, "the client has attached again", func() bool { s, err := c.Stats(); return err == nil && s.OwnerError == "" })
	checkReplay(t, b, lifeRows, r)
	if err := c.Close(); err != nil { // with a graph of the old owner's memory
		t.Error(err)
	}
	until(t, "all memory is gone", func() bool { return footprintNow(t).Mapped < mapped })
}

// TestGPU_CapturedClosing: the owner is closed while a client replays, and then the client is.
func TestGPU_CapturedClosing(t *testing.T) {
	d := gputest.Open(t)
	const rows = 3000
	for round := range 3 {
		c := open(t, rows, func(o *cache.Options) { shared(o); onGPU(o); o.Codec = "ibp8" })
		s := listen(t, c, serve.Options{})
		a := attach(t, s, cache.AttachOptions{})
		b := mustCapture(t, a, d, 400)
		var stop atomic.Bool
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r := rand.New(rand.NewPCG(1, uint64(round)))
			for !stop.Load() {
				checkReplay(t, b, rows, r)
			}
		}()
		time.Sleep(10 * time.Millisecond)
		if err := errors.Join(s.Close(), c.Close()); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Millisecond)
		stop.Store(true)
		<-ended
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestGPU_CapturedRate measures replays of the owner and of a client, which take turns: a client's have two kernels more.
func TestGPU_CapturedRate(t *testing.T) {
	d := gputest.Open(t)
	const rows, most = 100_000, 50 * time.Microsecond
	c := open(t, rows, func(o *cache.Options) { shared(o); onGPU(o); o.Budget = 2 * rows * 64 })
	a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{})
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 1024, 8192, gputest.Few(200_000, 8192)} {
		var took [2]time.Duration
		both := [2]*captured{mustCapture(t, c, d, n), mustCapture(t, a, d, n)}
		inARow := gputest.Few(200, 2)
		for range 5 {
			for i, b := range both {
				checkReplay(t, b, rows, r)
				begun := time.Now()
				for range inARow {
					if err := b.graph.Launch(b.stream); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.stream.Synchronize(); err != nil {
					t.Fatal(err)
				}
				if one := time.Since(begun) / time.Duration(inARow); took[i] == 0 || one < took[i] {
					took[i] = one
				}
			}
		}
		t.Logf("replays of %d rows of 64 bytes, %d in a row: owner %v, client %v", n, inARow, took[0], took[1])
		if !emulator.Present() && took[1] > took[0]+most {
			t.Errorf("a client's replay of %d rows takes %v, the owner's %v", n, took[1], took[0])
		}
	}
}

// TestGPU_AttachedPooledTables: a client adds up rows of several batches in one call, enqueued and in a graph, and they are counted. In a graph it refuses bags that are
// some of those that offsets describe, as nobody knows how many rows a replay has.
func TestGPU_AttachedPooledTables(t *testing.T) {
	d := gputest.Open(t)
	const rows, columns, n, bags = 300, 16, 60, 6
	values := make([]float32, rows*columns)
	for i := range values {
		values[i] = float32(i % 1000)
	}
	table, err := cache.FromSlice("x", values, columns)
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, rows, func(o *cache.Options) { shared(o); onGPU(o); o.Tables, o.Budget = []cache.Table{table}, rows*columns*2 })
	a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{})
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stream := s.(*cuda.Stream)
	memory := func(bytes int64) device.Buffer {
		b, err := d.AllocHost(bytes, "test")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Free(b) })
		return b
	}
	ids, offsets, out := memory(n*8), memory((bags+1)*8), memory(bags*columns*4)
	words := func(b device.Buffer) []int64 {
		return unsafe.Slice((*int64)(unsafe.Pointer(&b.Bytes()[0])), b.Size()/8)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for i := range words(offsets) {
		words(offsets)[i] = int64(i * n / bags)
	}
	half := out.Size() / 2
	batches := func(p cache.Pooling) []cache.Request {
		q := p
		q.FirstBag += q.Bags
		from, to := ids, ids
		if p.Bag > 0 {
			from, to = ids.Slice(0, n/2*8), ids.Slice(n/2*8, n*8)
		}
		return []cache.Request{{DeviceRows: from, DeviceOut: out.Slice(0, half), Pool: &p}, {DeviceRows: to, DeviceOut: out.Slice(half, 2*half), Pool: &q}}
	}
	chosen, fixed := cache.Pooling{DeviceOffsets: offsets, Bags: bags / 2}, cache.Pooling{Bag: n / bags}
	check := func(run func() error) {
		t.Helper()
		for j := range words(ids) {
			words(ids)[j] = r.Int64N(rows)
		}
		before, err := a.Stats()
		if err == nil {
			err = run()
		}
		if err != nil {
			t.Fatal(err)
		}
		for j, got := range unsafe.Slice((*float32)(unsafe.Pointer(&out.Bytes()[0])), bags*columns) {
			want := float32(0)
			for _, id := range words(ids)[j/columns*(n/bags):][:n/bags] {
				want += values[id*columns+int64(j%columns)]
			}
			if got != want {
				t.Fatalf("sum %d is %v, want %v", j, got, want)
			}
		}
		after, err := a.Stats()
		if got := after.Machine.Tables[0].Lookups - before.Machine.Tables[0].Lookups; err != nil || got != n {
			t.Errorf("%v: %d lookups, want %d", err, got, n)
		}
	}
	for _, p := range []cache.Pooling{chosen, fixed} {
		check(func() error {
			b, err := a.On(0).Enqueue(ctx, stream.Handle(), batches(p)...)
			if err == nil {
				err = b.Wait()
			}
			return err
		})
	}
	var batch *cache.Batch
	graph, err := stream.Capture(true, func() (err error) {
		if _, err := a.On(0).Enqueue(ctx, stream.Handle(), batches(chosen)...); !errors.Is(err, cache.ErrCapturing) {
			t.Errorf("captured bags of those that offsets describe: %v", err)
		}
		batch, err = a.On(0).Enqueue(ctx, stream.Handle(), batches(fixed)...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer graph.Close()
	for range 3 {
		check(func() error { return errors.Join(graph.Launch(stream), stream.Synchronize(), batch.Wait()) })
	}
}
