package transfer

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/kernels"
)

// modelled returns the stream of a device of the host backend on which shares are opened and fetched as a GPU does it. Streams of GPUs are
// returned as they are.
func modelled(d device.Device, s device.Stream) device.Stream {
	if d.NeedsStaging() {
		return s
	}
	return model{s}
}

// model runs the GPU's part of a share, of which the host backend has none, on one goroutine.
type model struct{ device.Stream }

func (m model) Launch(k device.Kernel) error {
	switch k := k.(type) {
	case *kernels.ShareOpen:
		openShare(k)
		return nil
	case *kernels.ShareFetch:
		if k.Share != nil {
			return fetchShare(m.Stream, k)
		}
	}
	return m.Stream.Launch(k)
}

func deviceView(s *kernels.Share) *abi.ShareDevice { return &view[abi.ShareDevice](s.Device)[0] }

// openShare is what ShareOpen does.
func openShare(k *kernels.ShareOpen) {
	d, h, c := deviceView(k.Share), k.HostView(), kernels.CountersView(k.Counters)
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
	atomic.StoreUint32(&d.Arrived, abi.CountWord(d.Number, 0)) // it could be that of an earlier share whose number has the same lower bits
	d.GaveUp, d.Staged, d.Stolen = 0, 0, 0
	d.Began = uint64(time.Now().UnixNano())
	d.OwnEnd, d.HostEnd = d.Began, d.Began
	atomic.StoreUint32(&h.Pieces, uint32(pieces))
	atomic.StoreUint32(&h.Tier, k.Tier)
	atomic.StoreUint32(&h.Low, ^uint32(0))
	c.Share = d.Number
	atomic.StoreUint32(&h.Opened, d.Number)
}

// fetchShare is what ShareFetch does. One goroutine takes the parts of all the GPU's blocks in turn: a unit that has arrived if
// there is one, else one from the back, else it waits.
func fetchShare(stream device.Stream, k *kernels.ShareFetch) error {
	s, count := k.Share, kernels.CountersView(k.Counters)
	d, h, number := deviceView(s), s.HostView(), count.Share
	if number == 0 {
		err := stream.Launch(&k.Fetch)
		atomic.StoreUint32(&h.Retired, atomic.AddUint32(&d.Retired, 1))
		return err
	}
	misses := kernels.FoundView(k.Misses)[:count.Misses]
	list, perPiece := s.ListView(), uint32(s.Piece/s.Unit)
	for p := range int(d.Pieces) {
		for i := p * s.Piece; i < (p+1)*s.Piece; i++ {
			stored, _ := k.Tier.Stored(int64(misses[i].Word))
			list[i] = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(stored))) - uintptr(unsafe.Pointer(unsafe.SliceData(k.Tier.Mem.Bytes()))))
		}
		atomic.StoreUint32(&h.Listed[p], number)
	}
	hostUnits := d.Pieces * perPiece
	unit := func(u uint32, staged bool) {
		from := int(u) * s.Unit
		for i, m := range misses[from:min(from+s.Unit, len(misses))] {
			fetchRow(k, count, m, from+i, staged)
		}
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
	setTimes(h, abi.ShareTimes{
		Stamp: number, Tier: s.Tier, Misses: count.Misses, Staged: d.Staged * uint32(s.Unit), Taken: d.Stolen * uint32(s.Unit),
		GaveUp: d.GaveUp, OwnNanos: d.OwnEnd - d.Began, HostNanos: d.HostEnd - d.Began, Nanos: uint64(time.Now().UnixNano()) - d.Began,
	})
	count.Share = 0
	atomic.StoreUint32(&d.Owner, 0)
	atomic.StoreUint32(&h.Retired, atomic.AddUint32(&d.Retired, 1))
	return nil
}

// fetchRow writes the miss that is number i of the list. The first bytes of a staged row are those that the host has gathered.
func fetchRow(k *kernels.ShareFetch, count *kernels.Counters, m kernels.Found, i int, staged bool) {
	stored, compressed := k.Tier.Stored(int64(m.Word))
	if slot := k.Share.Slot; staged {
		gathered := make([]byte, len(stored))
		copy(gathered, stored)
		copy(gathered, k.Share.Stage.Bytes()[i*slot:][:slot])
		stored = gathered
	}
	row := k.Out.Bytes()[int(m.Position)*k.Tier.RowBytes:][:k.Tier.RowBytes]
	n, err := len(row), error(nil)
	if compressed {
		n, err = k.Codec.Decode(row, stored)
	} else {
		copy(row, stored)
	}
	if packed := k.Tier.Stride == 0; err != nil || packed && n != len(stored) {
		count.Corrupt++
		count.CorruptPosition = m.Position
		return
	}
	count.HostBytes += uint64(n)
}

// setTimes says how a share went, and that it has ended, as the GPU's last block does.
func setTimes(h *abi.ShareHost, t abi.ShareTimes) {
	to := &h.Times
	atomic.StoreUint32(&to.Stamp, 0)
	atomic.StoreUint32(&to.Tier, t.Tier)
	atomic.StoreUint32(&to.Misses, t.Misses)
	atomic.StoreUint32(&to.Staged, t.Staged)
	atomic.StoreUint32(&to.Taken, t.Taken)
	atomic.StoreUint32(&to.GaveUp, t.GaveUp)
	atomic.StoreUint64(&to.OwnNanos, t.OwnNanos)
	atomic.StoreUint64(&to.HostNanos, t.HostNanos)
	atomic.StoreUint64(&to.Nanos, t.Nanos)
	atomic.StoreUint32(&to.Stamp, t.Stamp)
	atomic.StoreUint32(&h.Closed, t.Stamp)
}
