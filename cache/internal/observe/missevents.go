package observe

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// missScratch is reusable memory for the events of a batch's misses.
type missScratch struct {
	misses    []kernels.Found
	rows      []int64
	stored    []int // stored bytes of each row, negative if not known
	estimates []admission.Estimate
	known     bool         // the policy has given estimates
	withdrawn []Withdrawal // empty if they are not known
	// attributes are the current event's. with[n] is an option that adds the first n of them. These options are made once, because
	// making one allocates. They can be reused, because NewEventConfig, by which SDKs read options, copies the attributes.
	attributes [missAttributes]attribute.KeyValue
	with       [missAttributes + 1]trace.EventOption
	options    [2]trace.EventOption
}

// missAttributes is the most attributes of a miss's event.
const missAttributes = 12

var missScratches = sync.Pool{New: func() any {
	s := &missScratch{}
	for n := range s.with {
		s.with[n] = trace.WithAttributes(s.attributes[:n]...)
	}
	return s
}}

// take sets the rows to the rows that were missed. Nothing is known of them yet.
func (s *missScratch) take(misses []kernels.Found) {
	n := len(misses)
	s.rows, s.withdrawn, s.known = s.rows[:0], s.withdrawn[:0], false
	if cap(s.stored) < n {
		s.stored, s.estimates = make([]int, n), make([]admission.Estimate, n)
	}
	s.stored, s.estimates = s.stored[:n], s.estimates[:n]
	for i, f := range misses {
		s.rows = append(s.rows, int64(f.Word))
		s.stored[i] = -1
	}
}

// look fills in stored bytes, withdrawals and estimates of the rows of a table. It takes each lock once.
func (s *missScratch) look(t *Telemetry, table int) {
	t.set.Tables[table].Tier.TryStoredBytes(s.rows, s.stored)
	s.withdrawn = t.sources.Withdrawals(table, s.rows, s.withdrawn)
	s.known = t.sources.TryExplain(table, s.rows, s.estimates)
}

// Attributes of events, made once. missReasons are indexed by slab.Reason.
var (
	sampledMiss = KeySampled.Bool(true)
	missReasons = func() (all [slab.NumReasons]attribute.KeyValue) {
		for r := range all {
			all[r] = KeyReason.String(slab.Reason(r).String())
		}
		return all
	}()
)

// explainMisses adds the events of the batch's misses to its span, with what this process knows of them.
func (b *batchSpan) explainMisses() {
	if b.scratch == nil {
		return
	}
	if len(b.Misses) > 0 {
		b.scratch.take(b.Misses)
		b.scratch.look(b.telemetry, b.table)
		b.addMisses(time.Now())
	}
	b.free()
}

// free makes the memory of the events available to other batches.
func (b *batchSpan) free() {
	if b.scratch == nil {
		return
	}
	s := b.scratch
	s.misses, b.scratch, b.Misses = b.Misses[:0], nil, nil
	missScratches.Put(s)
}

// addMisses adds an event for each recorded miss to the batch's span, with what scratch has of it, and a link to each sampled operation that
// withdrew such a row.
func (b *batchSpan) addMisses(now time.Time) {
	s := b.scratch
	var links map[*Cause][]int64
	s.options[0] = trace.WithTimestamp(now)
	var when moment
	for i, f := range b.Misses {
		row, reason := int64(f.Word), slab.Reason(min(f.Reason, slab.NumReasons-1))
		all := append(s.attributes[:0], KeyRow.Int64(row), missReasons[reason], sampledMiss)
		if tier := b.telemetry.set.Tables[b.table].TierNow(row); tier != "" {
			all = append(all, KeyTier.String(tier))
		}
		if n := s.stored[i]; n >= 0 {
			all = append(all, KeyStored.Int(n))
		}
		if s.known {
			e := &s.estimates[i]
			all = append(all, KeyFrequency.Float64(e.Frequency), KeyScore.Float64(e.Score), KeyVictim.Float64(e.Victim))
		}
		if i >= len(s.withdrawn) {
			// not known
		} else if w := &s.withdrawn[i]; !w.At.IsZero() { // for every reason, because rows withdrawn long ago are counted as rejected
			all = append(all, KeyEvictedAge.Float64(w.Age.Seconds()), KeyEvictedSince.Float64(now.Sub(w.At).Seconds()),
				KeyEvictedTime.String(when.text(w.At)))
			if w.By != nil {
				all = append(all, KeyEvictedBy.String(w.By.What))
				if w.By.Span.IsSampled() {
					if links == nil {
						links = map[*Cause][]int64{}
					}
					links[w.By] = append(links[w.By], row)
				}
			}
		}
		s.options[1] = s.with[len(all)]
		b.span.AddEvent("tensorcache.miss", s.options[:]...)
	}
	for by, rows := range links {
		b.span.AddLink(trace.Link{SpanContext: by.Span, Attributes: []attribute.KeyValue{KeyEvictedBy.String(by.What), KeyLinkRows.Int64Slice(rows)}})
	}
}

// moment caches the text of the last time, because many rows are withdrawn at the same time.
type moment struct {
	at      time.Time
	written string
}

func (m *moment) text(at time.Time) string {
	if m.written == "" || !m.at.Equal(at) {
		m.at, m.written = at, at.UTC().Format(time.RFC3339Nano)
	}
	return m.written
}
