package transfer

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/kernels"
)

// TestShare_RowsMoveBesideALateWorker moves a packed tier's rows while a worker is at a piece of a batch that has ended: their old memory is
// not released before the worker has left, batches meanwhile are right, and later ones are shared again.
func TestShare_RowsMoveBesideALateWorker(t *testing.T) {
	onDevices(t, func(t *testing.T, d device.Device) {
		for _, rowBytes := range []int{128, 1024} {
			late, leave := make(chan struct{}), make(chan struct{})
			var once sync.Once
			s := newSharing(t, d, 5000, rowBytes, Packed, "ibp4", ShareOptions{
				Threads: 2, Piece: 16, Unit: 16, Timeout: time.Millisecond,
				stall: func(int, bool) { once.Do(func() { close(late); <-leave }) },
			})
			r, plan := rand.New(rand.NewPCG(13, 13)), new(Plan)
			gather := func() {
				t.Helper()
				s.setFraction(0.9)
				if err := s.gather(plan, s.random(gputest.Few(2000, 1000), r)); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "no worker took part", func() bool {
				gather()
				select {
				case <-late:
					return true
				default:
					return false
				}
			})
			before, was := s.table.Stats(), s.table
			memory := s.move()
			released := make(chan struct{})
			go func() { was.Release(); close(released) }()
			gather()
			select {
			case <-released:
				t.Error("released while a worker may read the rows")
			case <-time.After(20 * time.Millisecond):
			}
			close(leave)
			<-released
			s.freeMoved(memory)
			was.Release() // once more
			eventually(t, "the host took part no more", func() bool {
				gather()
				times, ok := s.sharer.host.LastTimes()
				return ok && times.Tier == s.table.terms.Tier && times.Staged != 0
			})
			if after := s.table.Stats(); after.Shared <= before.Shared || after.Strategy != "shared" {
				t.Errorf("%+v, and before the rows moved %+v", after, before)
			}
		}
	})
}

// TestShare_RowsMoveBetweenBatches has several goroutines share batches, while rows move and their old memory is poisoned and freed.
func TestShare_RowsMoveBetweenBatches(t *testing.T) {
	onDevices(t, func(t *testing.T, d device.Device) {
		s := newSharing(t, d, 3000, 256, Packed, "ibp4", ShareOptions{Threads: 3, Piece: 16, Unit: 8, Timeout: time.Millisecond})
		for round := range gputest.Few(20, 5) {
			var wg sync.WaitGroup
			for g := range 3 {
				wg.Go(func() {
					r, plan := rand.New(rand.NewPCG(uint64(round), uint64(g))), new(Plan)
					for range 3 {
						if err := s.gather(plan, s.random(1000, r)); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait() // the batches have ended, workers may be late
			was := s.table
			memory := s.move()
			was.Release()
			s.freeMoved(memory)
		}
		if n := len(s.sharer.mu.tables); n > 2 {
			t.Errorf("%d numbers of tables, of which one is in use at a time", n)
		}
	})
}

// move packs the tier anew, and returns the old memory.
func (s *sharing) move() (old kernels.HostRows) {
	s.t.Helper()
	old = s.rows
	memory, err := s.tier.Repack()
	if err != nil {
		s.t.Fatal(err)
	}
	old.Mem = memory.Mem
	s.d.Free(memory.Index)
	if s.rows, err = s.tier.AttachRows(s.d); err != nil {
		s.t.Fatal(err)
	}
	s.table = s.table.Moved(s.rows)
	return old
}

// freeMoved frees what move returned, after it has overwritten the rows.
func (s *sharing) freeMoved(old kernels.HostRows) {
	b := old.Mem.Bytes()
	for i := range b {
		b[i] = 0xa5
	}
	s.d.Free(old.Mem)
	s.d.Free(old.Index)
}

// TestSharer_ReleasedTable plays the device, whose share of a table comes to the first worker's notice after the table was released: no row is
// gathered.
func TestSharer_ReleasedTable(t *testing.T) {
	var stalls atomic.Int32
	s := newSharing(t, newDevice(), 1000, 128, InPlace, "none", ShareOptions{Threads: 1, Piece: 16, Unit: 8, stall: func(int, bool) { stalls.Add(1) }})
	h := s.sharer.host
	s.table.Release()
	for _, table := range []uint32{s.table.terms.Tier, 1000} {
		number := atomic.LoadUint32(&h.Opened) + 1
		atomic.StoreUint32(&h.Listed[0], number)
		atomic.StoreUint32(&h.Tier, table)
		atomic.StoreUint32(&h.Pieces, 1)
		atomic.StoreUint32(&h.Low, ^uint32(0))
		atomic.StoreUint32(&h.Opened, number)
		s.sharer.expect()
		quiet := deviceView(&s.sharer.terms)
		eventually(t, "the host is not done", func() bool { return atomic.LoadUint32(&quiet.Quiet) == number })
		atomic.StoreUint32(&h.Closed, number)
		atomic.StoreUint32(&h.Retired, number)
	}
	if n := stalls.Load(); n != 0 {
		t.Errorf("%d pieces of a released table were gathered", n)
	}
}
