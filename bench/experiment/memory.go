package experiment

import (
	"cmp"
	"math"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/memlimit"
	"github.com/tensorcache/tensorcache/internal/npy"
)

// checkMemory refuses a run that is estimated to need more memory than this process may take. Files that cannot be read are left to
// who loads them.
func (c *Config) checkMemory() error {
	if c.Force {
		return nil
	}
	needs, ok := c.memory()
	if !ok {
		return nil
	}
	return memlimit.Check(needs...)
}

// Bytes of the generated graph: an edge is an index, a vertex its place, and beside the graph what draws the edges' targets.
const (
	generatedDegree = 15
	edgeBytes       = 4
	vertexBytes     = 8 + 36
	weightBytes     = 4
	// policyBytes is about what a policy, the cache's bookkeeping and the sampler keep of a row.
	policyBytes = 150
)

// memory estimates the bytes of host memory that each setting leads to. ok is false if a file cannot be read.
func (c *Config) memory() (needs []memlimit.Need, ok bool) {
	rows, rowBytes, table := float64(c.Vertices), float64(4*defaultColumns), 1.0
	size := memlimit.Need{Setting: "--vertices", Value: c.Vertices}
	if c.Graph != "" {
		graph := memlimit.Need{Setting: "--graph", Value: c.Graph}
		if vertices, _, err := shape(c.Graph+":indptr", 1); err == nil {
			edges, _, _ := shape(c.Graph+":indices", 1)
			graph.Bytes = 2*8*vertices + (8+edgeBytes)*edges
			needs = append(needs, graph)
			rows, size.Setting, size.Value = vertices-1, "--graph", c.Graph
		} else if c.Features == "" {
			return nil, false
		}
	}
	if c.Features != "" {
		var err error
		if rows, rowBytes, err = shape(c.Features, 2); err != nil {
			return nil, false
		}
		size.Setting, size.Value, table = "--features", c.Features, 0 // the file is the table
	}
	if c.Cast != "" {
		table += 0.5
	}
	// The table and the host tier.
	size.Bytes = rows * (rowBytes*(table+1) + policyBytes)
	if c.Graph == "" && c.IDs == "" {
		size.Bytes += rows * (generatedDegree*edgeBytes + vertexBytes)
		if c.Weighted {
			size.Bytes += rows * generatedDegree * weightBytes
		}
	}
	needs = append(needs, size)
	if budget, err := c.budget(int64(min(rows*rowBytes, math.MaxInt64/2))); err == nil && (c.Device == "host" || c.Device == "auto" && cuda.Usable() != nil) {
		needs = append(needs, memlimit.Need{Setting: "--budget", Value: c.Budget, Bytes: float64(c.Devices) * min(float64(budget), rows*rowBytes)})
	}
	if c.IDs == "" {
		batch, hop := float64(cmp.Or(c.BatchSize, defaultSeeds)), 0.0
		hop = batch
		for _, fanout := range c.Fanouts {
			hop *= float64(fanout)
			batch += hop
		}
		needs = append(needs, memlimit.Need{Setting: "--batch-size", Value: cmp.Or(c.BatchSize, defaultSeeds), Bytes: 1.25 * min(batch, rows) * (rowBytes + 8)})
	}
	if c.Batches != Default && c.IDs == "" {
		needs = append(needs, memlimit.Need{Setting: "--batches", Value: c.Batches, Bytes: 8 * float64(c.Batches)}) // the time of each
	}
	return needs, true
}

// shape returns the rows of an array and their bytes.
func shape(path string, minRank int) (rows, rowBytes float64, err error) {
	r, err := npy.Open(path, minRank, "features")
	if err != nil {
		return 0, 0, err
	}
	defer r.Close()
	return float64(r.Rows()), float64(r.RowBytes()), nil
}
