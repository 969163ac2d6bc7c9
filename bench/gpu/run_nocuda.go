//go:build !cuda || !linux

package gpu

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/slab/placement"
)

// Run measures the first GPU.
func Run(o Options) (*Report, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return nil, cuda.Usable()
}

// MeasureRates needs a build with the tag cuda.
func MeasureRates(RateOptions) (placement.Measured, error) {
	return placement.Measured{}, cuda.ErrNotBuilt
}
