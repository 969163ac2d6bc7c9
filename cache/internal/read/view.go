package read

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
)

// Set is the devices of a cache and the tables that they read.
type Set struct {
	Devices []*Device
	Tables  []*Table
	Tuning  *Tuning
	// Shared says that memory which batches read is allocated so that other processes can map it.
	Shared bool
	// Lose is asked when a device has failed for good. It says whether the cache serves on without the device. It may be called by
	// several goroutines at once.
	Lose func(*Device) bool

	faults faults
	// generation counts the views that were set, and the changes of what is paused.
	generation atomic.Uint64
	readers    atomic.Pointer[Readers]
	turn       atomic.Uint64 // of the next Gather on any device
	fence      atomic.Uint64
	paused     atomic.Pointer[chan struct{}] // not nil: closed when batches may begin again
	retired    atomic.Pointer[error]         // not nil: why the rows of replays are old
}

// View is a device's hashmap, and the slabs that its location words name, by slab ID. It is immutable.
type View struct {
	Map    device.Buffer
	Layout hashmap.Layout // of Map
	Slabs  []device.Buffer
	Peers  uint8 // bits of the slabs that lie on other devices
}

// Pause keeps batches from beginning on any device until the returned function is called. It returns nil if they are
// paused already.
func (s *Set) Pause() (resume func()) {
	c := make(chan struct{})
	if !s.paused.CompareAndSwap(nil, &c) {
		return nil
	}
	s.generation.Add(1)
	return func() {
		s.paused.Store(nil)
		s.generation.Add(1)
		close(c)
	}
}

// Paused says whether batches are kept from beginning.
func (s *Set) Paused() bool { return s.paused.Load() != nil }

// whilePaused waits until batches may begin.
func (s *Set) whilePaused(ctx context.Context) error {
	for {
		resume := s.paused.Load()
		if resume == nil {
			return nil
		}
		select {
		case <-*resume:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Survives says whether the cache serves on after d has returned an error: if d is lost and another device is not.
func (s *Set) Survives(d *Device) bool {
	if d.IsLost() {
		return s.OthersWork(d)
	}
	return d.Device.Err() != nil && s.Lose != nil && s.Lose(d)
}

// OthersWork says whether a device other than d has not failed.
func (s *Set) OthersWork(d *Device) bool {
	return slices.ContainsFunc(s.Devices, func(o *Device) bool { return o != d && !o.IsLost() && o.Device.Err() == nil })
}

// Check gives up devices that have failed, and returns an error when the last one has.
func (s *Set) Check() error {
	for _, d := range s.Devices {
		if !d.IsLost() && d.Device.Err() != nil && !s.Survives(d) {
			return d.LostError()
		}
	}
	return nil
}

// IsLost says whether the cache has given the device up.
func (d *Device) IsLost() bool { return d.lost.Load() }

// IsGone says whether the device's memory cannot be read any more: whether it is lost, and not only hidden.
func (d *Device) IsGone() bool { return d.IsLost() && !d.hidden.Load() }

// SetLost gives the device up, also one that is hidden. why is the error with which it has failed. REQUIRES: batches are paused. One goroutine at a time may
// call it.
func (d *Device) SetLost(why error) {
	if !d.IsGone() {
		d.lostBy.Store(&why)
		d.hidden.Store(false)
		d.lost.Store(true)
		d.set.generation.Add(1)
	}
}

// SetHidden has no batch run on the device, as SetLost, though its memory can be read. REQUIRES: as SetLost.
func (d *Device) SetHidden(why error) {
	d.SetLost(why)
	d.hidden.Store(true)
}

// LostError is the error of calls for a device that has failed.
func (d *Device) LostError() error {
	return fmt.Errorf("%w: device %d: %w", ErrDevice, d.Index, d.LostReason())
}

// LostReason is the error with which the device has failed. REQUIRES: it has.
func (d *Device) LostReason() error {
	if err := d.Device.Err(); err != nil || !d.IsLost() {
		return err
	}
	return *d.lostBy.Load() // another process has found that it has failed
}

// orLost returns err, or LostError if the device has failed for good.
func (d *Device) orLost(err error) error {
	if d.Device.Err() != nil {
		return d.LostError()
	}
	return err
}

// wrap adds to an error of the device what was being done.
func (d *Device) wrap(err error, rows int, t *Table) error {
	if d.Device.Err() != nil {
		return fmt.Errorf("%w: Gather of %d rows of table %s on device %d: %w", ErrDevice, rows, t.Name, d.Index, err)
	}
	return fmt.Errorf("cache: Gather of %d rows of table %s on device %d: %w", rows, t.Name, d.Index, err)
}
