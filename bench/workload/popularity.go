package workload

import (
	"cmp"
	"encoding/json"
	"fmt"
	"github.com/tensorcache/tensorcache/internal/faults"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// PopularityOptions describes lookups by buckets of equally popular rows, as CacheLib's cachebench has them.
type PopularityOptions struct {
	// Buckets are the numbers of rows, Weights the relative numbers of lookups of each bucket. No default.
	Buckets []int64
	Weights []float64
	// Rows is how many rows there are to be, 1 to the sum of Buckets, which are scaled down to it. Default: that sum.
	Rows int64
	// LoneShare is the share of lookups, 0 to below 1, that ask for a row that nobody asks for before or after.
	LoneShare float64
	// Sizes and SizeWeights are the rows' lengths in bytes and how frequent each is. SizeWeights has one element less where
	// Sizes are the limits of ranges, in which lengths are uniform. Default: rows have no length.
	Sizes       []int64
	SizeWeights []float64
	// BatchSize is the lookups of a batch, at least 1. Default 4096.
	BatchSize int
	// Batches is at least 1. Default 200.
	Batches int
	// Seed fixes the lookups. Any value, 0 included, is a seed of its own.
	Seed uint64
}

// EnsureDefaults replaces zero fields by their defaults.
func (o *PopularityOptions) EnsureDefaults() {
	if o.Rows == 0 {
		for _, n := range o.Buckets {
			o.Rows += n
		}
	}
	o.BatchSize = cmp.Or(o.BatchSize, 4096)
	o.Batches = cmp.Or(o.Batches, 200)
}

// Validate reports every field out of range.
func (o *PopularityOptions) Validate() error {
	f := faults.List{Prefix: "workload: popularity: "}
	f.If(len(o.Buckets) == 0 || len(o.Buckets) != len(o.Weights) || len(o.Buckets) > math.MaxInt32, "Buckets (%d) must be at least 1, and as many as Weights (%d)", len(o.Buckets), len(o.Weights))
	total := int64(0)
	for i, b := range o.Buckets {
		if b < 1 || b > maxRows-total {
			f.Addf("Buckets[%d] (%d) must be at least 1, their sum at most %d", i, b, int64(maxRows))
			break
		}
		total += b
	}
	checkShares := func(name string, weights []float64) {
		all := 0.0
		for i, w := range weights {
			if !(w >= 0 && w <= 1e300) {
				f.Addf("%s[%d] (%g) must be at least 0 and at most 1e300", name, i, w)
				return
			}
			all += w
		}
		f.If(len(weights) > 0 && !(all > 0 && all <= 1e300), "%s' sum (%g) must be above 0 and at most 1e300", name, all)
	}
	checkShares("Weights", o.Weights)
	checkShares("SizeWeights", o.SizeWeights)
	f.If(o.Rows < 1 || o.Rows > max(total, 1), "Rows (%d) must be in [1, %d], the sum of Buckets", o.Rows, total)
	f.If(!(o.LoneShare >= 0 && o.LoneShare < 1), "LoneShare (%g) must be in [0, 1)", o.LoneShare)
	if n, w := len(o.Sizes), len(o.SizeWeights); n != w && n != w+1 || w == 0 && n != 0 || w > math.MaxInt32 {
		f.Addf("Sizes (%d) must be as many as SizeWeights (%d), or one more", n, w)
	}
	for i, s := range o.Sizes {
		if s < 0 || s > maxRows || len(o.Sizes) > len(o.SizeWeights) && i > 0 && s < o.Sizes[i-1] {
			f.Addf("Sizes[%d] (%d) must be in [0, %d], and rise where they are limits", i, s, int64(maxRows))
			break
		}
	}
	f.If(o.BatchSize < 1 || o.BatchSize > math.MaxInt32, "BatchSize (%d) must be in [1, %d]", o.BatchSize, math.MaxInt32)
	f.If(o.Batches < 1 || o.BatchSize > 0 && int64(o.Batches) > maxRows/int64(o.BatchSize), "Batches (%d) must be at least 1, lookups at most %d", o.Batches, int64(maxRows))
	return f.Err()
}

// Popularity is the access pattern of popularity buckets. Rows [0, PopularRows) are in them, in an order of their own; those
// from there on are asked for once.
type Popularity struct {
	tabled
	o       PopularityOptions
	buckets aliasTable
	first   []int64 // of each bucket, before scaling; and their sum
	spread  permutation
	lone    []bool // which lookups of a batch are
	lones   int64
	sizes   aliasTable
}

// NewPopularity checks the options and returns the workload.
func NewPopularity(o PopularityOptions) (*Popularity, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	w := &Popularity{tabled: tabled{"popularity", o.Batches, o.Rows}, o: o, buckets: newAliasTable(slices.Clone(o.Weights)), first: []int64{0}, spread: newPermutation(int(o.Rows), o.Seed, 0)}
	for i, b := range o.Buckets {
		w.first = append(w.first, w.first[i]+b)
	}
	for j := range o.BatchSize {
		lone := int64(float64(j+1)*o.LoneShare) > w.lones
		if w.lone = append(w.lone, lone); lone {
			w.lones++
		}
	}
	w.rows += int64(o.Batches) * w.lones
	if len(o.SizeWeights) > 0 {
		w.sizes = newAliasTable(slices.Clone(o.SizeWeights))
	}
	return w, nil
}

// PopularRows are those that lookups by popularity ask for.
func (w *Popularity) PopularRows() int64 { return w.o.Rows }

// RowBytes returns a row's length.
func (w *Popularity) RowBytes(row int64) int64 {
	if w.sizes == nil {
		return 0
	}
	var r rand.PCG
	r.Seed(streamSeeds(w.o.Seed, purposeSizes, uint64(row)))
	i := w.sizes.draw(&r)
	if len(w.o.Sizes) == len(w.o.SizeWeights) {
		return w.o.Sizes[i]
	}
	lo, hi := w.o.Sizes[i], w.o.Sizes[i+1]
	return lo + int64(below(&r, uint64(max(hi-lo, 1))))
}

// NewCursor returns a cursor without scratch.
func (w *Popularity) NewCursor() Cursor { return &popularityCursor{w: w} }

type popularityCursor struct {
	w   *Popularity
	rng rand.PCG
}

// Batch implements Cursor.
func (c *popularityCursor) Batch(i int, dst []int64) []int64 {
	w := c.w
	checkBatch(i, w.o.Batches)
	c.rng.Seed(streamSeeds(w.o.Seed, purposePopularity, uint64(i)))
	lone := w.o.Rows + int64(i)*w.lones
	total := uint64(w.first[len(w.o.Buckets)])
	for _, once := range w.lone {
		if once {
			dst = append(dst, lone)
			lone++
			continue
		}
		b := w.buckets.draw(&c.rng)
		object := uint64(w.first[b]) + below(&c.rng, uint64(w.o.Buckets[b]))
		hi, lo := bits.Mul64(object, uint64(w.o.Rows))
		rank, _ := bits.Div64(hi, lo, total)
		dst = append(dst, int64(w.spread.at(int(rank))))
	}
	return dst
}

// cacheLibFile is what matters of the files of CacheLib's cachebench: a config.json has Config, a distribution the others.
type cacheLibFile struct {
	Config *struct {
		PopDistFile     string  `json:"popDistFile"`
		ValSizeDistFile string  `json:"valSizeDistFile"`
		LoneGetRatio    float64 `json:"loneGetRatio"`
		SetRatio        float64 `json:"setRatio"`
		DelRatio        float64 `json:"delRatio"`
		AddChainedRatio float64 `json:"addChainedRatio"`
	} `json:"test_config"`
	Buckets         []int64   `json:"popularityBuckets"`
	Weights         []float64 `json:"popularityWeights"`
	Sizes           []float64 `json:"valSizeRange"`
	SizeProbability []float64 `json:"valSizeRangeProbability"`
}

// LoadPopularity reads a distribution of CacheLib's cachebench: a file with popularityBuckets and popularityWeights, or a
// config.json that names it and perhaps valSizeDistFile, and has numKeys and loneGetRatio. numKeys only scales key numbers
// there, and is not used. What is not of the distribution stays as it is in the result.
func LoadPopularity(path string) (PopularityOptions, error) {
	var o PopularityOptions
	popularity := path
	file, err := readCacheLib(path)
	if err != nil {
		return o, err
	}
	if t := file.Config; t != nil {
		if t.PopDistFile == "" {
			return o, fmt.Errorf("workload: %s: test_config must name a popDistFile", path)
		}
		if t.SetRatio != 0 || t.DelRatio != 0 || t.AddChainedRatio != 0 {
			return o, fmt.Errorf("workload: %s: setRatio, delRatio and addChainedRatio (%g, %g, %g) must be 0: workloads are lookups; name the popularity file itself to ignore them",
				path, t.SetRatio, t.DelRatio, t.AddChainedRatio)
		}
		o.LoneShare = t.LoneGetRatio
		popularity = filepath.Join(filepath.Dir(path), t.PopDistFile)
		if file, err = readCacheLib(popularity); err != nil {
			return o, err
		}
		if t.ValSizeDistFile != "" {
			name := filepath.Join(filepath.Dir(path), t.ValSizeDistFile)
			sizes, err := readCacheLib(name)
			if err != nil {
				return o, err
			}
			for i, s := range sizes.Sizes {
				if !(s >= 0 && s <= maxRows) {
					return o, fmt.Errorf("workload: %s: valSizeRange[%d] (%g) must be in [0, %d]", name, i, s, int64(maxRows))
				}
				o.Sizes = append(o.Sizes, int64(s))
			}
			o.SizeWeights = sizes.SizeProbability
		}
	}
	o.Buckets, o.Weights = file.Buckets, file.Weights
	if len(o.Buckets) == 0 {
		return o, fmt.Errorf("workload: %s: popularityBuckets and popularityWeights must be there", popularity)
	}
	checked := o
	checked.EnsureDefaults()
	if err := checked.Validate(); err != nil {
		return o, fmt.Errorf("workload: %s: %w", path, err)
	}
	return o, nil
}

// readCacheLib reads a file of one JSON object. Other keys are the file's business.
func readCacheLib(path string) (file cacheLibFile, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return file, fmt.Errorf("workload: %w", err)
	}
	if err := json.Unmarshal(b, &file); err != nil {
		return file, fmt.Errorf("workload: %s: must be a JSON object: %w", path, err)
	}
	return file, nil
}
