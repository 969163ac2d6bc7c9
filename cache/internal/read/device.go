package read

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/cache/internal/board"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/transfer"
)

// Device is one device with all that its batches need. Packages cache and fill set the exported fields before Serve.
// Afterwards only SetView and SetTable change what batches read.
type Device struct {
	Index  int
	Device device.Device
	// Slab is the device's part of the data store, and Map its copy of the whole hashmap.
	Slab, Map device.Buffer
	Layout    hashmap.Layout // of Map
	Ring      *kernels.SampleRing
	Sharer    *transfer.Sharer // nil: no misses are shared with the host's processors
	Counts    *DeviceCounts
	// HostNodes are the memory nodes for page-locked memory that only this device uses. Empty means any node.
	HostNodes []int

	sampling Sampling
	set      *Set
	lost     atomic.Bool
	lostBy   atomic.Pointer[error] // the error of the failure; set before lost
	hidden   atomic.Bool           // no batch runs on it, as if it were lost, but its memory can be read
	view     atomic.Pointer[View]
	tables   []atomic.Pointer[TableView]
	sampled  atomic.Uint32 // batches numbered for sampling so far
	timeline timeline
	captures captures
	lists    listReader
	sides    sideStreams

	// board, if not nil, is where a client of a shared cache announces and counts its batches. Its lanes begin at
	// boardFirst. Captured batches have places there.
	board      *board.Board
	boardFirst int
	places     *places
	enqueued   chan struct{} // used with a board: tells SettleEnqueued that a batch was enqueued
	// lanes has room for all lanes; those opened so far come first, and the rest are nil. Whoever sets a lane's busy
	// flag has the lane.
	lanes    []atomic.Pointer[lane]
	spare    int          // lanes at the end that are opened only while batches wait for absent rows
	waiting  atomic.Int32 // batches whose absent rows the GPU waits for
	progress progress
	batches  atomic.Int32 // len(mu.flight), readable without the lock
	mu       struct {
		sync.Mutex
		opened  int // lanes opened or being opened
		scratch scratch
		flight  []*Batch // batches of Enqueue that are not settled
		unused  []Batch  // batches allocated in advance
	}
	stagings chan *staging // those that are free; nil stands for one that is not allocated yet
	staged   atomic.Int64  // page-locked bytes that batches pass through
	outBytes atomic.Int64  // device memory of all stagings
	freeing  sync.WaitGroup
	surplus  surplus
	// tableBytes is the device memory of batches of several tables, without their lists.
	tableBytes atomic.Int64
}

// Sampling says which accesses batches append to the sample rings: a share of all accesses, a share of the misses,
// and all accesses to a share of the keys.
type Sampling struct {
	Seed                   uint64
	Accesses, Misses, Keys float64
}

// NewSet returns a set of devices that do not serve batches yet.
func NewSet(devices []device.Device, s Sampling, t *Tuning) *Set {
	set := &Set{Tuning: t}
	for i, d := range devices {
		set.Devices = append(set.Devices, &Device{Index: i, Device: d, set: set, sampling: s, Counts: &DeviceCounts{}})
	}
	return set
}

// SetTables sets the tables of the set, once they are loaded, and makes room for the devices' views of them.
func (s *Set) SetTables(tables []*Table) {
	s.Tables = tables
	for i, t := range tables {
		if t.Counts.remote != nil {
			break // these tables and devices come from an earlier set, and their counts go on
		}
		t.Counts.remote = func() board.Totals { return s.remote(func(r Readers) board.Totals { return r.TableTotals(i) }) }
	}
	for i, d := range s.Devices {
		if d.Counts.remote == nil {
			d.Counts.remote = func() board.Totals { return s.remote(func(r Readers) board.Totals { return r.DeviceTotals(i) }) }
		}
		d.tables = make([]atomic.Pointer[TableView], len(tables))
	}
}

// Table returns the view of a table that batches beginning now read, or nil before SetTable.
func (d *Device) Table(i int) *TableView {
	if i >= len(d.tables) {
		return nil
	}
	return d.tables[i].Load()
}

// SetTable sets the view of a table for batches that begin from now on.
func (d *Device) SetTable(i int, t *TableView) {
	d.captures.change(d, i, func() { d.tables[i].Store(t) })
	d.set.generation.Add(1)
}

// SetView sets the hashmap and slabs for batches that begin from now on.
func (d *Device) SetView(v *View) {
	d.captures.change(d, -1, func() { d.view.Store(v) })
	d.set.generation.Add(1)
}

// View returns the hashmap and slabs that batches beginning now read.
func (d *Device) View() *View { return d.view.Load() }

// MaxLanes is how many batches a device serves at once, not counting those that wait for absent rows. Further batches
// wait.
func MaxLanes() int { return 2 * runtime.GOMAXPROCS(0) }

// Serve lets batches in. The device must have everything else that they need.
func (d *Device) Serve() {
	if d.Device.NeedsStaging() {
		d.spare = spareLanes
	}
	d.serve(MaxLanes() + d.spare)
}

// spareLanes is how many GPU batches may wait for absent rows, in addition to MaxLanes others. It is the number of
// kernels that a GPU runs at once. A waiting batch keeps its lane, as its kernels use the lane's memory.
const spareLanes = 128

// BoardPart is a device's part of a client's board: Lanes lanes, and Captures places for captured batches.
type BoardPart struct {
	Board           *board.Board
	Memory          device.Buffer // of the board
	Lanes, Captures int
	// Vacate asks the owner to add what count places, beginning at from, have counted to its statistics, and to zero
	// the places.
	Vacate func(from, count int) error
}

// ServeOn is Serve for a device of a client of a shared cache. batch is the number from which batches are numbered
// for sampling. Clients should differ in it, so that they do not sample the same positions.
func (d *Device) ServeOn(p BoardPart, batch uint32) {
	d.board, d.boardFirst = p.Board, d.Index*p.Lanes
	d.places = newPlaces(d.Index, p)
	d.enqueued = make(chan struct{}, 1)
	d.sampled.Store(batch)
	d.mu.scratch.client = true
	d.serve(p.Lanes)
}

func (d *Device) serve(lanes int) {
	d.lanes = make([]atomic.Pointer[lane], lanes)
	d.stagings = make(chan *staging, maxStagings)
	for range maxStagings {
		d.stagings <- nil
	}
}

// nextSampling returns the sampling of the next batch.
func (d *Device) nextSampling() kernels.Sampling {
	if d.Ring == nil {
		return kernels.Sampling{}
	}
	s := &d.sampling
	return d.Ring.Sampling(s.Seed, d.sampled.Add(1)<<3|uint32(d.Index), s.Accesses, s.Misses, s.Keys)
}

// allocNear returns page-locked memory that only this device reads and writes, on its memory nodes.
func (d *Device) allocNear(bytes int64, what string) (device.Buffer, error) {
	b, _, err := device.AllocHostOn(d.Device, d.HostNodes, bytes, what)
	return b, err
}

// ScratchBytes returns the device memory of lanes, of the batches' lists, and of captured batches.
func (d *Device) ScratchBytes() int64 {
	d.mu.Lock()
	n := d.mu.scratch.bytes + int64(d.mu.opened)*laneBytes
	d.mu.Unlock()
	return n + d.captures.bytes.Load() + d.tableBytes.Load()
}

// StagingBytes returns the page-locked and device memory through which batches for Go memory, absent rows and shared
// misses pass.
func (d *Device) StagingBytes() int64 {
	n := d.PageLockedBytes() + d.outBytes.Load()
	if d.Sharer != nil {
		_, onDevice := d.Sharer.StageBytes()
		n += onDevice
	}
	return n
}

// PageLockedBytes is the page-locked part of StagingBytes.
func (d *Device) PageLockedBytes() int64 {
	n := d.staged.Load()
	if d.Sharer != nil {
		host, _ := d.Sharer.StageBytes()
		n += host
	}
	return n
}

// Drain settles the batches of Enqueue. It waits until all lanes are idle and no replay runs. REQUIRES: no other
// call is under way.
func (d *Device) Drain() {
	d.drainReplays()
	for {
		changed := d.progress.wait()
		busy := false
		for i := range d.lanes {
			l := d.lanes[i].Load()
			busy = busy || l != nil && l.busy.Load()
		}
		if !busy {
			d.progress.done()
			return
		}
		flight := d.flight()
		for _, b := range flight {
			b.Wait()
		}
		if len(flight) == 0 {
			<-changed
		}
		d.progress.done()
	}
}

// Close frees everything that the device holds, but not the device itself. REQUIRES: no other call is under way.
func (d *Device) Close() {
	d.Drain()
	d.freeing.Wait()
	d.freeSurplus()
	for i := range d.lanes {
		if l := d.lanes[i].Load(); l != nil {
			l.close()
		}
	}
	d.sides.close()
	d.captures.close(d)
	d.timeline.close()
	if d.Sharer != nil {
		d.Sharer.Close()
	}
	for _, m := range d.mu.scratch.all {
		d.Device.Free(m.Buffer)
	}
	for range cap(d.stagings) {
		if s := <-d.stagings; s != nil {
			s.close(d.Device)
		}
	}
	for i := range d.tables {
		if t := d.Table(i); t != nil {
			transfer.Detach(d.Device, t.Rows, t.Codec)
			d.Device.Free(t.Rejected)
			d.Device.Free(t.Oversize)
		}
	}
	if d.Ring != nil {
		d.Ring.Close()
	}
	d.Device.Free(d.Slab)
	d.Device.Free(d.Map)
	d.Slab, d.Map, d.Ring, d.Sharer, d.tables, d.lanes = device.Buffer{}, device.Buffer{}, nil, nil, nil, nil
	d.mu.scratch = scratch{}
}
