//go:build linux

package serve_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/serve"
)

// The model of several processes: rows have versions, which a file mapped by all of them counts. Row r is updated by process r mod
// modelProcesses only, of which number 0 is the owner.
const (
	modelRows      = 3000 // of the source
	modelCapacity  = 4000
	modelRowBytes  = 120
	modelProcesses = 4
	modelBatch     = 64
	modelBudget    = 100 << 10
	modelThreads   = 3 // of a client
	// modelMillion is how many rows the clients of a model look up, together at least.
	modelMillion = 1_000_000
)

// model has for each row the version that its last Update brings, and that of the last Update that has returned.
type model struct {
	begun, done []atomic.Int64
	process     int
	batch       int // rows of a Gather
	// returned has inserted rows read only when their Update has returned: replays see a table's new length by then, Rows does before.
	returned bool
}

// openModel maps the file of a model.
func openModel(path string, process int) (*model, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const bytes = 2 * modelCapacity * 8
	if err := f.Truncate(bytes); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	words := unsafe.Slice((*atomic.Int64)(unsafe.Pointer(&mem[0])), 2*modelCapacity)
	return &model{begun: words[:modelCapacity], done: words[modelCapacity:], process: process, batch: modelBatch}, nil
}

// versioned writes version v of a row, which is float32: version and row number, then numbers derived from them, none of which a sum of one row changes.
// Some versions compress well, some hardly. Version 0 of rows that the source does not have is zeros.
func versioned(dst []byte, row, v int64) {
	clear(dst)
	if row >= modelRows && v == 0 {
		return
	}
	binary.LittleEndian.PutUint32(dst, math.Float32bits(float32(v)))
	binary.LittleEndian.PutUint32(dst[4:], math.Float32bits(float32(row)))
	state := hashmap.Hash(uint64(row)*0x9e3779b97f4a7c15 + uint64(v) + 1)
	noise := len(dst)
	switch state % 4 {
	case 0:
		noise = 8
	case 1, 2:
		noise = 8 + int(state>>8)%(len(dst)-8)
	}
	for i := 8; i+4 <= noise; i += 4 {
		state = state*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint32(dst[i:], uint32(state>>32)&^(1<<30)|1<<29) // an exponent of no NaN and no denormal number
	}
}

// versionOf returns the version that a row says it is.
func versionOf(row []byte) int64 {
	return int64(math.Float32frombits(binary.LittleEndian.Uint32(row)))
}

// update brings new versions of rows that are this process's.
func (m *model) update(c *cache.Cache, r *rand.Rand) error {
	var rows []int64
	var data []byte
	next := c.Rows(0)
	for i := range 1 + r.IntN(16) {
		row := r.Int64N(modelRows)/modelProcesses*modelProcesses + int64(m.process)
		if i == 0 && next < modelCapacity && next%modelProcesses == int64(m.process) {
			row = next // append it: the rows behind it are other processes'
		}
		if slices.Contains(rows, row) {
			continue
		}
		rows, data = append(rows, row), append(data, make([]byte, modelRowBytes)...)
		versioned(data[len(data)-modelRowBytes:], row, m.begun[row].Add(1))
	}
	if err := c.Update(context.Background(), 0, rows, data); err != nil {
		return err
	}
	for _, row := range rows {
		m.done[row].Store(m.begun[row].Load())
	}
	return nil
}

// gather reads random rows, one time in four as sums of one row each, and has some of them read ahead. It returns an error unless each is a version that was
// current at some moment of the call.
func (m *model) gather(c *cache.Cache, r *rand.Rand) error {
	return m.read(c, r, func(rows []int64) ([]byte, error) {
		out := make([]byte, len(rows)*modelRowBytes)
		switch r.IntN(8) {
		case 0, 1:
			return out, c.Gather(context.Background(), cache.Request{Rows: rows, Out: out, Pool: &cache.Pooling{Bag: 1}})
		case 2:
			if err := c.Prefetch(0, rows[:min(len(rows), 16)]); err != nil && !errors.Is(err, cache.ErrOwner) {
				return nil, err
			}
		}
		return out, c.Gather(context.Background(), cache.Request{Rows: rows, Out: out})
	})
}

// read is gather by some function.
func (m *model) read(c *cache.Cache, r *rand.Rand, gather func(rows []int64) ([]byte, error)) error {
	rows, before := make([]int64, m.batch), make([]int64, m.batch)
	length := c.Rows(0)
	for i := range rows {
		rows[i] = r.Int64N(length)
		if m.returned && m.done[rows[i]].Load() == 0 {
			rows[i] %= modelRows
		}
		before[i] = m.done[rows[i]].Load()
	}
	out, err := gather(rows)
	if err != nil {
		return err
	}
	want := make([]byte, modelRowBytes)
	for i, row := range rows {
		got := out[i*modelRowBytes:][:modelRowBytes]
		v := versionOf(got)
		if after := m.begun[row].Load(); v < before[i] || v > after {
			return fmt.Errorf("row %d reads as version %d, want %d to %d", row, v, before[i], after)
		}
		if versioned(want, row, v); !bytes.Equal(got, want) {
			return fmt.Errorf("row %d is no version of it: %x, want version %d, %x", row, got, v, want)
		}
	}
	return nil
}

func init() {
	// model ADDRESS FILE PROCESS LOOKUPS BATCH [read]: gathers that many rows of the model, BATCH at a time, and, without "read", updates rows.
	// Then it says how many rows it has looked up.
	roles["model"] = func(p *parent, args []string) error {
		var process, lookups, batch int
		for i, to := range []*int{&process, &lookups, &batch} {
			*to, _ = strconv.Atoi(args[2+i])
		}
		m, err := openModel(args[1], process)
		if err != nil {
			return err
		}
		c, err := cache.Attach(context.Background(), args[0], cache.AttachOptions{Name: "model " + args[2]})
		if err != nil {
			return err
		}
		p.say("attached")
		m.batch = batch
		failed := make(chan error, modelThreads)
		for i := range modelThreads { // the first one updates, too
			go func() {
				r, err := rand.New(rand.NewPCG(uint64(process), uint64(i))), error(nil)
				for n := 0; err == nil && n*batch < (lookups+modelThreads-1)/modelThreads; n++ {
					err = m.gather(c, r)
					for u := 0; err == nil && i == 0 && len(args) == 5 && n%4 == 0 && u <= batch/256; u++ {
						err = m.update(c, r)
					}
				}
				failed <- err
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

// options returns the options of a cache whose rows are the newest versions of the model.
func (m *model) options() (o cache.Options, err error) {
	length := modelRows
	for row := range m.begun {
		if m.begun[row].Load() > 0 {
			length = max(length, row+1)
		}
	}
	source := make([]byte, length*modelRowBytes)
	for i := range length {
		versioned(source[i*modelRowBytes:][:modelRowBytes], int64(i), m.begun[i].Load())
	}
	table, err := cache.FromBytes("model", dtype.Float32, source, modelRowBytes)
	return cache.Options{
		Tables: []cache.Table{table.WithCapacity(modelCapacity)}, Budget: modelBudget, Codec: "ibp8", Shared: true, Devices: cache.DeviceOptions{Backend: cache.BackendHost},
		Host: cache.HostOptions{Overlay: 32 << 10}, Refresh: cache.RefreshOptions{Interval: time.Millisecond, Accesses: 0.5, MaxChurn: 1},
	}, err
}

// modelCache returns the owner's cache of a model.
func modelCache(t *testing.T, file string, change func(*cache.Options)) (*cache.Cache, *model) {
	m, err := openModel(file, 0)
	if err != nil {
		t.Fatal(err)
	}
	o, err := m.options()
	if err != nil {
		t.Fatal(err)
	}
	change(&o)
	c, err := cache.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, m
}

// setBudget sets the budget of a cache, unless the larger hashmap would have no slot for a row, which happens with small ones.
func setBudget(c *cache.Cache, bytes int64) error {
	err := c.SetBudget(ctx, bytes)
	if err != nil && strings.Contains(err.Error(), "try another budget") {
		return nil
	}
	return err
}

// runModel has clients of a role read and update rows while the owner does all that it can to the cache. args follow the role's address, file and number. It
// returns how many rows the clients looked up.
func runModel(t *testing.T, change func(*cache.Options), role string, args ...any) (byClients int64) {
	file := filepath.Join(t.TempDir(), "model")
	c, m := modelCache(t, file, change)
	s := listen(t, c, serve.Options{})
	var clients []*child
	for i := 1; i < modelProcesses; i++ {
		clients = append(clients, start(t, append([]string{role, s.Address(), file, strconv.Itoa(i)}, strings.Fields(fmt.Sprintln(args...))...)...))
		clients[i-1].expect("attached")
	}
	var ended atomic.Int32
	sums := make([][]int64, len(clients))
	for i, child := range clients {
		go func() {
			defer ended.Add(1)
			if line, err := child.out.ReadString('\n'); err != nil {
				t.Errorf("client %d: %v", i+1, err)
			} else if _, err := fmt.Sscanf(line, "[%d,%d,%d]", new(int64), new(int64), new(int64)); err != nil {
				t.Errorf("client %d: %s", i+1, line)
			} else {
				sums[i] = make([]int64, 3)
				fmt.Sscanf(line, "[%d,%d,%d]", &sums[i][0], &sums[i][1], &sums[i][2])
			}
		}()
	}
	first, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	resident, moves := first.Tables[0].Resident != nil, make(chan int, 1)
	if resident {
		go func() { moves <- retargets(t, c, func() bool { return int(ended.Load()) == len(clients) }) }()
	} else {
		moves <- 0
	}
	r := rand.New(rand.NewPCG(9, 9))
	own, budget := int64(0), int64(modelBudget)
	for n := 0; int(ended.Load()) < len(clients); n++ {
		var err error
		switch step := r.IntN(40); {
		case step == 0:
			err = c.Invalidate(0, []int64{r.Int64N(modelRows), r.Int64N(modelRows)})
		case step == 1 && !resident:
			if budget < 1<<20 {
				budget += 10 << 10
			}
			err = setBudget(c, budget-int64(r.IntN(4))*20<<10)
		default:
			if err = m.gather(c, r); err == nil {
				own++
				err = m.update(c, r)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Microsecond)
	}
	all, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	hits, gathers := int64(0), own
	lookups := own * modelBatch
	for _, sum := range sums {
		if sum == nil {
			t.Fatal("a client has failed")
		}
		byClients += sum[0]
		lookups, hits, gathers = lookups+sum[0], hits+sum[1], gathers+sum[2]
	}
	one := all.Tables[0]
	if one.Lookups != lookups || one.Gathers != gathers || one.Hits < hits {
		t.Errorf("%d lookups, %d hits, %d Gathers; %d, at least %d and %d were made", one.Lookups, one.Hits, one.Gathers, lookups, hits, gathers)
	}
	t.Logf("%d rows looked up, %d of them by clients, %d updated, %d rows, %d cycles, %d moves, budget %d", one.Lookups, byClients, all.Changes.UpdatedRows, one.Rows, all.Changes.Cycles, <-moves, all.BudgetBytes)
	if resident {
		checkOverflow(t, c)
	}
	return byClients
}

// millionModel runs the model until its clients have looked up a million rows, batch at a time; with -short a fifth of that.
func millionModel(t *testing.T, batch int, change func(*cache.Options)) {
	want := gputest.Few(modelMillion, modelMillion/5)
	if n := runModel(t, change, "model", want/(modelProcesses-1)+1, batch); n < int64(want) {
		t.Errorf("the clients looked up %d rows of %d", n, want)
	}
}

// TestModel_Processes: three clients and the owner read and update rows while the cache refreshes, grows and shrinks, a million of them. Every row that is
// read is a version that was current during the Gather, and the counters are exact.
func TestModel_Processes(t *testing.T) {
	for name, change := range map[string]func(*cache.Options){
		"in place": func(o *cache.Options) {},
		"packed":   func(o *cache.Options) { o.Host.Tier = cache.Packed },
		"devices":  func(o *cache.Options) { o.Devices.Count = 2 },
		"resident on devices": func(o *cache.Options) {
			o.Tables[0] = o.Tables[0].ResidentWith(cache.ResidentOptions{Target: 48, MaxTarget: 96, Buddy: cache.BuddyPeer})
			o.Budget, o.Refresh, o.Devices.Count = 1<<20, cache.RefreshOptions{}, 2
		},
		"pages": func(o *cache.Options) {
			rows := writtenRows{rows: modelCapacity, rowBytes: modelRowBytes, write: func(row int64, dst []byte) { versioned(dst, row, 0) }}
			table, _ := inPages(t, dtype.Float32, "ibp8", 4<<10, rows)
			o.Tables[0] = table.WithLog(filepath.Join(t.TempDir(), "delta"), false)
			o.Codec, o.Host.Memory = "", modelCapacity*(12+modelRowBytes/3)
		},
	} {
		t.Run(name, func(t *testing.T) { millionModel(t, modelBatch, change) })
	}
}
