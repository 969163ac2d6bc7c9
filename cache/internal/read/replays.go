package read

import (
	"errors"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/kernels"
)

// replay is replay number n of a capture.
type replay struct {
	of *capture
	n  uint64
}

// passed says whether the replay had ended as of the last look. REQUIRES: captures.mu is locked.
func (r *replay) passed() bool { return r.of.freed || r.of.ended >= r.n }

// look updates the replay numbers and counts of all captures. A kernel copies their states to the host.
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
	// From host memory. Read before the counts are copied, so that the counts include all replays that have ended.
	ended, over := make([]uint64, len(all)), make([]uint64, len(all))
	for i, c := range all {
		if c.onBoard != nil {
			ended[i] = c.onBoard.Ended.Load() - c.kernel.BoardFrom
		}
		if c.absent != nil {
			over[i] = c.absent.replayed()
		}
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
	for i, c := range all {
		if c.freed {
			continue
		}
		state := c.place.of(c.place.in.stage).Bytes()
		if c.onBoard != nil { // there a replay ends only after its kernel has ended and its counts are written
			c.begun, c.ended = c.onBoard.Begun.Load()-c.kernel.BoardFrom, ended[i]
		} else if c.leader != nil {
			c.begun, c.ended = c.leader.begun, c.leader.ended
		} else {
			c.begun, c.ended = c.kernel.Progress(state)
		}
		if c.over = c.ended; c.absent != nil {
			c.over = over[i]
		}
		c.counted, c.hits = c.kernel.Counts(state), c.kernel.Hits(state)
	}
	return nil
}

// Captured says whether the set has captured batches. It first frees those whose graphs are destroyed.
func (s *Set) Captured() bool {
	n := int32(0)
	for _, d := range s.Devices {
		d.SettleReplays()
		n += d.captures.count.Load()
	}
	return n > 0
}

// Retire sets an error for Wait of captured batches, and for Faults after later replays. It is called when another
// set serves in place of this one.
func (s *Set) Retire(err error) {
	for _, d := range s.Devices {
		d.SettleReplays()
	}
	s.retired.Store(&err)
}

// failed says whether the device has failed: then replays never end.
func (s *captures) failed(d *Device) bool {
	s.looking.Lock()
	defer s.looking.Unlock()
	if d.Device.Err() == nil && s.probe != nil {
		s.probe.Passed()
	}
	return d.IsLost() || d.Device.Err() != nil
}

// running returns the replays that ran as of the last look. REQUIRES: s.mu is locked.
func (s *captures) running() (all []replay) {
	for _, c := range s.all {
		if !c.idle() {
			all = append(all, replay{c, c.begun})
		}
	}
	return all
}

// replaysNow looks, and returns the replays that run on the device. It returns none if the device has failed.
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

// ended looks, and says whether replays of the device have ended or, as the device has failed, never will.
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

// SettleReplays adds what replays have counted to the statistics, and frees captured batches whose graphs are
// destroyed.
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
	over = slices.DeleteFunc(over, func(c *capture) bool { return err == nil && !c.quiet() })
	s.mu.Unlock()
	if len(over) > 0 && s.publishing.TryLock() { // else the lock's holder may wait for replays, and a later call frees them
		garbage := s.drop(over...)
		s.publishing.Unlock()
		s.free(d, garbage)
	}
}

// askForReplays calls SettleReplays in another goroutine, unless it did so a moment ago. The caller itself makes no
// driver call and takes no lock.
func (d *Device) askForReplays() {
	s := &d.captures
	if s.count.Load() == 0 || s.asked.Load() || !s.asked.CompareAndSwap(false, true) {
		return
	}
	s.looks.Go(func() {
		d.SettleReplays()
		time.AfterFunc(d.set.Tuning.LookPause, func() { s.asked.Store(false) })
	})
}

// drainReplays waits for the replays that run.
func (d *Device) drainReplays() {
	s := &d.captures
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	for _, c := range all {
		for c.await() != nil && !s.failed(d) {
			time.Sleep(pollBatches)
		}
	}
}
