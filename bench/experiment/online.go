package experiment

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/dustin/go-humanize"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/transfer"
)

// Online says how a run's caches follow the workload. The zero value leaves them as they were filled.
type Online struct {
	// Cold has them empty at first: the batches that would train the policy are run through the cache instead, and not
	// measured.
	Cold bool
	// Drift exchanges the hot rows after so many measured batches. 0: never. A static cache is measured beside.
	Drift int
	// RefreshBatches is the number of batches between cycles, RefreshInterval the time between cycles in the background. If
	// neither is given, Cold and Drift have a cycle every 5 batches.
	RefreshBatches  int
	RefreshInterval time.Duration
	// RefreshChurn is cache.RefreshOptions.MaxChurn, RefreshBytes its MaxBytes as text ("" for the default), and
	// SampleRate its Accesses.
	RefreshChurn float64
	RefreshBytes string
	SampleRate   float64
}

// Defaults of an online run.
const (
	defaultRefreshBatches = 5
	defaultRefreshChurn   = 0.25
	defaultRefreshBytes   = 256 << 20 // cache.RefreshOptions.MaxBytes
	// Of all accesses: runs are short. The default policy, cold and warmed up by 50 batches of the default workload, hits
	// 34.9 % then, and 28.0 % where it observes a sixteenth; 35.8 % is the most there is.
	defaultSampleRate = 1
)

func (o *Online) on() bool {
	return o.Cold || o.Drift > 0 || o.RefreshBatches > 0 || o.RefreshInterval > 0
}

func (o *Online) validate(policy string, f *faults.List) {
	f.If(o.Drift < 0, "--drift (%d) must not be negative", o.Drift)
	f.If(o.RefreshBatches < 0, "--refresh-batches (%d) must not be negative", o.RefreshBatches)
	f.If(o.RefreshInterval < 0, "--refresh-interval (%v) must not be negative", o.RefreshInterval)
	f.If(!(o.RefreshChurn >= 0 && o.RefreshChurn <= 1), "--refresh-churn (%v) must be 0 to 1", o.RefreshChurn)
	f.If(!(o.SampleRate >= 0 && o.SampleRate <= 1), "--sample-rate (%v) must be 0 to 1", o.SampleRate)
	_, err := o.refreshBytes()
	f.If(err != nil, "--refresh-bytes (%q) must be a size: 64MiB, 64MB, bytes", o.RefreshBytes)
	f.If(o.Cold && policy == "static-optimal", "--cold and --policy static-optimal contradict each other: it learns from what is measured, beforehand")
}

func (o *Online) refreshBytes() (int64, error) {
	if o.RefreshBytes == "" {
		return 0, nil
	}
	n, err := humanize.ParseBytes(o.RefreshBytes)
	if err == nil && (n == 0 || n > 1<<59) {
		err = fmt.Errorf("%d bytes", n)
	}
	return int64(n), err
}

// options returns the cache's.
func (o *Online) options() cache.RefreshOptions {
	if !o.on() {
		return cache.RefreshOptions{}
	}
	bytes, _ := o.refreshBytes() // Validate has seen it
	return cache.RefreshOptions{Interval: o.RefreshInterval, MaxChurn: o.RefreshChurn, MaxBytes: bytes, Accesses: o.SampleRate}
}

// every returns the batches between cycles, 0 for none.
func (o *Online) every() int {
	if o.on() && o.RefreshBatches == 0 && o.RefreshInterval == 0 {
		return defaultRefreshBatches
	}
	return o.RefreshBatches
}

// OnlineResult is what a run with Online found besides.
type OnlineResult struct {
	// Changes are those during the measured batches.
	Cycles          int64   `json:"cycles"`
	AdmittedRows    int64   `json:"admitted_rows"`
	EvictedRows     int64   `json:"evicted_rows"`
	RefreshedBytes  int64   `json:"refreshed_bytes"`
	SampledAccesses int64   `json:"sampled_accesses"`
	LostAccesses    int64   `json:"lost_accesses"`
	HoleBytes       int64   `json:"hole_bytes"`
	AdmittedAge     float64 `json:"admitted_age_seconds"`
	// Drift is there with --drift.
	Drift *DriftResult `json:"drift,omitempty"`
}

// DriftResult compares the cache with others of the same budget and codec.
type DriftResult struct {
	// Phases are the parts of the workload between changes of the hot rows.
	Phases int `json:"phases"`
	// StaticHitRatio is of a cache that is filled by frequency in pre-sampled batches of the first phase (with row
	// numbers from a file, its own batches) and stays as it is; OptimalHitRatio of caches that are filled for each phase with what
	// hits most often in it.
	StaticHitRatio  float64 `json:"static_hit_ratio"`
	OptimalHitRatio float64 `json:"optimal_hit_ratio"`
	// Share is the cache's hit ratio ÷ OptimalHitRatio.
	Share float64 `json:"share_of_optimal"`
}

// describe fills in what the result says of a cache's changes.
func (o *OnlineResult) describe(s cache.Stats) {
	n := s.Changes
	o.Cycles, o.AdmittedRows, o.EvictedRows, o.RefreshedBytes = n.Cycles, n.AdmittedRows, n.EvictedRows, n.RefreshedBytes
	o.SampledAccesses, o.LostAccesses, o.HoleBytes, o.AdmittedAge = n.SampledAccesses, n.LostAccesses, s.HoleBytes, s.AdmittedAge.Seconds()
}

// drifting is a workload whose hot rows are others after every so many batches: row numbers are shifted, a new phase by
// another stretch of the table.
type drifting struct {
	workload.Workload
	first, every, rows int
}

func (d *drifting) NewCursor() workload.Cursor { return driftingCursor{d.Workload.NewCursor(), d} }

type driftingCursor struct {
	workload.Cursor
	d *drifting
}

// Batch implements workload.Cursor.
func (c driftingCursor) Batch(i int, rows []int64) []int64 {
	from := len(rows)
	rows = c.Cursor.Batch(i, rows)
	shift := c.d.shift(i)
	for j := range rows[from:] {
		rows[from+j] = (rows[from+j] + shift) % int64(c.d.rows)
	}
	return rows
}

// shift spreads the phases over the table by the golden section.
func (d *drifting) shift(batch int) int64 {
	phase := max(0, batch-d.first) / d.every // batches before the first belong to it
	_, fraction := math.Modf(float64(phase) * 0.6180339887498949)
	return int64(fraction * float64(d.rows))
}

// drift makes the measured workload drift.
func (r *run) drift() {
	if r.cfg.Drift == 0 {
		return
	}
	both := r.training == r.measured
	if r.measured = (&drifting{r.measured, r.first, r.cfg.Drift, r.table.Rows}); both {
		r.training = r.measured
	}
}

// measureDrift measures the caches beside a drifting one.
func (r *run) measureDrift(ctx context.Context) (*DriftResult, error) {
	d := &DriftResult{}
	hits, lookups, err := r.replay(ctx, "a static cache", admission.NewStaticFrequency(), r.training, r.trainFirst, r.trainLast, r.first, r.last)
	if err != nil {
		return nil, err
	}
	d.StaticHitRatio = ratio(hits, lookups)
	hits = 0
	for from := r.first; from < r.last; from += r.cfg.Drift {
		to := min(from+r.cfg.Drift, r.last)
		n, _, err := r.replay(ctx, "the best cache of a phase", admission.NewStaticOptimal(), r.measured, from, to, from, to)
		if err != nil {
			return nil, err
		}
		hits += n
		d.Phases++
	}
	d.OptimalHitRatio = ratio(hits, lookups)
	return d, nil
}

// replay runs batches [from, to) through a static cache whose policy learns from others.
func (r *run) replay(ctx context.Context, what string, policy admission.Policy, training workload.Workload, trainFrom, trainTo, from, to int) (hits, lookups int64, err error) {
	mode, err := transfer.ParseMode(r.cfg.HostTier)
	if err != nil {
		return 0, 0, err
	}
	table, err := r.table.Open()
	if err != nil {
		return 0, 0, err
	}
	o, err := r.cfg.spread(cache.Options{
		Tables: []cache.Table{table}, Budget: r.budget, Codec: r.cfg.Codec, HostTier: mode,
		Admission: policy, Training: learnFrom(ctx, training, trainFrom, trainTo), Seed: r.cfg.Seed, Workers: r.cfg.Workers,
		Telemetry: cache.TelemetryOptions{TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider()},
	})
	if err != nil {
		return 0, 0, err
	}
	c, err := cache.New(o)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", what, err)
	}
	defer c.Close()
	r.progress.Stage("measuring "+what, to-from)
	cursor := r.measured.NewCursor()
	var rows []int64
	var out []byte
	for i := from; i < to; i++ {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		rows = cursor.Batch(i, rows[:0])
		if n := len(rows) * r.table.RowBytes; n > cap(out) {
			out = make([]byte, n+n/4)
		}
		if err := c.Gather(ctx, 0, rows, out[:len(rows)*r.table.RowBytes]); err != nil {
			return 0, 0, err
		}
		r.progress.Step()
	}
	s, err := c.Stats()
	if err != nil {
		return 0, 0, err
	}
	return s.Tables[0].Hits, s.Tables[0].Lookups, nil
}

// learnFrom yields batches [from, to) of a workload, which may be nil.
func learnFrom(ctx context.Context, w workload.Workload, from, to int) admission.Training {
	return func(yield func(int, []int64) bool) {
		if w == nil {
			return
		}
		cursor := w.NewCursor()
		var rows []int64
		for i := from; i < to && ctx.Err() == nil; i++ {
			if rows = cursor.Batch(i, rows[:0]); !yield(0, rows) {
				return
			}
		}
	}
}

// warmUp runs the training batches through a cold cache.
func (r *run) warmUp(ctx context.Context, gather func(rows []int64) error) error {
	if !r.cfg.Cold || r.training == nil {
		return nil
	}
	r.progress.Stage("warming up", r.trainLast-r.trainFirst)
	var failure error
	for _, rows := range learnFrom(ctx, r.training, r.trainFirst, r.trainLast) {
		if failure = gather(rows); failure != nil {
			break
		}
		r.progress.Step()
	}
	if failure == nil {
		failure = ctx.Err()
	}
	return failure
}
