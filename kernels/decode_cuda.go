//go:build cuda && linux

package kernels

import "github.com/tensorcache/tensorcache/device/cuda"

var (
	decodeKernels      = functions[DecodeArgs]("decode", "8", "16", "32", "Wide", "Long")
	decodeStillKernels = functionsOf[DecodeArgs](stillVariants, "decodeStill", "8", "16", "32", "Wide")
	decodeWordsKernels = functions[DecodeArgs]("decodeWords", "8", "16", "32", "Wide")
)

// decodeShape returns the kernel for rows of that length, a block's threads and the lanes that decode a row: as many as it
// has quads, rounded up to a tile or to warps.
func decodeShape(rowBytes int) (shape string, threads, lanes int) {
	quads := (rowBytes + 15) / 16
	switch {
	case rowBytes >= LongRow:
		return "Long", blockThreads, blockThreads
	case quads > 32:
		threads = (quads + 31) &^ 31
		return "Wide", threads, threads
	case quads > 16:
		return "32", blockThreads, 32
	case quads > 8:
		return "16", blockThreads, 16
	}
	return "8", blockThreads, 8
}

// stageBytes returns the shared memory that a row is staged in. No bit position of a row is further than one bit a chunk
// plus its bytes, and five words are read from there.
func stageBytes(rowBytes int) int {
	quads := (rowBytes + 15) / 16
	return (quads*16 + (quads+7)/8*4 + 20 + 15) &^ 15
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
	args := DecodeArgs{
		Found: k.Found.Addr(), Counters: k.Counters.Addr(), Out: k.Out.Addr(), Codec: row,
		Count: uint32(n), StageBytes: uint32(stageBytes(k.RowBytes)),
	}
	for i, b := range k.Slabs {
		args.Slabs[i] = b.Addr()
	}
	shape, threads, lanes := decodeShape(k.RowBytes)
	shared, rows, kernels := 0, 1, decodeKernels
	if shape != "Long" {
		shared = threads*DecodeTickets + threads/lanes*DecodeStages*int(args.StageBytes)
		rows = max(2, 64/lanes) // a warp's: a small batch has more blocks rather than more warps a block
		switch {
		case row.Store == Store4 || row.Store == Store1:
			kernels = decodeWordsKernels
		case k.Codec.Form.Still:
			kernels = decodeStillKernels
		}
	}
	f := kernels[variantOf(k.Codec.Form)][shape]
	grid, err := residentOf(s, f, threads, shared, n, rows)
	if err != nil {
		return err
	}
	if sms := s.Device().Multiprocessors(); k.Leave != 0 {
		all, err := f.Resident(s.Device(), threads, shared)
		if err != nil {
			return err
		}
		grid = min(grid, max(1, all/sms-k.Leave)*sms)
	}
	return f.Launch(s, grid, threads, shared, &args)
}
