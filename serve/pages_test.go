//go:build linux

package serve_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/serve"
)

// writtenRows is a source of rows that a function writes.
type writtenRows struct {
	next, rows, rowBytes int
	write                func(row int64, dst []byte)
}

func (s *writtenRows) Rows() int     { return s.rows }
func (s *writtenRows) RowBytes() int { return s.rowBytes }
func (s *writtenRows) Close() error  { return nil }

func (s *writtenRows) Read(dst []byte) (n int, err error) {
	for ; n < len(dst)/s.rowBytes && s.next < s.rows; n++ {
		s.write(int64(s.next), dst[n*s.rowBytes:][:s.rowBytes])
		s.next++
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// pagesOnGPU has openPaged take a GPU. pagesSteps is how often each goroutine of TestAttach_Pages reads, and a fifth of the rows that it updates.
var pagesOnGPU, pagesSteps = false, 60

// inPages returns a table in pages, and the store that they are read from.
func inPages(t *testing.T, of dtype.Type, codec string, pageBytes int, rows writtenRows) (cache.Table, *pages.MemoryStore) {
	t.Helper()
	place := pages.NewMemory()
	o := pages.PackOptions{Name: "rows", DType: of, Codec: codec, PageBytes: pageBytes, Stage: "none", Workers: 1}
	if _, err := pages.Pack(ctx, func() (pages.Source, error) { again := rows; return &again, nil }, place.Writer(), o); err != nil {
		t.Fatal(err)
	}
	store, err := place.Open()
	if err != nil {
		t.Fatal(err)
	}
	p, err := pages.OpenStores(ctx, store)
	if err != nil {
		t.Fatal(err)
	}
	table, err := cache.FromPages(p)
	if err != nil {
		t.Fatal(err)
	}
	return table, store
}

// counted writes a row of 64 bytes of a table whose elements count up.
func counted(row int64, dst []byte) {
	for k := range 8 {
		binary.LittleEndian.PutUint64(dst[8*k:], uint64(row)*8+uint64(k))
	}
}

// openPaged is open for a table in pages, of which a third fits in host memory. fault, if not nil, is called for each page that is read.
func openPaged(t *testing.T, rows int, fault func(ctx context.Context, page uint32) error) *cache.Cache {
	t.Helper()
	table, store := inPages(t, dtype.Int64, "none", 64<<10, writtenRows{rows: rows, rowBytes: 64, write: counted})
	store.Fault = fault
	return open(t, 1, func(o *cache.Options) {
		shared(o)
		if pagesOnGPU {
			onGPU(o)
		}
		o.Tables, o.Codec, o.Budget, o.Host.Memory = []cache.Table{table}, "", int64(rows)*16, int64(rows)*(12+64/3)
		o.Refresh = cache.RefreshOptions{Accesses: 1, Interval: 2 * time.Millisecond}
	})
}

// TestAttach_Pages: a client of a cache of a table of pages reads rows of all tiers, the absent ones by its owner, while both update, prefetch and gather.
func TestAttach_Pages(t *testing.T) {
	const rows = 20_000
	c := openPaged(t, rows, nil)
	s := listen(t, c, serve.Options{})
	a := attach(t, s, cache.AttachOptions{})
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			from := a
			if g == 0 {
				from = c
			}
			for range pagesSteps {
				ids := []int64{r.Int64N(rows), r.Int64N(rows)}
				if err := from.Prefetch(0, ids); err != nil {
					t.Error(err)
				}
				checkRows(t, from, rows, r)
			}
		})
	}
	wg.Wait()
	row := make([]byte, 64)
	for i := range int64(5 * pagesSteps) {
		id := i * 61 % rows
		binary.LittleEndian.PutUint64(row, uint64(i)+1)
		if err := a.Update(ctx, 0, []int64{id}, row); err != nil {
			t.Fatal(err)
		}
		for _, of := range []*cache.Cache{a, c} {
			got := make([]byte, 64)
			if err := of.Gather(ctx, cache.Request{Rows: []int64{id}, Out: got}); err != nil || string(got) != string(row) {
				t.Fatalf("updated row %d: %v, %x", id, err, got)
			}
		}
	}
	all, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if tiers := all.Tables[0].Tiers; tiers.RowsRead == 0 || tiers.PrefetchedRows == 0 || tiers.LogRows == 0 || tiers.FailedRows != 0 {
		t.Errorf("%+v", tiers)
	}
	if err := a.Prefetch(0, []int64{rows}); !errors.Is(err, cache.ErrRows) {
		t.Errorf("prefetch of a row out of range: %v", err)
	}
}

// TestAttach_PagesFail: what the owner cannot read is an error of the client's batch that says why, and so is an owner that has ended. Rows of slab and host tier
// are served all the same.
func TestAttach_PagesFail(t *testing.T) {
	const rows = 20_000
	var failing atomic.Bool
	c := openPaged(t, rows, func(context.Context, uint32) error {
		if failing.Load() {
			return errors.New("the drive is on fire")
		}
		return nil
	})
	s := listen(t, c, serve.Options{})
	a := attach(t, s, cache.AttachOptions{})
	find := func(tier string) int64 {
		t.Helper()
		all := make([]int64, rows)
		for i := range all {
			all[i] = int64(rows - 1 - i)
		}
		found, err := c.Explain(0, all[:10_000])
		if err != nil {
			t.Fatal(err)
		}
		more, err := c.Explain(0, all[10_000:])
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range append(found, more...) {
			if e.Tier == tier {
				return e.Row
			}
		}
		t.Fatalf("no row lies in %s", tier)
		return 0
	}
	if err := c.SetRefresh(cache.RefreshOptions{}); err != nil { // rows stay where they are
		t.Fatal(err)
	}
	ids := []int64{find("pages"), find("slab"), find("host")}
	want := func(why ...string) {
		t.Helper()
		out := make([]byte, 3*64)
		err := a.Gather(ctx, cache.Request{Rows: ids, Out: out})
		if !errors.Is(err, cache.ErrCold) {
			t.Fatalf("error %v", err)
		}
		for _, text := range why {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("error %v, want %q", err, text)
			}
		}
		for i, id := range ids {
			if first := binary.LittleEndian.Uint64(out[64*i:]); i == 0 && first != 0 || i > 0 && first != uint64(id)*8 {
				t.Errorf("row %d is %x", id, out[64*i:][:64])
			}
		}
	}
	failing.Store(true)
	want("1 of 3 rows", "page", "the drive is on fire")
	failing.Store(false)
	if err := a.Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, 3*64)}); err != nil {
		t.Errorf("after that: %v", err)
	}
	ids[0] = find("pages")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want("1 of 3 rows", s.Address())
	listen(t, c, serve.Options{Address: s.Address()})
	until(t, "attached again", func() bool { all, err := a.Stats(); return err == nil && all.OwnerError == "" })
	if err := a.Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, 3*64)}); err != nil {
		t.Errorf("with the next owner: %v", err)
	}
}

// TestAttach_PagesOwnerCloses: an owner that closes while it reads pages for a client's batch is the reason of the batch's error. The client is not closed.
func TestAttach_PagesOwnerCloses(t *testing.T) {
	const rows = 20_000
	var held atomic.Bool
	arrived := make(chan struct{}, 1000)
	c := openPaged(t, rows, func(ctx context.Context, _ uint32) error {
		if !held.Load() {
			return nil
		}
		arrived <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	s := listen(t, c, serve.Options{})
	a := attach(t, s, cache.AttachOptions{})
	if err := c.SetRefresh(cache.RefreshOptions{}); err != nil { // rows stay where they are
		t.Fatal(err)
	}
	absent := []int64{-1}
	for row := int64(rows - 1); absent[0] < 0; row-- {
		e, err := c.Explain(0, []int64{row})
		if err != nil {
			t.Fatal(err)
		}
		if e[0].Tier == "pages" {
			absent[0] = row
		}
	}
	held.Store(true)
	read := a.GatherAsync(ctx, cache.Request{Rows: absent, Out: make([]byte, 64)})
	<-arrived
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	if err := read.Wait(); !errors.Is(err, cache.ErrOwner) || errors.Is(err, cache.ErrClosed) || !strings.Contains(err.Error(), s.Address()) {
		t.Errorf("error %v, want one of the owner", err)
	}
	if err := errors.Join(a.Close(), s.Close(), <-closed); err != nil {
		t.Error(err)
	}
}

func init() {
	// own-pages ADDRESS BACKEND DIR: owns a cache of a directory of pages, of which slab and host tier hold a part, until it is killed.
	roles["own-pages"] = func(p *parent, args []string) error {
		table, err := cache.Open(args[2])
		if err != nil {
			return err
		}
		rows := int64(table.Rows())
		return p.own(args[0], cache.Options{
			Tables: []cache.Table{table}, Budget: rows * 16, Host: cache.HostOptions{Memory: rows * (12 + 64/3)}, Devices: cache.DeviceOptions{Backend: cache.Backend(args[1])}, Shared: true,
			Refresh: cache.RefreshOptions{Accesses: 1, Interval: 2 * time.Millisecond},
		})
	}
}

// TestOwner_KilledWithPages: the owner of a table of pages, whose slab has rows that its host tier gave up for them, is killed. Clients read on what they reach. The next
// owner serves all rows, and every update that had returned, from pages and log.
func TestOwner_KilledWithPages(t *testing.T) { killOwnerOfPages(t, "host") }

// TestGPU_OwnerKilledWithPages is TestOwner_KilledWithPages with a GPU.
func TestGPU_OwnerKilledWithPages(t *testing.T) {
	gputest.Require(t)
	killOwnerOfPages(t, "cuda")
}

// packed returns a directory of pages with so many rows of 64 bytes.
func packed(t *testing.T, rows int) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "rows.tc")
	w, err := pages.CreateFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	o := pages.PackOptions{Name: "rows", DType: dtype.Int64, Codec: "none", PageBytes: 64 << 10, Stage: "none", Workers: 1}
	if _, err := pages.Pack(ctx, func() (pages.Source, error) { return &writtenRows{rows: rows, rowBytes: 64, write: counted}, nil }, w, o); err != nil {
		t.Fatal(err)
	}
	return dir
}

func killOwnerOfPages(t *testing.T, backend string) {
	const rows = 20_000
	dir := packed(t, rows)
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	owner := start(t, "own-pages", address, backend, dir)
	owner.expect("ready")
	a, err := cache.Attach(ctx, address, cache.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	want := make([]byte, 0, rows*64)
	for i := range uint64(rows * 8) {
		want = binary.LittleEndian.AppendUint64(want, i)
	}
	all, out := make([]int64, rows), make([]byte, rows*64)
	for i := range all {
		all[i] = int64(i)
	}
	whole := func(when string) {
		t.Helper()
		if err := a.Gather(ctx, cache.Request{Rows: all, Out: out}); err != nil || !bytes.Equal(out, want) {
			t.Fatalf("%s: rows differ: %v", when, err)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 3 {
		whole("attached")
		for range 20 {
			row := r.Int64N(rows)
			fresh := want[row*64:][:64]
			for i := range fresh {
				fresh[i] = byte(r.Uint32())
			}
			if err := a.Update(ctx, 0, []int64{row}, bytes.Clone(fresh)); err != nil {
				t.Fatal(err)
			}
		}
		whole("updated")
		s, err := a.Stats()
		if err != nil || s.Machine == nil || s.Machine.Tables[0].CachedRows == 0 || s.Machine.Tables[0].Tiers.AbsentRows == 0 {
			t.Fatalf("%v: %+v", err, s)
		}
		owner.kill()
		err = a.Gather(ctx, cache.Request{Rows: all, Out: out})
		if !errors.Is(err, cache.ErrCold) || !strings.Contains(err.Error(), address) {
			t.Fatalf("without an owner: %v", err)
		}
		zeros := 0
		for i := range all {
			got := out[i*64:][:64]
			if bytes.Equal(got, make([]byte, 64)) {
				zeros++
			} else if !bytes.Equal(got, want[i*64:][:64]) {
				t.Fatalf("without an owner: row %d is %x", i, got)
			}
		}
		if zeros == 0 || zeros > rows*9/10 {
			t.Errorf("round %d: %d of %d rows cannot be read without an owner", round, zeros, rows)
		}
		owner = start(t, "own-pages", address, backend, dir)
		owner.expect("ready")
		until(t, "the client has attached again", func() bool { s, err := a.Stats(); return err == nil && s.OwnerError == "" })
	}
	whole("at the end")
}
