package codec

import "maps"

// GPURate is what decoding hits on a GPU writes a second as a share of what copying rows as they are does.
type GPURate struct {
	Rate float64
	// Measured says that cachebench gpu-bench measured it; if not, it is the goal.
	Measured bool
}

// RateOnGPU returns the rate of a family, 0 where it has none.
func RateOnGPU(family string) float64 { return gpuRates[family].Rate }

// RatesOnGPU returns all rates, by family.
func RatesOnGPU() map[string]GPURate { return maps.Clone(gpuRates) }
