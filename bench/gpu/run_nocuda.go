//go:build !cuda || !linux

package gpu

import "github.com/tensorcache/tensorcache/device/cuda"

// Run measures the first GPU.
func Run(Options) (*Report, error) { return nil, cuda.Usable() }
