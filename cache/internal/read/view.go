package read

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/statefolder"
	"github.com/tensorcache/tensorcache/kernels"
)

// Set is the devices of a cache and the tables that they read.
type Set struct {
	Devices []*Device
	Tables  []*Table
	Tuning  *Tuning
	// Shared says that memory which batches read is allocated so that other processes can map it.
	Shared bool
	// Kept, if not nil, has host memory that outlives the process. Then Shared is set.
	Kept *statefolder.Folder
	// Lose is called when a device has failed for good. It says whether the cache goes on without the device. It must
	// be safe for concurrent use.
	Lose func(*Device) bool

	faults faults
	// generation counts changes of views, pauses and lost devices.
	generation atomic.Uint64
	readers    atomic.Pointer[Readers]
	turn       atomic.Uint64 // number of the next Gather; devices take turns by it
	fence      atomic.Uint64
	paused     atomic.Pointer[chan struct{}] // not nil: batches are paused; closed when they may begin again
	retired    atomic.Pointer[error]         // not nil: replays read old rows, for this reason
}

// Alloc takes memory of a device that batches read. Where that is host memory it outlives the process, if such memory is asked for: role is its name in the folder. With reuse it may
// hold anything: what the owner before had in that role.
func (s *Set) Alloc(d device.Device, role string, reuse bool, bytes int64, what string) (device.Buffer, error) {
	switch {
	case s.Kept == nil || d.NeedsStaging():
		return device.Alloc(d, s.Shared, bytes, what)
	case reuse:
		return s.Kept.Reuse(d, role, bytes, what)
	}
	return s.Kept.Alloc(d, role, bytes, what)
}

// SlabRole and MapRole return the roles of a device's slab and hashmap in a folder.
func SlabRole(i int) string { return fmt.Sprintf("slab%d", i) }
func MapRole(i int) string  { return fmt.Sprintf("map%d", i) }

// View is a device's hashmap, and the slabs that its location words name, by slab ID. It is immutable.
type View struct {
	Map    device.Buffer
	Layout hashmap.Layout // of Map
	Slabs  []device.Buffer
	Peers  uint8 // a bit for each slab that lies on another device
}

// lookup returns what says where the rows of a table of limit rows are looked up. All batches take it from here: those of a lane, those of several tables,
// and captured ones, whose replays read what it returned when their view was published.
func (v *View) lookup(t *TableView, table int, limit int64) kernels.Lookup {
	return kernels.Lookup{
		Map: v.Map, Layout: v.Layout, Table: table, Limit: limit, Rejected: t.Rejected, Oversize: t.Oversize, Peers: v.Peers, RowBytes: t.Rows.RowBytes,
	}
}

// Pause prevents batches from beginning on any device until the returned function is called. It returns nil if
// batches are paused already.
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

// Paused says whether batches are paused.
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

// Survives says whether the cache goes on after d has returned an error. It does if d is lost, or can be given up,
// and another device works.
func (s *Set) Survives(d *Device) bool {
	if d.IsLost() {
		return s.OthersWork(d)
	}
	return d.Device.Err() != nil && s.Lose != nil && s.Lose(d)
}

// OthersWork says whether a device other than d works: it is neither lost nor failed.
func (s *Set) OthersWork(d *Device) bool {
	return slices.ContainsFunc(s.Devices, func(o *Device) bool { return o != d && !o.IsLost() && o.Device.Err() == nil })
}

// Check gives up devices that have failed. It returns an error if the cache cannot go on without one of them.
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

// IsGone says whether the device's memory cannot be read any more: it is lost, and not only hidden.
func (d *Device) IsGone() bool { return d.IsLost() && !d.hidden.Load() }

// SetLost gives the device up, even if it is hidden already. why is the error with which it failed. REQUIRES: batches
// are paused, and only one goroutine calls it at a time.
func (d *Device) SetLost(why error) {
	if !d.IsGone() {
		d.lostBy.Store(&why)
		d.hidden.Store(false)
		d.lost.Store(true)
		d.set.generation.Add(1)
	}
}

// SetHidden is SetLost for a device whose memory can still be read. REQUIRES: as SetLost.
func (d *Device) SetHidden(why error) {
	d.SetLost(why)
	d.hidden.Store(true)
}

// LostError is the error of calls for a device that has failed.
func (d *Device) LostError() error {
	return fmt.Errorf("%w: device %d: %w", ErrDevice, d.Index, d.LostReason())
}

// LostReason is the error with which the device has failed. REQUIRES: it has failed.
func (d *Device) LostReason() error {
	if err := d.Device.Err(); err != nil || !d.IsLost() {
		return err
	}
	return *d.lostBy.Load() // another process has found the failure
}

// OrLost returns err, or LostError if the device has failed for good.
func (d *Device) OrLost(err error) error {
	if d.Device.Err() != nil {
		return d.LostError()
	}
	return err
}

// wrap adds to an error of the device which batch it interrupted.
func (d *Device) wrap(err error, rows int, t *Table) error {
	if d.Device.Err() != nil {
		return fmt.Errorf("%w: Gather of %d rows of table %s on device %d: %w", ErrDevice, rows, t.Name, d.Index, err)
	}
	return fmt.Errorf("cache: Gather of %d rows of table %s on device %d: %w", rows, t.Name, d.Index, err)
}
