package drive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/pages"
)

// Config says what to measure.
type Config struct {
	// Dir is a folder on the drive. A folder with the pages is made in it, and removed at the end.
	Dir string
	// Bytes is the size of the table, PageBytes that of its pages, RowBytes that of its rows (default 512; of Text workload.NgramRowBytes).
	Bytes               int64
	PageBytes, RowBytes int
	// Depth is how many reads are under way at once.
	Depth int
	// Share is the share of the pages that a round reads, chosen at random, 0 to 1.
	Share float64
	// Rounds is how often each reader reads. They take turns.
	Rounds int
	Seed   uint64
	fill   func(dst []byte, row int64) // writes a row
	// Gather has batches read through a cache over the pages, too.
	Gather GatherConfig
	// Text, if its Tokens are set, has the steps of a language model that reads a text looked up in the same cache. The table has rows of float8 values
	// then, compressed by ibp4.
	Text TextConfig
}

// Result is what was measured. Its JSON form is what `lab drive` prints.
type Result struct {
	Dir       string `json:"dir"`
	Bytes     int64  `json:"bytes"`
	PageBytes int    `json:"page_bytes"`
	RowBytes  int    `json:"row_bytes"`
	Depth     int    `json:"depth"`
	Rounds    int    `json:"rounds"`
	// Direct says that reads passed by the system's page cache. If not, memory was measured as well as the drive.
	Direct bool `json:"direct"`
	// WriteGBPerSecond is the speed of packing, which includes the making of the rows.
	WriteGBPerSecond float64  `json:"write_gb_per_second"`
	Readers          []Reader `json:"readers"`
	Gathers          *Gathers `json:"gathers,omitempty"`
	Steps            *Steps   `json:"steps,omitempty"`
}

// Reader is what one way of reading did: medians of the rounds.
type Reader struct {
	// Name is "plain", or the engine by which rows were read.
	Name        string  `json:"name"`
	GBPerSecond float64 `json:"gb_per_second"`
	// OfPlain is the median of the ratios to the plain reader's speed in the same round.
	OfPlain float64 `json:"of_plain"`
	// CPUSecondsPerGB is the processor time of the process, for each 10^9 bytes that were read.
	CPUSecondsPerGB float64 `json:"cpu_seconds_per_gb"`
	RowsPerSecond   float64 `json:"rows_per_second,omitempty"`
}

// plain is the name of the plain reader.
const plain = "plain"

// Measure makes a table, reads it, and removes it.
func Measure(ctx context.Context, c Config) (_ *Result, err error) {
	c.Depth, c.Rounds = cmp.Or(c.Depth, 64), cmp.Or(c.Rounds, 5)
	rowBytes := 512
	if c.Text.Tokens != "" {
		rowBytes = workload.NgramRowBytes
	}
	c.PageBytes, c.RowBytes = cmp.Or(c.PageBytes, pages.DefaultPageBytes), cmp.Or(c.RowBytes, rowBytes)
	c.Share = cmp.Or(c.Share, 0.5)
	f := faults.List{Prefix: "drive: "}
	f.If(c.RowBytes < 1 || c.RowBytes > c.PageBytes/2, "row bytes (%d) must be 1 to half a page (%d)", c.RowBytes, c.PageBytes/2)
	f.If(c.Bytes < int64(max(c.RowBytes, 1)), "bytes (%d) must be a row (%d) at least", c.Bytes, c.RowBytes)
	f.If(!(c.Share > 0 && c.Share <= 1), "share (%g) must be above 0 and at most 1", c.Share)
	f.If(c.Rounds < 1, "rounds (%d) must be at least 1", c.Rounds)
	f.If(c.Depth < 1, "depth (%d) must be at least 1", c.Depth)
	c.Text.check(&f, c)
	if err := f.Err(); err != nil {
		return nil, err
	}
	n := c.Bytes / int64(c.RowBytes)
	c.fill = numbered(c.Seed)
	codec := "none"
	if c.Text.Tokens != "" {
		codec = "ibp4"
		if c.fill, err = float8s(int(n), c.Seed); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp(c.Dir, "tensorcache-drive-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	w, err := pages.CreateFiles(dir)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	source := func() (pages.Source, error) { return &rows{int(n), c.RowBytes, c.fill}, nil }
	m, err := pages.Pack(ctx, source, w,
		pages.PackOptions{Name: "drive", DType: dtype.Uint8, Codec: codec, Stage: "none", PageBytes: c.PageBytes, Seed: c.Seed})
	if err != nil {
		return nil, err
	}
	res := &Result{Dir: c.Dir, Bytes: m.PageTotal, PageBytes: m.LongestPage, RowBytes: m.RowBytes, Depth: c.Depth, Rounds: c.Rounds}
	res.WriteGBPerSecond = float64(m.PageTotal) / 1e9 / time.Since(start).Seconds()

	readers := []reader{newPlain(filepath.Join(dir, "g1"), m, c.Depth)}
	defer func() {
		for _, r := range readers {
			r.close()
		}
	}()
	for _, engine := range []string{"pread", "uring"} {
		t, err := pages.Open(dir, pages.FileOptions{Engine: engine, Depth: c.Depth})
		if err != nil {
			if engine == "uring" {
				continue // not in this build or kernel
			}
			return nil, err
		}
		readers = append(readers, &table{t, engine})
		res.Direct = t.Stores()[0].(*pages.Files).Direct()
	}
	if err := c.rounds(ctx, res, m, readers); err != nil {
		return nil, err
	}
	if c.Gather.Device != "" {
		err = c.gathers(ctx, dir, m, readers[0], res)
	}
	return res, err
}

// rounds has the readers take turns.
func (c *Config) rounds(ctx context.Context, res *Result, m *pages.Manifest, readers []reader) error {
	r := rand.New(rand.NewPCG(c.Seed, 2))
	type sample struct{ speed, ofPlain, cpu, rows float64 }
	samples := make([][]sample, len(readers))
	for round := range c.Rounds {
		order := r.Perm(len(readers))
		wanted := make([]uint32, 0, m.Pages)
		for _, p := range r.Perm(int(m.Pages))[:max(1, int(c.Share*float64(m.Pages)))] {
			wanted = append(wanted, uint32(p))
		}
		for _, i := range order {
			cpu, start := processorTime(), time.Now()
			bytes, rows, err := readers[i].read(ctx, wanted)
			seconds := time.Since(start).Seconds()
			if err := errors.Join(err, ctx.Err()); err != nil {
				return fmt.Errorf("%s: %w", readers[i].name(), err)
			}
			gb := float64(bytes) / 1e9
			samples[i] = append(samples[i], sample{speed: gb / seconds, cpu: (processorTime() - cpu).Seconds() / gb, rows: float64(rows) / seconds})
		}
		for i := range readers {
			samples[i][round].ofPlain = samples[i][round].speed / samples[0][round].speed
		}
	}
	for i, all := range samples {
		middle := func(of func(sample) float64) float64 {
			v := make([]float64, len(all))
			for j, s := range all {
				v[j] = of(s)
			}
			return median(v)
		}
		res.Readers = append(res.Readers, Reader{
			Name: readers[i].name(), GBPerSecond: middle(func(s sample) float64 { return s.speed }), OfPlain: middle(func(s sample) float64 { return s.ofPlain }),
			CPUSecondsPerGB: middle(func(s sample) float64 { return s.cpu }), RowsPerSecond: middle(func(s sample) float64 { return s.rows }),
		})
	}
	return nil
}
