//go:build cuda && linux

package kernels

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

var (
	findKernels      = functions[abi.FindArgs]("find", "8", "16", "32")
	findStillKernels = functionsOf[abi.FindArgs](stillVariants, "findStill", "8", "16", "32")
)

// RunCUDA implements cuda.Kernel.
func (k *Find) RunCUDA(s *cuda.Stream) error {
	n := int(k.Lookup.Rows.Size() / 8)
	if n == 0 {
		return nil
	}
	hits := k.hits()
	if _, coded := codedKernels[k.Codec.Form.Kernel]; coded {
		if err := k.Lookup.RunCUDA(s); err != nil {
			return err
		}
		return hits.RunCUDA(s)
	}
	args, l, err := hits.plan(n)
	if err != nil {
		return err
	}
	kernels := findKernels
	if l.still {
		kernels = findStillKernels
	}
	f := kernels[variantOf(k.Codec.Form)][l.shape]
	if f == nil || l.words || l.peers { // a block decodes a row, stores need registers, or rows are read from a list only
		if err := k.Lookup.RunCUDA(s); err != nil {
			return err
		}
		return hits.RunCUDA(s)
	}
	grid, err := residentOf(s, f, l.threads, l.shared, n, l.rows)
	if err != nil {
		return err
	}
	return f.Launch(s, grid, l.threads, l.shared, &abi.FindArgs{Lookup: k.Lookup.args(), Decode: args})
}
