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

// demoTable makes a table and its batches.
type demoTable struct {
	name, lookups, budget string
	make                  func(d *DemoConfig, r *run) error
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
	{"graph features", "neighbour sampling", "10%", func(d *DemoConfig, r *run) (err error) {
		if r.table, err = dataset.Generate(demoVertices/d.Scale, defaultColumns, d.Seed); err != nil {
			return err
		}
		return d.sampled(r, workload.GraphOptions{})
	}},
	{"embeddings", "power law", "5%", func(d *DemoConfig, r *run) (err error) {
		if r.table, err = dataset.Generate(demoEmbeddings/d.Scale, defaultColumns, d.Seed); err != nil {
			return err
		}
		if r.table, err = r.table.Cast("bf16"); err != nil {
			return err
		}
		table := workload.EmbeddingTable{Rows: int64(r.table.Rows), Exponent: 1, Lookups: demoTables}
		o := workload.DLRMOptions{Tables: []workload.EmbeddingTable{table}, BatchSize: max(1, demoSamples/d.Scale), Batches: demoTraining + demoBatches, Seed: d.Seed}
		w, err := workload.NewDLRM(o)
		if err != nil {
			return err
		}
		r.measured, r.training = w, w
		r.trainLast, r.first, r.last = demoTraining, demoTraining, demoTraining+demoBatches
		return nil
	}},
	{"bags of words", "neighbour sampling", "1%", func(d *DemoConfig, r *run) error {
		rows := demoPapers / d.Scale
		data, err := workload.Words(rows, coraColumns, coraWords, d.Seed)
		if err != nil {
			return err
		}
		r.table = &dataset.Table{Name: "generated", DType: dtype.Float32, Rows: rows, RowBytes: 4 * coraColumns, Data: data}
		return d.sampled(r, workload.GraphOptions{MeanDegree: coraDegree})
	}},
}

// sampled gives a run a graph over its table's rows, and batches of sampled neighbours.
func (d *DemoConfig) sampled(r *run, o workload.GraphOptions) (err error) {
	o.Vertices, o.Seed = r.table.Rows, d.Seed
	if r.graph, err = workload.PowerLaw(o); err != nil {
		return err
	}
	r.cfg.BatchSize, r.cfg.Batches, r.cfg.TrainBatches = max(1, demoSeeds/d.Scale), demoBatches, demoTraining
	return r.prepareSampling()
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
		if err := r.cfg.Validate(); err != nil {
			return nil, err
		}
		progress.Stage("generating "+t.name, 0)
		if err := t.make(&d, r); err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		if err := r.fit(); err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		one, err := r.result(ctx, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		res.Tables = append(res.Tables, DemoTable{Name: t.name, Lookups: t.lookups, Budget: t.budget, Result: one})
	}
	return res, nil
}
