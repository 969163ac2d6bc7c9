package read

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// captures are the batches of a device that are parts of captured graphs.
//
// A replay begins without host code. Its blocks count themselves in the capture's state, in device memory, when they begin and when they end.
// To look is to have a kernel copy the states of all captures to the host. Locks are taken in the order of the fields. Only mu is never held while the
// device works.
type captures struct {
	count atomic.Int32 // of those in all, for who need not look
	bytes atomic.Int64 // of device memory

	showing sync.Mutex // held while captures come and go and while views are written, which may have to wait for replays
	shower  device.Stream
	stage   device.Buffer // page-locked: a view and a word to be stored

	looking sync.Mutex // held while states are copied
	looker  device.Stream
	probe   device.Event // never recorded: asking for it shows whether the device has failed

	mu     sync.Mutex
	users  int // those of all, and those that are not in a graph yet
	all    []*capture
	states []*states
	shown  []shown // by table
}

// states are the states of captures, which one launch takes to the host.
type states struct {
	buffer device.Buffer
	stage  device.Buffer // page-locked, for a copy
	used   [statesCount]bool
}

const (
	statesCount = 32
	statesBytes = statesCount * kernels.ReplayStateBytes
)

// place is where a capture's state lies.
type place struct {
	in *states
	i  int
}

func (p place) of(b device.Buffer) device.Buffer {
	return b.Slice(int64(p.i)*kernels.ReplayStateBytes, int64(p.i+1)*kernels.ReplayStateBytes)
}

// replay is a replay that ran at some moment.
type replay struct {
	of *capture
	n  uint64
}

// passed says whether the replay had ended when somebody looked last. REQUIRES: captures.mu is locked.
func (r *replay) passed() bool { return r.of.gone || r.of.ended >= r.n }

// add gives a capture what it needs but its graph.
func (s *captures) add(c *capture, rows RowNumbers, out device.Buffer) (err error) {
	d := c.owner
	s.showing.Lock()
	defer s.showing.Unlock()
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
	k.Serve, k.Views = d.serveNow(c.table), s.shown[c.table].views
	l := &k.Serve.Lookup
	l.Rows, l.Int32, l.Out, l.Samples = rows.Buffer, rows.Int32, out, d.nextSampling()
	return nil
}

// open makes what all captures of a device share. REQUIRES: s.showing is locked.
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
	if s.shower == nil {
		if s.shower, err = d.Device.NewStream(); err != nil {
			s.shower = nil
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
	if s.shown == nil {
		s.shown = make([]shown, len(d.tables))
	}
	return nil
}

// giveState gives a capture a state of zeros. REQUIRES: s.showing is locked.
func (s *captures) giveState(c *capture) error {
	d := c.owner
	s.mu.Lock()
	var of *states
	for _, b := range s.states {
		if slices.Contains(b.used[:], false) {
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
		of = &states{buffer: buffer, stage: stage}
		s.bytes.Add(statesBytes)
		s.mu.Lock()
		s.states = append(s.states, of)
		s.mu.Unlock()
	}
	s.mu.Lock()
	c.place = place{of, slices.Index(of.used[:], false)}
	of.used[c.place.i] = true
	s.mu.Unlock()
	c.kernel.State = c.place.of(of.buffer)
	return errors.Join(s.shower.Fill(c.kernel.State, 0), s.shower.Synchronize())
}

// join adds a capture that is in its graph.
func (s *captures) join(c *capture, hold device.Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.hold = hold // not before: the graph may be destroyed, and then another goroutine gives the memory back
	s.all = append(s.all, c)
	s.count.Add(1)
}

// look copies the states of all captures.
func (s *captures) look(d *Device) error {
	s.looking.Lock()
	defer s.looking.Unlock()
	s.mu.Lock()
	all, states := slices.Clone(s.all), slices.Clone(s.states)
	s.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	if err := d.Device.Err(); err != nil {
		return err
	}
	var err error
	for _, b := range states {
		err = errors.Join(err, s.looker.Launch(&kernels.ReplayLook{States: b.buffer, Copies: b.stage}))
	}
	if err = errors.Join(err, s.looker.Synchronize()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range all {
		if c.gone {
			continue
		}
		state := c.place.of(c.place.in.stage).Bytes()
		c.begun, c.ended = c.kernel.Progress(state)
		c.counted = kernels.ReplayCountsOf(state)
	}
	return nil
}

// failed says whether the device has failed: then replays do not end.
func (s *captures) failed(d *Device) bool {
	s.looking.Lock()
	defer s.looking.Unlock()
	if d.Device.Err() == nil && s.probe != nil {
		s.probe.Passed()
	}
	return d.IsLost() || d.Device.Err() != nil
}

// running returns the replays that ran when somebody looked last. REQUIRES: s.mu is locked.
func (s *captures) running() (all []replay) {
	for _, c := range s.all {
		if !c.idle() {
			all = append(all, replay{c, c.begun})
		}
	}
	return all
}

// replaysNow returns the replays that run on the device; none if it has failed.
func (d *Device) replaysNow() ([]replay, error) {
	s := &d.captures
	if s.count.Load() == 0 {
		return nil, nil
	}
	if err := s.look(d); err != nil {
		if s.failed(d) {
			err = nil
		}
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running(), nil
}

// ended says whether replays of the device have ended, or never will.
func (d *Device) ended(of []replay) bool {
	s := &d.captures
	if len(of) == 0 {
		return true
	}
	if s.look(d) != nil {
		return s.failed(d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(of, func(r replay) bool { return !r.passed() })
}

// SettleReplays adds what captured batches have counted to the statistics, and gives back the memory of those whose graphs are destroyed.
func (d *Device) SettleReplays() {
	s := &d.captures
	if s.count.Load() == 0 {
		return
	}
	var over []*capture
	s.mu.Lock()
	for _, c := range s.all {
		c.released = c.released || c.hold != nil && c.hold.Over()
		if c.released {
			over = append(over, c)
		}
	}
	s.mu.Unlock()
	err := s.look(d)
	if err != nil && !s.failed(d) {
		return
	}
	s.mu.Lock()
	for _, c := range s.all {
		c.settle()
	}
	over = slices.DeleteFunc(over, func(c *capture) bool { return err == nil && !c.idle() })
	s.mu.Unlock()
	if len(over) > 0 && s.showing.TryLock() { // else somebody waits for replays, and the next call does it
		dead := s.drop(over...)
		s.showing.Unlock()
		s.free(d, dead)
	}
}

// remove gives back what captures have. REQUIRES: none of their replays runs or will run.
func (s *captures) remove(d *Device, of []*capture) {
	s.showing.Lock()
	dead := s.drop(of...)
	s.showing.Unlock()
	s.free(d, dead)
}

// dead is what nobody uses any more.
type dead struct {
	buffers []device.Buffer
	streams []device.Stream
	event   device.Event
}

// drop takes captures out and returns what is to be freed, which waits for the device: without the locks. REQUIRES: s.showing is locked.
func (s *captures) drop(of ...*capture) (x dead) {
	s.looking.Lock()
	defer s.looking.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range of {
		if c.gone {
			continue
		}
		c.settle()
		c.gone = true
		s.users--
		if i := slices.Index(s.all, c); i >= 0 {
			s.all = slices.Delete(s.all, i, i+1)
			s.count.Add(-1)
		}
		if c.hold != nil {
			c.hold.Free()
		}
		if in := c.place.in; in != nil {
			in.used[c.place.i] = false
			if !slices.Contains(in.used[:], true) {
				s.states = slices.DeleteFunc(s.states, func(b *states) bool { return b == in })
				s.bytes.Add(-statesBytes)
				x.buffers = append(x.buffers, in.buffer, in.stage)
			}
		}
		if c.kernel.Views.Size() > 0 {
			if at := &s.shown[c.table]; at.leave() {
				x.buffers = append(x.buffers, at.views)
				s.bytes.Add(-kernels.ReplayViewsBytes)
				*at = shown{}
			}
		}
	}
	if s.users == 0 {
		x.buffers = append(x.buffers, s.stage)
		for _, b := range []device.Stream{s.shower, s.looker} {
			if b != nil {
				x.streams = append(x.streams, b)
			}
		}
		x.event = s.probe
		s.stage, s.shower, s.looker, s.probe, s.shown = device.Buffer{}, nil, nil, nil, nil
	}
	return x
}

func (s *captures) free(d *Device, x dead) {
	for _, b := range x.buffers {
		d.Device.Free(b)
	}
	for _, s := range x.streams {
		s.Close()
	}
	if x.event != nil {
		x.event.Close()
	}
}

// close waits for the replays that run and frees everything. Nobody may launch the graphs any more.
func (s *captures) close(d *Device) {
	d.drainReplays()
	d.SettleReplays()
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	s.remove(d, all)
}

// drainReplays waits for the replays that run.
func (d *Device) drainReplays() {
	for {
		running, err := d.replaysNow()
		if err == nil && d.ended(running) {
			return
		}
		time.Sleep(pollBatches)
	}
}
