package cache

import (
	"math/rand/v2"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// missWindow is how many neighbouring misses of a list in device memory are brought to the host to choose from.
const missWindow = 1024

// takeMisses chooses misses of a finished part for the batch's events, evenly from its list, or where that is in the device's
// memory from a window of it.
func (b *tracedBatch) takeMisses(l *lane) {
	room := b.where.device.cache.telemetry.opts.MissEvents - len(b.misses)
	misses := int64(kernels.CountersView(l.result).Misses)
	if room <= 0 || misses == 0 || l.lists.Size() == 0 {
		return
	}
	// The list begins with as many entries as the part has rows, its misses at their end: lanes keep what they enqueued.
	end := l.lookup.Found.Size()
	list := l.lookup.Found.Slice(end-misses*kernels.FoundBytes, end)
	if list.Bytes() == nil {
		n := min(misses, missWindow)
		at := rand.Int64N(misses - n + 1)
		window := make([]byte, n*kernels.FoundBytes+8)
		if err := device.Download(b.where.device.device, window[:n*kernels.FoundBytes], list.Slice(at*kernels.FoundBytes, (at+n)*kernels.FoundBytes)); err != nil {
			return // without events; the device's failure shows elsewhere
		}
		list, misses = device.HostBuffer(window[:n*kernels.FoundBytes]), n
	}
	if b.scratch == nil {
		b.scratch = missScratches.Get().(*missScratch)
		b.misses = b.scratch.misses[:0]
	}
	all := kernels.FoundView(list)
	n := min(int64(room), misses)
	for i := range n {
		b.misses = append(b.misses, all[i*misses/n])
	}
}

// missScratch is what explaining a batch's misses needs, kept for later batches.
type missScratch struct {
	misses    []kernels.Found
	rows      []int64
	stored    []int // of each row, negative where that is not known
	estimates []admission.Estimate
	withdrawn []withdrawal
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
func (s *missScratch) look(c *Cache, table int, misses []kernels.Found) (known bool) {
	n := len(misses)
	s.rows, s.withdrawn = s.rows[:0], s.withdrawn[:0]
	if cap(s.stored) < n {
		s.stored, s.estimates = make([]int, n), make([]admission.Estimate, n)
	}
	s.stored, s.estimates = s.stored[:n], s.estimates[:n]
	for _, f := range misses {
		s.rows = append(s.rows, int64(f.Word))
	}
	c.tables[table].tier.TryStoredBytes(s.rows, s.stored)
	s.withdrawn = c.changes.evictions.findAll(table, s.rows, s.withdrawn)
	return c.learner.tryExplain(table, s.rows, s.estimates)
}

// sampledMiss, and missReasons by reason, are attributes of events.
var (
	sampledMiss = keySampled.Bool(true)
	missReasons = func() (all [slab.NumReasons]attribute.KeyValue) {
		for r := range all {
			all[r] = keyReason.String(slab.Reason(r).String())
		}
		return all
	}()
)

// explainMisses adds the batch's misses to its span: each as an event, and a link to each sampled operation that withdrew some.
func (b *tracedBatch) explainMisses() {
	s := b.scratch
	if s == nil {
		return
	}
	known := s.look(b.where.device.cache, b.where.table, b.misses)
	var links map[*cause][]int64
	now := time.Now()
	s.options[0] = trace.WithTimestamp(now)
	var when moment
	for i, f := range b.misses {
		row, reason := int64(f.Word), slab.Reason(min(f.Reason, slab.NumReasons-1))
		all := append(s.attributes[:0], keyRow.Int64(row), missReasons[reason], sampledMiss)
		if n := s.stored[i]; n >= 0 {
			all = append(all, keyStored.Int(n))
		}
		if known {
			e := &s.estimates[i]
			all = append(all, keyFrequency.Float64(e.Frequency), keyScore.Float64(e.Score), keyVictim.Float64(e.Victim))
		}
		if w := &s.withdrawn[i]; !w.at.IsZero() { // whatever the reason: what was withdrawn long ago counts as rejected
			all = append(all, keyEvictedAge.Float64(w.age.Seconds()), keyEvictedSince.Float64(now.Sub(w.at).Seconds()),
				keyEvictedTime.String(when.text(w.at)))
			if w.by != nil {
				all = append(all, keyEvictedBy.String(w.by.what))
				if w.by.span.IsSampled() {
					if links == nil {
						links = map[*cause][]int64{}
					}
					links[w.by] = append(links[w.by], row)
				}
			}
		}
		s.options[1] = s.with[len(all)]
		b.span.AddEvent("tensorcache.miss", s.options[:]...)
	}
	for by, rows := range links {
		b.span.AddLink(trace.Link{SpanContext: by.span, Attributes: []attribute.KeyValue{keyEvictedBy.String(by.what), keyLinkRows.Int64Slice(rows)}})
	}
	s.misses, b.scratch, b.misses = b.misses[:0], nil, nil
	missScratches.Put(s)
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

// tryExplain asks the policy about rows of a table, unless it is busy: batches do not wait for it. It returns whether the policy
// has said something.
func (l *learner) tryExplain(table int, rows []int64, estimates []admission.Estimate) (known bool) {
	if !l.mu.TryLock() {
		return false
	}
	defer l.mu.Unlock()
	err := l.callLocked(func(p admission.Policy) {
		e, ok := p.(admission.Explainer)
		if !ok {
			return
		}
		for i, row := range rows {
			estimates[i] = e.Explain(hashmap.Key(table, row))
		}
		known = true
	})
	return known && err == nil
}
