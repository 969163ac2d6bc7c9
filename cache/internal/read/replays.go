package read

import (
	"errors"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/kernels"
)

// replay is a replay that ran at some moment.
type replay struct {
	of *capture
	n  uint64
}

// passed says whether the replay had ended when somebody looked last. REQUIRES: captures.mu is locked.
func (r *replay) passed() bool { return r.of.gone || r.of.ended >= r.n }

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
	ended, over := make([]uint64, len(all)), make([]uint64, len(all)) // in host memory, before the counts are copied
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
		if c.gone {
			continue
		}
		state := c.place.of(c.place.in.stage).Bytes()
		if c.onBoard != nil { // a replay ends there when its kernel has, and what was counted behind it
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

// Captured says whether the set has captured batches. It gives back the memory of those whose graphs are destroyed.
func (s *Set) Captured() bool {
	n := int32(0)
	for _, d := range s.Devices {
		d.SettleReplays()
		n += d.captures.count.Load()
	}
	return n > 0
}

// Retire has Wait of captured batches, and Faults after later replays, return an error, as another set serves in place of this one.
func (s *Set) Retire(err error) {
	for _, d := range s.Devices {
		d.SettleReplays()
	}
	s.retired.Store(&err)
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
	over = slices.DeleteFunc(over, func(c *capture) bool { return err == nil && !c.quiet() })
	s.mu.Unlock()
	if len(over) > 0 && s.publishing.TryLock() { // else somebody waits for replays, and the next call does it
		dead := s.drop(over...)
		s.publishing.Unlock()
		s.free(d, dead)
	}
}

// askForReplays is SettleReplays by another goroutine, if that was not asked for a moment ago. The caller makes no call of the driver, and takes no lock.
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
