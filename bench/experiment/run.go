package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/statjson"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// Progress is told of a run's stages. Its methods are called from one goroutine at a time.
type Progress interface {
	// Stage begins a stage of the given number of steps; 0 when that is not known.
	Stage(name string, steps int)
	// Step ends a step.
	Step()
}

// Quiet is a Progress that does nothing.
type Quiet struct{}

func (Quiet) Stage(string, int) {}
func (Quiet) Step()             {}

// Run does what the config says and returns what it found. Canceling ctx ends it between batches: if any was measured, the result is
// partial.
func Run(ctx context.Context, cfg Config, progress Progress) (*Result, error) {
	r, err := prepare(cfg, progress)
	if err != nil {
		return nil, err
	}
	res, err := r.result(ctx, nil)
	if res != nil { // partial, if there is an error as well
		return res, nil
	}
	return nil, err
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

// result measures the cache, and the uncompressed one to compare with unless its figures are given. With ctx's error, a result is partial.
func (r *run) result(ctx context.Context, plain *Uncompressed) (*Result, error) {
	cfg := &r.cfg
	res := &Result{Table: infoOf(r.table), Workload: r.workloadInfo(), MissesByReason: map[string]int64{}, OtherBudgets: []BudgetHits{}}
	capture, err := newCapture(cfg.Capture, r.table.RowBytes)
	if err != nil {
		return nil, err
	}
	r.capture = capture
	var counts accesses
	if cfg.joined == nil { // whose policy the owner knows
		counts, res.Cache.Policy = make(accesses, r.table.Rows), cfg.Policy
	}
	r.counts = counts
	compressed, interrupted := r.measure(ctx, cfg.Codec, cfg.HostTier, cfg.Verify)
	r.counts, r.capture = nil, nil
	if compressed == nil {
		return nil, capture.end(interrupted)
	}
	if err := capture.end(nil); err != nil {
		return nil, err
	}
	compressed.describe(res)
	res.Attachment = r.attachment(compressed)
	if cfg.Online.on() {
		s := compressed.stats
		n := s.Changes
		res.Online = &OnlineResult{
			n.Cycles, n.AdmittedRows, n.EvictedRows, n.RefreshedBytes, n.SampledAccesses, n.LostAccesses, s.HoleBytes, s.AdmittedAge.Seconds(), nil,
		}
	}
	res.Verification = r.verification()
	if interrupted == nil && !res.Compares() {
		return res, nil
	}
	if interrupted == nil {
		whole, err := orInterrupted(ctx, func() (*Result, error) { return r.compare(ctx, *res, plain, compressed, counts) })
		if err == nil || ctx.Err() == nil {
			return whole, err
		}
		interrupted = err
	}
	res.Partial = true
	res.Workload.endedAfter(compressed.batches)
	return res, interrupted
}

// compare adds what other caches do to a result.
func (r *run) compare(ctx context.Context, res Result, plain *Uncompressed, compressed *measurement, counts accesses) (_ *Result, err error) {
	if plain == nil {
		if plain, err = r.measurePlain(ctx, res.Results.Lookups); err != nil {
			return nil, err
		}
	}
	res.Uncompressed = *plain
	if r.cfg.Drift > 0 {
		online := *res.Online
		if online.Drift, err = r.measureDrift(ctx); err != nil {
			return nil, err
		}
		online.Drift.Share = res.Results.HitRatio / max(online.Drift.OptimalHitRatio, 1e-9)
		res.Online = &online
	}
	if r.cfg.resident() { // the predictions are of caches
		return &res, nil
	}
	if res.OtherBudgets, err = r.atBudgets(ctx, compressed, counts); err != nil {
		return nil, err
	}
	return &res, r.predict(&res)
}

// orInterrupted does some work, but waits only briefly for it once ctx is canceled: tables are loaded without a look at ctx. The work
// that is left behind goes on.
func orInterrupted[T any](ctx context.Context, work func() (T, error)) (v T, err error) {
	done := make(chan struct{})
	var out T
	var failed error
	go func() {
		defer close(done)
		out, failed = work()
	}()
	select {
	case <-done:
		return out, failed
	case <-ctx.Done():
	}
	select {
	case <-done:
		return out, failed
	case <-time.After(300 * time.Millisecond):
		return v, ctx.Err()
	}
}

func (r *run) workloadInfo() WorkloadInfo {
	return WorkloadInfo{
		Kind: r.measured.Kind(), Generated: r.generated, Batches: r.last - r.first, TrainingBatches: r.trainLast - r.trainFirst,
		TrainingMeasured: r.training == r.measured && r.trainLast > r.first, Cold: r.cfg.Cold, Prefetch: r.cfg.Prefetch,
	}
}

// endedAfter notes that an interrupted run measured only so many batches.
func (w *WorkloadInfo) endedAfter(batches int) { w.PlannedBatches, w.Batches = w.Batches, batches }

func (r *run) verification() (v Verification) {
	if r.cfg.Verify {
		v = Verification{r.verified, r.mismatches, 0}
		for t := range r.all() {
			v.VerifiedBound = max(v.VerifiedBound, r.bound(t))
		}
	}
	return v
}

func infoOf(t *dataset.Table) TableInfo {
	return TableInfo{t.Name, int64(t.Rows), t.RowBytes, t.DType.String()}
}

// measurePlain measures the uncompressed cache.
func (r *run) measurePlain(ctx context.Context, lookups int64) (*Uncompressed, error) {
	m, err := r.measureRaw(ctx)
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
	some     *dataset.Table   // of a plan for a large table: some of its rows, and table has none
	tables   []*dataset.Table // instead of table, where there are several: the workloads number their rows through, and have those of a table together
	graph    *workload.Graph
	ids      []int64 // to replay
	text     []int32 // of an n-gram workload
	budget   int64

	// Batches [first, last) of measured are measured; the policy learns from batches [trainFirst, trainLast) of training.
	measured, training    workload.Workload
	first, last           int
	trainFirst, trainLast int
	generated             *GeneratedLookups // nil: not known, or of a file

	verified, mismatches int64
	counts               accesses                 // of the measured batches; nil: not counted
	capture              *capture                 // of the cache that is measured; nil: none
	name                 string                   // of the cache that is measured, for telemetry; "" for the run's own
	explain              func(*cache.Cache) error // called with a measured cache; nil: not
	apart                bool                     // whether equal rows have slots of their own in the cache that is measured
	silent               bool                     // whether the cache that is measured is without telemetry
}

// load loads or generates the table and the graph.
func (r *run) load() (err error) {
	c := &r.cfg
	if err := c.oneTable(); err != nil {
		return err
	}
	if err := c.checkMemory(nil); err != nil {
		return err
	}
	if c.Graph != "" {
		r.progress.Stage("reading the graph", 0)
		if r.graph, err = workload.LoadGraph(c.Graph, c.Force); err != nil {
			return err
		}
		if err := c.checkMemory(r.graph); err != nil {
			return err
		}
	}
	if err := r.outline(); err != nil {
		return err
	}
	switch {
	case r.table != nil:
	case c.Features != "" || c.ColdPages != "":
		r.progress.Stage("reading the features", 0)
		r.table, err = c.loadFeatures()
	case c.joined != nil:
		r.table, err = c.joined.table(0, nil)
	case c.readsText():
		r.table, err = r.ngramTable()
	default:
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
	if err := errors.Join(c.suitPages(r.table), c.checkPrefetch(r.table)); err != nil {
		return err
	}
	if err := r.suit(); err != nil {
		return err
	}
	if err := c.poolable(r.table); err != nil {
		return err
	}
	if c.joined != nil && c.Features != "" {
		if r.table, err = c.joined.table(0, r.table); err != nil {
			return err
		}
	}
	if r.graph != nil {
		if err := fitsTable(r.graph.Vertices(), c.Graph, r.table.Name, r.table.Rows, r.graph.Listed || c.IDs != ""); err != nil {
			return err
		}
	}
	if c.readsText() {
		return r.readText()
	}
	if r.graph == nil && c.samples() {
		r.progress.Stage("generating the graph", 0)
		r.graph, err = workload.PowerLaw(workload.GraphOptions{Vertices: r.table.Rows, Seed: c.dataSeed()})
	}
	if err == nil && c.IDs != "" {
		r.progress.Stage("reading row numbers", 0)
		if r.ids, err = readIDs(c.IDs, r.table.Rows, c.Force); err != nil {
			err = fmt.Errorf("--ids: %w", err)
		}
	}
	return err
}

// fitsTable says whether a graph of n vertices can be that of a table's rows: it has a vertex for each of them. With less, it may have fewer: an edge list does not name
// vertices behind the last one that has an edge, and a graph that is there for its degrees only need not have those of 0.
func fitsTable(n int, file, table string, rows int, less bool) error {
	if n > rows || n < rows && !less {
		return fmt.Errorf("--graph (%s): vertices (%d) must be as many as table %s has rows (%d)", file, n, table, rows)
	}
	return nil
}

// sample makes the workload of the seed. REQUIRES: load.
func (r *run) sample() error {
	prepare := r.prepareSampling
	switch {
	case r.cfg.IDs != "":
		prepare = r.prepareReplay
	case r.cfg.Workload == Embedding:
		prepare = r.prepareEmbedding
	case r.cfg.readsText():
		prepare = r.prepareNgram
	}
	if err := prepare(); err != nil {
		return err
	}
	r.generated = r.describeLookups()
	r.drift()
	return nil
}

// fit sets what depends on budget and policy. REQUIRES: sample.
func (r *run) fit() (err error) {
	if r.cfg.joined != nil {
		return nil
	}
	if r.spec, err = admission.Lookup(r.cfg.Policy); err != nil {
		return err
	}
	r.suitTraining()
	raw := int64(0)
	for _, t := range r.all() {
		raw += t.Bytes()
	}
	r.budget, err = r.cfg.residentBudget(r.all(), raw)
	return err
}

// all returns the tables of the cache.
func (r *run) all() []*dataset.Table {
	if r.tables != nil {
		return r.tables
	}
	return []*dataset.Table{r.table}
}

// parts yields the rows of each table of a batch. Of several tables, it makes numbers of all rows numbers of the table's.
func (r *run) parts(rows []int64) iter.Seq2[int, []int64] {
	return func(yield func(int, []int64) bool) {
		if r.tables == nil {
			yield(0, rows)
			return
		}
		base := int64(0)
		for t, table := range r.tables {
			n := 0
			for ; n < len(rows) && rows[n] < base+int64(table.Rows); n++ {
				rows[n] -= base
			}
			if n > 0 && !yield(t, rows[:n]) {
				return
			}
			rows, base = rows[n:], base+int64(table.Rows)
		}
	}
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
	if r.trainLast = orDefault(c.TrainBatches, defaultWarmup); r.trainLast > 0 {
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
	r.measured, r.training = replay, replay
	return r.divide()
}

// divide sets which batches of a replay are measured, and which train the policy.
func (r *run) divide() error {
	c, all := &r.cfg, r.measured.Batches()
	if c.TrainBatches != Default {
		r.first = c.TrainBatches
	}
	if r.first >= all {
		return fmt.Errorf("--train-batches (%d) must leave some of the %d batches of %s to measure", r.first, all, c.IDs)
	}
	r.last = all
	if c.Batches != Default {
		r.last = min(all, r.first+c.Batches)
	}
	if r.trainLast = r.first; c.TrainBatches == Default {
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
	return func(yield func(int, []int64) bool) {
		for _, rows := range learnFrom(ctx, r.training, r.trainFirst, r.trainLast) {
			for table, part := range r.parts(rows) {
				if !yield(table, part) {
					return
				}
			}
		}
	}
}

// measurement is what one cache did over the measured batches.
type measurement struct {
	device  device.Info
	devices int
	stats   cache.Stats // of the measured batches
	speed   Speed
	batches int // measured
	ids     int64
	bytes   int64 // of output
}

func (m *measurement) info() DeviceInfo { return DeviceInfo{m.device.Kind, m.device.Name, m.devices} }

// loading returns what shows the progress of loading the tables, in percent of each, and then begins the stage of training.
func (r *run) loading(codec string, trainingSteps int) func(table int, rows, of int64) {
	current, shown, all := -1, int64(0), r.all()
	return func(table int, rows, of int64) {
		if table != current {
			current, shown = table, 0
			r.progress.Stage(fmt.Sprintf("loading %s (%s)", all[table].Name, codec), 100)
		}
		for ; shown < rows*100/max(1, of); shown++ {
			r.progress.Step()
		}
		if rows == of && table == len(all)-1 {
			r.progress.Stage("encoding and training ("+codec+")", trainingSteps)
		}
	}
}

// measureRaw measures a cache of uncompressed rows, each in a slot of its own.
func (r *run) measureRaw(ctx context.Context) (*measurement, error) {
	r.name, r.apart = "uncompressed", true
	defer func() { r.name, r.apart = "", false }()
	return r.measure(ctx, registry.None, transfer.InPlace.String(), false)
}

// measure makes a cache, unless that of another process is measured, and runs the measured batches through it, as through does.
func (r *run) measure(ctx context.Context, codec, tier string, verify bool) (*measurement, error) {
	if r.cfg.joined != nil {
		return r.through(ctx, r.cfg.joined.Cache, r.cfg.Attach, verify)
	}
	c, err := r.open(ctx, codec, tier)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return r.through(ctx, c, codec, verify)
}

// open makes a cache that has learned from the training batches.
func (r *run) open(ctx context.Context, codec, tier string) (c *cache.Cache, err error) {
	steps := r.trainLast - r.trainFirst
	if r.cfg.Cold || r.training == nil {
		steps = 0
	}
	r.progress.Stage("loading and training ("+codec+")", steps)
	var tables []cache.Table
	defer func() {
		if err == nil {
			return // New has closed them
		}
		for _, t := range tables {
			t.Close()
		}
	}()
	for _, t := range r.all() {
		table, err := t.Open()
		if err != nil {
			return nil, err
		}
		tables = append(tables, r.lay(table))
	}
	policy, err := r.policy()
	if err != nil {
		return nil, err
	}
	telemetry := cache.TelemetryOptions{Name: cmp.Or(r.name, "cachebench"), TraceRate: r.cfg.TraceRate, Logger: r.cfg.Logger}
	if r.silent {
		telemetry.TracerProvider, telemetry.MeterProvider = tracenoop.NewTracerProvider(), metricnoop.NewMeterProvider()
	}
	o, err := r.cfg.spread(cache.Options{
		Tables: tables, Budget: r.budget, Codec: cache.Codec(codec), Host: cache.HostOptions{Tier: cache.HostTier(tier), Workers: r.cfg.Workers, Progress: r.loading(codec, steps), Memory: r.cfg.hostMemory(), NoEqualRows: r.cfg.NoEqualRows || r.apart},
		Admission: cache.AdmissionOptions{Policy: policy, Training: r.shown(r.learn(ctx), codec), Cold: r.cfg.Cold}, Seed: r.cfg.Seed,
		Refresh: r.cfg.Online.options(), Link: r.cfg.link(), Telemetry: telemetry,
	})
	if err != nil {
		return nil, err
	}
	c, err = cache.New(o)
	if errors.Is(err, cache.ErrBudget) {
		return nil, fmt.Errorf("--gpu-memory (%s): %w", r.cfg.Budget, err)
	}
	return c, err
}

// through runs the measured batches through a cache. If ctx is canceled after the first, it returns what those before did, and ctx's error.
func (r *run) through(ctx context.Context, c *cache.Cache, what string, verify bool) (*measurement, error) {
	m := &measurement{device: c.DeviceInfo(0), devices: c.Devices()}

	read := r.reader(ctx, c)
	if err := r.warmUp(ctx, read.batch); err != nil {
		return nil, err
	}
	read.ids, read.bytes = 0, 0
	before, err := c.Stats()
	if err != nil {
		return nil, err
	}

	r.progress.Stage("measuring ("+what+")", r.last-r.first)
	cursor := r.measured.NewCursor()
	ahead := r.prefetcher(c)
	var rows []int64
	times := make([]time.Duration, 0, min(r.last-r.first, 1<<20))
	for i := r.first; i < r.last && ctx.Err() == nil; i++ {
		rows = cursor.Batch(i, rows[:0])
		if err := r.capture.batch(c, rows); err != nil {
			return nil, err
		}
		r.counts.add(rows)
		if err := ahead(i); err != nil {
			return nil, err
		}
		took, err := read.gather(rows, verify)
		if err != nil {
			return nil, err
		}
		times = append(times, took)
		r.progress.Step()
	}
	if len(times) == 0 && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if m.stats, err = c.Stats(); err != nil {
		return nil, err
	}
	m.stats = m.stats.Sub(before)
	if r.explain != nil && len(times) == r.last-r.first {
		if err := r.explain(c); err != nil {
			return nil, err
		}
	}
	if r.cfg.Closing != nil {
		r.cfg.Closing()
	}
	m.batches, m.ids, m.bytes = len(times), read.ids, read.bytes
	m.speed = newSpeed(times, m.ids, m.bytes)
	if m.batches < r.last-r.first {
		return m, ctx.Err()
	}
	return m, nil
}

// reader reads batches through a cache, and refreshes it as often as the config says.
type reader struct {
	*run
	ctx     context.Context // not canceled within a batch, which is read or not
	c       *cache.Cache
	out     []byte
	batches int
	ids     int64
	bytes   int64 // of output
}

func (r *run) reader(ctx context.Context, c *cache.Cache) *reader {
	return &reader{run: r, ctx: context.WithoutCancel(ctx), c: c}
}

func (r *reader) batch(rows []int64) error {
	_, err := r.gather(rows, false)
	return err
}

// gather reads a batch, and returns how long that took.
func (r *reader) gather(rows []int64, verify bool) (took time.Duration, err error) {
	r.ids += int64(len(rows))
	for t, part := range r.parts(rows) {
		table := r.all()[t]
		n := len(part) * table.RowBytes
		r.bytes += int64(n)
		if r.cfg.Pooled {
			if took, err = r.gatherPooled(r.ctx, r.c, part, &r.out, verify); err != nil {
				return 0, err
			}
			continue
		}
		if n > cap(r.out) {
			r.out = make([]byte, n+n/4)
		}
		r.out = r.out[:n]
		start := time.Now()
		if err := r.c.Gather(r.ctx, cache.Request{Table: t, Rows: part, Out: r.out}); err != nil {
			return 0, err
		}
		took += time.Since(start)
		if verify {
			if err := r.verify(table, part, r.out, r.bound(t)); err != nil {
				return 0, err
			}
		}
	}
	if r.batches++; r.cfg.every() != 0 && r.batches%r.cfg.every() == 0 {
		err = r.c.Refresh(r.ctx)
	}
	return took, err
}

// prefetcher returns what is called before batch i: it prefetches those that follow, as a loader that samples ahead does.
func (r *run) prefetcher(c *cache.Cache) func(i int) error {
	if r.cfg.Prefetch == 0 {
		return func(int) error { return nil }
	}
	next := r.first
	cursor := r.measured.NewCursor()
	var rows []int64
	return func(i int) error {
		for ; next < min(i+1+r.cfg.Prefetch, r.last); next++ {
			rows = cursor.Batch(next, rows[:0])
			if next == i { // it is asked for now
				continue
			}
			for t, part := range r.parts(rows) {
				if err := c.Prefetch(t, part); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// shown has the progress show which training batch is learned from. What follows the last one is filling the cache.
func (r *run) shown(training admission.Training, codec string) admission.Training {
	if training == nil {
		return nil
	}
	return func(yield func(int, []int64) bool) {
		for table, rows := range training {
			if !yield(table, rows) {
				return
			}
			r.progress.Step()
		}
		r.progress.Stage("filling the cache ("+codec+")", 0)
	}
}

// verify compares gathered rows with their source. Those of a lossy codec may differ by its bound. Rows of pages are read from these again.
func (r *run) verify(t *dataset.Table, rows []int64, out []byte, bound float64) error {
	if t.Paged() != nil { // what a lossy codec has lost is not in the pages either
		bound = 0
	}
	n, err := t.Mismatches(context.Background(), rows, out, bound)
	r.verified += int64(len(rows))
	r.mismatches += n
	return err
}

// tiersOf says what was read of a table from which tier, nil if the table does not lie in pages.
func tiersOf(t *cache.TableStats) *statjson.Tiers {
	if !t.Tiers.Paged {
		return nil
	}
	return statjson.TiersOf(&t.Tiers)
}

// describe fills in what the result says of the compressed cache.
func (m *measurement) describe(res *Result) {
	s, t := m.stats, m.stats.Tables[0]
	res.Device = m.info()
	res.Workload.IDs = m.ids
	c := &res.Cache
	c.CodecChoice = t.Choice
	c.Codec, c.CompressionRatio = t.Codec, ratio(t.RawBytes, t.StoredBytes)
	c.MemoryInfo, c.RowsCached, c.RowsEqual, c.SlotsSaved = memoryInfo(&s), t.CachedRows, t.EqualRows, t.SlotsSaved
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
	res.Resident = residentInfo(t.Resident)
	res.Tiers = tiersOf(&t)
	for reason, n := range t.MissesByReason {
		res.MissesByReason[slab.Reason(reason).String()] = n
	}
}
