package registry

import (
	"math"

	"github.com/tensorcache/tensorcache/codec"
)

// Costs are the times from which Seconds predicts how long a batch takes: those of one table on one device with one codec. All are seconds, 0 or
// more.
type Costs struct {
	// Batch is the time of a batch that does not depend on how many rows it has: kernel launches, and the start of the ordering of misses. Lookup
	// is the search for one row in the hashmap.
	Batch  float64 `json:"batch"`
	Lookup float64 `json:"lookup"`
	// Hit is the decoding of a cached row, and of a missed one that has arrived.
	Hit float64 `json:"hit"`
	// A missed row takes the longer of Miss and its stored bytes × MissByte. Miss is the time of a row however few bytes it is stored in, which is
	// that of a request to host memory. MissByte is 1 ÷ the bytes a second at which misses arrive and are decoded.
	Miss     float64 `json:"miss"`
	MissByte float64 `json:"miss_byte"`
	// Serial says that hits and misses are read one after the other, as processors do; GPUs read them side by side.
	Serial bool `json:"serial,omitempty"`
}

// MissSeconds returns the seconds that a missed row takes if it is stored in so many bytes.
func (c Costs) MissSeconds(stored float64) float64 { return max(c.Miss, stored*c.MissByte) }

// Seconds returns the predicted seconds of a batch of so many rows. hitRatio is the share of them that hits, 0 to 1, and missBytes the mean
// stored length of the others. A GPU reads misses while it decodes rows; those that have arrived are decoded as hits are.
func (c Costs) Seconds(rows, hitRatio, missBytes float64) float64 {
	misses := rows * (1 - hitRatio) * c.MissSeconds(missBytes)
	if c.Serial {
		return c.Batch + rows*c.Lookup + rows*hitRatio*c.Hit + misses
	}
	return c.Batch + rows*c.Lookup + max(rows*c.Hit, misses)
}

// Valid reports whether the costs can be true: each is 0 to 1000 seconds, and neither hits nor misses take no time.
func (c Costs) Valid() bool {
	for _, v := range []float64{c.Batch, c.Lookup, c.Hit, c.Miss, c.MissByte} {
		if !(v >= 0 && v < 1000) {
			return false
		}
	}
	return c.Hit > 0 && c.Miss+c.MissByte > 0
}

// The speeds of an H200 (docs/performance.md), which stand for those of a GPU that is not measured.
const (
	// gpuGather is the bytes a second at which uncompressed rows are copied from the GPU's memory.
	gpuGather = 1900e9
	// gpuLookup is the lookups a second, and gpuBatch the seconds that the launches of a batch take.
	gpuLookup = 10e9
	gpuBatch  = 30e-6
)

// gpuCosts returns the costs of a GPU that is not measured. It decodes hits at rate × the speed of copying uncompressed rows, and reads misses at
// link bytes a second.
func gpuCosts(rowBytes int, rate, link float64) Costs {
	return Costs{Batch: gpuBatch, Lookup: 1 / gpuLookup, Hit: float64(rowBytes) / (gpuGather * rate), MissByte: 1 / link}
}

// Trained is a codec whose costs are to be measured.
type Trained struct {
	Name string // a family's, or None
	// Codec was trained on the sample; nil for None. Rows are some of the sample's rows as it stores them; a row of full length is uncompressed.
	Codec codec.Codec
	Rows  [][]byte
	// Ratio is raw ÷ stored bytes of Rows.
	Ratio float64
}

// Measured is the result of a measurement.
type Measured struct {
	// Costs has the costs of each measured codec, by name.
	Costs map[string]Costs
	// Pick is the codec that was picked by an earlier measurement of the same, "" for none.
	Pick string
	// Kept says that nothing was measured now.
	Kept bool
	// Seconds is how long measuring took, when it was done.
	Seconds float64
	// By says, for people, what was measured, or why nothing was.
	By string
}

// Drawn is one of the rows that stand for all rows of a table when hits are predicted.
type Drawn struct {
	Row int64
	// Rows is how many rows of the table it stands for.
	Rows float64
	// Count is how often the training batches looked up each of these rows. Admission ranks rows by it.
	Count float64
	// Lookups is the share of all later lookups that these rows get together, 0 to 1.
	Lookups float64
}

// hitPower is the exponent of the hit ratio that is assumed if nothing is known of the lookups: (cached share of the rows)^hitPower. The
// power laws of bench/workload hit 40 % with 5 % of the rows cached, which is 0.3. For uniform lookups it would be 1.
const hitPower = 0.3

// powerLaw returns the hit ratio that is assumed if nothing is known of the lookups.
func powerLaw(cached, rows float64) float64 { return math.Pow(min(1, cached/rows), hitPower) }
