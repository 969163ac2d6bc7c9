package kernels

import (
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// Share is the memory and the parameters of batches whose misses the host's processors and a device fetch together. One batch at a time is
// shared. Package transfer has the host's side.
type Share struct {
	// Host, an abi.ShareHost, and List, 8 bytes for each row of abi.SharePieces pieces, are page-locked memory. Device, an abi.ShareDevice,
	// and Stage, Slot bytes for each row of MaxPieces pieces, are the device's. All are zeroed before the first batch.
	Host, List, Device, Stage device.Buffer
	// Tier is the number by which the host's side knows the host tier.
	Tier uint32
	// Unit is the number of rows that the device takes at a time, and Piece the number that a host worker takes, a multiple of Unit. Slot is
	// the number of bytes of each row that the host gathers, a multiple of 16. The device reads the rest of a row itself.
	Unit, Piece, Slot int
	// The host's part is Fraction / 65536 of the misses, at most MaxPieces pieces. A batch with fewer than Least misses is not shared.
	Fraction  uint32
	MaxPieces int
	Least     int
	// Blocks is the number of blocks of the grid, 0 for one on each multiprocessor. Own of them begin with the device's own part, the others
	// with the host's.
	Blocks, Own int
	// Timeout is how long the device waits for the next piece to arrive before it fetches the rest itself.
	Timeout time.Duration
}

// HostView views a share's Host buffer.
func (s *Share) HostView() *abi.ShareHost { return &view[abi.ShareHost](s.Host)[0] }

// ListView views a share's List: where rows begin in the host tier's memory.
func (s *Share) ListView() []uint64 { return view[uint64](s.List) }

// shareBlocks returns the number of blocks that read a large table's rows from the host tier without a Share. They are few, because address
// translation becomes slower with more blocks or more requests of each. Measured on an H200, 200,000 rows, 24 / 48 / 66 / 132 blocks: 16 GiB of
// 256-byte rows 2.53 / 2.77 / 3.22 / 3.39 ms; with codec rank 512-byte rows 4.20 / 3.38 / 3.38 / 3.82, 1024-byte rows 4.51 / 3.58 / 3.82 /
// 4.45. With a Share blocks take units from a counter, and more of them pay (transfer's shareBlocks).
func shareBlocks(rowBytes int) int {
	if rowBytes <= 256 {
		return 24
	}
	return 48
}

// MaxShareRow is the longest row, in bytes, that ShareFetch serves. Rows of up to abi.ShareRow bytes the lanes of a warp read at once.
const MaxShareRow = 4096

// ShareOpen opens a share of a batch's misses, unless another batch's is open. It sets Counters.Share to the share's number.
type ShareOpen struct {
	Counters device.Buffer
	*Share
}

// Name implements device.Kernel.
func (k *ShareOpen) Name() string { return "share-open" }

// RunHost implements device.Kernel. It opens no share: a device in host memory gains nothing by one.
func (k *ShareOpen) RunHost(device.Workers) {}

// ShareFetch is Fetch for a batch with ordered misses for which ShareOpen may have opened a share. If Share is nil, the device fetches all
// misses by the same kernel. On the host it is Fetch. Rows have at most MaxShareRow bytes.
type ShareFetch struct {
	Fetch
	Share *Share
}

// Name implements device.Kernel.
func (k *ShareFetch) Name() string { return "share-fetch" }
