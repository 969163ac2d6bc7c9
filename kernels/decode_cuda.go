//go:build cuda && linux

package kernels

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

var (
	decodeKernels      = functions[abi.DecodeArgs]("decode", "8", "16", "32", "Wide", "Long")
	decodeStillKernels = functionsOf[abi.DecodeArgs](stillVariants, "decodeStill", "8", "16", "32", "Wide")
	decodePeersKernels = functions[abi.DecodeArgs]("decodePeers", "8", "16", "32", "Wide")
	decodeWordsKernels = functions[abi.DecodeArgs]("decodeWords", "8", "16", "32", "Wide")
)

// decodeShape returns the kernel for rows of that length, a block's threads and the lanes that decode a row: as many as it
// has quads, rounded up to a tile or to warps.
func decodeShape(rowBytes int) (shape string, threads, lanes int) {
	quads := (rowBytes + 15) / 16
	switch {
	case rowBytes >= abi.LongRow:
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

// launch is how a decoding kernel is launched for a table's rows.
type launch struct {
	shape           string
	threads, shared int
	rows            int // a block's, of a small batch: it has more blocks rather than more warps a block
	words, still    bool
	peers           bool
}

// plan returns the arguments and the launch for a batch of n rows.
func (k *Decode) plan(n int) (abi.DecodeArgs, launch, error) {
	row, err := rowCodec(k.Codec, k.RowBytes, k.Out.Addr())
	args := abi.DecodeArgs{
		Found: k.Found.Addr(), Counters: k.Counters.Addr(), Out: k.Out.Addr(), Codec: row,
		Count: uint32(n), StageBytes: uint32(stageBytes(k.RowBytes)), End: k.End.args(),
	}
	for i, b := range k.Slabs {
		args.Slabs[i] = b.Addr()
	}
	shape, threads, lanes := decodeShape(k.RowBytes)
	l := launch{shape: shape, threads: threads, rows: 1}
	if shape != "Long" {
		l.shared = threads*abi.DecodeTickets + threads/lanes*abi.DecodeStages*int(args.StageBytes)
		l.rows = max(2, 64/lanes)
		l.words = row.Store == abi.Store4 || row.Store == abi.Store1
		l.still = k.Codec.Form.Still
		l.peers = k.Peers != 0 && !l.words
	}
	return args, l, err
}

// RunCUDA implements cuda.Kernel.
func (k *Decode) RunCUDA(s *cuda.Stream) error {
	n := int(k.Found.Size() / FoundBytes)
	if n == 0 {
		return nil
	}
	args, l, err := k.plan(n)
	if err != nil {
		return err
	}
	if c, ok := codedKernels[k.Codec.Form.Kernel]; ok {
		return k.runCoded(s, c, &args, n)
	}
	kernels := decodeKernels
	switch {
	case l.words:
		kernels = decodeWordsKernels
	case l.peers:
		kernels = decodePeersKernels
	case l.still:
		kernels = decodeStillKernels
	}
	f := kernels[variantOf(k.Codec.Form)][l.shape]
	grid, err := residentOf(s, f, l.threads, l.shared, n, l.rows)
	if err != nil {
		return err
	}
	if grid, err = leave(s, f, grid, l.threads, l.shared, k.Leave); err != nil {
		return err
	}
	return f.Launch(s, grid, l.threads, l.shared, &args)
}
