//go:build cuda && linux

package kernels

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// args returns the arguments for a batch of n rows.
func (k *Decode) args(n int) (abi.DecodeArgs, error) {
	row, err := rowCodec(k.Codec, k.RowBytes, k.Out.Addr())
	args := abi.DecodeArgs{Found: k.Found.Addr(), Counters: k.Counters.Addr(), Out: k.Out.Addr(), Codec: row, Count: uint32(n), End: k.End.args()}
	for i, b := range k.Slabs {
		args.Slabs[i] = b.Addr()
	}
	return args, err
}

// RunCUDA implements cuda.Kernel.
func (k *Decode) RunCUDA(s *cuda.Stream) error {
	n := int(k.Found.Size() / abi.FoundBytes)
	if n == 0 {
		return nil
	}
	args, err := k.args(n)
	if err != nil {
		return err
	}
	op := "decode"
	if k.Peers != 0 {
		op = "decodePeers"
	}
	c := kernelsOf(k.Codec)
	l := c.launchOf(s, &args, op, k.Lanes)
	f := c.decode[l.name()]
	grid, err := residentOf(s, f, l.threads, l.shared, n, l.rows)
	if err != nil {
		return err
	}
	if grid, err = leave(s, f, grid, l.threads, l.shared, k.Leave); err != nil {
		return err
	}
	return f.Launch(s, grid, l.threads, l.shared, &args)
}
