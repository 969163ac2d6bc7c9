package experiment

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/internal/faults"
)

// Online says how a run's caches follow the workload. The zero value leaves them as they were filled.
type Online struct {
	// Cold begins with empty caches: the batches that would train the policy are run through the cache instead, and are not
	// measured.
	Cold bool `json:"cold,omitempty"`
	// Drift makes other rows the hot ones after so many measured batches. 0: never. A static cache is measured too.
	Drift int `json:"drift,omitempty"`
	// RefreshBatches is the number of batches between refresh cycles, RefreshInterval the time between cycles in the background.
	// If neither is given, Cold and Drift run a cycle every 5 batches.
	RefreshBatches  int           `json:"refresh_batches,omitempty"`
	RefreshInterval time.Duration `json:"-"`
	// RefreshChurn is cache.RefreshOptions.MaxChurn, RefreshBytes its MaxBytes as text ("" for the default), and
	// SampleRate its Accesses.
	RefreshChurn float64 `json:"refresh_churn"`
	RefreshBytes string  `json:"refresh_bytes,omitempty"`
	SampleRate   float64 `json:"sample_rate"`
	// Misses is cache.RefreshOptions.Misses.
	Misses float64 `json:"-"`
}

// Defaults of an online run.
const (
	defaultRefreshBatches = 5
	defaultRefreshChurn   = 0.25
	defaultRefreshBytes   = 256 << 20 // cache.RefreshOptions.MaxBytes
	// All accesses are sampled, because runs are short. The default policy, cold and warmed up by 50 batches of the default workload,
	// hits 34.9 % with that, and 28.0 % if it observes a sixteenth; 35.8 % is the best possible.
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
	return cache.RefreshOptions{Interval: o.RefreshInterval, MaxChurn: o.RefreshChurn, MaxBytes: bytes, Accesses: o.SampleRate, Misses: o.Misses}
}

// every returns the batches between cycles, 0 for none.
func (o *Online) every() int {
	if o.on() && o.RefreshBatches == 0 && o.RefreshInterval == 0 {
		return defaultRefreshBatches
	}
	return o.RefreshBatches
}

// OnlineResult is what a run with Online reports in addition.
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
	static := *r
	hits, lookups, err := static.replay(ctx, "static-freq")
	if err != nil {
		return nil, fmt.Errorf("a static cache: %w", err)
	}
	d.StaticHitRatio = ratio(hits, lookups)
	hits = 0
	for from := r.first; from < r.last; from += r.cfg.Drift {
		best := *r
		best.first, best.last = from, min(from+r.cfg.Drift, r.last)
		best.training, best.trainFirst, best.trainLast = r.measured, best.first, best.last
		n, _, err := best.replay(ctx, "static-optimal")
		if err != nil {
			return nil, fmt.Errorf("the best cache of a phase: %w", err)
		}
		hits += n
		d.Phases++
	}
	d.OptimalHitRatio = ratio(hits, lookups)
	return d, nil
}

// replay measures a cache of another policy that stays as it is filled, without telemetry.
func (r *run) replay(ctx context.Context, policy string) (hits, lookups int64, err error) {
	r.cfg.Online, r.cfg.Logger, r.cfg.Closing = Online{}, nil, nil
	r.explain, r.silent = nil, true
	if r.spec, err = admission.Lookup(policy); err != nil {
		return 0, 0, err
	}
	m, err := r.measure(ctx, r.cfg.Codec, r.cfg.HostTier, false)
	if err != nil {
		return 0, 0, err
	}
	return m.stats.Tables[0].Hits, m.stats.Tables[0].Lookups, nil
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

// warmUp runs the training batches through a cold cache, or one of another process.
func (r *run) warmUp(ctx context.Context, gather func(rows []int64) error) error {
	if !r.cfg.Cold && r.cfg.joined == nil || r.training == nil {
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
