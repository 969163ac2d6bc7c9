package sim

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/aclements/go-moremath/stats"

	"github.com/tensorcache/tensorcache/bench/sim/demand"
	"github.com/tensorcache/tensorcache/bench/trace"
	"github.com/tensorcache/tensorcache/cache/mrc"
	"github.com/tensorcache/tensorcache/internal/faults"
)

// CurveConfig says which miss-ratio curve of LRU to compute from a trace.
type CurveConfig struct {
	// Config's Trace, Format, Sizes (default: Points sizes up to the working set), UnitSize and Seed.
	Config
	// Method is "exact" or "shards".
	Method string
	// Rate is the share of IDs that shards samples. Default 0.01, with MaxIDs 1.
	Rate float64
	// MaxIDs bounds them. Default 0: no bound.
	MaxIDs int
	// Points is how many sizes there are, evenly up to the working set. Default 100.
	Points int
}

// Methods of miss-ratio curves.
const (
	CurveExact  = "exact"
	CurveShards = "shards"
)

// Curve is a miss-ratio curve of LRU.
type Curve struct {
	Source
	Method string `json:"method"`
	// SampledIDs are how many IDs were kept at the end, all of them if Method is exact.
	SampledIDs int64 `json:"sampled_ids"`
	// Error is by how much a miss ratio is expected to be off, on average over the points: 0 if Method is exact.
	Error  float64      `json:"error"`
	Points []CurvePoint `json:"points"`
}

// CurvePoint is the miss ratio at one size.
type CurvePoint struct {
	CacheObjects  int64   `json:"cache_objects"`
	CacheBytes    int64   `json:"cache_bytes"`
	MissRatio     float64 `json:"miss_ratio"`
	ByteMissRatio float64 `json:"byte_miss_ratio"`
	// StandardError is MissRatio's, estimated.
	StandardError float64 `json:"standard_error"`
}

// curveParts is into how many parts shards divides its sample to see how far they differ.
const curveParts = 8

// minCurveIDs leaves each part some.
const minCurveIDs = 8 * curveParts

// Validate reports every field out of range.
func (c *CurveConfig) Validate() error {
	var f faults.List
	c.validateSource(&f)
	f.If(c.Method != CurveExact && c.Method != CurveShards, "--mrc (%q) must be %s or %s", c.Method, CurveExact, CurveShards)
	f.If(c.Method == CurveExact && (c.Rate != 0 || c.MaxIDs != 0), "--mrc exact samples nothing: --shards-rate and --shards-ids are for --mrc shards")
	f.If(!(c.Rate >= 0 && c.Rate <= 1), "--shards-rate (%g) must be above 0 and at most 1", c.Rate)
	f.If(c.MaxIDs != 0 && c.MaxIDs < minCurveIDs, "--shards-ids (%d) must be at least %d", c.MaxIDs, minCurveIDs)
	f.If(c.Points < 0 || c.Points > 1_000_000, "--points (%d) must be 1 to 1000000", c.Points)
	return f.Err()
}

// MissRatios reads the trace and computes the curve in one pass over it.
func MissRatios(ctx context.Context, c CurveConfig, bar Progress) (*Curve, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	bar.Stage("reading the trace", 0)
	t, source, err := c.load()
	if err != nil {
		return nil, err
	}
	bar.Stage("computing the curve", 0)
	return c.missRatios(ctx, t, source)
}

func (c *CurveConfig) missRatios(ctx context.Context, t *demand.Trace, source Source) (*Curve, error) {
	sizes, err := c.sizes(source.WorkingSet)
	if err != nil {
		return nil, err
	}
	out := &Curve{Source: source, Method: c.Method, SampledIDs: source.IDs}
	var points []mrc.Point
	var parts [][]mrc.Point
	if c.Method == CurveExact {
		e, err := mrc.NewExact(sizes)
		if err != nil {
			return nil, err
		}
		if err := feed(ctx, t, []listener{e}); err != nil {
			return nil, err
		}
		points = e.Curve()
	} else if points, parts, err = c.sample(ctx, t, sizes, out); err != nil {
		return nil, err
	}
	for i, p := range points {
		q := CurvePoint{CacheObjects: p.Size, CacheBytes: p.Size, MissRatio: p.MissRatio, ByteMissRatio: p.ByteMissRatio}
		if !c.UnitSize {
			q.CacheObjects = int64(float64(p.Size) * float64(t.Rows) / float64(max(1, source.WorkingSet)))
		}
		q.StandardError = standardError(parts, i)
		out.Error += q.StandardError * math.Sqrt(2/math.Pi) / float64(len(points)) // the mean distance of a normal distribution
		out.Points = append(out.Points, q)
	}
	return out, nil
}

// sizes returns the sizes of the curve, which increase.
func (c *CurveConfig) sizes(workingSet int64) (sizes []int64, err error) {
	for _, text := range c.Sizes {
		n, err := c.size(text, workingSet)
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, n)
	}
	if len(sizes) == 0 {
		n := cmp.Or(c.Points, 100)
		for i := 1; i <= n; i++ {
			sizes = append(sizes, max(1, int64(float64(i)*float64(workingSet)/float64(n))))
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes), nil
}

// sample computes the curve by SHARDS, and that of each part of the sample unless that is all IDs.
func (c *CurveConfig) sample(ctx context.Context, t *demand.Trace, sizes []int64, out *Curve) (points []mrc.Point, parts [][]mrc.Point, err error) {
	o := mrc.ShardsOptions{Sizes: sizes, Rate: c.Rate, MaxIDs: c.MaxIDs, Seed: c.Seed, Numbered: true}
	if o.Rate == 0 && o.MaxIDs == 0 {
		o.Rate = 0.01
	}
	var all []*mrc.Shards
	var listeners []listener
	add := func(o mrc.ShardsOptions) error {
		s, err := mrc.NewShards(o)
		all, listeners = append(all, s), append(listeners, s)
		return err
	}
	if err := add(o); err != nil {
		return nil, nil, err
	}
	if o.Rate > 0 && o.Rate < 1 || o.MaxIDs > 0 && t.Rows > o.MaxIDs {
		o.Parts, o.MaxIDs = curveParts, o.MaxIDs/curveParts
		for o.Part = range curveParts {
			if err := add(o); err != nil {
				return nil, nil, err
			}
		}
	}
	if err := feed(ctx, t, listeners); err != nil {
		return nil, nil, err
	}
	out.SampledIDs = int64(all[0].IDs())
	if out.SampledIDs == 0 {
		return nil, nil, fmt.Errorf("sim: %s: sampled IDs (0 of %d) must be at least 1: raise --shards-rate", c.Trace, t.Rows)
	}
	for _, s := range all[1:] {
		parts = append(parts, s.Curve())
	}
	return all[0].Curve(), parts, nil
}

// standardError is that of the mean of the parts at a point.
func standardError(parts [][]mrc.Point, i int) float64 {
	if len(parts) < 2 {
		return 0
	}
	ratios := make([]float64, len(parts))
	for j, p := range parts {
		ratios[j] = p[i].MissRatio
	}
	return stats.StdDev(ratios) / math.Sqrt(float64(len(parts)))
}

// listener is a curve that is computed from a trace's requests.
type listener interface {
	Access(row uint64, size int64)
	Touch(row uint64, size int64)
	Remove(row uint64)
}

// feed tells listeners of the requests, as demand.Trace.Run does: sets are not counted, and a row of another size than before is
// another version of it.
func feed(ctx context.Context, t *demand.Trace, listeners []listener) error {
	size := slices.Clone(t.Sizes)
	for i, row := range t.IDs {
		if i&(1<<20-1) == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		n, version := int64(1), false
		if size != nil {
			n = t.Size(i)
			version = n != size[row]
			size[row] = n
		}
		for _, l := range listeners {
			if version {
				l.Remove(uint64(row))
			}
			switch {
			case t.Ops == nil || t.Ops[i] == trace.Get:
				l.Access(uint64(row), n)
			case t.Ops[i] == trace.Set:
				l.Touch(uint64(row), n)
			default:
				l.Remove(uint64(row))
			}
		}
	}
	return nil
}
