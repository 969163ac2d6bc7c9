package codec

import (
	"maps"

	"github.com/tensorcache/tensorcache/dtype"
)

// GPURate is what decoding hits on a GPU writes a second as a share of what copying rows as they are does. Rows that take fewer stored bytes are decoded
// faster, as less is read.
type GPURate struct {
	// Rate is of float rows, or whatever the family serves, that are stored in 1/Ratio of their bytes; 0 for families that GPUs cannot decode.
	Rate, Ratio float64
	// Ones and OnesRatio are the same of rows of zeros and few ones; 0 where no GPU has measured such rows.
	Ones, OnesRatio float64
	// Bytes and BytesRatio are Rate and Ratio of float8 values with their scales; 0 where no GPU has measured such rows.
	Bytes, BytesRatio float64
	// Measured says that cachebench gpu-bench measured Rate; if not, it is the goal.
	Measured bool
}

// For returns the rate for rows of this type: for elements of one byte, and for rows of parts, Bytes stands for Rate if it was measured.
func (r GPURate) For(of dtype.Type) GPURate {
	if r.Bytes != 0 && (of.Size() == 1 || of.IsRow()) {
		r.Rate, r.Ratio = r.Bytes, r.BytesRatio
	}
	return r
}

// At returns the rate for rows that are stored in 1/ratio of their bytes: the time of a row grows with its stored bytes, from Ones to Rate.
func (r GPURate) At(ratio float64) float64 {
	if r.Ones == 0 || ratio <= r.Ratio {
		return r.Rate
	}
	stored := max(1/ratio, 1/r.OnesRatio)
	part := (stored - 1/r.OnesRatio) / (1/r.Ratio - 1/r.OnesRatio)
	return 1 / (part/r.Rate + (1-part)/r.Ones)
}

// RateOnGPU returns the rate of a family, the zero GPURate where it has none.
func RateOnGPU(family string) GPURate { return gpuRates[family] }

// RatesOnGPU returns all rates, by family.
func RatesOnGPU() map[string]GPURate { return maps.Clone(gpuRates) }
