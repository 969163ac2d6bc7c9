//go:build !cuda || !linux

package gpu

import "github.com/tensorcache/tensorcache/device/cuda"

// Run measures the first GPU.
func Run(o Options) (*Report, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return nil, cuda.Usable()
}
