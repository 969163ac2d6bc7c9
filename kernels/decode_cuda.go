//go:build cuda && linux

package kernels

import "github.com/tensorcache/tensorcache/device/cuda"

var decodeKernels = functions[DecodeArgs]("decode", "8", "16", "32", "Long")

// decodeShape returns the lanes of a row's tile: so many that one scan, of two quads a lane, covers the row, up to a warp.
func decodeShape(rowBytes int) (shape string, rowsPerBlock int) {
	switch {
	case rowBytes >= LongRow:
		return "Long", 1
	case rowBytes > 768:
		return "32", blockThreads / 32
	case rowBytes > 400:
		return "16", blockThreads / 16
	}
	return "8", blockThreads / 8
}

// RunCUDA implements cuda.Kernel.
func (k *Decode) RunCUDA(s *cuda.Stream) error {
	n := int(k.Found.Size() / FoundBytes)
	if n == 0 {
		return nil
	}
	row, err := rowCodec(k.Codec, k.RowBytes, k.Out.Addr())
	if err != nil {
		return err
	}
	args := DecodeArgs{Found: k.Found.Addr(), Counters: k.Counters.Addr(), Out: k.Out.Addr(), Codec: row}
	for i, b := range k.Slabs {
		args.Slabs[i] = b.Addr()
	}
	shape, rows := decodeShape(k.RowBytes)
	shared := int(row.MetaBytes)
	if shape == "Long" {
		shared = 0
	}
	f := decodeKernels[variantOf(k.Codec.Form)][shape]
	grid, err := resident(s, f, shared, n, rows)
	if err != nil {
		return err
	}
	// A fifth of the batch missing, 256-byte rows, on an H200: 385 us, and 487 without the room.
	if sms := s.Device().Multiprocessors(); k.Beside && grid > 2*sms {
		grid -= sms
	}
	return f.Launch(s, grid, blockThreads, shared, &args)
}
