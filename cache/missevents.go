package cache

import (
	"math/rand/v2"
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
	all := kernels.FoundView(list)
	n := min(int64(room), misses)
	for i := range n {
		b.misses = append(b.misses, all[i*misses/n])
	}
}

// explainMisses adds the batch's misses to its span: each as an event, and a link to each sampled cycle that evicted some.
func (b *tracedBatch) explainMisses() {
	if len(b.misses) == 0 {
		return
	}
	c := b.where.device.cache
	t := c.tables[b.where.table]
	estimates := make([]admission.Estimate, len(b.misses))
	known := c.learner.tryExplain(b.where.table, b.misses, estimates)
	var links map[*cause][]int64
	// Used by every event: NewEventConfig, by which SDKs read options, copies attributes.
	var room [12]attribute.KeyValue
	now := time.Now()
	options := []trace.EventOption{trace.WithTimestamp(now), nil}
	for i, f := range b.misses {
		row, reason := int64(f.Word), slab.Reason(min(f.Reason, slab.NumReasons-1))
		all := append(room[:0], keyRow.Int64(row), keyReason.String(reason.String()), keySampled.Bool(true))
		if n, ok := t.tier.TryStoredBytes(row); ok {
			all = append(all, keyStored.Int(n))
		}
		if known {
			e := &estimates[i]
			all = append(all, keyFrequency.Float64(e.Frequency), keyScore.Float64(e.Score), keyVictim.Float64(e.Victim))
		}
		if reason == slab.Evicted || reason == slab.Invalidated {
			if w, ok := c.changes.evictions.find(hashmap.Key(b.where.table, row)); ok {
				all = append(all, keyEvictedAge.Float64(w.age.Seconds()), keyEvictedSince.Float64(now.Sub(w.at).Seconds()),
					keyEvictedTime.String(w.at.UTC().Format(time.RFC3339Nano)))
				if w.by != nil {
					all = append(all, keyEvictedBy.String(w.by.what))
					if links == nil {
						links = map[*cause][]int64{}
					}
					links[w.by] = append(links[w.by], row)
				}
			}
		}
		options[1] = trace.WithAttributes(all...)
		b.span.AddEvent("tensorcache.miss", options...)
	}
	for by, rows := range links {
		b.span.AddLink(trace.Link{SpanContext: by.span, Attributes: []attribute.KeyValue{keyEvictedBy.String(by.what), keyLinkRows.Int64Slice(rows)}})
	}
}

// tryExplain asks the policy about misses of a table, unless it is busy: batches do not wait for it. It returns whether the policy
// has said something.
func (l *learner) tryExplain(table int, misses []kernels.Found, estimates []admission.Estimate) (known bool) {
	if !l.mu.TryLock() {
		return false
	}
	defer l.mu.Unlock()
	err := l.callLocked(func(p admission.Policy) {
		e, ok := p.(admission.Explainer)
		if !ok {
			return
		}
		for i, f := range misses {
			estimates[i] = e.Explain(hashmap.Key(table, int64(f.Word)))
		}
		known = true
	})
	return known && err == nil
}
