package pages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/internal/directio"
)

// ReadStats says what a call of ReadRows has read.
type ReadStats struct {
	// Rows were delivered, Failed were visited with an error.
	Rows, Failed int64
	// Stores are in the order of Table.Stores.
	Stores []StoreStats
}

// StoreStats says what was read from one store.
type StoreStats struct {
	// Name is Store.Name.
	Name string
	// Pages are those that were delivered and sound, with so many Bytes. Failed were not delivered or corrupt.
	Pages, Bytes, Failed int64
	// Fault is why one of those that failed did, a PageError; nil if none has, or the caller gave up.
	Fault error
	// Seconds is how long at least one page of the call was waited for.
	Seconds float64
}

// Add adds the counts of a call for the same table.
func (s *ReadStats) Add(o ReadStats) {
	s.Rows += o.Rows
	s.Failed += o.Failed
	if s.Stores == nil {
		s.Stores = make([]StoreStats, len(o.Stores))
	}
	for i, from := range o.Stores {
		to := &s.Stores[i]
		to.Name = from.Name
		to.Pages += from.Pages
		to.Bytes += from.Bytes
		to.Failed += from.Failed
		to.Fault = cmp.Or(from.Fault, to.Fault)
		to.Seconds += from.Seconds
	}
}

// ReadRows reads rows, in any order, repeats allowed, and calls visit once for each: with its index in rows and its stored form, which is
// raw unless compressed, or with an error. visit is called by several goroutines at once. stored is valid during the call only; visit must
// not read from the same table. Each page is read once. A page that no store has sound gives all its rows the same error, which wraps a
// PageError for each store. ReadRows returns when all rows have been visited; when ctx ends, those that have not arrived fail with its error.
func (t *Table) ReadRows(ctx context.Context, rows []int64, visit func(i int, stored []byte, compressed bool, err error)) ReadStats {
	c := &call{t: t, ctx: ctx, rows: rows, visit: visit, jobs: make(chan job, maxWindows*t.windows.buffers)}
	c.stats = ReadStats{Stores: make([]StoreStats, len(t.stores))}
	c.waiting = make([]waiting, len(t.stores))
	for i, s := range t.stores {
		c.stats.Stores[i].Name = s.Name()
	}
	wanted := c.sort()
	var workers, reading sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(wanted)) {
		workers.Go(c.work)
	}
	for len(wanted) > 0 {
		into, memory, err := t.windows.take(ctx, len(wanted))
		if err != nil {
			for _, p := range wanted {
				c.fail(p, t.pageError(t.stores[0], p.page, err))
			}
			break
		}
		part := wanted[:len(into)]
		wanted = wanted[len(into):]
		reading.Go(func() {
			if !c.read(part, into) {
				memory = nil
			}
			t.windows.give(memory)
		})
	}
	reading.Wait()
	close(c.jobs)
	workers.Wait()
	for i := range c.waiting {
		c.stats.Stores[i].Seconds = c.waiting[i].total.Seconds()
	}
	return c.stats
}

// call is one call of ReadRows.
type call struct {
	t     *Table
	ctx   context.Context
	rows  []int64
	visit func(i int, stored []byte, compressed bool, err error)
	jobs  chan job

	mu      sync.Mutex // guards the rest
	stats   ReadStats
	waiting []waiting // by store
}

// waiting measures during which time anything was waited for.
type waiting struct {
	active int
	since  time.Time
	total  time.Duration
}

// wantedPage is a page, and which of the rows lie in it.
type wantedPage struct {
	page uint32
	refs []uint64 // page and index in rows
}

// job is a page that has arrived.
type job struct {
	want  wantedPage
	store int
	bytes []byte
	done  func(err error) // releases bytes
}

// sort returns the pages that the rows lie in, ascending, and visits rows that there are none of, or newer versions of.
func (c *call) sort() []wantedPage {
	refs := make([]uint64, 0, len(c.rows))
	var buf []byte
	for i, row := range c.rows {
		if row < 0 || row >= c.t.manifest.Rows {
			c.stats.Failed++
			c.visit(i, nil, false, fmt.Errorf("pages: table %s: row (%d) must be 0 to %d", c.t.manifest.Name, row, c.t.manifest.Rows-1))
			continue
		}
		if c.t.newer != nil {
			stored, compressed, ok, err := c.t.newer.Newest(row, buf)
			if ok || err != nil {
				if err != nil {
					c.stats.Failed++
				} else {
					buf = stored[:cap(stored)]
					c.stats.Rows++
				}
				c.visit(i, stored, compressed, err)
				continue
			}
		}
		refs = append(refs, uint64(c.t.PageOf(row))<<32|uint64(i))
	}
	slices.Sort(refs)
	var wanted []wantedPage
	for len(refs) > 0 {
		page := uint32(refs[0] >> 32)
		n := 1
		for n < len(refs) && uint32(refs[n]>>32) == page {
			n++
		}
		wanted = append(wanted, wantedPage{page, refs[:n]})
		refs = refs[n:]
	}
	return wanted
}

// read reads pages from the first store that has them sound, and waits until their rows have been visited. It returns whether the memory
// of into can be used again.
func (c *call) read(wanted []wantedPage, into [][]byte) (reusable bool) {
	faults := make([][]error, len(wanted))
	left := make([]int, len(wanted)) // indices of pages that no store has delivered yet
	for i := range left {
		left[i] = i
	}
	reusable = true
	for s, store := range c.t.stores {
		numbers, buffers := make([]uint32, len(left)), make([][]byte, len(left))
		for j, i := range left {
			numbers[j], buffers[j] = wanted[i].page, into[i]
			if s > 0 { // the first store may still write to its buffer
				buffers[j] = directio.Aligned(c.t.windows.bufferBytes)
			}
		}
		var pending sync.WaitGroup
		pending.Add(len(left))
		fault := make([]error, len(left))
		c.began(s)
		store.ReadPages(c.ctx, numbers, buffers, func(j int, page []byte, err error) {
			done := func(err error) {
				if err != nil {
					fault[j] = c.t.pageError(store, numbers[j], err)
				}
				pending.Done()
			}
			if err != nil {
				done(err)
				return
			}
			c.jobs <- job{wanted[left[j]], s, page, done}
		})
		c.ended(s)
		pending.Wait()
		var again []int
		for j, i := range left {
			if fault[j] != nil {
				faults[i] = append(faults[i], fault[j])
				again = append(again, i)
			}
		}
		if len(again) > 0 {
			c.failed(s, len(again), fault[slices.IndexFunc(fault, func(err error) bool { return err != nil })])
		}
		if left = again; len(left) == 0 {
			return reusable
		}
		reusable = false
		if c.ctx.Err() != nil {
			break
		}
	}
	for _, i := range left {
		c.fail(wanted[i], errors.Join(faults[i]...))
	}
	return reusable
}

func (t *Table) pageError(s Store, page uint32, err error) error {
	return &PageError{Store: s.Name(), Table: t.manifest.Name, Page: page, Err: err}
}

// work checks pages that have arrived and visits their rows.
func (c *call) work() {
	var scratch []byte
	for j := range c.jobs {
		var page parsedPage
		var err error
		page, scratch, err = c.t.index.parse(j.want.page, j.bytes, c.t.manifest.RowBytes, scratch)
		if err == nil {
			c.deliver(j, page)
		}
		j.done(err)
	}
}

// deliver visits the wanted rows of a sound page.
func (c *call) deliver(j job, page parsedPage) {
	rows, failed := int64(0), int64(0)
	for _, ref := range j.want.refs {
		i := int(uint32(ref))
		_, in := c.t.index.locate(c.t.Position(c.rows[i]))
		stored, compressed, err := page.Row(in)
		if err != nil {
			err = c.t.pageError(c.t.stores[j.store], j.want.page, err)
			failed++
		} else {
			rows++
		}
		c.visit(i, stored, compressed, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Rows += rows
	c.stats.Failed += failed
	c.stats.Stores[j.store].Pages++
	c.stats.Stores[j.store].Bytes += int64(len(j.bytes))
}

// fail visits the wanted rows of a page with an error.
func (c *call) fail(p wantedPage, err error) {
	for _, ref := range p.refs {
		c.visit(int(uint32(ref)), nil, false, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Failed += int64(len(p.refs))
}

func (c *call) failed(store, pages int, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := &c.stats.Stores[store]
	if of.Failed += int64(pages); !errors.Is(c.ctx.Err(), context.Canceled) {
		of.Fault = why
	}
}

func (c *call) began(store int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &c.waiting[store]
	if w.active++; w.active == 1 {
		w.since = time.Now()
	}
}

func (c *call) ended(store int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &c.waiting[store]
	if w.active--; w.active == 0 {
		w.total += time.Since(w.since)
	}
}
