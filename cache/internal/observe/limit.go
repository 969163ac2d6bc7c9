package observe

import (
	"sync/atomic"
	"time"
)

// limit bounds the traces that begin in a cache, so that neither spans nor an exporter that is down cost more than a small part of the time,
// however many Gathers there are.
//
// Whether a Gather misses is known only when it has ended. So some Gathers are recorded as candidates, without a span, and each gets one when
// it ends if there is room. Half of the room is kept for those of interest: with misses or an error.
type limit struct {
	candidates, gathers, changes bucket
}

// candidatesPerTrace is how many Gathers are recorded for each that may become a trace. A higher number finds rare misses sooner. A recorded
// Gather takes some ten microseconds more.
const candidatesPerTrace = 8

// timedRate is the most Gathers a second that record histograms. Two records take half a microsecond, as much as half a Gather of one row. With 10,000 a
// second a server lost 5 % of its reads, with 1,000 it loses 2 %.
const timedRate = 1000

// newLimit returns a limit for the traces of Gathers a second, and for those of changes. It returns nil for rate 0: no limit.
func newLimit(rate float64) *limit {
	if rate == 0 {
		return nil
	}
	l := &limit{}
	l.candidates.set(candidatesPerTrace * rate)
	l.gathers.set(rate)
	l.changes.set(rate)
	return l
}

// candidate reports whether a Gather that begins a trace is recorded. It allocates nothing.
func (l *limit) candidate() bool { return l.candidates.take(0) }

// gather reports whether a recorded Gather becomes a trace.
func (l *limit) gather(ofInterest bool) bool {
	if ofInterest {
		return l.gathers.take(0)
	}
	return l.gathers.take(l.gathers.burst / 2)
}

// change reports whether an Update or Invalidate becomes a trace. Other operations are few.
func (l *limit) change(what string) bool {
	return what != "update" && what != "invalidate" || l.changes.take(0)
}

// bucket is a token bucket. It is safe for concurrent use.
type bucket struct {
	interval int64 // nanoseconds in which a token comes
	burst    int64 // nanoseconds in which an empty bucket is filled
	// full is when the bucket will be full again, in nanoseconds since began.
	full atomic.Int64
}

var began = time.Now()

// set makes it a bucket that gets rate tokens a second, and holds the tokens of a second, and at least two.
func (b *bucket) set(rate float64) {
	const longest = 1e17 // three years: sums of several stay below the largest int64
	b.interval = int64(min(float64(time.Second)/rate, longest))
	b.burst = max(2*b.interval, int64(time.Second))
}

// take takes a token, if as many remain as come in keep nanoseconds.
func (b *bucket) take(keep int64) bool {
	now := int64(time.Since(began))
	for {
		full := b.full.Load()
		next := max(full, now) + b.interval
		if next-now > b.burst-keep {
			return false
		}
		if b.full.CompareAndSwap(full, next) {
			return true
		}
	}
}
