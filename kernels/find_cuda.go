//go:build cuda && linux

package kernels

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// RunCUDA implements cuda.Kernel. It is two launches where hits have no kernel that looks rows up: blocks decode rows, rows do not begin at
// multiples of 8 bytes, rows of other devices are read, which is done from a list only, or it does not pay (coder.pairs).
func (k *Find) RunCUDA(s *cuda.Stream) error {
	n := k.Lookup.numRows()
	if n == 0 {
		return nil
	}
	hits := k.hits()
	args, err := hits.args(n)
	if err != nil {
		return err
	}
	c := kernelsOf(k.Codec)
	l := c.launchOf(s, &args, "find")
	f := c.find[l.name()]
	if f == nil || hits.Peers != 0 {
		if err := k.Lookup.RunCUDA(s); err != nil {
			return err
		}
		return hits.RunCUDA(s)
	}
	return launchResident(s, f, l.threads, l.shared, n, l.rows, &abi.FindArgs{Lookup: k.Lookup.args(), Decode: args})
}
