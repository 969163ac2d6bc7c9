package read

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// captures are the batches of a device that belong to captured graphs.
//
// A replay begins without host code. Its blocks count themselves in the capture's state, in device memory, when they
// begin and when they end. To look at the replays, a kernel copies the states of all captures to the host. Locks are
// taken in the order of the fields: publishing, looking, mu. mu is never held while the device works.
type captures struct {
	count atomic.Int32 // len(all), for callers that need not look
	bytes atomic.Int64 // of device memory
	// asked makes askForReplays do nothing. It is set while askForReplays looks, and for Tuning.LookPause afterwards.
	// looks are the looks that it has begun.
	asked atomic.Bool
	looks sync.WaitGroup

	// Held while captures are added or removed and while views are written. Writing a view may wait for replays.
	publishing sync.Mutex
	publisher  device.Stream
	stage      device.Buffer // page-locked: a view, and a word to store

	looking sync.Mutex // held while states are copied
	looker  device.Stream
	probe   device.Event // never recorded; querying it reveals a failed device

	mu        sync.Mutex
	users     int // captures in all, and those about to be
	all       []*capture
	states    []*states
	published []published // by table
}

// states are the states of up to statesCount captures, which one launch copies to the host. A place is given to one
// capture only: a replay launched before its batch was released may still begin later, and counts there. Freeing the
// buffer waits for such replays.
type states struct {
	buffer device.Buffer
	stage  device.Buffer // page-locked; receives the copy
	given  int           // places given so far
	users  int           // captures with a place
	block  int           // block of places on the board of a client of a shared cache
}

const (
	statesCount = 32
	statesBytes = statesCount * kernels.ReplayStateBytes
)

// place is where a capture's state lies: number i of the states in.
type place struct {
	in *states
	i  int
}

func (p place) of(b device.Buffer) device.Buffer {
	return b.Slice(int64(p.i)*kernels.ReplayStateBytes, int64(p.i+1)*kernels.ReplayStateBytes)
}

// add gives a capture all that it needs, except its graph.
func (s *captures) add(c *capture, rows RowNumbers, out device.Buffer) (err error) {
	d := c.owner
	s.publishing.Lock()
	defer s.publishing.Unlock()
	defer func() {
		if err != nil {
			s.free(d, s.drop(c))
		}
	}()
	s.mu.Lock()
	s.users++
	s.mu.Unlock()
	if err := s.open(d); err != nil {
		return err
	}
	if err := s.giveState(c); err != nil {
		return err
	}
	if err := s.giveViews(c); err != nil {
		return err
	}
	k := &c.kernel
	k.Serve, k.Views = d.serveNow(c.table), s.published[c.table].views
	if k.Serve.Pool = c.pool; c.pool != nil && c.pool.PartialBytes() > 0 && d.Device.NeedsStaging() && c.tables == nil && c.leader == nil {
		if k.Serve.Partials, err = d.Device.Alloc(c.pool.PartialBytes(), "a captured batch"); err != nil {
			return err
		}
		s.bytes.Add(k.Serve.Partials.Size())
	}
	l := &k.Serve.Lookup
	if k.Serve.Resident != nil && d.Device.NeedsStaging() {
		if c.counters, err = d.Device.Alloc(kernels.CountersBytes, "a captured batch"); err != nil {
			return err
		}
		s.bytes.Add(c.counters.Size())
		if l.Counters = c.counters; errors.Join(s.publisher.Fill(l.Counters, 0), s.publisher.Synchronize()) != nil {
			return d.Device.Err()
		}
	}
	l.Rows, l.Int32, l.Out, l.Samples = rows.Buffer, rows.Int32, out, d.nextSampling()
	if err := c.giveScratch(rows); err != nil {
		return err
	}
	return c.prepareAbsent(c.table, int(rows.Len()))
}

// open creates what all captures of a device share. REQUIRES: s.publishing is locked.
func (s *captures) open(d *Device) (err error) {
	s.looking.Lock()
	defer s.looking.Unlock()
	if s.looker == nil {
		if s.looker, err = d.Device.NewStream(); err != nil {
			s.looker = nil
			return err
		}
	}
	if s.probe == nil {
		if s.probe, err = d.Device.NewEvent(); err != nil {
			s.probe = nil
			return err
		}
	}
	if s.publisher == nil {
		if s.publisher, err = d.Device.NewStream(); err != nil {
			s.publisher = nil
			return err
		}
	}
	if s.stage.Size() == 0 {
		if s.stage, err = d.allocNear(stageBytes, "captured batches"); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.published == nil {
		s.published = make([]published, len(d.tables))
	}
	return nil
}

// giveState gives a capture a zeroed state. REQUIRES: s.publishing is locked.
func (s *captures) giveState(c *capture) error {
	d := c.owner
	s.mu.Lock()
	var of *states
	for _, b := range s.states {
		if b.given < statesCount {
			of = b
		}
	}
	s.mu.Unlock()
	if of == nil {
		buffer, err := d.Device.Alloc(statesBytes, "captured batches")
		if err != nil {
			return err
		}
		stage, err := d.allocNear(statesBytes, "captured batches")
		if err != nil {
			d.Device.Free(buffer)
			return err
		}
		// The first launch loads a kernel. If another thread loaded it later, that would break captures under way at
		// the time.
		s.looking.Lock()
		err = errors.Join(s.looker.Launch(&kernels.ReplayLook{States: buffer, Copies: stage}), s.looker.Synchronize())
		block := 0
		if d.places != nil && err == nil {
			none := &kernels.Replay{}
			if err = errors.Join(s.looker.Launch(none.Begins()), s.looker.Launch(none.Ends())); err == nil {
				block, err = d.places.take()
			}
		}
		s.looking.Unlock()
		if err != nil {
			d.Device.Free(buffer)
			d.Device.Free(stage)
			return err
		}
		of = &states{buffer: buffer, stage: stage, block: block}
		s.bytes.Add(statesBytes)
		s.mu.Lock()
		s.states = append(s.states, of)
		s.mu.Unlock()
	}
	s.mu.Lock()
	c.place = place{of, of.given}
	of.given++
	of.users++
	s.mu.Unlock()
	if d.places != nil {
		d.places.begin(c, of.block, c.place.i)
	}
	c.kernel.State = c.place.of(of.buffer)
	return errors.Join(s.publisher.Fill(c.kernel.State, 0), s.publisher.Synchronize())
}

// join adds a capture that has become a part of its graph.
func (s *captures) join(c *capture, hold device.Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.hold = hold // not earlier: once the graph is destroyed, another goroutine may free the capture's memory
	s.all = append(s.all, c)
	s.count.Add(1)
	if c.absent != nil {
		c.owner.lists.add(c.absent)
	}
}

// remove frees the memory of captures. REQUIRES: none of their replays runs or will run.
func (s *captures) remove(d *Device, of []*capture) {
	s.publishing.Lock()
	garbage := s.drop(of...)
	s.publishing.Unlock()
	s.free(d, garbage)
}

// garbage is memory and objects that nobody uses any more.
type garbage struct {
	buffers []device.Buffer
	blocks  []int // of places on a board
	absent  []*rounds
	streams []device.Stream
	event   device.Event
}

// drop removes captures and returns what is to be freed. The caller frees it without holding the locks, as freeing
// waits for the device. REQUIRES: s.publishing is locked.
func (s *captures) drop(of ...*capture) (x garbage) {
	s.looking.Lock()
	defer s.looking.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, leader := range slices.Clone(of) {
		of = append(of, leader.followers...)
	}
	for _, c := range of {
		if c.freed {
			continue
		}
		c.settle()
		c.freed = true
		if c.absent != nil {
			c.owner.lists.remove(c.absent)
			c.absent.leave()
			x.absent = append(x.absent, c.absent)
		}
		s.users--
		if i := slices.Index(s.all, c); i >= 0 {
			s.all = slices.Delete(s.all, i, i+1)
			s.count.Add(-1)
		}
		if c.hold != nil {
			c.hold.Free()
		}
		if in := c.place.in; in != nil {
			if in.users--; in.users == 0 {
				s.states = slices.DeleteFunc(s.states, func(b *states) bool { return b == in })
				s.bytes.Add(-statesBytes)
				x.buffers = append(x.buffers, in.buffer, in.stage)
				x.blocks = append(x.blocks, in.block)
			}
		}
		// In a batch of several tables, partials belong to the leader.
		if partials := c.kernel.Serve.Partials; partials.Size() > 0 && c.tables == nil && c.leader == nil {
			x.buffers = append(x.buffers, partials)
			s.bytes.Add(-partials.Size())
		}
		if c.tables != nil {
			x.buffers = append(x.buffers, c.tables.Partials, c.tables.Args)
			s.bytes.Add(-c.tables.Partials.Size())
		}
		if c.mem.Size() > 0 {
			x.buffers = append(x.buffers, c.mem)
			s.bytes.Add(-c.mem.Size())
		}
		if c.counters.Size() > 0 {
			x.buffers = append(x.buffers, c.counters)
			s.bytes.Add(-c.counters.Size())
		}
		if c.kernel.Views.Size() > 0 {
			if at := &s.published[c.table]; at.leave() {
				x.buffers = append(x.buffers, at.views)
				s.bytes.Add(-kernels.ReplayViewsBytes)
				*at = published{}
			}
		}
	}
	if s.users == 0 {
		x.buffers = append(x.buffers, s.stage)
		for _, b := range []device.Stream{s.publisher, s.looker} {
			if b != nil {
				x.streams = append(x.streams, b)
			}
		}
		x.event = s.probe
		s.stage, s.publisher, s.looker, s.probe, s.published = device.Buffer{}, nil, nil, nil, nil
	}
	return x
}

func (s *captures) free(d *Device, x garbage) {
	for _, a := range x.absent {
		a.close(d)
	}
	for _, b := range x.buffers {
		d.Device.Free(b)
	}
	for _, b := range x.blocks { // freeing the buffers has waited for the replays
		if d.places != nil {
			d.places.leave(b)
		}
	}
	for _, s := range x.streams {
		s.Close()
	}
	if x.event != nil {
		x.event.Close()
	}
}

// close waits for running replays and frees everything. The graphs may not be launched any more.
func (s *captures) close(d *Device) {
	s.looks.Wait()
	d.drainReplays()
	d.SettleReplays()
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	s.remove(d, all)
}
