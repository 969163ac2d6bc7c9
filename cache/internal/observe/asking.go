package observe

import (
	"context"
	"runtime/pprof"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tensorcache/tensorcache/cache/admission"
)

// Misses is what an owner knows of rows that were missed: Rows has one entry a row. Estimated says that the policy has given estimates.
type Misses struct {
	Estimated bool
	Rows      []Miss
}

// Miss is what an owner knows of one row.
type Miss struct {
	Stored     int // bytes of its newest version, negative if that is not known
	Estimate   admission.Estimate
	Withdrawal Withdrawal // the zero value if none is recorded
}

// asking asks the owner of an attached cache about the misses of sampled batches. Batches do not wait for it: their spans are ended when the
// answer is there, with the time at which the batch ended. Of batches that find too many others waiting, and those without an answer, the span
// says so.
type asking struct {
	telemetry *Telemetry
	life      context.Context
	stop      context.CancelFunc
	waiting   chan *batchSpan
	ended     chan struct{} // closed when no batch waits any more, after close
	mu        struct {
		sync.RWMutex
		closed bool
	}
}

const (
	askedBatches = 64          // most batches that wait for an answer
	askWait      = time.Second // how long an answer is waited for, and how long all are when the cache is closed
)

// Values of attribute tensorcache.miss.unexplained; the others are values of error.type.
const (
	unexplainedBusy   = "busy"   // too many batches wait for an answer
	unexplainedClosed = "closed" // the cache has been closed
)

func newAsking(t *Telemetry) *asking {
	a := &asking{telemetry: t, waiting: make(chan *batchSpan, askedBatches), ended: make(chan struct{})}
	a.life, a.stop = context.WithCancel(context.Background())
	go a.run()
	return a
}

// add asks the owner about a batch that has ended, at the given time or, if that is zero, now.
func (a *asking) add(b *batchSpan, at time.Time) {
	if b.ended = at; at.IsZero() {
		b.ended = time.Now()
	}
	b.scratch.take(b.Misses)
	if why := a.enqueue(b); why != "" {
		b.finish(why)
	}
}

// enqueue returns why a batch cannot wait for an answer, "" if it does.
func (a *asking) enqueue(b *batchSpan) (why string) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.mu.closed {
		return unexplainedClosed
	}
	select {
	case a.waiting <- b:
		return ""
	default:
		return unexplainedBusy
	}
}

// run asks about one batch after the other.
func (a *asking) run() {
	defer close(a.ended)
	pprof.SetGoroutineLabels(a.telemetry.Labels(context.Background(), "explain"))
	for b := range a.waiting {
		b.finish(a.ask(b))
	}
}

// ask fills in what the owner knows of a batch's misses. It returns why that is nothing, "" if there is an answer.
func (a *asking) ask(b *batchSpan) (why string) {
	ctx, cancel := context.WithTimeout(a.life, askWait)
	defer cancel()
	known, err := a.telemetry.opts.Owner(ctx, b.table, b.scratch.rows)
	switch {
	case a.life.Err() != nil && err != nil:
		return unexplainedClosed
	case err != nil:
		return a.telemetry.errorKind(err)
	}
	b.scratch.answer(&known)
	return ""
}

// close ends the spans of batches that wait. It waits a second for answers. Batches that end later are not explained.
func (a *asking) close() {
	a.mu.Lock()
	if !a.mu.closed {
		a.mu.closed = true
		close(a.waiting)
	}
	a.mu.Unlock()
	timer := time.AfterFunc(askWait, a.stop)
	defer timer.Stop()
	<-a.ended
	a.stop()
}

// answer fills in what an owner has said of the rows.
func (s *missScratch) answer(known *Misses) {
	s.known = known.Estimated
	causes := map[string]*Cause{} // links are made by cause
	for i := range known.Rows {
		m := &known.Rows[i]
		s.stored[i], s.estimates[i] = m.Stored, m.Estimate
		if by := m.Withdrawal.By; by != nil {
			key := by.What + by.Span.TraceID().String() + by.Span.SpanID().String()
			if causes[key] == nil {
				causes[key] = by
			}
			m.Withdrawal.By = causes[key]
		}
		s.withdrawn = append(s.withdrawn, m.Withdrawal)
	}
}

// finish adds the events of a batch for which an owner was asked, and ends its span. why says why the events are not explained; "": they are.
func (b *batchSpan) finish(why string) {
	if why != "" {
		b.span.SetAttributes(KeyUnexplained.String(why))
	}
	b.addMisses(b.ended)
	b.free()
	b.span.End(trace.WithTimestamp(b.ended))
}
