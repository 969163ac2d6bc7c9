package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tensorcache/tensorcache/internal/metrics"
)

// DefaultTraceRate is the most traces a second that begin in a cache if neither a setting nor TENSORCACHE_TRACE_RATE says otherwise.
const DefaultTraceRate = 10

// traceRate returns what TENSORCACHE_TRACE_RATE says.
func traceRate() (float64, error) {
	text := os.Getenv("TENSORCACHE_TRACE_RATE")
	if text == "" {
		return DefaultTraceRate, nil
	}
	rate, err := parseRate(text)
	if err != nil {
		return 0, fmt.Errorf("telemetry: TENSORCACHE_TRACE_RATE %w", err)
	}
	return rate, nil
}

func parseRate(text string) (float64, error) {
	rate, err := strconv.ParseFloat(text, 64)
	if err != nil || !(rate >= 0 && rate <= 1e9) {
		return 0, fmt.Errorf("(%q) must be traces a second, 0 for no limit or up to 1e9", text)
	}
	return rate, nil
}

// Losses are the sampled spans that have ended, and what has become of them. Those of neither kind are on their way.
type Losses struct {
	Ended, Delivered int64
	Dropped          int64     // the queue was full
	Failed           int64     // the exporter returned an error
	Err              error     // the last error of an exporter of traces or metrics, nil if there is none
	Last             time.Time // when something was lost last
}

// Losses returns what has not been delivered so far.
func (t *Telemetry) Losses() Losses {
	l := Losses{Ended: t.ended.Load(), Delivered: t.delivered.Load(), Dropped: t.dropped.Load(), Failed: t.failedSpans.Load()}
	t.mu.Lock()
	defer t.mu.Unlock()
	l.Err = t.mu.last
	if at := t.lostAt.Load(); at != 0 {
		l.Last = time.Unix(0, at)
	}
	return l
}

// lost notes that something has been lost, for the reason given.
func (t *Telemetry) lost(err error) {
	t.lostAt.Store(time.Now().UnixNano())
	t.logs.lost(err)
}

// String says what was lost, and when that was last, "" if nothing was.
func (l Losses) String() string {
	lost, last := l.Dropped+l.Failed, l.Last.UTC().Format(time.RFC3339)
	switch {
	case lost > 0:
		return fmt.Sprintf("%d of %d spans were not delivered: %v (the last loss was at %s)", lost, l.Ended, cmp.Or(l.Err, errQueue), last)
	case l.Err != nil:
		return fmt.Sprintf("an export failed: %v (the last loss was at %s)", l.Err, last)
	}
	return ""
}

// queueBound returns how many spans may be on their way: OpenTelemetry's bound of its queue.
func queueBound() int {
	if n, err := strconv.Atoi(os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE")); err == nil && n > 0 {
		return n
	}
	return sdktrace.DefaultMaxQueueSize
}

// processor returns what hands spans to an exporter in batches and counts them. The SDK's own queue has room to spare, as it drops spans without a word.
func (t *Telemetry) processor(exporter sdktrace.SpanExporter) sdktrace.SpanProcessor {
	bound := queueBound()
	with := []sdktrace.BatchSpanProcessorOption{sdktrace.WithMaxQueueSize(bound + 64)} // Flush takes a place, too
	if os.Getenv("OTEL_BSP_EXPORT_TIMEOUT") == "" {
		with = append(with, sdktrace.WithExportTimeout(exportTimeout))
	}
	return &countingProcessor{sdktrace.NewBatchSpanProcessor(&countingExporter{exporter, t}, with...), t, int64(bound)}
}

// exportTimeout is how long an export may take unless OTEL_BSP_EXPORT_TIMEOUT is set: losses are known, and logged, that much sooner than after
// OpenTelemetry's 30 s.
const exportTimeout = 10 * time.Second

// countingProcessor counts the spans that are to be delivered, and those for which the queue has no room.
type countingProcessor struct {
	sdktrace.SpanProcessor
	t     *Telemetry
	bound int64
}

func (p *countingProcessor) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	p.t.ended.Add(1)
	if p.t.queued.Add(1) > p.bound {
		p.t.queued.Add(-1)
		p.t.dropped.Add(1)
		p.t.lost(errQueue)
		return
	}
	p.SpanProcessor.OnEnd(s)
}

// countingExporter counts the spans that are delivered, and those that are not.
type countingExporter struct {
	sdktrace.SpanExporter
	t *Telemetry
}

func (e *countingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	n := int64(len(spans))
	defer e.t.queued.Add(-n)
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		e.t.delivered.Add(n)
		return nil
	}
	e.t.failedSpans.Add(n)
	e.t.lostAt.Store(time.Now().UnixNano())
	e.t.mu.Lock()
	e.t.mu.spans = err
	e.t.mu.Unlock()
	return err // which the SDK hands to failed
}

// errQueue stands for spans that found the queue full.
var errQueue = errors.New("the queue was full")

// logs logs losses: the first at once, and then at most one record in logInterval.
type logs struct {
	logger *slog.Logger // nil: none
	losses func() Losses
	mu     sync.Mutex
	last   time.Time
}

const logInterval = time.Minute

// lost notes that something has been lost, for the reason given.
func (l *logs) lost(err error) {
	if l.logger == nil || !l.mu.TryLock() { // another call logs
		return
	}
	defer l.mu.Unlock()
	if now := time.Now(); l.last.IsZero() || now.Sub(l.last) >= logInterval {
		l.last = now
		n := l.losses()
		l.logger.Warn("traces or metrics were not delivered", slog.Int64("spans", n.Ended), slog.Int64("delivered", n.Delivered), slog.Int64("dropped", n.Dropped),
			slog.Int64("failed", n.Failed), slog.Any("error", err))
	}
}

// spanCounts are sampled spans that have ended.
type spanCounts struct {
	Delivered int64 `kind:"counter" metric:"tensorcache.telemetry.spans" with:"tensorcache.outcome=delivered" unit:"{span}" help:"Sampled spans that were delivered, that failed to be, or that were dropped as the queue was full."`
	Failed    int64 `kind:"counter" metric:"tensorcache.telemetry.spans" with:"tensorcache.outcome=failed"`
	Dropped   int64 `kind:"counter" metric:"tensorcache.telemetry.spans" with:"tensorcache.outcome=dropped"`
}

// observe makes the counter of spans.
func (t *Telemetry) observe(p metric.MeterProvider) error {
	_, err := metrics.Register(p.Meter("github.com/tensorcache/tensorcache/internal/telemetry"), []any{spanCounts{}}, func(tell metrics.Observe) {
		tell(&spanCounts{t.delivered.Load(), t.failedSpans.Load(), t.dropped.Load()})
	})
	if err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	return nil
}
