package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/bench/predict"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/internal/statjson"
	"github.com/tensorcache/tensorcache/internal/tablefile"
)

// TablesResult is what a run of several tables found, which share one cache. Its JSON form is what `cachebench run --json` prints of them.
type TablesResult struct {
	// Partial says that the run was interrupted: it covers the batches that were measured, and compares with no other cache.
	Partial bool `json:"partial,omitempty"`
	Attachment
	Device DeviceInfo `json:"device"`
	// A batch of the workload looks up rows of each table.
	Workload WorkloadInfo `json:"workload"`
	// Cache has the keys of Result.Cache that are not of one table.
	Cache struct {
		Policy string `json:"policy"`
		MemoryInfo
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
	Verification
}

// TableResult is one of several tables.
type TableResult struct {
	TableInfo
	Codec            string           `json:"codec"`
	CodecChoice      *registry.Choice `json:"codec_choice,omitempty"`
	CompressionRatio float64          `json:"compression_ratio"`
	Resident         *ResidentInfo    `json:"resident,omitempty"`
	// Tiers is there if the table lies in pages, as in Result.
	Tiers *statjson.Tiers `json:"tiers,omitempty"`
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

// Several says whether Features names several tables, with commas between them. A name of one file may have commas, as may names of tensors of a checkpoint.
func (c *Config) Several() bool {
	if c.joined != nil {
		return len(c.joined.tables) > 1
	}
	if !strings.Contains(c.Features, ",") || tablefile.InCheckpoint(c.Features) {
		return false
	}
	_, err := os.Stat(c.Features)
	return err != nil
}

// oneTable is the error of several names where one table is taken.
func (c *Config) oneTable() error {
	if c.Several() {
		return fmt.Errorf("--features (%s) names several tables, which only run and plan take", c.Features)
	}
	return nil
}

// validateTables reports what several tables cannot have.
func (c *Config) validateTables() error {
	var f faults.List
	f.Add(c.Validate())
	given := strings.Split(c.Features, ",")
	f.If(slices.Contains(given, "") && (c.joined == nil || c.Features != ""), "--features (%s) must have no empty name", c.Features)
	names, ids := c.tableCount(), strings.Count(c.IDs, ",")+1
	f.If(c.joined != nil && c.Features != "" && len(given) != names, "--features (%d files) must be as many as the tables of the attached cache (%d)", len(given), names)
	f.If(c.IDs != "" && names != ids, "--ids (%d files) must be as many as the tables (%d)", ids, names)
	spec, err := admission.Lookup(c.Policy)
	f.If(err == nil && spec.Learns == admission.FromGraph, "--policy (%s) needs a graph, which several tables have not", c.Policy)
	for _, x := range []struct {
		name  string
		given bool
	}{
		{"workload", c.Workload != ""}, {"graph", c.Graph != ""}, {"weighted", c.Weighted}, {"cold", c.Cold || c.ColdPages != ""}, {"drift", c.Drift != 0},
		{"refresh-batches", c.RefreshBatches != 0}, {"refresh-interval", c.RefreshInterval != 0},
	} {
		f.If(x.given, "--%s takes one table, there are %d", x.name, names)
	}
	f.If(c.Capture != "", "a trace (%s) holds the accesses of one table, there are %d", c.Capture, names)
	return once(f.Err())
}

// RunTables does what the config says with several tables, which share one cache. Canceling ctx ends it between batches: if any was
// measured, the result is partial.
func RunTables(ctx context.Context, cfg Config, progress Progress) (*TablesResult, error) {
	if err := cfg.validateTables(); err != nil {
		return nil, err
	}
	r := &run{cfg: cfg, progress: progress}
	for _, step := range []func() error{r.loadTables, r.lookUpTables, r.fit} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	cached, interrupted := r.measure(ctx, cfg.Codec, cfg.HostTier, cfg.Verify)
	if cached == nil {
		return nil, interrupted
	}
	res := r.tablesResult(cached)
	if interrupted == nil && !res.Compares() {
		return res, nil
	}
	if interrupted == nil {
		whole, err := orInterrupted(ctx, func() (*TablesResult, error) { return r.compareTables(ctx, *res, cached) })
		if err == nil || ctx.Err() == nil {
			return whole, err
		}
	}
	res.Partial = true
	res.Workload.endedAfter(cached.batches)
	return res, nil
}

// loadTables loads the tables.
func (r *run) loadTables() error {
	if err := r.cfg.checkMemory(nil); err != nil {
		return err
	}
	if r.cfg.joined != nil && r.cfg.Features == "" {
		for i := range r.cfg.joined.tables {
			t, err := r.cfg.joined.table(i, nil)
			if err != nil {
				return err
			}
			r.tables = append(r.tables, t)
		}
		return nil
	}
	for name := range strings.SplitSeq(r.cfg.Features, ",") {
		r.progress.Stage("reading "+name, 0)
		t, err := dataset.Load(name)
		if err != nil {
			return err
		}
		if err := r.cfg.suitPages(t); err != nil {
			return err
		}
		if t, err = t.As(r.cfg.DType); err != nil {
			return err
		}
		if t, err = t.Cast(r.cfg.Cast); err != nil {
			return err
		}
		if r.cfg.joined != nil {
			if t, err = r.cfg.joined.table(len(r.tables), t); err != nil {
				return err
			}
		}
		r.tables = append(r.tables, t)
	}
	return r.cfg.checkPrefetch(r.tables...)
}

// lookUpTables makes the batches: of row numbers from files, or by a power law. Generated batches that train come before those that are
// measured.
func (r *run) lookUpTables() error {
	c := &r.cfg
	if c.IDs != "" {
		return r.replayTables()
	}
	r.trainLast = orDefault(c.TrainBatches, defaultWarmup)
	r.first, r.last = r.trainLast, r.trainLast+orDefault(c.Batches, defaultBatches)
	o := workload.DLRMOptions{BatchSize: cmp.Or(c.BatchSize, defaultSamples), Batches: r.last, Seed: c.Seed}
	for _, t := range r.tables {
		o.Tables = append(o.Tables, workload.EmbeddingTable{Rows: int64(t.Rows), Exponent: tablesExponent})
	}
	w, err := workload.NewDLRM(o)
	r.measured, r.training, r.generated = w, w, r.describeLookups()
	return err
}

// replayTables reads a file of row numbers for each table. The longest is divided into batches of the batch size, the others into as many.
func (r *run) replayTables() error {
	r.progress.Stage("reading row numbers", 0)
	w := &divided{}
	longest, base := 0, int64(0)
	for i, name := range strings.Split(r.cfg.IDs, ",") {
		rows, err := readIDs(name, r.tables[i].Rows, r.cfg.Force)
		if err != nil {
			return fmt.Errorf("--ids: %w", err)
		}
		longest = max(longest, len(rows))
		for j := range rows {
			rows[j] += base
		}
		w.rows, base = append(w.rows, rows), base+int64(r.tables[i].Rows)
	}
	w.batches = (longest-1)/cmp.Or(r.cfg.BatchSize, defaultReplay) + 1
	r.measured, r.training = w, w
	return r.divide()
}

// divided is row numbers of several tables, each divided into so many batches, which differ by one row in length at most.
type divided struct {
	rows    [][]int64
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
	for _, rows := range d.rows {
		dst = append(dst, rows[i*len(rows)/d.batches:(i+1)*len(rows)/d.batches]...)
	}
	return dst
}

// tablesResult describes what was measured.
func (r *run) tablesResult(m *measurement) *TablesResult {
	res := &TablesResult{Attachment: r.attachment(m), Device: m.info(), Workload: r.workloadInfo(), Verification: r.verification()}
	res.Workload.IDs = m.ids
	if r.cfg.joined == nil { // whose policy the owner knows
		res.Cache.Policy = r.cfg.Policy
	}
	res.Cache.MemoryInfo, res.Total.Speed = memoryInfo(&m.stats), m.speed
	for i, t := range r.tables {
		own := &m.stats.Tables[i]
		one := TableResult{
			TableInfo: infoOf(t), Codec: own.Codec, CodecChoice: own.Choice, CompressionRatio: ratio(own.RawBytes, own.StoredBytes), Served: servedFrom(own),
			Resident: residentInfo(own.Resident), Tiers: tiersOf(own),
		}
		res.Tables = append(res.Tables, one)
		res.Total.add(one.Served)
	}
	return res
}

func servedFrom(t *cache.TableStats) Served {
	return Served{t.CachedRows, t.Lookups, t.Hits, ratio(t.Hits, t.Lookups), t.HostBytesMoved}
}

// compareTables adds to a result what an uncompressed cache does, and the times that a GPU is predicted to take.
func (r *run) compareTables(ctx context.Context, res TablesResult, cached *measurement) (*TablesResult, error) {
	plain, err := r.measureRaw(ctx)
	if errors.Is(err, cache.ErrBudget) { // not one uncompressed row fits
		plain, err = &measurement{}, nil
		for _, t := range cached.stats.Tables {
			plain.stats.Tables = append(plain.stats.Tables, cache.TableStats{Lookups: t.Lookups, HostBytesMoved: t.Lookups * int64(t.RowBytes)})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("uncompressed: %w", err)
	}
	model, err := predict.Reference()
	if err != nil {
		return nil, err
	}
	predicted := &PredictedGPU{Device: model.Device}
	res.Tables = slices.Clone(res.Tables)
	res.Total.Uncompressed.Speed = plain.speed
	for i, t := range r.tables {
		one := &res.Tables[i]
		one.Uncompressed = servedFrom(&plain.stats.Tables[i])
		res.Total.Uncompressed.add(one.Uncompressed)
		if cached.devices != 1 || one.Resident != nil || !model.Knows(one.Codec) {
			predicted = nil
		}
		if predicted != nil {
			predicted.add(model, t, one.Codec, one.CompressionRatio, float64(res.Workload.Batches), one.Served, one.Uncompressed)
		}
	}
	res.Total.PredictedGPU = predicted
	return &res, nil
}
