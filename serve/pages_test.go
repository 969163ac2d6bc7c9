//go:build linux

package serve_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
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

// openPaged is open for a table in pages, of which a third fits in host memory. fault, if not nil, is called for each page that is read.
func openPaged(t *testing.T, rows int, fault func(ctx context.Context, page uint32) error) *cache.Cache {
	t.Helper()
	table, store := inPages(t, dtype.Int64, "none", 64<<10, writtenRows{rows: rows, rowBytes: 64, write: func(row int64, dst []byte) {
		for k := range 8 {
			binary.LittleEndian.PutUint64(dst[8*k:], uint64(row)*8+uint64(k))
		}
	}})
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
			if err := of.Gather(ctx, 0, []int64{id}, got); err != nil || string(got) != string(row) {
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
		err := a.Gather(ctx, 0, ids, out)
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
	if err := a.Gather(ctx, 0, ids, make([]byte, 3*64)); err != nil {
		t.Errorf("after that: %v", err)
	}
	ids[0] = find("pages")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want("1 of 3 rows", s.Address())
	listen(t, c, serve.Options{Address: s.Address()})
	until(t, "attached again", func() bool { all, err := a.Stats(); return err == nil && all.OwnerError == "" })
	if err := a.Gather(ctx, 0, ids, make([]byte, 3*64)); err != nil {
		t.Errorf("with the next owner: %v", err)
	}
}
