package transfer

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// TestSharer_PieceClaimedLast plays the device, which takes what the host has not begun, and a worker that claims a piece just then,
// when the first worker has found none left: that piece is sent too, or the device would wait for it.
func TestSharer_PieceClaimedLast(t *testing.T) {
	const piece = 16
	begun, mayGather := make(chan struct{}), make(chan struct{})
	s := newSharing(t, newDevice(), 1000, 128, InPlace, "none", ShareOptions{
		Threads: 1, Piece: piece, Unit: 8, stall: func(int, bool) { close(begun); <-mayGather },
	})
	sharer := s.sharer
	h, w := sharer.host, &sharer.work
	dev := sharer.terms.Device.Bytes()
	word := func(offset int64) uint32 { return atomic.LoadUint32((*uint32)(unsafe.Pointer(&dev[offset]))) }
	list := s.table.terms.ListView()
	for i := range 2 * piece {
		list[i] = uint64(i) * uint64(s.rows.Stride)
	}
	for p := range 2 {
		atomic.StoreUint32(&h.Listed[p], 1)
	}
	atomic.StoreUint32(&h.Pieces, 2)
	atomic.StoreUint32(&h.Low, piece/8) // the second piece is the device's, as the first worker sees it
	atomic.StoreUint32(&h.Opened, 1)
	sharer.expect()
	<-begun
	atomic.AddUint32(&w.inside, 1)
	leave := sync.OnceFunc(func() { atomic.AddUint32(&w.inside, ^uint32(0)) })
	defer func() { // whatever was seen, the first worker is to end
		leave()
		atomic.StoreUint32(&h.Closed, 1)
		atomic.StoreUint32(&h.Retired, 1)
	}()
	if n := atomic.LoadUint32(&w.working); n != 1 {
		t.Errorf("workers may join share %d, want 1", n)
	}
	close(mayGather)
	eventually(t, "the first piece does not arrive", func() bool { return word(arrivedOffset) == abi.CountWord(1, 1) })
	eventually(t, "workers may still join", func() bool { return atomic.LoadUint32(&w.working) == 0 })
	atomic.AddUint32(&h.Claimed, 1)
	sharer.gatherPiece(1, 1)
	atomic.StoreUint32(&w.ready[1], 1)
	eventually(t, "the piece that was claimed last does not arrive", func() bool { return word(arrivedOffset) == abi.CountWord(1, 2) })
	if word(quietOffset) == 1 {
		t.Error("the host says that it is done while a worker is at the share")
	}
	leave()
	eventually(t, "the host is not done", func() bool { return word(quietOffset) == 1 })
}

// TestShare_CloseWaits closes a Sharer while a worker is at a piece that the device has long fetched itself: the memory stays until the
// worker has left.
func TestShare_CloseWaits(t *testing.T) {
	onDevices(t, func(t *testing.T, d device.Device) {
		var once sync.Once
		late, release := make(chan struct{}), make(chan struct{})
		s := newSharing(t, d, 5000, 128, InPlace, "ibp4", ShareOptions{
			Threads: 2, Piece: 16, Unit: 16, Timeout: time.Millisecond,
			stall: func(int, bool) { once.Do(func() { close(late); <-release }) },
		})
		sharer, err := NewSharer(d, ShareOptions{Threads: 1, Always: true}) // for the cleanup
		if err != nil {
			t.Fatal(err)
		}
		closing := s.sharer
		s.sharer = sharer
		r := rand.New(rand.NewPCG(9, 9))
		plan := new(Plan)
		eventually(t, "no worker took part", func() bool {
			if err := s.gather(plan, s.random(1000, r)); err != nil {
				t.Fatal(err)
			}
			select {
			case <-late:
				return true
			default:
				return false
			}
		})
		closed := make(chan struct{})
		go func() { closing.Close(); close(closed) }()
		select {
		case <-closed:
			t.Error("closed while a worker is at a piece")
		case <-time.After(20 * time.Millisecond):
		}
		close(release)
		<-closed
	})
}

// TestShare_MoreThanStaging shares batches that the staging memory has no room for: what it holds comes through the host, and nothing
// where it holds no piece.
func TestShare_MoreThanStaging(t *testing.T) {
	onDevices(t, func(t *testing.T, d device.Device) {
		const piece, misses = 16, 700
		for _, pieces := range []int{3, 0} {
			s := newSharing(t, d, 5000, 128, InPlace, "none", ShareOptions{
				Threads: 2, Piece: piece, Unit: 8, StageBytes: int64(max(1, pieces*piece*128+127)), Timeout: time.Minute,
			})
			r := rand.New(rand.NewPCG(10, 10))
			plan := new(Plan)
			most := uint32(0)
			for range 4 {
				s.setFraction(1)
				if err := s.gather(plan, s.random(misses, r)); err != nil {
					t.Fatal(err)
				}
				times, ok := s.sharer.host.LastTimes()
				if ok != (pieces > 0) || ok && (times.Misses != misses || times.GaveUp != 0) {
					t.Fatalf("room for %d pieces: %+v, %v", pieces, times, ok)
				}
				most = max(most, times.Staged)
			}
			if most > uint32(pieces*piece) {
				t.Errorf("room for %d pieces: %d rows came through the host", pieces, most)
			}
			if st := s.table.Stats(); pieces == 0 && st.Alone != 4 {
				t.Errorf("room for no piece: %+v", st)
			}
		}
	})
}

// TestShare_EqualNumbers opens a share whose number is, in the bits beside counts, that of the last one that anything arrived of: what
// has arrived is not taken for its own.
func TestShare_EqualNumbers(t *testing.T) {
	onDevices(t, func(t *testing.T, d device.Device) {
		s := newSharing(t, d, 5000, 128, InPlace, "none", ShareOptions{Threads: 2, Piece: 16, Unit: 8, Timeout: time.Millisecond})
		r := rand.New(rand.NewPCG(11, 11))
		plan := new(Plan)
		// The number before, and that so many pieces of the next one have arrived; its workers are at no piece.
		if err := s.sharer.copies.Synchronize(); err != nil {
			t.Fatal(err)
		}
		number := uint32(1<<20 + 6)
		words := make([]uint32, 4)
		if err := device.Download(d, asBytes(words), s.sharer.terms.Device.Slice(0, 16)); err != nil {
			t.Fatal(err)
		}
		words[1], words[2], words[3] = number, abi.CountWord(number+1-1<<20, 2048), number
		if err := device.Upload(d, s.sharer.terms.Device.Slice(0, 16), asBytes(words)); err != nil {
			t.Fatal(err)
		}
		s.setFraction(1)
		if err := s.gather(plan, s.random(2000, r)); err != nil {
			t.Fatal(err)
		}
		if times, ok := s.sharer.host.LastTimes(); !ok || times.Stamp != number+1 || times.Staged+times.Taken == 0 {
			t.Errorf("%+v, %v: want a share with the number %d", times, ok, number+1)
		}
	})
}
