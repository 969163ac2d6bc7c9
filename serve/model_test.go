//go:build linux

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
)

// model has for each row the version that its last Update brings, and that of the last Update that has returned.
type model struct {
	begun, done []atomic.Int64
	process     int
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
	return &model{begun: words[:modelCapacity], done: words[modelCapacity:], process: process}, nil
}

// versioned writes version v of a row: row number and version, then bytes derived from them. Some versions compress well, some not at all.
// Version 0 of rows that the source does not have is zeros.
func versioned(dst []byte, row, v int64) {
	clear(dst)
	if row >= modelRows && v == 0 {
		return
	}
	binary.LittleEndian.PutUint64(dst, uint64(row)<<32|uint64(v))
	state := hashmap.Hash(uint64(row)*0x9e3779b97f4a7c15 + uint64(v) + 1)
	noise := len(dst)
	switch state % 4 {
	case 0:
		noise = 8
	case 1, 2:
		noise = 8 + int(state>>8)%(len(dst)-8)
	}
	for i := 8; i < noise; i++ {
		state = state*6364136223846793005 + 1442695040888963407
		dst[i] = byte(state >> 56)
	}
}

// update brings new versions of rows that are this process's.
func (m *model) update(c *cache.Cache, r *rand.Rand) error {
	var rows []int64
	var data []byte
	limit := int64(modelRows)
	if r.IntN(20) == 0 {
		limit = modelCapacity // inserts
	}
	for range 1 + r.IntN(16) {
		row := r.Int64N(limit)/modelProcesses*modelProcesses + int64(m.process)
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

// gather reads random rows. It returns an error unless each is a version that was current at some moment of the call.
func (m *model) gather(c *cache.Cache, r *rand.Rand) error {
	return m.read(c, r, func(rows []int64) ([]byte, error) {
		out := make([]byte, modelBatch*modelRowBytes)
		return out, c.Gather(context.Background(), 0, rows, out)
	})
}

// read is gather by some function.
func (m *model) read(c *cache.Cache, r *rand.Rand, gather func(rows []int64) ([]byte, error)) error {
	rows, before := make([]int64, modelBatch), make([]int64, modelBatch)
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
		v := int64(binary.LittleEndian.Uint32(got))
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
	// model ADDRESS FILE PROCESS BATCHES [read]: gathers and, without "read", updates rows of the model, then says how many rows it has looked up.
	roles["model"] = func(p *parent, args []string) error {
		process, _ := strconv.Atoi(args[2])
		batches, _ := strconv.Atoi(args[3])
		m, err := openModel(args[1], process)
		if err != nil {
			return err
		}
		c, err := cache.Attach(context.Background(), args[0], cache.AttachOptions{Name: "model " + args[2]})
		if err != nil {
			return err
		}
		p.say("attached")
		failed := make(chan error, 3)
		for i := range cap(failed) { // two threads gather, one gathers and updates
			go func() {
				r := rand.New(rand.NewPCG(uint64(process), uint64(i)))
				for n := range batches / cap(failed) {
					if err := m.gather(c, r); err != nil {
						failed <- fmt.Errorf("process %d: %w", process, err)
						return
					}
					if i == 0 && n%4 == 0 && len(args) == 4 {
						if err := m.update(c, r); err != nil {
							failed <- err
							return
						}
					}
				}
				failed <- nil
			}()
		}
		for range cap(failed) {
			err = errors.Join(err, <-failed)
		}
		if err != nil {
			return err
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
	table, err := cache.FromBytes("model", dtype.Float64, source, modelRowBytes)
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

// runModel has clients read and update rows while the owner does all that it can to the cache. It returns how many rows were looked up.
func runModel(t *testing.T, role string, batches int, change func(*cache.Options)) (lookups int64) {
	file := filepath.Join(t.TempDir(), "model")
	c, m := modelCache(t, file, change)
	s := listen(t, c, serve.Options{})
	var clients []*child
	for i := 1; i < modelProcesses; i++ {
		clients = append(clients, start(t, role, s.Address(), file, strconv.Itoa(i), strconv.Itoa(batches)))
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
	lookups = own * modelBatch
	for _, sum := range sums {
		if sum == nil {
			t.Fatal("a client has failed")
		}
		lookups, hits, gathers = lookups+sum[0], hits+sum[1], gathers+sum[2]
	}
	one := all.Tables[0]
	if one.Lookups != lookups || one.Gathers != gathers || one.Hits < hits {
		t.Errorf("%d lookups, %d hits, %d Gathers; %d, at least %d and %d were made", one.Lookups, one.Hits, one.Gathers, lookups, hits, gathers)
	}
	t.Logf("%d rows looked up, %d updated, %d rows, %d cycles, %d moves, budget %d", one.Lookups, all.Changes.UpdatedRows, one.Rows, all.Changes.Cycles, <-moves, all.BudgetBytes)
	if resident {
		checkOverflow(t, c)
	}
	return lookups
}

// TestModel_Processes: three clients and the owner read and update rows while the cache refreshes, grows and shrinks. Every row that is read is a
// version that was current during the Gather, and the counters are exact.
func TestModel_Processes(t *testing.T) {
	for name, change := range map[string]func(*cache.Options){
		"in place": func(o *cache.Options) {},
		"packed":   func(o *cache.Options) { o.Host.Tier = cache.Packed },
		"devices":  func(o *cache.Options) { o.Devices.Count = 2 },
		"resident on devices": func(o *cache.Options) {
			o.Tables[0] = o.Tables[0].ResidentWith(cache.ResidentOptions{Target: 48, MaxTarget: 96, Buddy: cache.BuddyPeer})
			o.Budget, o.Refresh, o.Devices.Count = 1<<20, cache.RefreshOptions{}, 2
		},
	} {
		t.Run(name, func(t *testing.T) { runModel(t, "model", 5000, change) })
	}
}
