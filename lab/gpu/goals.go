package gpu

import (
	"fmt"
	"strings"
)

// goal is what a figure of a case should reach on an H200 with the default options. Fields that are zero match every result.
type goal struct {
	name    string // of the case
	codec   string
	ends    string // of the codec's label
	unit    string
	batch   int
	threads int // of the host, at least
	row     int // bytes, at least
	variant string
	of      GoalOf
	bound   float64
	times   func(x *Result) float64 // multiplies the bound; nil: 1
}

// allMisses is the codec of the case sampling that samples as refreshing does by default: an eighth of the hits, and all misses.
const allMisses = "80 % hits, all misses"

// goals has all goals. The first one that matches a result counts.
var goals = []goal{
	{name: "hit-decode", codec: SparseCodec, of: RatioAtLeast, bound: 1},
	{name: "hit-decode", row: 1024, of: RatioAtLeast, bound: 0.90},
	{name: "hit-decode", row: 400, of: RatioAtLeast, bound: 0.85},
	{name: "hit-decode", row: 256, of: RatioAtLeast, bound: 0.75},
	{name: "hit-codecs", codec: "rank", row: 512, of: RatioAtLeast, bound: 0.6},
	{name: "hit-codecs", codec: "rank" + BFloat16Suffix, row: 512, of: RatioAtLeast, bound: 0.7},
	{name: "hit-codecs", codec: "rank" + Float16Suffix, row: 512, of: RatioAtLeast, bound: 0.7},
	{name: "hit-parts", codec: "parts", of: RatioAtLeast, bound: 0.6},
	{name: "hit-codecs", codec: "sleek", row: 512, of: RatioAtLeast, bound: 0.8},
	{name: "hit-codecs", codec: "sparse", row: 512, of: RatioAtLeast, bound: 0.6},
	// Rows of 256 bytes are not below it: a list of entries takes a warp as long as one of rows of 512, and writes half as much (0.91 on an H200).
	{name: "hit-codecs", codec: "sparse" + OnesSuffix, row: 512, of: RatioAtLeast, bound: 1.3},
	{name: "hit-codecs", codec: "ndzip", row: 512, of: RatioAtLeast, bound: 0.4},
	{name: "hit-codecs", codec: "zipnn", row: 512, of: RatioAtLeast, bound: 0.25},
	{name: "gather-hits", row: 1024, of: RatioAtLeast, bound: 0.88},
	{name: "gather-hits", row: 512, of: RatioAtLeast, bound: 0.84},
	{name: "gather-hits", row: 256, of: RatioAtLeast, bound: 0.70},
	{name: "gather-hits-codecs", codec: "rank", batch: 1 << 20, row: 1024, of: RatioAtLeast, bound: 0.83},
	{name: "gather-hits-codecs", codec: "rank", batch: 1 << 20, row: 512, of: RatioAtLeast, bound: 0.79},
	{name: "gather-hits-codecs", codec: "rank", batch: 1 << 20, of: RatioAtLeast, bound: 0.70},
	{name: "gather-hits-codecs", codec: "rank", row: 1024, of: RatioAtLeast, bound: 0.79},
	{name: "gather-hits-codecs", codec: "rank", row: 512, of: RatioAtLeast, bound: 0.75},
	{name: "gather-hits-codecs", codec: "rank", of: RatioAtLeast, bound: 0.63},
	{name: "gather-hits-codecs", batch: 1 << 20, row: 1024, of: RatioAtLeast, bound: 0.92},
	{name: "gather-hits-codecs", batch: 1 << 20, row: 512, of: RatioAtLeast, bound: 0.88},
	{name: "gather-hits-codecs", batch: 1 << 20, of: RatioAtLeast, bound: 0.78},
	{name: "gather-hits-codecs", row: 1024, of: RatioAtLeast, bound: 0.88},
	{name: "gather-hits-codecs", row: 512, of: RatioAtLeast, bound: 0.84},
	{name: "gather-hits-codecs", of: RatioAtLeast, bound: 0.70},
	{name: "gather-misses", row: 2048, of: RatioAtLeast, bound: 0.95},
	{name: "gather-misses", row: 1024, of: RatioAtLeast, bound: 0.92},
	{name: "gather-misses", row: 400, of: RatioAtLeast, bound: 0.87},
	{name: "gather-misses-large", threads: 15, row: 512, of: RatioAtLeast, bound: 1.9},
	{name: "gather-misses-large", threads: 15, row: 256, of: RatioAtLeast, bound: 3.0},
	{name: "gather-misses-large", threads: 4, row: 512, of: RatioAtLeast, bound: 1.3},
	{name: "gather-misses-large", threads: 4, row: 256, of: RatioAtLeast, bound: 2.2},
	{name: "training-fetch", codec: "auto", row: 512, of: ValueAtMost, bound: 1.25},
	{name: "training-fetch", codec: "auto", of: ValueAtMost, bound: 0.80},
	{name: "gather-80", of: RatioAtLeast, bound: 0.9},
	// Rows of 512 bytes are float32, rows of 256 bfloat16.
	{name: "pooled-hits", codec: "none", of: RatioAtLeast, bound: 0.85},
	{name: "pooled-hits", batch: pooledLarge, variant: bagOf(1), row: 512, of: ValueAtLeast, bound: 1200},
	{name: "pooled-hits", batch: pooledLarge, variant: bagOf(1), of: ValueAtLeast, bound: 1000},
	{name: "pooled-hits", batch: pooledLarge, variant: bagOf(10), row: 512, of: ValueAtLeast, bound: 2000},
	{name: "pooled-hits", batch: pooledLarge, variant: bagOf(10), of: ValueAtLeast, bound: 1700},
	{name: "pooled-hits", batch: pooledLarge, variant: bagOf(40), row: 512, of: ValueAtLeast, bound: 2400},
	{name: "pooled-hits", batch: pooledLarge, variant: bagOf(40), of: ValueAtLeast, bound: 2000},
	{name: "pooled-hits", batch: pooledLarge, variant: bagOf(200), row: 512, of: ValueAtLeast, bound: 2600},
	{name: "pooled-hits", batch: pooledLarge, variant: bagOf(200), of: ValueAtLeast, bound: 2200},
	{name: "pooled-hits", of: RatioAtLeast, bound: 0.85},
	{name: "pooled-gather", variant: bagOf(10), of: RatioAtLeast, bound: 1.8},
	{name: "pooled-gather", variant: bagOf(40), of: RatioAtLeast, bound: 1.8},
	{name: "pooled-gather", variant: bagOf(200), of: RatioAtLeast, bound: 1.8},
	{name: "pooled-80", of: RatioAtLeast, bound: 1 / 1.1},
	{name: "pooled-tables", of: RatioAtLeast, bound: 0.85},
	{name: "ngram-decode", ends: ", hits", of: ValueAtMost, bound: 25},
	{name: "ngram-decode", ends: ", hits, bfloat16", of: ValueAtMost, bound: 25},
	{name: "ngram-decode", of: RatioAtLeast, bound: 1 / 1.1},
	{name: "ngram-prefill", of: RatioAtLeast, bound: 2.5},
	{name: "buddy-hits", row: 512, of: RatioAtLeast, bound: 0.90},
	{name: "buddy-hits", of: RatioAtLeast, bound: 0.80},
	{name: "buddy-overflow", of: RatioAtLeast, bound: 1 / 1.15},
	{name: "buddy-budget", variant: skewOf(0), of: RatioAtLeast, bound: 0.6},
	{name: "buddy-updates", unit: readUnit, of: RatioAtLeast, bound: 0.9},
	{name: "buddy-updates", of: ValueAtLeast, bound: 10},
	{name: "sampling", codec: allMisses, of: RatioAtLeast, bound: 0.97},
	{name: "sampling", of: RatioAtLeast, bound: 0.99},
	{name: "refresh", unit: churnUnit, of: ValueAtLeast, bound: leastChurn},
	{name: "refresh", of: RatioAtLeast, bound: 1 / 1.15},
	{name: "lookup", of: ValueAtLeast, bound: 20},
	{name: "load", of: RatioAtLeast, bound: 0.8},
	{name: "small-batch", codec: "hits", batch: hitBatch, row: smallRow, of: ValueAtMost, bound: 30},
	{name: "small-batch-caller", codec: "hits", batch: hitBatch, row: smallRow, of: ValueAtMost, bound: 60},
	{name: "captured", codec: "hits", row: smallRow, of: ValueAtMost, bound: 1, times: captured},
	{name: "caller", unit: "allocations", of: ValueAtMost, bound: 0},
	{name: "caller", of: ValueAtMost, bound: 20},
	{name: "peer-hits", row: 1024, of: RatioAtLeast, bound: 0.90, times: compression},
	{name: "peer-hits", row: 512, of: RatioAtLeast, bound: 0.87, times: compression},
	{name: "pair-throughput", unit: "points", of: ValueAtMost, bound: 1},
	{name: "pair-throughput", of: RatioAtLeast, bound: 1.8},
	{name: "pair-placement", unit: "%", of: ValueAtMost, bound: 15},
	{name: "pair-placement", of: RatioAtLeast, bound: 1},
	{name: "pair-refresh", of: RatioAtLeast, bound: 1 / 1.2},
}

// compression is for reads of a peer: compression multiplies the link's bandwidth.
func compression(x *Result) float64 { return x.Compression }

// captured is for replays: a few microseconds more than a plain kernel's.
func captured(x *Result) float64 { return x.BaselineValue + 6 }

// matches says whether the goal is one of the result.
func (g *goal) matches(x *Result) bool {
	return g.name == x.Case && (g.codec == "" || g.codec == x.Codec) && strings.HasSuffix(x.Codec, g.ends) && (g.unit == "" || g.unit == x.Unit) &&
		(g.batch == 0 || g.batch == x.Batch) && x.HostThreads >= g.threads && x.RowBytes >= g.row && (g.variant == "" || g.variant == x.Variant)
}

// setGoal gives a result the goal of its case. REQUIRES: Case, RowBytes, Codec, Variant, Unit, Batch, HostThreads, Compression and BaselineValue are
// set.
func setGoal(x *Result) {
	for i := range goals {
		if g := &goals[i]; g.matches(x) {
			x.Goal, x.GoalOf = g.bound, g.of
			if g.times != nil {
				x.Goal *= g.times(x)
			}
			return
		}
	}
}

// bagOf is the variant of results of bags of so many rows.
func bagOf(rows int) string { return fmt.Sprintf("bag %d", rows) }

// skewOf is the variant of results of rows whose frequencies have that exponent.
func skewOf(exponent float64) string { return fmt.Sprintf("skew %g", exponent) }

const (
	// pooledLarge is the rows of the larger batches of pooled-hits and pooled-gather: about 2^20, and a multiple of all bags.
	pooledLarge = 1_048_000
	// partsCodec is the codec for rows of values and scales.
	partsCodec = "parts"
	// smallRow is the row length of small batches, and hitBatch the size of the batch of hits that has a goal.
	smallRow = 512
	hitBatch = 4096
	// churnUnit is the unit of how much refreshing replaces. That should be 1, and must be leastChurn for the times of refresh to count.
	churnUnit = "% a second"
	// readUnit is the unit of Gathers beside updates, whose goal is a ratio.
	readUnit   = "GB/s"
	leastChurn = 0.9
)
