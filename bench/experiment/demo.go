package experiment

import (
	"context"
	"fmt"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/dtype"
)

// DemoConfig says where the demonstration runs.
type DemoConfig struct {
	// Device and Workers are those of Config.
	Device  string
	Workers int
	// Seed seeds every generator and sampler.
	Seed uint64
	// Scale divides the rows of the tables and the sizes of the batches, 1 to 100. Tests have more than 1.
	Scale int
}

// DemoResult is what the demonstration found. Its JSON form is what `cachebench demo --json` prints.
type DemoResult struct {
	Tables []DemoTable `json:"tables"`
}

// DemoTable is one table of the demonstration.
type DemoTable struct {
	// Name says what the table holds, Lookups how its rows are looked up, and Budget is the cache's share of the table's bytes.
	Name    string `json:"name"`
	Lookups string `json:"lookups"`
	Budget  string `json:"budget"`
	// Result is what `cachebench run --json` prints of a run.
	Result *Result `json:"result"`
}

// demoTable is a table of the demonstration and its batches.
type demoTable struct {
	name, lookups, budget string
	// prepare configures a run, and may make its table and graph.
	prepare func(d *DemoConfig, r *run) error
}

// Sizes of the demonstration.
const (
	demoBatches, demoTraining = 20, 10
	demoSeeds                 = 1024
	demoVertices              = 300_000
	demoEmbeddings            = 400_000
	demoTables, demoSamples   = 26, 2048 // a batch looks up 26 rows a sample, as if all of a recommender's features had one table
	demoPapers                = 40_000
	// Of cora: the length of a row, words a row and edges a vertex.
	coraColumns, coraWords, coraDegree = 1433, 18, 4
)

var demoList = []demoTable{
	{"graph features", "neighbour sampling", "10%", func(d *DemoConfig, r *run) error {
		r.cfg.Vertices, r.cfg.BatchSize = demoVertices/d.Scale, max(1, demoSeeds/d.Scale)
		return nil
	}},
	{"embeddings", "power law", "5%", func(d *DemoConfig, r *run) error {
		r.cfg.Vertices, r.cfg.Cast = demoEmbeddings/d.Scale, "bf16"
		r.cfg.Workload, r.cfg.Bag, r.cfg.BatchSize = Embedding, demoTables, max(1, demoSamples/d.Scale)
		return nil
	}},
	{"bags of words", "neighbour sampling", "1%", func(d *DemoConfig, r *run) error {
		rows := demoPapers / d.Scale
		r.cfg.Vertices, r.cfg.BatchSize = rows, max(1, demoSeeds/d.Scale)
		data, err := workload.Words(rows, coraColumns, coraWords, d.Seed)
		if err != nil {
			return err
		}
		r.table = &dataset.Table{Name: "generated", DType: dtype.Float32, Rows: rows, RowBytes: 4 * coraColumns, Data: data}
		r.graph, err = workload.PowerLaw(workload.GraphOptions{Vertices: rows, MeanDegree: coraDegree, Seed: d.Seed})
		return err
	}},
}

// Demo runs generated tables of three kinds through the cache and through an uncompressed one of the same budget. Canceling ctx ends it
// between batches.
func Demo(ctx context.Context, d DemoConfig, progress Progress) (*DemoResult, error) {
	if d.Scale < 1 || d.Scale > 100 {
		return nil, fmt.Errorf("--scale (%d) must be 1 to 100", d.Scale)
	}
	res := &DemoResult{}
	for _, t := range demoList {
		r := &run{cfg: NewConfig(), progress: progress}
		r.cfg.Budget, r.cfg.Device, r.cfg.Workers, r.cfg.Seed = t.budget, d.Device, d.Workers, d.Seed
		r.cfg.Batches, r.cfg.TrainBatches = demoBatches, demoTraining
		if err := r.cfg.Validate(); err != nil { // what the user said
			return nil, err
		}
		progress.Stage("generating "+t.name, 0)
		for _, step := range []func() error{func() error { return t.prepare(&d, r) }, r.load, r.sample, r.fit} {
			if err := step(); err != nil {
				return nil, fmt.Errorf("%s: %w", t.name, err)
			}
		}
		one, err := r.result(ctx, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		res.Tables = append(res.Tables, DemoTable{Name: t.name, Lookups: t.lookups, Budget: t.budget, Result: one})
	}
	return res, nil
}
