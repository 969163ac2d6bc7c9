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

// Device is what one device holds for batches. Packages cache and fill set the exported fields before Serve; afterwards only SetView
// and SetTable change what batches read.
type Device struct {
	Index  int
	Device device.Device
	// Slab is the device's part of the data store, and Map its copy of the whole hashmap.
	Slab, Map device.Buffer
	Layout    hashmap.Layout // of Map
	Ring      *kernels.SampleRing
	Sharer    *transfer.Sharer // nil: no table's misses are shared with the host's processors
	Counts    *DeviceCounts
	// HostNodes are the memory nodes for page-locked memory that only this device uses; none: any.
	HostNodes []int

	sampling Sampling
	set      *Set
	lost     atomic.Bool
	lostBy   atomic.Pointer[error] // with which it has failed; set before lost
	hidden   atomic.Bool           // no batch runs on it, as if it were lost, but its memory can be read
	view     atomic.Pointer[View]
	tables   []atomic.Pointer[TableView]
	sampled  atomic.Uint32 // batches so far
	timeline timeline
	captures captures
	lists    listReader

	// board, if not nil, is where a client of a shared cache announces and counts its batches: in lanes from boardFirst on, and those that are
	// captured in places.
	board      *board.Board
	boardFirst int
	places     *places
	enqueued   chan struct{} // with a board: has SettleEnqueued look for batches that nobody waits for
	// lanes are those opened so far, in front of nil ones. Who sets a lane's busy flag has it.
	lanes    []atomic.Pointer[lane]
	spare    int          // of the lanes, those that are opened only while batches wait for absent rows
	waiting  atomic.Int32 // batches for whose absent rows the GPU waits
	progress progress
	batches  atomic.Int32 // len(mu.flight), for those who need not look
	mu       struct {
		sync.Mutex
		opened  int // lanes opened or being opened
		scratch scratch
		flight  []*Batch // of GatherDevice, not settled
		unused  []Batch  // made several at a time
	}
	stagings chan *staging // as many as may be used at once; nil for one not made yet
	staged   atomic.Int64  // page-locked bytes that batches pass through
	outBytes atomic.Int64  // device memory of all stagings
	freeing  sync.WaitGroup
	freeOne  sync.Mutex // held while memory of an idle lane is freed, which may wait for the device
	// tableBytes is the device memory of batches of several tables, but for their lists.
	tableBytes atomic.Int64
}

// Sampling says which accesses batches append to the sample rings, as shares of all accesses, of those that miss, and of all keys.
type Sampling struct {
	Seed                   uint64
	Accesses, Misses, Keys float64
}

// NewSet returns a set of devices that serve nothing yet.
func NewSet(devices []device.Device, s Sampling, t *Tuning) *Set {
	set := &Set{Tuning: t}
	for i, d := range devices {
		set.Devices = append(set.Devices, &Device{Index: i, Device: d, set: set, sampling: s, Counts: &DeviceCounts{}})
	}
	return set
}

// SetTables makes room for the views of tables, once they are loaded.
func (s *Set) SetTables(tables []*Table) {
	s.Tables = tables
	for i, t := range tables {
		if t.Counts.remote != nil {
			break // tables of an earlier set, whose devices' counts are used on, too
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

// Table returns a table as batches that begin now read it, nil before SetTable.
func (d *Device) Table(i int) *TableView {
	if i >= len(d.tables) {
		return nil
	}
	return d.tables[i].Load()
}

// SetTable has batches that begin from now on read a table by another view.
func (d *Device) SetTable(i int, t *TableView) {
	d.captures.change(d, i, func() { d.tables[i].Store(t) })
	d.set.generation.Add(1)
}

// SetView has batches that begin from now on read another hashmap and other slabs.
func (d *Device) SetView(v *View) {
	d.captures.change(d, -1, func() { d.view.Store(v) })
	d.set.generation.Add(1)
}

// View returns what batches that begin now read.
func (d *Device) View() *View { return d.view.Load() }

// MaxLanes is how many batches one device serves at once, beside those that wait for absent rows. More wait.
func MaxLanes() int { return 2 * runtime.GOMAXPROCS(0) }

// Serve lets batches in, once the device holds everything else.
func (d *Device) Serve() {
	if d.Device.NeedsStaging() {
		d.spare = spareLanes
	}
	d.serve(MaxLanes() + d.spare)
}

// spareLanes is how many batches of a GPU may wait for absent rows beside MaxLanes others: as many as a GPU runs kernels at once. A GPU's batch keeps its
// lane while it waits, as its kernels use the lane's memory.
const spareLanes = 128

// BoardPart is what a device has of a client's board: Lanes lanes, and Captures places of captured batches.
type BoardPart struct {
	Board           *board.Board
	Memory          device.Buffer // of the board
	Lanes, Captures int
	// Vacate asks the owner to take over what Count places from From on have counted, and to zero that.
	Vacate func(from, count int) error
}

// ServeOn is Serve for a device of a client of a shared cache. batch is the number by which the first batch's samples are drawn: not the same in all
// clients.
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

// nextSampling says which accesses of the next batch are sampled.
func (d *Device) nextSampling() kernels.Sampling {
	if d.Ring == nil {
		return kernels.Sampling{}
	}
	s := &d.sampling
	return d.Ring.Sampling(s.Seed, d.sampled.Add(1)<<3|uint32(d.Index), s.Accesses, s.Misses, s.Keys)
}

// allocNear returns page-locked memory that only this device reads and writes.
func (d *Device) allocNear(bytes int64, what string) (device.Buffer, error) {
	b, _, err := device.AllocHostOn(d.Device, d.HostNodes, bytes, what)
	return b, err
}

// ScratchBytes returns the device memory of the lanes and of the batches' lists, and StagingBytes what batches for Go memory and
// shared misses pass through.
func (d *Device) ScratchBytes() int64 {
	d.mu.Lock()
	n := d.mu.scratch.bytes + int64(d.mu.opened)*laneBytes
	d.mu.Unlock()
	return n + d.captures.bytes.Load() + d.tableBytes.Load()
}

// StagingBytes is documented at ScratchBytes.
func (d *Device) StagingBytes() int64 {
	n := d.PageLockedBytes() + d.outBytes.Load()
	if d.Sharer != nil {
		_, onDevice := d.Sharer.StageBytes()
		n += onDevice
	}
	return n
}

// PageLockedBytes is the part of StagingBytes that is page-locked memory of the host.
func (d *Device) PageLockedBytes() int64 {
	n := d.staged.Load()
	if d.Sharer != nil {
		host, _ := d.Sharer.StageBytes()
		n += host
	}
	return n
}

// Drain settles the batches of GatherDevice and waits until all lanes are idle, and for replays of captured graphs that run. No call may be
// under way.
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

// Close frees everything that the device holds, but not the device itself. No call may be under way.
func (d *Device) Close() {
	d.Drain()
	d.freeing.Wait()
	for i := range d.lanes {
		if l := d.lanes[i].Load(); l != nil {
			l.close()
		}
	}
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
