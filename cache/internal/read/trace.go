package read

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// Point is a moment in a traced batch. The device records its time.
type Point int

const (
	PointBegun    Point = iota // the stream has reached the batch
	PointLookedUp              // lookup has ended
	PointFetched               // the misses have been ordered and read
	PointDecoding              // the lane's second stream has reached the decoding of hits
	PointDecoded               // the hits have been decoded
	PointDone                  // the counters have been published
	NumPoints
)

// Trace is the record of one batch. The caller of Gather or Enqueue creates it, and reads the exported fields
// when the batch has ended.
type Trace struct {
	// MaxMisses is the largest length of Misses.
	MaxMisses int
	// Stages, if not nil, is called with the times of each part that was served side by side, if they are known.
	Stages func(part int, times *[NumPoints]time.Time)

	// Planned is how an untraced batch would have been served, and Run how this one was. Both are 0 if the batch did
	// not begin.
	Planned, Run Launches
	// Fetch says how misses were read: "zero_copy", "zero_copy_ordered" or "shared". It is "" if the batch was not
	// served side by side. HostShare is the share of the misses that was assigned to host threads, 0 to 1.
	Fetch     string
	HostShare float64
	Done      Outcome
	// Misses are some of the batch's misses, spread evenly over their list.
	Misses []kernels.Found

	parts  int
	failed atomic.Bool // a timer could not be recorded or read
}

// startTrace begins to record the lane's batch in t, unless t is nil. The first call for a lane creates its timers,
// which waits for the device.
func (l *lane) startTrace(t *Trace, planned Launches) {
	if l.trace = t; t == nil {
		return
	}
	t.Planned, t.Run = planned, l.route.launches
	for i := range l.timers {
		if l.timers[i] != nil {
			continue
		}
		var err error
		if l.timers[i], err = l.owner.Device.NewTimer(); err != nil {
			l.timers[i] = nil
			t.failed.Store(true)
			return
		}
	}
}

// mark records a point of a traced batch. For other batches it does nothing.
func (l *lane) mark(s device.Stream, p Point) {
	if t := l.trace; t != nil && !t.failed.Load() {
		if err := s.Record(l.timers[p]); err != nil { // the batch will return the error
			t.failed.Store(true)
		}
	}
}

// tracePart adds a finished part of a traced batch to its Trace. The part begins at position from of the batch.
// absent is the outcome of reading its absent rows. tracePart returns the time at which the part finished, or the
// zero time if that is not known.
func (l *lane) tracePart(from int, absent *cold.Outcome) (at time.Time) {
	t, d := l.trace, l.owner
	if t == nil {
		return at
	}
	t.Done.add(kernels.CountersView(l.result), from)
	t.Done.addAbsent(absent, from)
	part := t.parts
	t.parts++
	l.takeMisses(t)
	apart := t.Run == SideBySide
	if apart {
		t.Fetch, t.HostShare = l.plan.Chosen()
	}
	if t.failed.Load() {
		return at
	}
	var times [NumPoints]time.Time
	first := PointDone
	if apart {
		first = PointBegun
	}
	if err := d.timeline.times(d.Device, l.timers[first:], times[first:]); err != nil {
		t.failed.Store(true)
		return at
	}
	if apart && t.Stages != nil {
		t.Stages(part, &times)
	}
	return times[PointDone]
}

// missWindow is the number of neighbouring misses that are copied to the host from a list in device memory. The
// trace's misses are chosen among them.
const missWindow = 1024

// takeMisses adds misses of a finished part to the Trace. They are spread evenly over the list of misses, or over a
// window of it if the list is in device memory.
func (l *lane) takeMisses(t *Trace) {
	room := t.MaxMisses - len(t.Misses)
	misses := int64(kernels.CountersView(l.result).Misses)
	if room <= 0 || misses == 0 || l.scratch == nil || l.route.pool != nil || l.route.parts() > 1 {
		return
	}
	// The list has an entry for each row of the part. Misses are at its end.
	end := l.lookup.Found.Size()
	list := l.lookup.Found.Slice(end-misses*kernels.FoundBytes, end)
	if list.Bytes() == nil {
		n := min(misses, missWindow)
		at := rand.Int64N(misses - n + 1)
		window := make([]byte, n*kernels.FoundBytes+8)
		if err := device.Download(l.owner.Device, window[:n*kernels.FoundBytes], list.Slice(at*kernels.FoundBytes, (at+n)*kernels.FoundBytes)); err != nil {
			return // later calls return the device's error
		}
		list, misses = device.HostBuffer(window[:n*kernels.FoundBytes]), n
	}
	all := kernels.FoundView(list)
	n := min(int64(room), misses)
	for i := range n {
		t.Misses = append(t.Misses, all[i*misses/n])
	}
}

// timeline converts times of a device's timers to times of the host's clock.
type timeline struct {
	sync.Mutex
	stream device.Stream
	// timer passed at host time at. spare is for the next measurement.
	timer, spare device.Timer
	at           time.Time
}

const (
	// timelineAge is how long a measurement is used. It is short because timers return milliseconds as 32-bit floats,
	// and because clocks drift.
	timelineAge = time.Second
	// A measurement is repeated up to timelineTries times, until one takes less than timelineError. The shortest one
	// is used.
	timelineTries = 4
	timelineError = 20 * time.Microsecond
)

// times sets at to the host times at which the timers passed. REQUIRES: all of them have passed.
func (k *timeline) times(d device.Device, timers []device.Timer, at []time.Time) error {
	k.Lock()
	defer k.Unlock()
	if k.timer == nil {
		if err := k.openLocked(d); err != nil {
			return err
		}
	}
	if time.Since(k.at) > timelineAge {
		if err := k.relateLocked(); err != nil {
			return err
		}
	}
	for i, t := range timers {
		since, err := t.Since(k.timer)
		if err != nil {
			return fmt.Errorf("cache: time of point %d: %w", i, err)
		}
		at[i] = k.at.Add(since)
	}
	return nil
}

// openLocked creates the stream and the timers for measurements. REQUIRES: k is locked.
func (k *timeline) openLocked(d device.Device) error {
	s, err := d.NewStream()
	if err != nil {
		return err
	}
	var timers [2]device.Timer
	for i := range timers {
		if timers[i], err = d.NewTimer(); err != nil {
			if i > 0 {
				timers[0].Close()
			}
			s.Close()
			return err
		}
	}
	k.stream, k.timer, k.spare = s, timers[0], timers[1]
	return nil
}

// relateLocked measures the host time at which a timer passes. It takes the middle between enqueueing the timer and
// the end of the wait for it. REQUIRES: k is locked.
func (k *timeline) relateLocked() error {
	best := time.Duration(0)
	for try := range timelineTries {
		before := time.Now()
		if err := k.stream.Record(k.spare); err != nil {
			return err
		}
		if err := k.spare.Synchronize(); err != nil {
			return err
		}
		took := time.Since(before)
		if try == 0 || took < best {
			best, k.at = took, before.Add(took/2)
			k.timer, k.spare = k.spare, k.timer
		}
		if took < timelineError {
			break
		}
	}
	return nil
}

func (k *timeline) close() {
	k.Lock()
	defer k.Unlock()
	if k.timer != nil {
		k.timer.Close()
		k.spare.Close()
		k.stream.Close()
		k.stream, k.timer, k.spare = nil, nil, nil
	}
}
