package experiment

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// Progress is told of a run's stages. Its methods are called from one goroutine.
type Progress interface {
	// Stage begins a stage of the given number of steps; 0 when it has none.
	Stage(name string, steps int)
	// Step ends a step.
	Step()
}

// Quiet is a Progress that does nothing.
type Quiet struct{}

func (Quiet) Stage(string, int) {}
func (Quiet) Step()             {}

// Run does what the config says and returns what it found. Canceling ctx ends it between batches.
func Run(ctx context.Context, cfg Config, progress Progress) (*Result, error) {
	r, err := prepare(cfg, progress)
	if err != nil {
		return nil, err
	}
	return r.result(ctx, nil)
}

// prepare makes everything that a run needs besides the cache.
func prepare(cfg Config, progress Progress) (*run, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &run{cfg: cfg, progress: progress}
	for _, step := range []func() error{r.load, r.sample, r.fit} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// result measures the cache, and the uncompressed one to compare with unless its figures are given.
func (r *run) result(ctx context.Context, plain *Uncompressed) (*Result, error) {
	cfg := &r.cfg
	res := &Result{Table: r.tableInfo(), MissesByReason: map[string]int64{}}
	res.Workload.Kind, res.Workload.Batches = r.measured.Kind(), r.last-r.first
	res.Workload.TrainingBatches, res.Workload.TrainingMeasured = r.trainLast-r.trainFirst, r.training == r.measured && r.trainLast > r.first
	res.Workload.Cold = cfg.Cold
	res.Cache.Policy = cfg.Policy

	capture, err := newCapture(cfg.Capture, r.table.RowBytes)
	if err != nil {
		return nil, err
	}
	r.capture = capture
	compressed, err := r.measure(ctx, cfg.Codec, cfg.HostTier, cfg.Verify)
	r.capture, err = nil, capture.end(err)
	if err != nil {
		return nil, err
	}
	compressed.describe(res)
	if cfg.Online.on() {
		s := compressed.stats
		n := s.Changes
		res.Online = &OnlineResult{
			n.Cycles, n.AdmittedRows, n.EvictedRows, n.RefreshedBytes, n.SampledAccesses, n.LostAccesses, s.HoleBytes, s.AdmittedAge.Seconds(), nil,
		}
	}
	res.VerifiedRows, res.Mismatches = r.verified, r.mismatches
	if plain == nil {
		if plain, err = r.measurePlain(ctx, res.Results.Lookups); err != nil {
			return nil, err
		}
	}
	res.Uncompressed = *plain
	if cfg.Drift > 0 {
		if res.Online.Drift, err = r.measureDrift(ctx); err != nil {
			return nil, err
		}
		res.Online.Drift.Share = res.Results.HitRatio / max(res.Online.Drift.OptimalHitRatio, 1e-9)
	}
	return res, nil
}

func (r *run) tableInfo() TableInfo {
	return TableInfo{r.table.Name, int64(r.table.Rows), r.table.RowBytes, r.table.DType.String()}
}

// measurePlain measures the uncompressed cache.
func (r *run) measurePlain(ctx context.Context, lookups int64) (*Uncompressed, error) {
	r.name = "uncompressed"
	defer func() { r.name = "" }()
	m, err := r.measure(ctx, registry.None, transfer.InPlace.String(), false)
	if errors.Is(err, cache.ErrBudget) { // not one uncompressed row fits, so all of them are read from the host
		return &Uncompressed{HostBytesMoved: lookups * int64(r.table.RowBytes)}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("uncompressed: %w", err)
	}
	t := m.stats.Tables[0]
	return &Uncompressed{t.CachedRows, ratio(t.Hits, t.Lookups), t.HostBytesMoved, m.speed}, nil
}

// run is a run under way.
type run struct {
	cfg      Config
	spec     admission.Spec
	progress Progress
	table    *dataset.Table
	graph    *workload.Graph
	ids      []int64 // to replay
	budget   int64

	// Batches [first, last) of measured are measured; the policy learns from batches [trainFirst, trainLast) of training.
	measured, training    workload.Workload
	first, last           int
	trainFirst, trainLast int

	verified, mismatches int64
	capture              *capture                 // of the cache that is measured; nil: none
	name                 string                   // of the cache that is measured, for telemetry; "" for the run's own
	explain              func(*cache.Cache) error // called with a measured cache; nil: not
	silent               bool                     // whether the cache that is measured is without telemetry
}

// load loads or generates the table and the graph.
func (r *run) load() (err error) {
	c := &r.cfg
	if err := c.checkMemory(); err != nil {
		return err
	}
	if c.Graph != "" {
		r.progress.Stage("reading the graph", 0)
		if r.graph, err = workload.LoadGraph(c.Graph); err != nil {
			return err
		}
	}
	if c.Features != "" {
		r.progress.Stage("reading the features", 0)
		r.table, err = dataset.Load(c.Features)
	} else {
		r.progress.Stage("generating the features", 0)
		rows := c.Vertices
		if r.graph != nil {
			rows = r.graph.Vertices()
		}
		r.table, err = dataset.Generate(rows, defaultColumns, c.dataSeed())
	}
	if err != nil {
		return err
	}
	if r.table, err = r.table.Cast(c.Cast); err != nil {
		return err
	}
	if r.graph != nil && r.graph.Vertices() > r.table.Rows {
		return fmt.Errorf("graph %s: vertices (%d) must not outnumber the rows of table %s (%d)", c.Graph, r.graph.Vertices(), r.table.Name, r.table.Rows)
	}
	if r.graph == nil && c.IDs == "" {
		r.progress.Stage("generating the graph", 0)
		r.graph, err = workload.PowerLaw(workload.GraphOptions{Vertices: r.table.Rows, Seed: c.dataSeed()})
	}
	if err == nil && c.IDs != "" {
		r.progress.Stage("reading row numbers", 0)
		r.ids, err = readIDs(c.IDs, r.table.Rows, c.Force)
	}
	return err
}

// sample makes the workload of the seed. REQUIRES: load.
func (r *run) sample() error {
	prepare := r.prepareSampling
	if r.cfg.IDs != "" {
		prepare = r.prepareReplay
	}
	if err := prepare(); err != nil {
		return err
	}
	r.drift()
	return nil
}

// fit sets what depends on budget and policy. REQUIRES: sample.
func (r *run) fit() (err error) {
	if r.spec, err = admission.Lookup(r.cfg.Policy); err != nil {
		return err
	}
	r.suitTraining()
	r.budget, err = r.cfg.budget(int64(len(r.table.Data)))
	return err
}

func (r *run) prepareSampling() (err error) {
	c := &r.cfg
	switch { // a graph file may have weights
	case !c.Weighted || r.graph.Weights != nil:
	case c.Graph != "":
		if err := r.graph.LoadWeights(c.Graph); err != nil {
			return err
		}
	default:
		r.graph.SetWeights(c.dataSeed())
	}
	o := workload.SamplingOptions{
		Weighted: c.Weighted, Graph: r.graph, Fanouts: c.Fanouts, BatchSize: cmp.Or(c.BatchSize, defaultSeeds), Batches: orDefault(c.Batches, defaultBatches), Seed: c.Seed,
	}
	measured, err := workload.NewNeighborSampling(o)
	if err != nil {
		return err
	}
	r.measured, r.last = measured, o.Batches
	if r.trainLast = orDefault(c.WarmupBatches, defaultWarmup); r.trainLast > 0 {
		o.Seed, o.Batches = c.Seed^trainingSeed, r.trainLast
		if r.training, err = workload.NewNeighborSampling(o); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) prepareReplay() error {
	c := &r.cfg
	// Few row numbers make smaller batches, so that the policy can learn from a quarter of them.
	replay, err := workload.NewReplay(r.ids, cmp.Or(c.BatchSize, min(defaultReplay, (len(r.ids)+replayTrainShare-1)/replayTrainShare)))
	if err != nil {
		return err
	}
	all := replay.Batches()
	r.measured, r.training = replay, replay
	if c.WarmupBatches != Default {
		r.first = c.WarmupBatches
	}
	if r.first >= all {
		return fmt.Errorf("--warmup-batches (%d) must leave some of the %d batches of %s to measure", r.first, all, c.IDs)
	}
	r.last = all
	if c.Batches != Default {
		r.last = min(all, r.first+c.Batches)
	}
	if r.trainLast = r.first; c.WarmupBatches == Default {
		r.trainLast = max(1, r.last/replayTrainShare)
	}
	return nil
}

// suitTraining sets which batches train the policy, where that depends on it: the oracle learns from the batches that will be measured,
// policies that use the graph from none.
func (r *run) suitTraining() {
	switch r.spec.Learns {
	case admission.FromFuture:
		r.training, r.trainFirst, r.trainLast = r.measured, r.first, r.last
	case admission.FromGraph:
		r.training, r.trainFirst, r.trainLast = nil, 0, 0
	}
}

func orDefault(n, def int) int {
	if n == Default {
		return def
	}
	return n
}

func (r *run) policy() (admission.Policy, error) {
	var in admission.Inputs
	if r.graph != nil {
		in.Graphs = []admission.Graph{{Indptr: r.graph.Indptr, Indices: r.graph.Indices}}
	}
	return r.spec.New(in)
}

// learn yields the training batches.
func (r *run) learn(ctx context.Context) admission.Training {
	if r.cfg.Cold {
		return nil
	}
	return learnFrom(ctx, r.training, r.trainFirst, r.trainLast)
}

// measurement is what one cache did over the measured batches.
type measurement struct {
	device  device.Info
	devices int
	stats   cache.Stats // of the measured batches
	speed   Speed
	ids     int64
}

// measure makes a cache and runs the measured batches through it.
func (r *run) measure(ctx context.Context, codec, tier string, verify bool) (*measurement, error) {
	r.progress.Stage("filling the cache ("+codec+")", 0)
	table, err := r.table.Open()
	if err != nil {
		return nil, err
	}
	policy, err := r.policy()
	if err != nil {
		return nil, err
	}
	telemetry := cache.TelemetryOptions{Name: cmp.Or(r.name, "cachebench"), Logger: r.cfg.Logger}
	if r.silent {
		telemetry.TracerProvider, telemetry.MeterProvider = tracenoop.NewTracerProvider(), metricnoop.NewMeterProvider()
	}
	o, err := r.cfg.spread(cache.Options{
		Tables: []cache.Table{table}, Budget: r.budget, Codec: cache.Codec(codec), Host: cache.HostOptions{Tier: cache.HostTier(tier), Workers: r.cfg.Workers},
		Admission: cache.AdmissionOptions{Policy: policy, Training: r.learn(ctx), Cold: r.cfg.Cold}, Seed: r.cfg.Seed,
		Refresh: r.cfg.Online.options(), Link: r.cfg.link(), Telemetry: telemetry,
	})
	if err != nil {
		return nil, err
	}
	c, err := cache.New(o)
	if errors.Is(err, cache.ErrBudget) {
		return nil, fmt.Errorf("--budget (%s): %w", r.cfg.Budget, err)
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	m := &measurement{device: c.DeviceInfo(0), devices: c.Devices()}

	var out []byte
	batches := 0
	gather := func(rows []int64) (took time.Duration, err error) {
		if n := len(rows) * r.table.RowBytes; n > cap(out) {
			out = make([]byte, n+n/4)
		}
		out = out[:len(rows)*r.table.RowBytes]
		start := time.Now()
		if err := c.Gather(ctx, 0, rows, out); err != nil {
			return 0, err
		}
		took = time.Since(start)
		if batches++; r.cfg.every() != 0 && batches%r.cfg.every() == 0 {
			err = c.Refresh(ctx)
		}
		return took, err
	}
	if err := r.warmUp(ctx, func(rows []int64) error { _, err := gather(rows); return err }); err != nil {
		return nil, err
	}
	before, err := c.Stats()
	if err != nil {
		return nil, err
	}

	r.progress.Stage("measuring ("+codec+")", r.last-r.first)
	cursor := r.measured.NewCursor()
	var rows []int64
	times := make([]time.Duration, 0, min(r.last-r.first, 1<<20))
	for i := r.first; i < r.last; i++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		rows = cursor.Batch(i, rows[:0])
		if err := r.capture.batch(c, rows); err != nil {
			return nil, err
		}
		took, err := gather(rows)
		if err != nil {
			return nil, err
		}
		times = append(times, took)
		m.ids += int64(len(rows))
		if verify {
			r.verify(rows, out)
		}
		r.progress.Step()
	}
	if m.stats, err = c.Stats(); err != nil {
		return nil, err
	}
	m.stats = m.stats.Sub(before)
	if r.explain != nil {
		if err := r.explain(c); err != nil {
			return nil, err
		}
	}
	if r.cfg.Closing != nil {
		r.cfg.Closing()
	}
	m.speed = newSpeed(times, m.ids, r.table.RowBytes)
	return m, nil
}

// verify compares gathered rows with their source.
func (r *run) verify(rows []int64, out []byte) {
	n := r.table.RowBytes
	for i, row := range rows {
		r.verified++
		if !bytes.Equal(out[i*n:][:n], r.table.Row(row)) {
			r.mismatches++
		}
	}
}

// describe fills in what the result says of the compressed cache.
func (m *measurement) describe(res *Result) {
	s, t := m.stats, m.stats.Tables[0]
	res.Device.Kind, res.Device.Name, res.Device.Count = m.device.Kind, m.device.Name, m.devices
	res.Workload.IDs = m.ids
	c := &res.Cache
	c.CodecChoice = t.Choice
	c.Codec, c.CompressionRatio = t.Codec, ratio(t.RawBytes, t.StoredBytes)
	c.BudgetBytes, c.MetadataBytes, c.PayloadBytes = s.BudgetBytes, s.MetadataBytes, s.PayloadBytes
	c.CodecBytes, c.IndexBytes, c.HostBytes, c.RowsCached = s.CodecBytes, s.IndexBytes, s.HostBytes, t.CachedRows
	res.Placement = newPlaced(&s)
	if s.HostMemory.Why != "" {
		res.HostMemory = &s.HostMemory
	}
	q := &res.Results
	q.Lookups, q.Hits, q.Misses, q.HitRatio = t.Lookups, t.Hits, t.Misses, ratio(t.Hits, t.Lookups)
	q.HitsBySlab.Local, q.HitsBySlab.Peer = t.LocalHits, t.PeerHits
	q.ByteHitRatio = q.HitRatio // rows of one table are equally long
	q.HostBytesRaw, q.HostBytesMoved = t.Misses*int64(t.RowBytes), t.HostBytesMoved
	q.Speed = m.speed
	for reason, n := range t.MissesByReason {
		res.MissesByReason[slab.Reason(reason).String()] = n
	}
}
