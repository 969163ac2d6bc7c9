package cache

import (
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// point is a point of a sampled batch on the device's timeline.
type point int

const (
	pointBegun    point = iota // the batch's stream has come to it
	pointLookedUp              // lookup has ended
	pointFetched               // so have ordering and reading of the misses
	pointDecoding              // the lane's other stream has come to the hits
	pointDecoded               // and has decoded them
	pointDone                  // the counters are published
	numPoints
)

// trace has the lane's next batch traced, which waits for its device alone if it has to have timers made.
func (l *lane) trace(b *tracedBatch) {
	l.traced = b
	if b == nil {
		return
	}
	for i := range l.timers {
		if l.timers[i] != nil {
			continue
		}
		var err error
		if l.timers[i], err = l.owner.device.NewTimer(); err != nil {
			l.timers[i] = nil
			b.failed.Store(true)
			return
		}
	}
}

// mark records a point of a traced batch; of others it does nothing.
func (l *lane) mark(s device.Stream, p point) {
	b := l.traced
	if b == nil || b.failed.Load() {
		return
	}
	if err := s.Record(l.timers[p]); err != nil { // the batch itself finds out
		b.failed.Store(true)
	}
}

func (l *lane) closeTimers() {
	for _, t := range l.timers {
		if t != nil {
			t.Close()
		}
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

// traceDone takes in what a part of a traced batch, now finished, has recorded: its counters, its times, and some misses. It
// returns when the part finished by the device's timeline, the zero time if that is not known. The lane must still have the
// part's lists.
func (l *lane) traceDone(from int) (at time.Time) {
	b := l.traced
	if b == nil {
		return at
	}
	b.done.add(kernels.CountersView(l.result), from)
	part := b.parts
	b.parts++
	b.takeMisses(l)
	if b.run == sideBySide {
		b.fetch, b.hostShare = l.plan.Chosen()
	}
	d := l.owner
	if b.failed.Load() {
		return at
	}
	var times [numPoints]time.Time
	timers := l.timers[:]
	if b.run != sideBySide {
		timers = []device.Timer{l.timers[pointDone]}
		if err := d.timeline.times(d.device, timers, times[pointDone:]); err != nil {
			b.failed.Store(true)
			return time.Time{}
		}
		return times[pointDone]
	}
	if err := d.timeline.times(d.device, timers, times[:]); err != nil {
		b.failed.Store(true)
		return at
	}
	b.stages(part, &times)
	return times[pointDone]
}

// stages adds the spans of a part's stages, by when its points passed.
func (b *tracedBatch) stages(part int, times *[numPoints]time.Time) {
	for _, stage := range [...]struct {
		name     string
		from, to point
	}{{stageLookup, pointBegun, pointLookedUp}, {stageMisses, pointLookedUp, pointFetched}, {stageHits, pointDecoding, pointDecoded}} {
		_, span := b.tracing.tracer.Start(b.ctx, stage.name, trace.WithTimestamp(times[stage.from]))
		if part > 0 {
			span.SetAttributes(keyPart.Int(part))
		}
		span.End(trace.WithTimestamp(times[stage.to]))
		if m := b.metering; m != nil {
			m.stageDuration.Record(b.ctx, times[stage.to].Sub(times[stage.from]).Seconds(), m.stage[b.where.table][stage.name]...)
		}
	}
}
