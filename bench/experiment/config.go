// Package experiment runs what cachebench measures and returns the results as values; it prints nothing.
package experiment

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/internal/setting"
	"github.com/tensorcache/tensorcache/pages/cluster"
	"github.com/tensorcache/tensorcache/transfer"
)

// Default, as a value of Batches or TrainBatches, stands for the default of the workload.
const Default = -1

// Defaults of a run.
const (
	defaultVertices  = 500_000
	defaultColumns   = 128
	defaultBatches   = 200
	defaultWarmup    = 50
	defaultSeeds     = 256
	defaultReplay    = 4096
	trainingSeed     = 0x747261696e // flipped into the seed for pre-sampled batches
	minimumVertices  = 1
	maximumVertices  = 1<<31 - 1
	maximumBatch     = 1 << 24
	maximumWorkers   = 1024
	maximumAhead     = 1024
	replayTrainShare = 4 // one batch in so many trains by default, with row numbers from a file
)

// Config says what a run does: one workload on one table, through one cache. An empty string means that nothing was given.
// NewConfig returns the defaults. The JSON keys are the flags of `cachebench run`, underscores for dashes.
type Config struct {
	// Features is a NumPy file; "" generates rows of 128 float32, one for each vertex of the graph. RunTables takes several, with commas
	// between them, and as many IDs.
	Features string `json:"features,omitempty"`
	// ColdPages is the address of a cluster that has the table's pages: those that the files of Features lack, or all if Features is "".
	ColdPages string `json:"cold_pages,omitempty"`
	// ColdCache is a folder in which pages of ColdPages are kept once they have been read, at most ColdCacheBytes ("16GiB"); "" keeps none.
	ColdCache      string `json:"cold_cache,omitempty"`
	ColdCacheBytes string `json:"cold_cache_bytes,omitempty"`
	// DType is the type that the table's elements are taken for, of the same length; "" is that of the file.
	DType string `json:"dtype,omitempty"`
	// Cast rounds the table's elements to bf16, f16, f8e4m3, f8e5m2 or f8e8m0 first, or quantises them: dataset.Table.Cast.
	Cast string `json:"cast,omitempty"`
	// Graph is an .npz with CSR indptr and indices to sample; "" generates one with a vertex for each row of the table.
	Graph string `json:"graph,omitempty"`
	// Vertices is the size of the generated graph where there is no features file.
	Vertices int `json:"vertices"`
	// IDs is a text file of row numbers, or a trace whose IDs are such, to replay instead of sampling.
	IDs string `json:"ids,omitempty"`
	// With Workload "embedding" batches are bags of Bag rows, 20 by default. Pooled has the rows of each bag added up; the bytes of a run are those of the
	// rows read all the same.
	Bag    int  `json:"bag,omitempty"`
	Pooled bool `json:"pooled,omitempty"`
	// Fanouts are how many neighbours are sampled in each hop.
	Fanouts []int `json:"fanouts"`
	// Weighted samples neighbours by the edges' weights.
	Weighted bool `json:"weighted,omitempty"`
	// BatchSize is the seeds of a sampled batch, 256 by default, or the row numbers of a replayed one, 4096
	// or, so that a quarter can train the policy, a quarter of them if they are few. 0: default.
	BatchSize int `json:"batch_size,omitempty"`
	// Batches is the number of measured batches: 200 by default, with IDs all there are.
	Batches int `json:"batches"`
	// TrainBatches is the number of batches the policy learns from before the cache is filled: 50 by default, sampled
	// with another seed. With IDs, these are the first batches of the file, and they are not measured; by default the
	// first quarter of the batches, rounded down but at least one, trains the policy and is measured too.
	TrainBatches int `json:"train_batches"`

	// Budget is per device, as a share of the table's raw bytes ("5%") or in bytes ("64MiB").
	Budget string `json:"budget"`
	// Policy is one of admission.Names.
	Policy string `json:"policy"`
	Codec  string `json:"codec"`
	// Link is the GB/s at which GPUs read misses, which codec "auto" picks for: "" for the default, "none" to pick for this machine's
	// processors.
	Link     string `json:"link,omitempty"`
	HostTier string `json:"host_tier"`
	// NoEqualRows has equal rows in place not share slots.
	NoEqualRows bool   `json:"no_equal_rows,omitempty"`
	Device      string `json:"device"`
	Devices     int    `json:"devices"`
	// GPUs are the GPUs to use, "0,2" or "all"; "" takes the first Devices ones.
	GPUs string `json:"gpus,omitempty"`
	// Placement is one of package cache's. Rates are the speeds that it calculates with: a file that `devices --measure` wrote, or
	// "local=1900,peer=350,host=50".
	Placement string `json:"placement"`
	Rates     string `json:"rates,omitempty"`
	// HostNodes are the memory nodes of the host tier: "0,1", or "any"; "" leaves the choice to the cache.
	HostNodes string `json:"host_nodes,omitempty"`
	// HostMemory bounds the host memory for rows and index of a table of pages: "8MiB"; "" has no bound.
	HostMemory string `json:"host_memory,omitempty"`
	// Prefetch is how many batches ahead Cache.Prefetch is called for the rows of a table of pages. 0: not at all.
	Prefetch int `json:"prefetch,omitempty"`
	Workers  int `json:"workers,omitempty"`
	// Seed seeds every generator and sampler. DataSeed, if not 0, replaces it for the generated table and graph.
	Seed     uint64 `json:"seed"`
	DataSeed uint64 `json:"data_seed,omitempty"`
	// Verify compares every gathered row with its source.
	Verify bool `json:"verify,omitempty"`
	// Force goes on where the memory is estimated not to suffice.
	Force bool `json:"-"`
	// Capture is a trace to write the measured accesses to: see bench/trace. Default: none.
	Capture string `json:"-"`
	// Logger gets what the measured caches log. Default: none.
	Logger *slog.Logger `json:"-"`
	// Attach is the address "unix:PATH" of a cache of another process, which is measured instead of one made here. Then only the fields of the
	// workload mean anything, and Join must be called before the run. Default: none.
	Attach string  `json:"attach,omitempty"`
	joined *joined // by Join; nil: none
	// planned is not 0 if the run is for a plan: the most rows of a table that the plan has encoded all of.
	planned int
	// TraceRate is cache.TelemetryOptions.TraceRate.
	TraceRate float64 `json:"-"`
	// Closing, unless nil, is called after a cache has been measured and before it is closed, while its metrics can still be read.
	Closing func() `json:"-"`
	Resident
	Ngram
	Online
}

// NewConfig returns the default run.
func NewConfig() Config {
	return Config{
		Vertices: defaultVertices, Fanouts: []int{15, 10}, Batches: Default, TrainBatches: Default,
		Budget: "5%", Policy: admission.Default, Codec: registry.Auto, HostTier: "inplace", Device: "auto", Devices: 1, Placement: string(cache.PlacementAuto), Seed: 1,
		Online: Online{RefreshChurn: defaultRefreshChurn, SampleRate: defaultSampleRate},
	}
}

// link returns Link as cache.Options takes it. REQUIRES: c is valid.
func (c *Config) link() float64 {
	link, _ := setting.Link(c.Link)
	return link
}

// hostMemory returns HostMemory in bytes, 0 for no bound. REQUIRES: c is valid.
func (c *Config) hostMemory() int64 {
	n, _ := setting.Bytes("--host-memory", c.HostMemory)
	return n
}

// suitPages sets what the pages of a table say, if it lies in pages, and reports what contradicts them.
func (c *Config) suitPages(t *dataset.Table) error {
	m := t.Paged()
	if m == nil {
		return nil
	}
	if c.Cast != "" {
		return fmt.Errorf("--cast (%s) must not be given for a table of pages: cast the features before they are packed", c.Cast)
	}
	if c.DType != "" && c.DType != m.DType.String() {
		return fmt.Errorf("--dtype (%s) must be %s, as which the table was packed, or not given", c.DType, m.DType)
	}
	if c.Codec != registry.Auto && c.Codec != m.Codec {
		return fmt.Errorf("--codec (%s) must be %s, with which the table was packed, or not given", c.Codec, m.Codec)
	}
	c.Codec = registry.Auto
	return nil
}

// checkPrefetch returns an error if rows are to be prefetched and none of the tables lies in pages. Where an attached cache's tables lie, its owner knows.
func (c *Config) checkPrefetch(tables ...*dataset.Table) error {
	paged := func(t *dataset.Table) bool { return t.Paged() != nil }
	if c.Prefetch == 0 || c.joined != nil || slices.ContainsFunc(tables, paged) {
		return nil
	}
	return fmt.Errorf("--prefetch (%d) needs a table of pages, as --features DIR of pack or --cold redis://HOST:PORT", c.Prefetch)
}

// Validate reports every field out of range and every contradiction, all at once. Fields go by the names of their flags.
func (c *Config) Validate() error {
	var f faults.List
	if !c.resident() || c.Budget != WholeTable {
		_, err := c.budget(1 << 40)
		f.Add(err)
	}
	policy, err := admission.Lookup(c.Policy)
	f.Add(err)
	f.Add(registry.Check(c.Codec))
	_, ok := setting.Link(c.Link)
	f.If(!ok, "--link (%q) must be GB/s above 0, or none", c.Link)
	f.Add(dataset.CheckDType(c.DType))
	f.Add(dataset.CheckCast(c.Cast))
	f.If(cluster.IsAddress(c.Features), "--features (%s) must be files or a directory of pages: the pages of a cluster are given by --cold, which run and explain take", c.Features)
	f.If(c.ColdCache != "" && c.ColdPages == "", "--cold-cache needs --cold redis://HOST:PORT")
	f.If(c.ColdCacheBytes != "" && c.ColdCache == "", "--cold-cache-bytes needs --cold-cache")
	if c.ColdCacheBytes != "" {
		_, err = setting.Bytes("--cold-cache-bytes", c.ColdCacheBytes)
		f.Add(err)
	}
	if c.HostMemory != "" {
		_, err = setting.Bytes("--host-memory", c.HostMemory)
		f.Add(err)
	}
	f.If(c.Prefetch < 0 || c.Prefetch > maximumAhead, "--prefetch (%d) must be 0 to %d", c.Prefetch, maximumAhead)
	_, err = transfer.ParseMode(c.HostTier)
	f.Add(err)
	switch c.Device {
	case "auto", "host":
	case "cuda":
		err := cuda.Usable()
		f.If(err != nil, "--device cuda is not usable: %w", err)
	default:
		f.Addf("unknown device (%q) must be one of auto, host, cuda", c.Device)
	}
	c.validateDevices(&f)
	c.validateLayout(&f)
	c.validateNgram(policy, &f)
	c.Online.validate(c.Policy, &f)
	c.validateEmbedding(policy, &f)
	f.If(c.Batches < 1 && c.Batches != Default, "--batches (%d) must be at least 1", c.Batches)
	f.If(c.TrainBatches < 0 && c.TrainBatches != Default, "--train-batches (%d) must not be negative", c.TrainBatches)
	f.If(c.BatchSize < 0, "--batch-size (%d) must be at least 1", c.BatchSize)
	f.If(c.BatchSize > maximumBatch, "--batch-size (%d) must be at most %d", c.BatchSize, maximumBatch)
	f.If(c.Workers < 0, "--workers (%d) must not be negative", c.Workers)
	f.If(c.Workers > maximumWorkers, "--workers (%d) must be at most %d", c.Workers, maximumWorkers)
	f.If(c.Vertices < minimumVertices || c.Vertices > maximumVertices, "--vertices (%d) must be %d to %d", c.Vertices, minimumVertices, maximumVertices)
	for _, n := range c.Fanouts {
		f.If(n < 1, "--fanouts (%d) must be at least 1", n)
	}
	if c.IDs != "" {
		if needs := policy.Learns == admission.FromGraph; needs && c.Graph == "" {
			f.Addf("--policy %s needs a --graph: none is generated for --ids (%s)", c.Policy, c.IDs)
		} else if !needs && c.Graph != "" {
			f.Addf("--graph (%s) and --ids (%s) contradict each other: the workload is one or the other", c.Graph, c.IDs)
		}
	}
	return f.Err()
}

// dataSeed is the seed of the generated table and graph.
func (c *Config) dataSeed() uint64 {
	if c.DataSeed == 0 {
		return c.Seed
	}
	return c.DataSeed
}

// Settings returns the config as `cachebench run --config` reads it: flags as keys, underscores for dashes. It leaves out flags
// without a meaning here and those at the workload's default.
func (c *Config) Settings() map[string]any {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // no field can fail
	}
	var m map[string]any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // seeds are 64 bits wide
	if err := d.Decode(&m); err != nil {
		panic(err) // it was encoded just now
	}
	maps.DeleteFunc(m, func(key string, _ any) bool {
		switch key {
		case "vertices":
			return c.Features != "" || c.ColdPages != "" || c.Graph != "" || c.readsText()
		case "fanouts":
			return !c.samples()
		case "batches":
			return c.Batches == Default
		case "train_batches":
			return c.TrainBatches == Default
		case "placement":
			return c.Placement == string(cache.PlacementAuto)
		case "refresh_churn", "sample_rate":
			return !c.Online.on()
		}
		return false
	})
	if delete(m, "cold_pages"); c.ColdPages != "" { // one flag is for both
		m["cold"] = c.ColdPages
	}
	if c.RefreshInterval != 0 {
		m["refresh_interval"] = c.RefreshInterval.String()
	}
	return m
}

// budget returns the bytes per device for a table of so many raw bytes.
func (c *Config) budget(raw int64) (int64, error) { return setting.Budget(c.Budget, raw) }
