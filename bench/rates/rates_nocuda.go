//go:build !cuda || !linux

package rates

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/slab/placement"
)

// Measure needs a build with the tag cuda.
func Measure(Options) (placement.Measured, error) {
	return placement.Measured{}, cuda.ErrNotBuilt
}
