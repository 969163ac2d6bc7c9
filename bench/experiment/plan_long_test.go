//go:build long

package experiment

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/tensorcache/tensorcache/bench/trace"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/internal/realdata"
)

// cyclesOf are how the caches of the long tests follow their use: not, and by refreshes.
var cyclesOf = map[string]int{"filled once": 0, "refreshed": 5}

// longPlan is of the default policy and those by recency.
func longPlan(refresh int) PlanConfig {
	c := NewPlanConfig()
	// Several workers observe a batch in an order that varies, which moves policies by recency by up to 2 points.
	c.Policies, c.Targets, c.RefreshBatches, c.Workers = []string{"freq", "tinylfu", "lru", "glru-2q", "glru-arc"}, []float64{0.3, 0.7}, refresh, 1
	return c
}

func TestLong_PlanGenerated(t *testing.T) {
	generatedComeTrue(t, 4, []string{"freq", "lru", "glru-arc"})
}

func TestLong_PlanGraphs(t *testing.T) {
	for name, refresh := range cyclesOf {
		for _, file := range []string{"cora.npz", "reddit.npz", "pubmed_graph.npz"} {
			t.Run(file+" "+name, func(t *testing.T) {
				c := longPlan(refresh)
				if c.Graph = realdata.Table(t, file); file != "pubmed_graph.npz" { // which has no features
					c.Features = c.Graph
				}
				sampled(t, c)
			})
		}
		t.Run("default "+name, func(t *testing.T) {
			c := longPlan(refresh)
			c.Policies, c.Vertices = c.Policies[:3], 50_000
			sampled(t, c)
		})
		t.Run("text "+name, func(t *testing.T) {
			c := longPlan(refresh)
			c.Workload, c.Tokens, c.Rows, c.Policies = ngramKind, realdata.Table(t, "wikitext2_tokens.npy"), 200_000, c.Policies[:3]
			c.Batches, c.TrainBatches = 40, 160
			sampled(t, c)
		})
	}
}

func TestLong_PlanTables(t *testing.T) {
	for name, refresh := range cyclesOf {
		for file, rows := range map[string]int{"ncf_user.npy": 6040, "sz_testfloat.npy": 128, "sz_testdouble.npy": 128, "pubmed_tx.npz": 1000} {
			t.Run(file+" "+name, func(t *testing.T) {
				path := realdata.Table(t, file)
				rows := rows
				if info, _, _, err := shape(path); err == nil {
					rows = int(info)
				}
				replayed(t, longPlan(refresh), []string{path}, skewed(rows, 100_000, 2, 0))
				replayed(t, longPlan(refresh), []string{path}, skewed(rows, 100_000, 4, 400))
			})
		}
	}
}

// tracedIDs returns the IDs of the first gets of a trace, numbered in the order in which they come.
func tracedIDs(t *testing.T, name string, most int) (ids []int64, rows int) {
	t.Helper()
	r, err := trace.Open(realdata.Trace(t, name), trace.Options{Default: "ids"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	numbers := map[uint64]int64{}
	buf := make([]trace.Request, 4096)
	for len(ids) < most {
		n, err := r.Read(buf)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range buf[:n] {
			if q.Op != trace.Get {
				continue
			}
			if _, known := numbers[q.ID]; !known {
				numbers[q.ID] = int64(len(numbers))
			}
			ids = append(ids, numbers[q.ID])
		}
	}
	return ids, len(numbers)
}

func TestLong_PlanTraces(t *testing.T) {
	for name, refresh := range cyclesOf {
		for _, file := range []string{"cloudphysics.oracleGeneral.bin", "arc_oltp.gz", "lirs_gli.gz", "mooncake_conversation.jsonl.gz"} {
			t.Run(file+" "+name, func(t *testing.T) {
				ids, rows := tracedIDs(t, file, 200_000)
				c := longPlan(refresh)
				c.Targets = []float64{0.2, 0.5}
				replayed(t, c, []string{floats(t, rows, 16, false)}, ids)
			})
		}
		t.Run("popularity of cachelib "+name, func(t *testing.T) {
			dir := filepath.Join("..", "..", "..", "shared", "traces", "cachelib_graph_cache_leader_fbobj", "config.json")
			if _, err := os.Stat(dir); err != nil {
				t.Skipf("%s is absent", dir)
			}
			o, err := workload.LoadPopularity(dir)
			if err != nil {
				t.Fatal(err)
			}
			o.Rows, o.BatchSize, o.Batches, o.Seed = 100_000, 2000, 100, 1
			w, err := workload.NewPopularity(o)
			if err != nil {
				t.Fatal(err)
			}
			var ids []int64
			numbers := map[int64]int64{} // some rows are asked for once, and numbered behind the others
			for _, rows := range learnFrom(t.Context(), w, 0, w.Batches()) {
				for _, row := range rows {
					if _, known := numbers[row]; !known {
						numbers[row] = int64(len(numbers))
					}
					ids = append(ids, numbers[row])
				}
			}
			c := longPlan(refresh)
			c.Targets = []float64{0.2, 0.5}
			replayed(t, c, []string{floats(t, len(numbers), 16, false)}, ids)
		})
	}
}
