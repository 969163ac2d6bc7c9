package registry

import (
	"math"

	"github.com/tensorcache/tensorcache/codec"
)

// Costs are what batches of one table take on one device with one codec. All are seconds, 0 or more.
type Costs struct {
	// Batch is what a batch takes whatever its rows: launches, and what orders its misses. Lookup is the search for one row.
	Batch  float64 `json:"batch"`
	Lookup float64 `json:"lookup"`
	// Hit is the decoding of a cached row.
	Hit float64 `json:"hit"`
	// Miss is the least that a missed row takes, however short it is stored. MissByte is what a stored byte of it takes: the inverse of the
	// speed. A missed row takes the longer of Miss and its stored bytes × MissByte.
	Miss     float64 `json:"miss"`
	MissByte float64 `json:"miss_byte"`
	// Serial says that hits and misses are read one after the other, as processors do; GPUs read them side by side.
	Serial bool `json:"serial,omitempty"`
}

// MissSeconds returns the seconds of a missed row of so many stored bytes.
func (c Costs) MissSeconds(stored float64) float64 { return max(c.Miss, stored*c.MissByte) }

// Seconds returns the seconds of a batch of rows of which a share, hitRatio, hits, and whose misses have so many stored bytes, on average.
func (c Costs) Seconds(rows, hitRatio, missBytes float64) float64 {
	hits, misses := rows*hitRatio*c.Hit, rows*(1-hitRatio)*c.MissSeconds(missBytes)
	if c.Serial {
		hits, misses = hits+misses, 0
	}
	return c.Batch + rows*c.Lookup + max(hits, misses)
}

// Valid says whether the costs are numbers that a machine can have: none is negative or 1000 seconds, and hits and misses take time.
func (c Costs) Valid() bool {
	for _, v := range []float64{c.Batch, c.Lookup, c.Hit, c.Miss, c.MissByte} {
		if !(v >= 0 && v < 1000) {
			return false
		}
	}
	return c.Hit > 0 && c.Miss+c.MissByte > 0
}

// What GPUs are taken to do where none is measured: these are an H200's figures (docs/performance.md).
const (
	// gpuGather is the bytes of rows a second that a GPU copies from its memory as they are.
	gpuGather = 1900e9
	// gpuLookup is the rows a second that it finds, and gpuBatch the seconds of a batch's launches.
	gpuLookup = 10e9
	gpuBatch  = 30e-6
)

// gpuCosts returns the costs of a GPU that is not measured, of which hits of a codec decode at a share of the speed of copying, and misses
// are read over a link of so many bytes a second.
func gpuCosts(rowBytes int, rate, link float64) Costs {
	return Costs{Batch: gpuBatch, Lookup: 1 / gpuLookup, Hit: float64(rowBytes) / (gpuGather * rate), MissByte: 1 / link}
}

// Trained is a codec of which costs are to be measured.
type Trained struct {
	Name string // a family's, or None
	// Codec is what the family made of the sample, nil for None, and Rows are some rows as stored, raw if they have the row's length.
	Codec codec.Codec
	Rows  [][]byte
	// Ratio is raw ÷ stored bytes of Rows.
	Ratio float64
}

// Measured is what a measurement says.
type Measured struct {
	// Costs are those of each codec, by name. Codecs that are not in it were not measured.
	Costs map[string]Costs
	// Pick is the codec that was picked by an earlier measurement of the same, "" for none.
	Pick string
	// Kept says that nothing was measured now.
	Kept bool
	// Seconds is how long measuring took, when it was done.
	Seconds float64
	// By says for people what was measured; without Costs, why nothing was.
	By string
}

// Drawn is a row that was drawn from a table's lookups, for those like it.
type Drawn struct {
	Row int64
	// Rows is how many rows of the table it stands for.
	Rows float64
	// Count is how often training batches looked up each of them, by which admission ranks them. 0: admission does not know them.
	Count float64
	// Lookups is the share of all later lookups that these rows get together, 0 to 1.
	Lookups float64
}

// hitPower is the power of the cached share of the rows with which the hit rate grows where nobody knows better. The power laws of
// bench/workload hit 40 % with 5 % of the rows cached: 0.3; uniform accesses would have 1.
const hitPower = 0.3

// powerLaw is the hit ratio where nothing is known of the lookups.
func powerLaw(cached, rows float64) float64 { return math.Pow(min(1, cached/rows), hitPower) }
