package workload

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/internal/memlimit"
)

// Spec describes a generated workload as the flags of a command line do. Zero fields stand for the workload's defaults.
type Spec struct {
	// Kind is one of Kinds.
	Kind               string
	Batches, BatchSize int
	Seed               uint64
	Rows               int64  // mix, popularity, ngram
	Mix                string // see ParseMix
	Tables             string // dlrm, see ParseTables
	Turnover           int    // dlrm
	Popularity         string // file, see LoadPopularity
	// Graph is a file for LoadGraph, or "power-law" (default).
	Graph            string
	Vertices, Degree int // of a generated graph
	Fanouts          []int
	Weighted         bool
	NgramSpec
	// Force goes on where the memory is estimated not to suffice.
	Force bool
}

// Kinds are those of Spec.
var Kinds = []string{"mix", "dlrm", "popularity", "sampling", "ngram"}

// SpecFields lists the kinds that use a field, by the field's flag. Fields that all kinds use are not listed.
var SpecFields = map[string]string{
	"batch-size": "mix dlrm popularity sampling ngram", "rows": "mix popularity ngram", "mix": "mix", "tables": "dlrm", "turnover": "dlrm",
	"popularity": "popularity", "graph": "sampling", "vertices": "sampling", "degree": "sampling",
	"fanouts": "sampling", "weighted": "sampling",
	"tokens": "ngram", "orders": "ngram", "heads": "ngram", "layers": "ngram", "phase": "ngram", "text-tokens": "ngram",
}

// New returns the workload. It loads or generates the graph, where there is one.
func (s *Spec) New() (Workload, error) {
	if !s.Force {
		if err := memlimit.Check(s.memory()...); err != nil {
			return nil, err
		}
	}
	switch s.Kind {
	case "mix":
		o := MixOptions{Rows: s.Rows, BatchSize: s.BatchSize, Batches: s.Batches, Seed: s.Seed}
		if s.Mix != "" {
			var err error
			if o.Parts, err = ParseMix(s.Mix); err != nil {
				return nil, err
			}
		}
		return NewMix(o)
	case "dlrm":
		o := DLRMOptions{BatchSize: s.BatchSize, Batches: s.Batches, Turnover: s.Turnover, Seed: s.Seed}
		if s.Tables != "" {
			var err error
			if o.Tables, err = ParseTables(s.Tables); err != nil {
				return nil, err
			}
		}
		return NewDLRM(o)
	case "popularity":
		if s.Popularity == "" {
			return nil, fmt.Errorf("workload: popularity: a file of popularity buckets must be given")
		}
		o, err := LoadPopularity(s.Popularity)
		if err != nil {
			return nil, err
		}
		o.Rows, o.BatchSize, o.Batches, o.Seed = s.Rows, s.BatchSize, s.Batches, s.Seed
		return NewPopularity(o)
	case "sampling":
		g, err := s.graph()
		if err != nil {
			return nil, err
		}
		return NewNeighborSampling(SamplingOptions{
			Graph: g, Fanouts: slices.Clone(s.Fanouts), BatchSize: s.BatchSize, Batches: s.Batches, Weighted: s.Weighted, Seed: s.Seed,
		})
	case "ngram":
		return s.ngram()
	}
	return nil, fmt.Errorf("workload: kind (%q) must be one of %s", s.Kind, strings.Join(Kinds, ", "))
}

// memory estimates the bytes that the workload and one batch take, but for graphs from files.
func (s *Spec) memory() []memlimit.Need {
	need := func(flag string, value int, bytes float64) memlimit.Need {
		return memlimit.Need{Setting: flag, Value: value, Bytes: bytes * float64(max(0, value))}
	}
	// A slice that append lets grow by quarters, and the one it was copied from, take this many times its elements.
	const grown = 1.25 * 1.8
	const row = 8 * grown // in a batch
	switch s.Kind {
	case "mix", "popularity":
		return []memlimit.Need{need("--batch-size", s.BatchSize, row+grown)}
	case "dlrm":
		lookups := 0
		tables, _ := ParseTables(s.Tables)
		for _, t := range tables {
			lookups += t.Lookups
		}
		return []memlimit.Need{need("--batch-size", cmp.Or(s.BatchSize, 2048), row*float64(cmp.Or(lookups, 8)))}
	case "sampling":
		if !s.generatesGraph() {
			return nil
		}
		edge := 4.0
		if s.Weighted {
			edge = 8
		}
		vertices := cmp.Or(s.Vertices, 500_000)
		if s.Degree == 0 {
			return []memlimit.Need{need("--vertices", vertices, 48+row+15*edge)}
		}
		return []memlimit.Need{need("--vertices", vertices, 48+row), need("--degree", s.Degree, edge*float64(vertices))}
	case "ngram":
		return []memlimit.Need{need("--text-tokens", s.TextTokens, 4), need("--batch-size", s.BatchSize, row*float64(s.RowsPerToken()))}
	}
	return nil
}

func (s *Spec) generatesGraph() bool { return s.Graph == "" || s.Graph == "power-law" }

// graph loads or generates the graph.
func (s *Spec) graph() (g *Graph, err error) {
	if s.generatesGraph() {
		g, err = PowerLaw(GraphOptions{Vertices: s.Vertices, MeanDegree: s.Degree, Seed: s.Seed})
		if err == nil && s.Weighted {
			g.SetWeights(s.Seed)
		}
		return g, err
	}
	if s.Vertices != 0 || s.Degree != 0 {
		return nil, fmt.Errorf("workload: sampling: vertices and degree (%d, %d) must not be given with a graph's file (%s)", s.Vertices, s.Degree, s.Graph)
	}
	if g, err = LoadGraph(s.Graph, s.Force); err == nil && s.Weighted && g.Weights == nil {
		err = g.LoadWeights(s.Graph)
	}
	return g, err
}

// ParseTables reads embedding tables such as "1000000:0.9,50000:1.1:4": rows, exponent (1) and lookups (1) of each.
func ParseTables(text string) ([]EmbeddingTable, error) {
	var tables []EmbeddingTable
	for item := range strings.SplitSeq(text, ",") {
		fields := strings.Split(strings.TrimSpace(item), ":")
		t := EmbeddingTable{Exponent: 1, Lookups: 1}
		var err error
		if t.Rows, err = strconv.ParseInt(fields[0], 10, 64); err == nil && len(fields) > 1 {
			t.Exponent, err = strconv.ParseFloat(fields[1], 64)
		}
		if err == nil && len(fields) > 2 {
			t.Lookups, err = strconv.Atoi(fields[2])
		}
		if err != nil || len(fields) > 3 {
			return nil, fmt.Errorf("workload: DLRM: table (%q) must be rows:exponent:lookups", item)
		}
		tables = append(tables, t)
	}
	return tables, nil
}
