// Package clients is the owner's side of a cache that several processes read: it describes the memory, hands it to clients, and keeps account of
// their batches.
//
// Terms. A client is a client that has been given memory. A region is memory of one allocation, with a number. A layout says which regions batches
// read, and how. It is described as a whole, with the generation of the set's views.
//
// Rules. A client that is live runs batches. Before anything is withdrawn for good, [Owner.Wait] waits until every live client reads by the current
// layout, and until the batches that had begun by then have ended. So memory of an older layout is freed, and places in memory of a newer one are named by
// location words, only when no batch reads by an older layout. A client that joins becomes live only when it reads by the current layout.
package clients

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache/internal/board"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/sharing"
	"github.com/tensorcache/tensorcache/internal/wire"
)

// Owner implements read.Readers and sharing.Owner.
type Owner struct {
	set     *read.Set
	sampled wire.Sampled
	o       Options
	life    chan struct{} // closed by Close
	tasks   sync.WaitGroup

	kinds  []tableKind
	tables []wire.Table
	codecs device.Buffer
	sheet  device.Buffer

	mu struct {
		sync.Mutex
		closed  bool
		clients map[uint64]*Client
		last    uint64 // number of the last client
		regions regions
		// described is the generation of the last layout.
		described uint64
		// past and pastOn are what clients that have left had counted, by table and by device.
		past, pastOn []board.Totals
	}
}

// Options configure an Owner.
type Options struct {
	sharing.Options
	Log *slog.Logger
	// Sampled says which accesses batches sample.
	Sampled wire.Sampled
	// Misses implements sharing.Owner.
	Misses func(table int, rows []int64) (*wire.Misses, error)
}

// Misses implements sharing.Owner.
func (w *Owner) Misses(table int, rows []int64) (*wire.Misses, error) { return w.o.Misses(table, rows) }

// New returns the owner's side of a set whose memory is shared.
func New(set *read.Set, o Options) (_ *Owner, err error) {
	w := &Owner{set: set, sampled: o.Sampled, o: o, life: make(chan struct{})}
	w.mu.clients, w.mu.last = map[uint64]*Client{}, rand.Uint64()>>1 // numbers that no other owner has given
	w.mu.regions = regions{owner: w, all: map[place]*region{}, without: make([]bool, len(set.Devices))}
	w.mu.past, w.mu.pastOn = make([]board.Totals, len(set.Tables)), make([]board.Totals, len(set.Devices))
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	metadata, err := w.describeTables()
	if err != nil {
		return nil, err
	}
	home, err := device.SharerOf(set.Devices[0].Device)
	if err != nil {
		return nil, err
	}
	if w.codecs, err = home.AllocSharedHost(nil, int64(max(1, len(metadata))), "codec metadata"); err != nil {
		return nil, err
	}
	copy(w.codecs.Bytes(), metadata)
	if w.sheet, err = home.AllocSharedHost(nil, int64(len(set.Tables))*8, "lengths of tables"); err != nil {
		return nil, err
	}
	for i, t := range set.Tables {
		w.Lengthened(i, t.Tier.Rows())
	}
	set.Kept.SetPatience(o.StoppedAfter)
	set.SetReaders(w)
	return w, nil
}

// Configure sets what becomes of clients that hold back changes from now on.
func (w *Owner) Configure(o sharing.Options) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.o.Options = o
	w.set.Kept.SetPatience(o.StoppedAfter)
}

// describeTables sets w.tables and returns the metadata of their codecs.
func (w *Owner) describeTables() (metadata []byte, err error) {
	for _, t := range w.set.Tables {
		w.kinds = append(w.kinds, kindOf(t))
		d := wire.Table{Name: t.Name, DType: t.DType.String(), RowBytes: t.Tier.RowBytes(), Capacity: t.Tier.Capacity(), Mode: int(t.Tier.Mode()), Partial: t.Tier.Partial(), Resident: t.WantResident != nil}
		if k := t.Tier.Codec(); k != nil {
			meta, err := k.MarshalBinary()
			if err != nil {
				return nil, err
			}
			d.Codec, d.MetaFrom, d.MetaBytes = k.Name(), int64(len(metadata)), int64(len(meta))
			metadata = append(metadata, meta...)
		}
		w.tables = append(w.tables, d)
	}
	return metadata, nil
}

// Lengthened implements read.Readers. The writer calls it under its lock. Replays of captured batches do not read the sheet: they
// get the length with the next layout.
func (w *Owner) Lengthened(table int, rows int64) {
	words := unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(w.sheet.Bytes()))), len(w.set.Tables))
	atomic.StoreInt64(&words[table], rows)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.capturesLocked() {
		w.set.Renew()
	}
}

// Oldest implements sharing.Owner.
func (w *Owner) Oldest() int {
	if w.set.Kept != nil {
		return wire.InFolder
	}
	return wire.Oldest
}

// Client implements sharing.Owner.
func (w *Owner) Client(number uint64) sharing.Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.mu.clients[number]; c != nil {
		return c
	}
	return nil
}

// Disconnected implements sharing.Owner.
func (w *Owner) Disconnected() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.mu.clients {
		if c.lost {
			n++
		}
	}
	return n
}

// Close frees the memory of boards and tables of contents. Clients go on reading what they have mapped. No change may be made any more.
func (w *Owner) Close() {
	if !w.leaveAll() {
		return
	}
	w.tasks.Wait()
	home := w.set.Devices[0].Device
	home.Free(w.codecs)
	home.Free(w.sheet)
}

// leaveAll has all clients leave, and lets no other in. It returns false if it has been called before.
func (w *Owner) leaveAll() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.closed {
		return false
	}
	w.mu.closed = true
	close(w.life)
	for _, c := range w.mu.clients {
		c.leaveLocked()
	}
	return true
}

// ReadAbsent implements sharing.Owner.
func (w *Owner) ReadAbsent(ctx context.Context, table int, rows []int64) (*wire.AbsentRows, error) {
	if table < 0 || table >= len(w.kinds) {
		return nil, fmt.Errorf("cache: table (%d) must be one with absent rows", table)
	}
	return w.kinds[table].readAbsent(ctx, rows)
}

// TableTotals implements read.Readers.
func (w *Owner) TableTotals(table int) board.Totals {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.mu.past[table]
	for _, c := range w.mu.clients {
		for d := range w.set.Devices {
			c.addCountsLocked(&t, d, table)
		}
	}
	return t
}

// DeviceTotals implements read.Readers.
func (w *Owner) DeviceTotals(device int) board.Totals {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.mu.pastOn[device]
	for _, c := range w.mu.clients {
		for table := range w.set.Tables {
			c.addCountsLocked(&t, device, table)
		}
	}
	return t
}

// errClosed is returned to clients of a cache that is being closed.
var errClosed = errors.New("cache: closed")

// poll is how often waiting for clients looks at their boards.
const poll = 50 * time.Microsecond
