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

// missScratch is what explaining a batch's misses needs, kept for later batches.
type missScratch struct {
	misses    []kernels.Found
	rows      []int64
	stored    []int // of each row, negative where that is not known
	estimates []admission.Estimate
	withdrawn []Withdrawal
	// attributes are an event's. Options that add the first so many of them are made once, for that takes memory: they may be used
	// again, since NewEventConfig, by which SDKs read options, copies attributes.
	attributes [missAttributes]attribute.KeyValue
	with       [missAttributes + 1]trace.EventOption
	options    [2]trace.EventOption
}

// missAttributes is how many attributes a miss's event has at most.
const missAttributes = 11

var missScratches = sync.Pool{New: func() any {
	s := &missScratch{}
	for n := range s.with {
		s.with[n] = trace.WithAttributes(s.attributes[:n]...)
	}
	return s
}}

// look fills in what is known of the misses of a table, taking each lock once, and returns whether the policy has said something.
func (s *missScratch) look(t *Telemetry, table int, misses []kernels.Found) (known bool) {
	n := len(misses)
	s.rows, s.withdrawn = s.rows[:0], s.withdrawn[:0]
	if cap(s.stored) < n {
		s.stored, s.estimates = make([]int, n), make([]admission.Estimate, n)
	}
	s.stored, s.estimates = s.stored[:n], s.estimates[:n]
	for _, f := range misses {
		s.rows = append(s.rows, int64(f.Word))
	}
	t.set.Tables[table].Tier.TryStoredBytes(s.rows, s.stored)
	s.withdrawn = t.sources.Withdrawals(table, s.rows, s.withdrawn)
	return t.sources.TryExplain(table, s.rows, s.estimates)
}

// sampledMiss, and missReasons by reason, are attributes of events.
var (
	sampledMiss = KeySampled.Bool(true)
	missReasons = func() (all [slab.NumReasons]attribute.KeyValue) {
		for r := range all {
			all[r] = KeyReason.String(slab.Reason(r).String())
		}
		return all
	}()
)

// explainMisses adds the batch's misses to its span: each as an event, and a link to each sampled operation that withdrew some.
func (b *batchSpan) explainMisses() {
	s := b.scratch
	if s == nil {
		return
	}
	defer func() {
		s.misses, b.scratch, b.Misses = b.Misses[:0], nil, nil
		missScratches.Put(s)
	}()
	if len(b.Misses) == 0 {
		return
	}
	known := s.look(b.telemetry, b.table, b.Misses)
	var links map[*Cause][]int64
	now := time.Now()
	s.options[0] = trace.WithTimestamp(now)
	var when moment
	for i, f := range b.Misses {
		row, reason := int64(f.Word), slab.Reason(min(f.Reason, slab.NumReasons-1))
		all := append(s.attributes[:0], KeyRow.Int64(row), missReasons[reason], sampledMiss)
		if n := s.stored[i]; n >= 0 {
			all = append(all, KeyStored.Int(n))
		}
		if known {
			e := &s.estimates[i]
			all = append(all, KeyFrequency.Float64(e.Frequency), KeyScore.Float64(e.Score), KeyVictim.Float64(e.Victim))
		}
		if w := &s.withdrawn[i]; !w.At.IsZero() { // whatever the reason: what was withdrawn long ago counts as rejected
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

// moment is a time as text, kept because rows are withdrawn many at a time.
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
