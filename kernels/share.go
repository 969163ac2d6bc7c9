package kernels

import (
	"sync/atomic"
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
	// Blocks is the number of blocks of the grid. Own of them begin with the device's own part, the others with the host's.
	Blocks, Own int
	// Timeout is how long the device waits for the next piece to arrive before it fetches the rest itself.
	Timeout time.Duration
}

// HostView views a share's Host buffer, and DeviceView its Device buffer where the host can address it.
func (s *Share) HostView() *abi.ShareHost     { return &view[abi.ShareHost](s.Host)[0] }
func (s *Share) deviceView() *abi.ShareDevice { return &view[abi.ShareDevice](s.Device)[0] }

// ListView views a share's List: where rows begin in the host tier's memory.
func (s *Share) ListView() []uint64 { return view[uint64](s.List) }

// shareBlocks returns the number of blocks that read a large table's rows from the host tier. They are few, because address translation becomes
// slower with more blocks or more requests of each. Measured on an H200, 16 GiB, 16 / 24 / 32 / 48 / 66 blocks: rows of 256 bytes
// 15.0 / 12.9 / 13.3 / 12.9 / 12.0 GB/s, of 512 bytes 19.9 / 28.4 / 27.3 / 25.7 / 24.5. With a Share blocks take units from a counter,
// and more of them pay (transfer's shareBlocks).
func shareBlocks(rowBytes int) int {
	if rowBytes <= 256 {
		return 16
	}
	return 24
}

// MaxShareRow is the longest row, in bytes, that ShareFetch serves: the lanes of a warp read it at once, wherever it begins in its line.
const MaxShareRow = 768

// ShareOpen opens a share of a batch's misses, unless another batch's is open. It sets Counters.Share to the share's number.
type ShareOpen struct {
	Counters device.Buffer
	*Share
}

// Name implements device.Kernel.
func (k *ShareOpen) Name() string { return "share-open" }

// RunHost implements device.Kernel.
func (k *ShareOpen) RunHost(device.Workers) {
	d, h, c := k.deviceView(), k.HostView(), CountersView(k.Counters)
	if int(c.Misses) < k.Least || atomic.SwapUint32(&d.Owner, 1) != 0 {
		return
	}
	pieces := min(int(uint64(c.Misses)*uint64(k.Fraction)>>16)/k.Piece, k.MaxPieces)
	if atomic.LoadUint32(&d.Quiet) != d.Number {
		pieces = 0
	}
	d.Number++
	if d.Number == 0 {
		d.Number = 1
	}
	d.Pieces, d.Back, d.Next = uint32(pieces), uint32((int(c.Misses)+k.Unit-1)/k.Unit), 0
	atomic.StoreUint32(&d.Arrived, abi.CountWord(d.Number, 0)) // whatever share of an equal number in those bits it was of
	d.GaveUp, d.Staged, d.Stolen = 0, 0, 0
	d.Began = uint64(time.Now().UnixNano())
	d.OwnEnd, d.HostEnd = d.Began, d.Began
	atomic.StoreUint32(&h.Pieces, uint32(pieces))
	atomic.StoreUint32(&h.Tier, k.Tier)
	atomic.StoreUint32(&h.Low, ^uint32(0))
	c.Share = d.Number
	atomic.StoreUint32(&h.Opened, d.Number)
}

// ShareFetch is Fetch for a batch with ordered misses for which ShareOpen may have opened a share. If Share is nil, the device fetches all
// misses by the same kernel. Rows have at most MaxShareRow bytes.
type ShareFetch struct {
	Fetch
	Share *Share
}

// Name implements device.Kernel.
func (k *ShareFetch) Name() string { return "share-fetch" }

// RunHost implements device.Kernel. One goroutine takes the parts of all the GPU's blocks in turn: a unit that has arrived if
// there is one, else one from the back, else it waits.
func (k *ShareFetch) RunHost(w device.Workers) {
	if k.Share == nil {
		k.Fetch.RunHost(w)
		return
	}
	s, count := k.Share, CountersView(k.Counters)
	d, h, number := s.deviceView(), s.HostView(), count.Share
	if number == 0 {
		k.Fetch.RunHost(w)
		atomic.StoreUint32(&h.Retired, atomic.AddUint32(&d.Retired, 1))
		return
	}
	misses := k.list(count)
	list, perPiece := s.ListView(), uint32(s.Piece/s.Unit)
	for p := range int(d.Pieces) {
		for i := p * s.Piece; i < (p+1)*s.Piece; i++ {
			list[i] = uint64(k.Tier.offset(int64(misses[i].Word)))
		}
		atomic.StoreUint32(&h.Listed[p], number)
	}
	hostUnits := d.Pieces * perPiece
	unit := func(u uint32, staged bool) {
		from := int(u) * s.Unit
		k.rows(count, misses[from:min(from+s.Unit, len(misses))], from, staged)
	}
	own, before, since := true, uint32(0), time.Now()
	for own || d.Next < hostUnits {
		arrived := abi.Counted(atomic.LoadUint32(&d.Arrived), number)
		if arrived != before {
			before, since = arrived, time.Now()
		}
		waited := !own && time.Since(since) > s.Timeout
		switch {
		case d.Next < hostUnits && d.Taken[d.Next] == number:
			d.Next++
		case d.Next < hostUnits && (arrived > d.Next/perPiece || waited):
			d.Taken[d.Next] = number
			unit(d.Next, !waited)
			d.HostEnd = uint64(time.Now().UnixNano())
			if d.Next++; waited {
				d.GaveUp = 1
				d.Stolen++
			} else {
				d.Staged++
			}
		case own && d.Back > hostUnits:
			d.Back--
			unit(d.Back, false)
			d.OwnEnd = uint64(time.Now().UnixNano())
		case own:
			if d.Back == 0 || (d.Back-1)/perPiece < abi.Counted(atomic.LoadUint32(&h.Claimed), number) || d.Taken[d.Back-1] == number {
				own, since = false, time.Now()
				continue
			}
			d.Back--
			atomic.StoreUint32(&h.Low, d.Back)
			d.Taken[d.Back] = number
			unit(d.Back, false)
			d.Stolen++
		default:
			time.Sleep(20 * time.Microsecond)
		}
	}
	h.SetTimes(abi.ShareTimes{
		Stamp: number, Tier: s.Tier, Misses: count.Misses, Staged: d.Staged * uint32(s.Unit), Taken: d.Stolen * uint32(s.Unit),
		GaveUp: d.GaveUp, OwnNanos: d.OwnEnd - d.Began, HostNanos: d.HostEnd - d.Began, Nanos: uint64(time.Now().UnixNano()) - d.Began,
	})
	count.Share = 0
	atomic.StoreUint32(&d.Owner, 0)
	atomic.StoreUint32(&h.Retired, atomic.AddUint32(&d.Retired, 1))
	k.End.runHost(count)
}

// rows fetches misses, of which the first is number from of the list.
func (k *ShareFetch) rows(count *Counters, misses []Found, from int, staged bool) {
	for i, m := range misses {
		stored, compressed := k.Tier.Stored(int64(m.Word))
		if slot := k.Share.Slot; staged {
			row := make([]byte, len(stored))
			copy(row, stored)
			copy(row, k.Share.Stage.Bytes()[(from+i)*slot:][:slot])
			stored = row
		}
		k.restore(count, m, stored, compressed)
	}
}
