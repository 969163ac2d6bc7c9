package experiment

import (
	"cmp"
	"math"
	"os"
	"strings"

	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/memlimit"
	"github.com/tensorcache/tensorcache/internal/npy"
	"github.com/tensorcache/tensorcache/internal/tablefile"
	"github.com/tensorcache/tensorcache/pages"
)

// checkMemory refuses a run that is estimated to need more memory than this process may take. Files that cannot be read are left to
// who loads them. graph is the run's if it has been loaded: the size of an edge list is not known before.
func (c *Config) checkMemory(graph *workload.Graph) error {
	if c.Force {
		return nil
	}
	needs, ok := c.memory(graph)
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
func (c *Config) memory(loaded *workload.Graph) (needs []memlimit.Need, ok bool) {
	rows, rowBytes := float64(c.Vertices), float64(4*defaultColumns)
	size := memlimit.Need{Setting: "--vertices", Value: c.Vertices}
	if c.Graph != "" {
		graph := memlimit.Need{Setting: "--graph", Value: c.Graph}
		if loaded != nil {
			rows, size.Setting, size.Value = float64(loaded.Vertices()), "--graph", c.Graph
		} else if vertices, err := elements(c.Graph + ":indptr"); err == nil {
			edges, _ := elements(c.Graph + ":indices")
			graph.Bytes = 2*8*vertices + (8+edgeBytes)*edges
			needs = append(needs, graph)
			rows, size.Setting, size.Value = vertices-1, "--graph", c.Graph
		} else if c.Features == "" {
			return nil, false
		}
	}
	if c.readsText() {
		rows, rowBytes = float64(cmp.Or(c.Rows, workload.NgramRows)), workload.NgramRowBytes
		size.Setting, size.Value = "--rows", int64(rows)
	}
	held := rows * rowBytes // of the table, beside the host tier
	if c.joined != nil {
		rows, held = 0, 0
		bytes := 0.0
		for _, t := range c.joined.tables {
			rows, bytes = rows+float64(t.Rows), bytes+float64(t.Rows)*float64(t.RowBytes)
		}
		rowBytes = bytes / max(1, rows)
		size.Setting, size.Value = "--attach", c.Attach
	}
	if c.Features != "" {
		names := []string{c.Features}
		if c.Several() {
			names = strings.Split(c.Features, ",")
		}
		bytes := 0.0
		rows, held = 0, 0
		for _, name := range names {
			n, length, in, err := shape(name)
			if err != nil {
				return nil, false
			}
			rows, bytes, held = rows+n, bytes+n*length, held+in
		}
		rowBytes = bytes / rows
		size.Setting, size.Value = "--features", c.Features
	}
	if c.planned > 0 && !c.exact(int(rows), int(rowBytes)) {
		if size.Bytes = 3 * miniatureBytes; c.samples() || c.Graph != "" { // something is kept of each row
			size.Bytes = rows * policyBytes
		}
		if c.samples() && c.Graph == "" {
			size.Bytes += rows * (generatedDegree*edgeBytes + vertexBytes)
		}
		needs = append(needs, size)
		if c.readsText() {
			needs = append(needs, c.Ngram.memory(c.BatchSize, 0)...)
		}
		return needs, true
	}
	if c.Cast != "" {
		held += rows * rowBytes / 2
	}
	// The table and the host tier.
	memory := c.hostMemory()
	switch size.Bytes = held; {
	case c.joined != nil: // the owner has host tier, policy and slabs
	case memory > 0 && rows*rowBytes > float64(memory): // the policy follows the rows that fit
		size.Bytes += float64(memory)*(1+policyBytes/rowBytes) + rows
	default:
		size.Bytes += rows * (rowBytes + policyBytes)
	}
	if c.Graph == "" && c.samples() {
		size.Bytes += rows * (generatedDegree*edgeBytes + vertexBytes)
		if c.Weighted {
			size.Bytes += rows * generatedDegree * weightBytes
		}
	}
	needs = append(needs, size)
	if budget, err := c.budget(int64(min(rows*rowBytes, math.MaxInt64/2))); err == nil && c.joined == nil && (c.Device == "host" || c.Device == "auto" && cuda.Usable() != nil) {
		needs = append(needs, memlimit.Need{Setting: "--gpu-memory", Value: c.Budget, Bytes: float64(c.Devices) * min(float64(budget), rows*rowBytes)})
	}
	if c.readsText() {
		needs = append(needs, c.Ngram.memory(c.BatchSize, rowBytes)...)
	}
	if c.Workload == Embedding {
		samples := cmp.Or(c.BatchSize, defaultSamples)
		needs = append(needs, memlimit.Need{Setting: "--batch-size", Value: samples, Bytes: 1.25 * float64(samples) * float64(c.bag()) * (rowBytes + 8)})
	}
	if c.samples() {
		batch, hop := float64(cmp.Or(c.BatchSize, defaultSeeds)), 0.0
		hop = batch
		for _, fanout := range c.Fanouts {
			hop *= float64(fanout)
			batch += hop
		}
		needs = append(needs, memlimit.Need{Setting: "--batch-size", Value: cmp.Or(c.BatchSize, defaultSeeds), Bytes: 1.25 * min(batch, rows) * (rowBytes + 8)})
	}
	if c.Batches != Default && c.IDs == "" && !c.readsText() {
		needs = append(needs, memlimit.Need{Setting: "--batches", Value: c.Batches, Bytes: 8 * float64(c.Batches)}) // the time of each
	}
	return needs, true
}

// checkMemory refuses what is estimated to need more memory than this process may take: the table, and the sample of at most 32 MiB as
// often as codecs copy it.
func (c *CompressConfig) checkMemory() error {
	const sample, copies = 32 << 20, 4
	need := memlimit.Need{Setting: "--features", Value: c.Features}
	rows, rowBytes := float64(defaultVertices), float64(4*defaultColumns)
	need.Bytes = rows * rowBytes
	switch s, err := workload.FindStandIn(c.Generate); {
	case c.Features == "" && err == nil:
		need.Setting, need.Value = "--generate", c.Generate
		rows, rowBytes = float64(s.Rows), float64(s.RowBytes())
		need.Bytes = rows * rowBytes
	case c.Features == "":
		need.Value = "generated"
	default:
		var err error
		if rows, rowBytes, need.Bytes, err = shape(c.Features); err != nil {
			return nil // for who loads it
		}
	}
	if c.Cast != "" {
		need.Bytes += rows * rowBytes / 2
	}
	need.Bytes += copies*min(rows*rowBytes, sample) + 3*compressPart
	if c.Force {
		return nil
	}
	return memlimit.Check(need)
}

// shape returns the rows of a table's file, their bytes, and how many bytes of memory loading the table takes: none if it is mapped.
func shape(path string) (rows, rowBytes, held float64, err error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() && !tablefile.IsCheckpoint(path) {
		m, err := pages.ReadManifest(path)
		if err != nil {
			return 0, 0, 0, err
		}
		return float64(m.Rows), float64(m.RowBytes), 0, nil
	}
	f, err := tablefile.Open(path)
	if err != nil {
		return 0, 0, 0, err
	}
	defer f.Close()
	if rows, rowBytes = float64(f.Rows()), float64(f.RowBytes()); !f.Maps() {
		held = rows * rowBytes
	}
	return rows, rowBytes, held, nil
}

// elements returns the number of elements of a graph's array.
func elements(path string) (float64, error) {
	r, err := npy.Open(path, 1)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	return float64(r.Rows()), nil
}
