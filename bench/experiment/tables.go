package experiment

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/bench/gpu"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/transfer"
)

// TablesResult is what a run of several tables found, which share one cache. Its JSON form is what `cachebench run --json` prints of them.
type TablesResult struct {
	Device struct {
		Kind  string `json:"kind"`
		Name  string `json:"name"`
		Count int    `json:"count"`
	} `json:"device"`
	// Workload has the keys of Result.Workload. A batch looks up rows of each table.
	Workload struct {
		Kind             string `json:"kind"`
		Batches          int    `json:"batches"`
		IDs              int64  `json:"ids"`
		TrainingBatches  int    `json:"training_batches"`
		TrainingMeasured bool   `json:"training_measured"`
	} `json:"workload"`
	// Cache has the keys of Result.Cache that are not of one table.
	Cache struct {
		Policy        string `json:"policy"`
		BudgetBytes   int64  `json:"budget_bytes"`
		MetadataBytes int64  `json:"metadata_bytes"`
		PayloadBytes  int64  `json:"payload_bytes"`
		CodecBytes    int64  `json:"codec_bytes"`
		IndexBytes    int64  `json:"index_bytes"`
		HostBytes     int64  `json:"host_bytes"`
	} `json:"cache"`
	Tables []TableResult `json:"tables"`
	// Total sums up the tables. A batch is as long as its Gathers, one a table, one after the other.
	Total struct {
		Served
		Speed
		Uncompressed struct {
			Served
			Speed
		} `json:"uncompressed"`
		PredictedGPU *PredictedGPU `json:"predicted_gpu,omitempty"`
	} `json:"total"`
	VerifiedRows int64 `json:"verified_rows"`
	Mismatches   int64 `json:"mismatches"`
}

// TableResult is one of several tables.
type TableResult struct {
	TableInfo
	Codec            string           `json:"codec"`
	CodecChoice      *registry.Choice `json:"codec_choice,omitempty"`
	CompressionRatio float64          `json:"compression_ratio"`
	Served
	Uncompressed Served `json:"uncompressed"`
}

// Served is what the measured batches got from a cache.
type Served struct {
	RowsCached     int64   `json:"rows_cached"`
	Lookups        int64   `json:"lookups"`
	Hits           int64   `json:"hits"`
	HitRatio       float64 `json:"hit_ratio"`
	HostBytesMoved int64   `json:"host_bytes_moved"`
}

func (s *Served) add(t Served) {
	s.RowsCached, s.Lookups, s.Hits, s.HostBytesMoved = s.RowsCached+t.RowsCached, s.Lookups+t.Lookups, s.Hits+t.Hits, s.HostBytesMoved+t.HostBytesMoved
	s.HitRatio = ratio(s.Hits, s.Lookups)
}

// Defaults of a run of several tables.
const (
	defaultSamples = 2048 // rows of each table in a generated batch
	tablesExponent = 1    // of the power law of generated lookups
)

// Several says whether Features names several tables, with commas between them. A name of one file may have commas.
func (c *Config) Several() bool {
	if !strings.Contains(c.Features, ",") {
		return false
	}
	_, err := os.Stat(c.Features)
	return err != nil
}

// tablesRun is a run of several tables under way.
type tablesRun struct {
	cfg      Config
	progress Progress
	spec     admission.Spec
	tables   []*dataset.Table
	budget   int64
	// Batches [first, last) of each table's workload are measured; the policy learns from batches [trainFirst, trainLast).
	lookups               []workload.Workload
	first, last           int
	trainFirst, trainLast int
	verified, mismatches  int64
}

// validateTables reports what several tables cannot have.
func (c *Config) validateTables() error {
	var f faults.List
	f.Add(c.Validate())
	f.If(slices.Contains(strings.Split(c.Features, ","), ""), "--features (%s) must have no empty name", c.Features)
	names, ids := strings.Count(c.Features, ",")+1, strings.Count(c.IDs, ",")+1
	f.If(c.IDs != "" && names != ids, "--ids (%d files) must be as many as --features (%d)", ids, names)
	spec, err := admission.Lookup(c.Policy)
	f.If(err == nil && spec.Learns == admission.FromGraph, "--policy (%s) needs a graph, which several tables have not", c.Policy)
	for _, x := range []struct {
		name  string
		given bool
	}{
		{"graph", c.Graph != ""}, {"weighted", c.Weighted}, {"capture", c.Capture != ""}, {"cold", c.Cold}, {"drift", c.Drift != 0},
		{"refresh-batches", c.RefreshBatches != 0}, {"refresh-interval", c.RefreshInterval != 0},
	} {
		f.If(x.given, "--%s takes one table, --features names %d", x.name, names)
	}
	return once(f.Err())
}

// RunTables does what the config says with several tables, which share one cache. Canceling ctx ends it between batches.
func RunTables(ctx context.Context, cfg Config, progress Progress) (*TablesResult, error) {
	if err := cfg.validateTables(); err != nil {
		return nil, err
	}
	r := &tablesRun{cfg: cfg, progress: progress}
	if err := r.load(); err != nil {
		return nil, err
	}
	res := &TablesResult{}
	cached, stats, err := r.measure(ctx, cfg.Codec, cfg.HostTier, cfg.Verify, res)
	if err != nil {
		return nil, err
	}
	res.Total.Speed = cached
	plain, plainStats, err := r.measure(ctx, registry.None, transfer.InPlace.String(), false, nil)
	if errors.Is(err, cache.ErrBudget) { // not one uncompressed row fits
		for i := range stats.Tables {
			t := &stats.Tables[i]
			plainStats.Tables = append(plainStats.Tables, cache.TableStats{Lookups: t.Lookups, HostBytesMoved: t.Lookups * int64(t.RowBytes)})
		}
	} else if err != nil {
		return nil, fmt.Errorf("uncompressed: %w", err)
	}
	res.Total.Uncompressed.Speed = plain
	r.describe(res, &stats, &plainStats)
	return res, r.predict(res)
}

// load loads the tables, and reads or generates what is looked up in each.
func (r *tablesRun) load() (err error) {
	c := &r.cfg
	if r.spec, err = admission.Lookup(c.Policy); err != nil {
		return err
	}
	raw := int64(0)
	for name := range strings.SplitSeq(c.Features, ",") {
		r.progress.Stage("reading "+name, 0)
		t, err := dataset.Load(name)
		if err != nil {
			return err
		}
		if t, err = t.Cast(c.Cast); err != nil {
			return err
		}
		r.tables = append(r.tables, t)
		raw += int64(len(t.Data))
	}
	if r.budget, err = c.budget(raw); err != nil {
		return err
	}
	if c.IDs != "" {
		err = r.replay()
	} else {
		err = r.generate()
	}
	if err == nil && r.spec.Learns == admission.FromFuture {
		r.trainFirst, r.trainLast = r.first, r.last
	}
	return err
}

// generate makes lookups by a power law. Batches that train come before those that are measured.
func (r *tablesRun) generate() error {
	c := &r.cfg
	r.trainLast = orDefault(c.WarmupBatches, defaultWarmup)
	r.first, r.last = r.trainLast, r.trainLast+orDefault(c.Batches, defaultBatches)
	size := cmp.Or(c.BatchSize, defaultSamples)
	for i, t := range r.tables {
		w, err := workload.NewDLRM(workload.DLRMOptions{
			Tables: []workload.EmbeddingTable{{Rows: int64(t.Rows), Exponent: tablesExponent}}, BatchSize: size, Batches: r.last, Seed: c.Seed + uint64(i),
		})
		if err != nil {
			return err
		}
		r.lookups = append(r.lookups, w)
	}
	return nil
}

// replay reads a file of row numbers for each table. The longest has batches of the batch size, the others as many.
func (r *tablesRun) replay() error {
	c := &r.cfg
	r.progress.Stage("reading row numbers", 0)
	var ids [][]int64
	longest := 0
	for i, name := range strings.Split(c.IDs, ",") {
		rows, err := readIDs(name, r.tables[i].Rows)
		if err != nil {
			return err
		}
		ids, longest = append(ids, rows), max(longest, len(rows))
	}
	all := (longest-1)/cmp.Or(c.BatchSize, defaultReplay) + 1
	for _, rows := range ids {
		r.lookups = append(r.lookups, &divided{rows, all})
	}
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
		r.trainLast = r.last / replayTrainShare
	}
	return nil
}

// divided is row numbers in so many batches, which differ by one in length at most. Some may be empty.
type divided struct {
	rows    []int64
	batches int
}

// Kind implements workload.Workload.
func (d *divided) Kind() string { return "ids" }

// Batches implements workload.Workload.
func (d *divided) Batches() int { return d.batches }

// NewCursor implements workload.Workload.
func (d *divided) NewCursor() workload.Cursor { return d }

// Batch implements workload.Cursor.
func (d *divided) Batch(i int, dst []int64) []int64 {
	return append(dst, d.rows[i*len(d.rows)/d.batches:(i+1)*len(d.rows)/d.batches]...)
}

// learn yields the training batches, table after table in each.
func (r *tablesRun) learn(ctx context.Context) admission.Training {
	return func(yield func(int, []int64) bool) {
		var rows []int64
		cursors := r.cursors()
		for i := r.trainFirst; i < r.trainLast && ctx.Err() == nil; i++ {
			for t, c := range cursors {
				if rows = c.Batch(i, rows[:0]); !yield(t, rows) {
					return
				}
			}
		}
	}
}

func (r *tablesRun) cursors() (all []workload.Cursor) {
	for _, w := range r.lookups {
		all = append(all, w.NewCursor())
	}
	return all
}

// measure makes a cache and runs the measured batches through it. It fills in what the result says of the device, unless res is nil.
func (r *tablesRun) measure(ctx context.Context, codec, tier string, verify bool, res *TablesResult) (speed Speed, stats cache.Stats, err error) {
	r.progress.Stage("filling the cache ("+codec+")", 0)
	var tables []cache.Table
	for _, t := range r.tables {
		opened, err := t.Open()
		if err != nil {
			return speed, stats, err
		}
		tables = append(tables, opened)
	}
	policy, err := r.spec.New(admission.Inputs{})
	if err != nil {
		return speed, stats, err
	}
	name := "cachebench"
	if res == nil {
		name = "uncompressed"
	}
	o, err := r.cfg.spread(cache.Options{
		Tables: tables, Budget: r.budget, Codec: cache.Codec(codec), Host: cache.HostOptions{Tier: cache.HostTier(tier), Workers: r.cfg.Workers},
		Admission: cache.AdmissionOptions{Policy: policy, Training: r.learn(ctx)}, Seed: r.cfg.Seed, Link: r.cfg.link(),
		Telemetry: cache.TelemetryOptions{Name: name, Logger: r.cfg.Logger},
	})
	if err != nil {
		return speed, stats, err
	}
	c, err := cache.New(o)
	if errors.Is(err, cache.ErrBudget) {
		return speed, stats, fmt.Errorf("--budget (%s): %w", r.cfg.Budget, err)
	}
	if err != nil {
		return speed, stats, err
	}
	defer c.Close()
	if res != nil {
		info := c.DeviceInfo(0)
		res.Device.Kind, res.Device.Name, res.Device.Count = info.Kind, info.Name, c.Devices()
	}
	r.progress.Stage("measuring ("+codec+")", r.last-r.first)
	cursors := r.cursors()
	var rows []int64
	var out []byte
	var times []time.Duration
	all := int64(0)
	for i := r.first; i < r.last; i++ {
		if err := ctx.Err(); err != nil {
			return speed, stats, err
		}
		var took time.Duration
		for t, cursor := range cursors {
			if rows = cursor.Batch(i, rows[:0]); len(rows) == 0 {
				continue
			}
			out = slices.Grow(out[:0], len(rows)*r.tables[t].RowBytes)[:len(rows)*r.tables[t].RowBytes]
			start := time.Now()
			if err := c.Gather(ctx, t, rows, out); err != nil {
				return speed, stats, err
			}
			took += time.Since(start)
			all += int64(len(rows))
			if verify {
				r.verify(r.tables[t], rows, out)
			}
		}
		times = append(times, took)
		r.progress.Step()
	}
	if stats, err = c.Stats(); err != nil {
		return speed, stats, err
	}
	if r.cfg.Closing != nil {
		r.cfg.Closing()
	}
	speed = newSpeed(times, all, 1)
	delivered := int64(0)
	for i := range stats.Tables {
		delivered += stats.Tables[i].Lookups * int64(r.tables[i].RowBytes)
	}
	speed.OutputGBPerSecond *= ratio(delivered, all) // of rows of different lengths
	return speed, stats, nil
}

// verify compares gathered rows with their source.
func (r *tablesRun) verify(t *dataset.Table, rows []int64, out []byte) {
	for i, row := range rows {
		r.verified++
		if !bytes.Equal(out[i*t.RowBytes:][:t.RowBytes], t.Row(row)) {
			r.mismatches++
		}
	}
}

// describe fills in what the result says of the tables.
func (r *tablesRun) describe(res *TablesResult, s, plain *cache.Stats) {
	w := &res.Workload
	w.Kind, w.Batches, w.TrainingBatches = r.lookups[0].Kind(), r.last-r.first, r.trainLast-r.trainFirst
	w.TrainingMeasured = r.trainLast > r.first
	c := &res.Cache
	c.Policy, c.BudgetBytes, c.MetadataBytes, c.PayloadBytes = r.cfg.Policy, s.BudgetBytes, s.MetadataBytes, s.PayloadBytes
	c.CodecBytes, c.IndexBytes, c.HostBytes = s.CodecBytes, s.IndexBytes, s.HostBytes
	served := func(t *cache.TableStats) Served {
		return Served{t.CachedRows, t.Lookups, t.Hits, ratio(t.Hits, t.Lookups), t.HostBytesMoved}
	}
	for i, t := range r.tables {
		own := &s.Tables[i]
		one := TableResult{
			Name: t.Name, Rows: int64(t.Rows), RowBytes: t.RowBytes, DType: t.DType.String(), Codec: own.Codec, CodecChoice: own.Choice,
			CompressionRatio: ratio(own.RawBytes, own.StoredBytes), Served: served(own), Uncompressed: served(&plain.Tables[i]),
		}
		res.Tables = append(res.Tables, one)
		res.Total.add(one.Served)
		res.Total.Uncompressed.add(one.Uncompressed)
	}
	w.IDs = res.Total.Lookups
	res.VerifiedRows, res.Mismatches = r.verified, r.mismatches
}

// predict sums up what the Gathers of a mean batch are predicted to take on a GPU: see run.predict.
func (r *tablesRun) predict(res *TablesResult) error {
	model, err := gpu.Reference()
	if err != nil || res.Device.Count != 1 {
		return err
	}
	sum := &PredictedGPU{Device: model.Device}
	for i := range res.Tables {
		t := &res.Tables[i]
		if !model.Knows(t.Codec) {
			return nil
		}
		sum.add(model, r.tables[i], t.Codec, float64(res.Workload.Batches), t.Served, t.Uncompressed)
	}
	res.Total.PredictedGPU = sum
	return nil
}
