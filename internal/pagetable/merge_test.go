package pagetable

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/redistest"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/cluster"
)

const rowBytes = 512

// put writes version v of a row. Half of it does not compress.
func put(dst []byte, row, v int64) {
	clear(dst)
	binary.LittleEndian.PutUint64(dst, uint64(row))
	binary.LittleEndian.PutUint64(dst[8:], uint64(v))
	r := rand.New(rand.NewPCG(uint64(row), uint64(v)))
	for i := 16; i < rowBytes/2; i += 8 {
		binary.LittleEndian.PutUint64(dst[i:], r.Uint64())
	}
}

// source is version 0 of so many rows.
type source struct{ rows, next int }

func (s *source) Rows() int     { return s.rows }
func (s *source) RowBytes() int { return rowBytes }
func (s *source) Close() error  { return nil }
func (s *source) Read(dst []byte) (n int, err error) {
	for ; n < len(dst)/rowBytes && s.next < s.rows; n, s.next = n+1, s.next+1 {
		put(dst[n*rowBytes:][:rowBytes], int64(s.next), 0)
	}
	if n == 0 {
		err = io.EOF
	}
	return n, err
}

// load packs so many rows as the next generation of table x of a cluster.
func load(t *testing.T, url string, rows int) {
	t.Helper()
	w, err := cluster.NewWriter(t.Context(), url, cluster.Options{Table: "x"})
	if err != nil {
		t.Fatal(err)
	}
	o := pages.PackOptions{Name: "x", DType: dtype.Uint8, Codec: "none", Stage: "none", PageBytes: 64 << 10, Workers: 1}
	if _, err := pages.Pack(t.Context(), func() (pages.Source, error) { return &source{rows: rows}, nil }, w, o); err != nil {
		t.Fatal(err)
	}
}

// open returns a cache of a place.
func open(t *testing.T, p Place) *cache.Cache {
	t.Helper()
	table, err := p.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := cache.New(cache.Options{
		Tables: []cache.Table{table}, Budget: 1 << 20, Devices: cache.DeviceOptions{Backend: cache.BackendHost}, Host: cache.HostOptions{Memory: 4 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// versions are the versions of rows: those of which updates have begun, and those of which they have returned. A row has one writer at a time.
type versions struct{ begun, done []atomic.Int64 }

func newVersions(rows int) *versions {
	return &versions{begun: make([]atomic.Int64, rows), done: make([]atomic.Int64, rows)}
}

// update writes the next version of rows.
func (v *versions) update(c *cache.Cache, rows []int64) error {
	data := make([]byte, len(rows)*rowBytes)
	for i, row := range rows {
		put(data[i*rowBytes:][:rowBytes], row, v.begun[row].Add(1))
	}
	if err := c.Update(context.Background(), 0, rows, data); err != nil {
		return err
	}
	for _, row := range rows {
		v.done[row].Store(v.begun[row].Load())
	}
	return nil
}

// check gathers rows, and returns an error if one is not of a version that was current during the call.
func (v *versions) check(c *cache.Cache, rows []int64) error {
	from := make([]int64, len(rows))
	for i, row := range rows {
		from[i] = v.done[row].Load()
	}
	out := make([]byte, len(rows)*rowBytes)
	if err := c.Gather(context.Background(), cache.Request{Rows: rows, Out: out}); err != nil {
		return err
	}
	want := make([]byte, rowBytes)
	for i, row := range rows {
		got := out[i*rowBytes:][:rowBytes]
		version := int64(binary.LittleEndian.Uint64(got[8:]))
		if put(want, row, version); string(want) != string(got) || version < from[i] || version > v.begun[row].Load() {
			return fmt.Errorf("row %d has version %d, must have %d to %d: %x", row, version, from[i], v.begun[row].Load(), got)
		}
	}
	return nil
}

func (v *versions) all() []int64 {
	rows := make([]int64, len(v.begun))
	for i := range rows {
		rows[i] = int64(i)
	}
	return rows
}

// generations returns what a cluster has of table x.
func generations(t *testing.T, url string) []cluster.Generation {
	t.Helper()
	all, err := cluster.Generations(t.Context(), url, cluster.Options{Table: "x"})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestOpen_ClusterIsMerged: updates of a table in a cluster are merged into its pages while they are read and updated, also by a machine that keeps pages. A reader of
// the first generation keeps it; generations that nobody reads are deleted.
func TestOpen_ClusterIsMerged(t *testing.T) {
	const rows = 4000
	c := redistest.Start(t, redistest.Options{Replicas: 1})
	load(t, c.URL(), rows)
	early := open(t, Place{Path: c.URL()})
	unchanged := newVersions(rows)
	v := newVersions(rows)
	for _, place := range []Place{{Path: c.URL(), Log: t.TempDir(), Durable: true}, {Path: c.URL(), Log: t.TempDir(), Cache: t.TempDir(), CacheBytes: 64 << 20}} {
		one := open(t, place)
		if err := v.check(one, v.all()); err != nil { // with the updates of the place before
			t.Fatal(err)
		}
		var stop atomic.Bool
		var updates atomic.Int64
		var beside sync.WaitGroup
		for g := range 2 {
			beside.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 6))
				for !stop.Load() {
					if err := v.update(one, []int64{2*r.Int64N(rows/2) + int64(g)}); err != nil {
						t.Error(err)
					}
					updates.Add(1)
					read := make([]int64, 100)
					for i := range read {
						read[i] = r.Int64N(rows)
					}
					if err := v.check(one, read); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range 3 {
			for n := updates.Load(); updates.Load() == n; { // without an update there is nothing to merge
				time.Sleep(time.Millisecond)
			}
			if err := one.MergeUpdates(t.Context(), 0); err != nil {
				t.Error(err)
			}
		}
		stop.Store(true)
		beside.Wait()
		if err := one.MergeUpdates(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if err := v.check(one, v.all()); err != nil {
			t.Fatal(err)
		}
		if err := one.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.check(open(t, Place{Path: c.URL()}), v.all()); err != nil { // there is no log
		t.Fatal(err)
	}
	all := generations(t, c.URL())
	if len(all) != 2 || all[0].Number != 1 || len(all[0].Readers) != 1 || !all[1].Current || all[1].Number < 7 {
		t.Errorf("%+v", all)
	}
	if err := unchanged.check(early, unchanged.all()); err != nil {
		t.Fatal(err)
	}
}

// TestOpen_ClusterMergesByItself: a log of more than 64 MiB, and an eighth of the table, is merged in the background.
func TestOpen_ClusterMergesByItself(t *testing.T) {
	const rows = 160_000 // 82 MB
	c := redistest.Start(t, redistest.Options{Masters: -1})
	load(t, c.URL(), rows)
	v := newVersions(rows)
	one := open(t, Place{Path: c.URL(), Log: t.TempDir()})
	for from := 0; from < rows; from += 1000 {
		if err := v.update(one, v.all()[from:from+1000]); err != nil {
			t.Fatal(err)
		}
	}
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if all := generations(t, c.URL()); len(all) == 1 && all[0].Number > 1 {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatalf("%+v", generations(t, c.URL()))
		}
	}
	if err := v.check(one, v.all()); err != nil {
		t.Fatal(err)
	}
}

// TestOpen_ClusterMergeWaitsForMovingSlots: a merge waits while a slot goes from one master to another, and goes on then. Rows are read and updated meanwhile.
func TestOpen_ClusterMergeWaitsForMovingSlots(t *testing.T) {
	const rows, slot = 4000, 100
	c := redistest.Start(t, redistest.Options{})
	load(t, c.URL(), rows)
	v := newVersions(rows)
	one := open(t, Place{Path: c.URL(), Log: t.TempDir()})
	if err := v.update(one, v.all()[:500]); err != nil {
		t.Fatal(err)
	}
	waiting := func() bool {
		s, err := one.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return s.Tables[0].Tiers.MergeWaiting
	}
	c.BeginMove(slot, c.Nodes[0], c.Nodes[1])
	merged := make(chan error, 1)
	go func() { merged <- one.MergeUpdates(t.Context(), 0) }()
	for begun := time.Now(); !waiting(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatal("the merge does not wait")
		}
	}
	for from := 0; from < rows; from += 500 {
		if err := v.update(one, v.all()[from:from+100]); err != nil {
			t.Fatal(err)
		}
		if err := v.check(one, v.all()); err != nil {
			t.Fatal(err)
		}
	}
	if !waiting() || len(generations(t, c.URL())) != 1 {
		t.Errorf("the merge has not waited: %+v", generations(t, c.URL()))
	}
	c.EndMove(slot, c.Nodes[0], c.Nodes[1])
	if err := <-merged; err != nil {
		t.Fatal(err)
	}
	if waiting() {
		t.Error("the merge has ended, and waits")
	}
	if err := v.check(one, v.all()); err != nil {
		t.Fatal(err)
	}
	if err := v.check(open(t, Place{Path: c.URL()}), v.all()); err != nil {
		t.Fatal(err)
	}
}

// TestOpen_ClusterKilledWhileMerging: a process that updates and merges is killed at random moments. The next one finds every update that had returned, and of the one
// that had not any part, in pages and log together.
func TestOpen_ClusterKilledWhileMerging(t *testing.T) {
	const rows, variable = 3000, "TENSORCACHE_TEST_MERGED"
	updated := func(k int64) []int64 { // by update k
		ids := make([]int64, 8)
		for i := range ids {
			ids[i] = (k*37 + int64(i)) % rows
		}
		return ids
	}
	if url, rest, ok := strings.Cut(os.Getenv(variable), "|"); ok {
		log, first, _ := strings.Cut(rest, "|")
		c := open(t, Place{Path: url, Log: log})
		k, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		var merges sync.Mutex
		for ; ; k++ {
			data := make([]byte, 8*rowBytes)
			for i, row := range updated(k) {
				put(data[i*rowBytes:][:rowBytes], row, k)
			}
			if err := c.Update(context.Background(), 0, updated(k), data); err != nil {
				t.Fatal(err)
			}
			fmt.Println("updated", k)
			if k%20 == 0 && merges.TryLock() {
				go func() {
					defer merges.Unlock()
					c.MergeUpdates(context.Background(), 0) //nolint:errcheck // updates stay in the log if it fails
				}()
			}
		}
	}
	c := redistest.Start(t, redistest.Options{})
	load(t, c.URL(), rows)
	v, log := newVersions(rows), filepath.Join(t.TempDir(), "log")
	r := rand.New(rand.NewPCG(8, 9))
	last := int64(0)
	for round := range 8 {
		child := exec.Command(os.Args[0], "-test.run=^TestOpen_ClusterKilledWhileMerging$")
		child.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s|%d", variable, c.URL(), log, last+2))
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		before := last
		for lines := bufio.NewScanner(out); lines.Scan(); {
			k := int64(0)
			if _, err := fmt.Sscanf(lines.Text(), "updated %d", &k); err != nil {
				continue
			}
			for _, row := range updated(k) {
				v.begun[row].Store(k)
				v.done[row].Store(k)
			}
			if last = k; k == before+2 { // the first one
				time.AfterFunc(time.Duration(r.IntN(300_000))*time.Microsecond, func() { child.Process.Kill() }) //nolint:errcheck // it runs
			}
		}
		child.Wait() //nolint:errcheck // it is killed
		if last == before {
			t.Fatal("the process has updated nothing")
		}
		for _, row := range updated(last + 1) { // was under way
			v.begun[row].Store(last + 1)
		}
		one := open(t, Place{Path: c.URL(), Log: log})
		if err := v.check(one, v.all()); err != nil {
			t.Fatalf("round %d, killed after update %d: %v", round, last, err)
		}
		if err := one.Close(); err != nil {
			t.Fatal(err)
		}
	}
	all := generations(t, c.URL())
	t.Logf("%d updates, generations %+v", last, all)
	if all[len(all)-1].Number < 3 {
		t.Error("no process has merged")
	}
}
