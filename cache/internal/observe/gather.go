package observe

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/tensorcache/tensorcache/cache/internal/read"
)

// Gather observes one call of Gather, from Telemetry.Gather to End. The zero value observes nothing.
type Gather struct {
	telemetry *Telemetry
	ctx       context.Context // with the span
	metering  *metering       // nil if no histogram is recorded
	counted   bool            // errors are counted
	begun     time.Time       // zero if there are neither histograms nor a candidate
	span      *batchSpan      // nil if the call is not recorded
	device    int
	table     int
	rows      int
}

// Gather begins to observe a Gather of the given number of rows. Without providers its cost is the comparison of two pointers. If the
// caller has a span that is not sampled, the Gather is not sampled either; otherwise the provider's sampler decides. A Gather that begins a
// trace where traces are limited has no span before it ends: see limit.
func (t *Telemetry) Gather(ctx context.Context, device, table, rows int) Gather {
	g := Gather{telemetry: t, ctx: ctx, device: device, table: table, rows: rows}
	m := t.meters()
	if g.counted = m != nil; g.counted && t.timed.take(0) {
		g.metering, g.begun = m, time.Now()
	}
	tr := t.tracer()
	if tr == nil || unsampled(ctx) || table >= len(tr.gather) {
		return g
	}
	if t.limit != nil && !trace.SpanContextFromContext(ctx).IsValid() {
		if !t.limit.candidate() {
			return g
		}
		if g.begun.IsZero() {
			g.begun = time.Now()
		}
		g.span = newBatchSpan(t, ctx, nil, tr, m, table, device, rows)
		g.span.begun = g.begun
		return g
	}
	spanned, span := tr.start(ctx, t.set.Tables[table].Name, table, device)
	if !span.IsRecording() {
		span.End()
		return g
	}
	g.ctx, g.span = spanned, newBatchSpan(t, spanned, span, tr, m, table, device, rows)
	return g
}

// start starts the span of a Gather.
func (tr *tracing) start(ctx context.Context, name string, table, device int, more ...trace.SpanStartOption) (context.Context, trace.Span) {
	with := tr.gather[table][device]
	if len(more) > 0 {
		with = slices.Concat(with, more)
	}
	return tr.tracer.Start(ctx, "gather "+name, with...)
}

// Trace returns the record for the batch, or nil if it is not sampled.
func (g *Gather) Trace() *read.Trace {
	if g.span == nil {
		return nil
	}
	return &g.span.Trace
}

// Watcher returns a watcher that ends the observation when the batch ends; End must not be called then. It returns nil if nothing observes
// the batch.
func (g *Gather) Watcher() read.Watcher {
	if !g.counted && g.span == nil {
		return nil
	}
	return &watcher{*g}
}

type watcher struct{ gather Gather }

// Rows implements read.Watcher.
func (w *watcher) Rows(n int) {
	if w.gather.rows = n; w.gather.span != nil {
		w.gather.span.rows = n
	}
}

// End implements read.Watcher.
func (w *watcher) End(err error, at time.Time) { w.gather.endAt(err, at) }

// Captured implements read.Watcher. Nothing of the batch has run, so there is nothing to measure.
func (w *watcher) Captured() {
	if w.gather.span != nil {
		w.gather.span.end(nil, time.Time{})
	}
}

// End ends a Gather that has finished, or failed.
func (g *Gather) End(err error) { g.endAt(err, time.Time{}) }

// endAt is End for a Gather that finished at the given time. The zero time stands for now.
func (g *Gather) endAt(err error, at time.Time) {
	end, ctx := at, g.ctx
	if end.IsZero() {
		end = time.Now()
	}
	if g.span != nil {
		g.span.end(err, at)
		ctx = g.span.ctx // of its span, if that is sampled: an exemplar of the histograms
	}
	if err != nil {
		g.telemetry.Failed(ctx, "gather", err)
	} else if m := g.metering; m != nil {
		with := m.gather[g.table][g.device]
		m.gatherDuration.Record(ctx, end.Sub(g.begun).Seconds(), with...)
		m.gatherRows.Record(ctx, int64(g.rows), with...)
	}
}

// batchSpan is the span of a sampled batch, or records a candidate for one.
type batchSpan struct {
	read.Trace
	telemetry           *Telemetry
	span                trace.Span // nil of a candidate, until it has ended
	ctx                 context.Context
	tracing             *tracing
	metering            *metering
	table, device, rows int
	scratch             *missScratch // nil if misses do not become events
	ended               time.Time    // when the batch ended, while an owner is asked
	// Of a candidate: when it began, and the times of its parts.
	begun time.Time
	parts []partTimes
}

// partTimes are the times of a part of a candidate.
type partTimes struct {
	part  int
	times [read.NumPoints]time.Time
}

func newBatchSpan(t *Telemetry, ctx context.Context, span trace.Span, tr *tracing, m *metering, table, device, rows int) *batchSpan {
	b := &batchSpan{telemetry: t, span: span, ctx: ctx, tracing: tr, metering: m, table: table, device: device, rows: rows}
	b.Stages = b.stages
	if b.MaxMisses = t.opts.MissEvents; b.MaxMisses > 0 {
		b.scratch = missScratches.Get().(*missScratch)
		b.Misses = b.scratch.misses[:0]
	}
	return b
}

// stages adds a span for each stage of a part, given the times of the part's points. Of a candidate it keeps the times.
func (b *batchSpan) stages(part int, times *[read.NumPoints]time.Time) {
	if b.span == nil {
		b.parts = append(b.parts, partTimes{part, *times})
		return
	}
	for _, stage := range [...]struct {
		name     string
		from, to read.Point
	}{
		{stageLookup, read.PointBegun, read.PointLookedUp}, {stageMisses, read.PointLookedUp, read.PointFetched},
		{stageHits, read.PointDecoding, read.PointDecoded},
	} {
		_, span := b.tracing.tracer.Start(b.ctx, stage.name, trace.WithTimestamp(times[stage.from]))
		if len(b.telemetry.client) > 0 {
			span.SetAttributes(b.telemetry.client...)
		}
		if part > 0 {
			span.SetAttributes(KeyPart.Int(part))
		}
		span.End(trace.WithTimestamp(times[stage.to]))
		if m := b.metering; m != nil {
			m.stageDuration.Record(b.ctx, times[stage.to].Sub(times[stage.from]).Seconds(), m.stage[b.table][stage.name]...)
		}
	}
}

// choose starts the span of a candidate that has ended, if it becomes a trace.
func (b *batchSpan) choose(err error) bool {
	if !b.telemetry.limit.gather(err != nil || b.Done.Misses > 0) {
		return false
	}
	ctx, span := b.tracing.start(b.ctx, b.telemetry.set.Tables[b.table].Name, b.table, b.device, trace.WithTimestamp(b.begun))
	if !span.IsRecording() {
		span.End()
		return false
	}
	b.ctx, b.span = ctx, span
	for i := range b.parts {
		b.stages(b.parts[i].part, &b.parts[i].times)
	}
	return true
}

// end sets the attributes of the batch's span and ends it.
func (b *batchSpan) end(err error, at time.Time) {
	if b.span == nil && !b.choose(err) {
		b.free()
		return
	}
	if err != nil {
		b.telemetry.recordError(b.span, err)
	}
	o, rowBytes := &b.Done, int64(b.telemetry.set.Tables[b.table].Tier.RowBytes())
	attributes := []attribute.KeyValue{
		KeyRows.Int(b.rows), KeyHits.Int64(o.Hits), KeyMisses.Int64(o.Misses), KeyOutputBytes.Int64(int64(b.rows) * rowBytes),
		KeyMissBytes.Int64(o.Misses * rowBytes), KeyHostBytes.Int64(o.HostBytes), KeySampledCount.Int(len(b.Misses)),
	}
	for reason, n := range o.Reasons {
		attributes = append(attributes, KeyReasons[reason].Int64(n))
	}
	if o.Absent > 0 {
		attributes = append(attributes, KeyAbsent.Int64(o.Absent), KeyFailedRows.Int64(o.Failed), KeyColdSeconds.Float64(o.Cold.Seconds()))
	}
	if b.Planned != 0 {
		attributes = append(attributes, KeyPlanned.String(b.Planned.String()), KeyRun.String(b.Run.String()))
	}
	if b.Fetch != "" {
		attributes = append(attributes, KeyFetch.String(b.Fetch), KeyHostShare.Float64(b.HostShare))
	}
	b.span.SetAttributes(attributes...)
	if b.telemetry.asking != nil && len(b.Misses) > 0 {
		b.telemetry.asking.add(b, at)
		return
	}
	b.explainMisses()
	if at.IsZero() {
		b.span.End()
		return
	}
	b.span.End(trace.WithTimestamp(at))
}
