package read

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// Point is a point of a traced batch on the device's timeline.
type Point int

const (
	PointBegun    Point = iota // the batch's stream has come to the batch
	PointLookedUp              // lookup has ended
	PointFetched               // ordering and reading of the misses have ended
	PointDecoding              // the lane's second stream has come to the hits
	PointDecoded               // the hits are decoded
	PointDone                  // the counters are published
	NumPoints
)

// Trace records one batch. The caller of Gather or GatherDevice makes it, and reads the exported fields once the batch has ended.
type Trace struct {
	// MaxMisses bounds len(Misses).
	MaxMisses int
	// Stages, if not nil, is called for each part of the batch that was served side by side and whose times are known.
	Stages func(part int, times *[NumPoints]time.Time)

	// Planned is how an untraced batch would have been served, Run how this one was; both 0 if it did not begin.
	Planned, Run Launches
	// Fetch is how misses were read: "zero_copy", "zero_copy_ordered" or "shared", "" if the batch was not served side by side.
	// HostShare is the part of the misses, 0 to 1, that the host's processors were to gather.
	Fetch     string
	HostShare float64
	Done      Outcome
	// Misses are some of the batch's misses, evenly chosen.
	Misses []kernels.Found

	parts  int
	failed atomic.Bool // a timer could not be recorded or read
}

// startTrace has the lane's batch traced. The first traced batches of a lane make its timers, which waits for the device.
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

// mark records a point of a traced batch. Of others it does nothing.
func (l *lane) mark(s device.Stream, p Point) {
	if t := l.trace; t != nil && !t.failed.Load() {
		if err := s.Record(l.timers[p]); err != nil { // the batch itself finds out
			t.failed.Store(true)
		}
	}
}

// tracePart takes in what a finished part of a traced batch has recorded. The part's rows begin at position from. It returns when the
// part finished, the zero time if that is not known.
func (l *lane) tracePart(from int) (at time.Time) {
	t, d := l.trace, l.owner
	if t == nil {
		return at
	}
	t.Done.add(kernels.CountersView(l.result), from)
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

// missWindow is how many neighbouring misses of a list in device memory are copied to the host to choose from.
const missWindow = 1024

// takeMisses chooses misses of a finished part: evenly from its list, or where that is in device memory from a window of it.
func (l *lane) takeMisses(t *Trace) {
	room := t.MaxMisses - len(t.Misses)
	misses := int64(kernels.CountersView(l.result).Misses)
	if room <= 0 || misses == 0 || l.lists == nil {
		return
	}
	// The list has an entry for each row of the part, the misses at its end.
	end := l.lookup.Found.Size()
	list := l.lookup.Found.Slice(end-misses*kernels.FoundBytes, end)
	if list.Bytes() == nil {
		n := min(misses, missWindow)
		at := rand.Int64N(misses - n + 1)
		window := make([]byte, n*kernels.FoundBytes+8)
		if err := device.Download(l.owner.Device, window[:n*kernels.FoundBytes], list.Slice(at*kernels.FoundBytes, (at+n)*kernels.FoundBytes)); err != nil {
			return // the device's failure shows elsewhere
		}
		list, misses = device.HostBuffer(window[:n*kernels.FoundBytes]), n
	}
	all := kernels.FoundView(list)
	n := min(int64(room), misses)
	for i := range n {
		t.Misses = append(t.Misses, all[i*misses/n])
	}
}

// timeline relates a device's timeline to the host's clock.
type timeline struct {
	sync.Mutex
	stream device.Stream
	// timer passed at a time that is known; spare is to be the next one.
	timer, spare device.Timer
	at           time.Time
}

const (
	// timelineAge is how long a relation is used: the device's timers are 32-bit floats of milliseconds, and clocks drift.
	timelineAge = time.Second
	// timelineTries is how often the relation is measured at most, until one took less than timelineError. The quickest counts.
	timelineTries = 4
	timelineError = 20 * time.Microsecond
)

// times returns when timers passed. They must have.
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

// openLocked makes what relating takes. REQUIRES: k is locked.
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

// relateLocked measures when a timer passes by the host's clock: between before and after. REQUIRES: k is locked.
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
