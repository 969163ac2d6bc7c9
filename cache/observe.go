package cache

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/tensorcache/tensorcache/kernels"
)

// observed is a Gather as telemetry sees it, from observe to end. The zero value is that of one that nothing sees.
type observed struct {
	telemetry *telemetry
	ctx       context.Context // with the span
	metering  *metering       // nil: not measured
	begun     time.Time       // where it is measured
	traced    *tracedBatch    // nil: not sampled
	where     gatherPlace
}

// gatherPlace is whose rows are gathered, and how many.
type gatherPlace struct {
	device      *deviceState
	table, rows int
}

// observe begins a Gather of so many rows. Without providers it compares two pointers; a sampler is asked only where the
// caller's span, if there is one, is sampled.
func (d *deviceState) observe(ctx context.Context, table, rows int) observed {
	t := &d.cache.telemetry
	o := observed{telemetry: t, ctx: ctx, where: gatherPlace{d, table, rows}}
	if m := t.meters(); m != nil {
		o.metering, o.begun = m, time.Now()
	}
	tr := t.tracer()
	if tr == nil || unsampled(ctx) || table < 0 || table >= len(tr.gather) {
		return o
	}
	spanned, span := tr.tracer.Start(ctx, "gather "+d.cache.tables[table].name, tr.gather[table][d.index]...)
	if !span.IsRecording() {
		span.End()
		return o
	}
	o.ctx, o.traced = spanned, &tracedBatch{span: span, ctx: spanned, tracing: tr, metering: o.metering, where: o.where}
	return o
}

// end ends a Gather that has finished, or failed.
func (o *observed) end(err error) { o.endAt(err, time.Time{}) }

// endAt is end for a Gather that finished at a time, unless that is zero: now.
func (o *observed) endAt(err error, at time.Time) {
	if m := o.metering; m != nil {
		if w := &o.where; err != nil {
			o.telemetry.failed(o.ctx, "gather", err)
		} else {
			took := time.Since(o.begun)
			if !at.IsZero() {
				took = at.Sub(o.begun)
			}
			with := m.gather[w.table][w.device.index]
			m.gatherDuration.Record(o.ctx, took.Seconds(), with...)
			m.gatherRows.Record(o.ctx, int64(w.rows), with...)
		}
	}
	if b := o.traced; b != nil {
		if err != nil {
			recordError(b.span, err)
		}
		b.end(at)
	}
}

// tracedBatch is what a sampled Gather records. The lane that runs it names it meanwhile.
type tracedBatch struct {
	span     trace.Span
	ctx      context.Context
	tracing  *tracing
	metering *metering
	where    gatherPlace

	planned, run strategy // of the last part
	fetch        string
	hostShare    float64
	done         outcome
	parts        int
	misses       []kernels.Found // those that become events; of scratch
	scratch      *missScratch    // nil: there are none
	failed       atomic.Bool     // no times are known: a timer could not be recorded or read
}

// end adds what is known of the batch to its span, and ends it.
func (b *tracedBatch) end(at time.Time) {
	d := b.where.device
	t := d.cache.tables[b.where.table]
	o, rowBytes := &b.done, int64(t.tier.RowBytes())
	attributes := []attribute.KeyValue{
		keyRows.Int(b.where.rows), keyHits.Int64(o.hits), keyMisses.Int64(o.misses), keyOutputBytes.Int64(int64(b.where.rows) * rowBytes),
		keyMissBytes.Int64(o.misses * rowBytes), keyHostBytes.Int64(o.hostBytes), keySampledCount.Int(len(b.misses)),
	}
	for reason, n := range o.reasons {
		attributes = append(attributes, keyReasons[reason].Int64(n))
	}
	if b.planned != 0 {
		attributes = append(attributes, keyPlanned.String(b.planned.String()), keyRun.String(b.run.String()))
	}
	if b.fetch != "" {
		attributes = append(attributes, keyFetch.String(b.fetch), keyHostShare.Float64(b.hostShare))
	}
	b.span.SetAttributes(attributes...)
	b.explainMisses()
	if at.IsZero() {
		b.span.End()
		return
	}
	b.span.End(trace.WithTimestamp(at))
}
