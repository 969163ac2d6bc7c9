package read

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
)

// numberedEvent is the event of a lane, with a number to tell it from others.
type numberedEvent struct {
	device.Event
	number int
}

// TestScratch_Bounded makes lanes take and give back buffers of random sizes; some batches are enqueued in between.
// Buffers must be large enough, and stay within the bound in all. Two batches have the same buffer only if the later one
// waits for the earlier one. A batch that is alone always gets lists.
func TestScratch_Bounded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var s scratch
	var out []*lane // lanes that hold lists
	last := map[*scratchBuffer]*lane{}
	all, largest, refused, reused, passed := int64(0), int64(0), 0, 0, 0
	for number := range 20_000 {
		if len(out) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(out))
			if r.IntN(4) != 0 {
				s.pass(out[i])
				continue
			}
			s.give(out[i])
			out = slices.Delete(out, i, i+1)
			continue
		}
		bytes := listBytes * int64(1+r.IntN(1<<(4+r.IntN(18))))
		largest = max(largest, bytes)
		l := &lane{done: numberedEvent{number: number}}
		size, drop, ok := s.take(l, bytes)
		if !ok {
			refused++
			if len(out) == 0 {
				t.Fatalf("%d bytes refused with none taken", bytes)
			}
			continue
		}
		for _, b := range drop {
			all -= b.Size()
		}
		switch {
		case size > 0:
			l.scratch.Buffer = device.DeviceBuffer(1, size)
			all += size
		case l.after != nil:
			passed++
		default:
			reused++
		}
		if before := last[l.scratch]; slices.Contains(out, before) && l.after != before.done {
			t.Fatal("a buffer of two batches at once, and the later one does not wait")
		}
		last[l.scratch] = l
		if l.scratch.Size() < bytes {
			t.Fatalf("%d bytes for %d", l.scratch.Size(), bytes)
		}
		if all != s.bytes || all > scratchSpare+largest {
			t.Fatalf("%d bytes in all, %d counted, at most %d allowed", all, s.bytes, scratchSpare+largest)
		}
		out = append(out, l)
	}
	if refused == 0 || reused == 0 || passed == 0 {
		t.Errorf("%d refused, %d reused, %d taken over", refused, reused, passed)
	}
}

// TestScratch_InOrder enqueues more batches than there is memory for. Each takes over the lists of the earliest one,
// and waits for it.
func TestScratch_InOrder(t *testing.T) {
	const bytes = 8 << 20
	var s scratch
	var lanes []*lane
	var fresh int
	for i := range 64 {
		l := &lane{done: numberedEvent{number: i}}
		size, _, ok := s.take(l, bytes)
		if !ok {
			t.Fatalf("batch %d has to wait for the host", i)
		}
		if size > 0 {
			l.scratch.Buffer = device.DeviceBuffer(1, size)
			fresh++
		} else if want := lanes[i-fresh]; l.scratch != want.scratch || l.after != want.done {
			t.Fatalf("batch %d waits for %v, not for batch %d", i, l.after, i-fresh)
		}
		s.pass(l)
		lanes = append(lanes, l)
	}
	if fresh < 4 || s.bytes > scratchSpare+bytes {
		t.Errorf("%d buffers of %d bytes", fresh, s.bytes)
	}
	for _, l := range lanes {
		s.give(l)
	}
	for _, m := range s.all {
		if m.user != nil {
			t.Error("buffers are in use after their last batch")
		}
	}
}

// TestScratch_NoMemory: where the device has no memory for further lists, batches share those that exist.
func TestScratch_NoMemory(t *testing.T) {
	var s scratch
	first, second := &lane{done: numberedEvent{number: 1}}, &lane{}
	size, _, _ := s.take(first, 1000)
	first.scratch.Buffer = device.DeviceBuffer(1, size)
	size, _, _ = s.take(second, 1000)
	if !s.refused(second, size) {
		t.Fatal("there is no buffer to wait for")
	}
	if _, _, ok := s.take(second, 1000); ok {
		t.Fatal("a buffer was taken from a batch that is not enqueued yet")
	}
	s.pass(first)
	if size, _, ok := s.take(second, 1000); !ok || size != 0 || second.after != first.done {
		t.Errorf("ok %v, %d bytes to allocate, waits for %v", ok, size, second.after)
	}
	s.give(second)
	third := &lane{}
	if size, drop, ok := s.take(third, 1<<20); !ok || size < 1<<20 || len(drop) != 1 {
		t.Errorf("larger lists: ok %v, %d bytes to allocate, %d dropped", ok, size, len(drop))
	} else if s.refused(third, size) {
		t.Error("none are left, yet there are some to wait for")
	}
}

// TestScratch_ReleasedMeanwhile: a released lane clears its route before it gives its buffer back. Another lane may
// take them over in between. It must wait for the right event without reading that route.
func TestScratch_ReleasedMeanwhile(t *testing.T) {
	tierEnd := numberedEvent{number: 1}
	var s scratch
	first, second := &lane{done: numberedEvent{number: 2}, route: route{absent: true}, rounds: &rounds{tierEnd: tierEnd}}, &lane{done: numberedEvent{number: 3}}
	size, _, _ := s.take(first, 1000)
	first.scratch.Buffer = device.DeviceBuffer(1, size)
	s.most = size // no room for others
	s.pass(first)
	cleared := make(chan struct{})
	go func() { // the race detector sees whether take reads it
		first.route = route{}
		close(cleared)
	}()
	if size, _, ok := s.take(second, 1000); !ok || size != 0 || second.after != tierEnd {
		t.Errorf("ok %v, %d bytes to allocate, waits for %v", ok, size, second.after)
	}
	<-cleared
	s.pass(second)
	third := &lane{}
	if _, _, ok := s.take(third, 1000); !ok || third.after != second.done {
		t.Errorf("ok %v, waits for %v", ok, third.after)
	}
}

// smallDevice has memory for left bytes of lists.
type smallDevice struct {
	device.Device
	left int64
}

func (d *smallDevice) Alloc(bytes int64, what string) (device.Buffer, error) {
	if bytes > d.left {
		return device.Buffer{}, device.ErrOutOfMemory
	}
	d.left -= bytes
	return device.DeviceBuffer(1, bytes), nil
}

func (d *smallDevice) Free(b device.Buffer) { d.left += b.Size() }

// TestScratch_PooledInOneLaunch: a pooled batch without memory for written rows takes one launch. Where only written
// rows serve its table, it fails.
func TestScratch_PooledInOneLaunch(t *testing.T) {
	long, resident := &TableView{}, &TableView{Resident: &kernels.Resident{}}
	long.Rows.RowBytes = longRow
	for what, of := range map[string]*TableView{"short": {}, "long": long, "resident": resident} {
		for _, offsets := range []bool{false, true} {
			d := &Device{Device: &smallDevice{left: 64 << 10}}
			b := &reduce.Batch{Rows: 4096, Bags: 4096, Size: 1, Columns: 4}
			if offsets {
				b.Size, b.Bags = 0, 8
			}
			l := &lane{owner: d, route: route{table: of, launches: SideBySide, sink: sink{pool: b, part: 64, rows: b.Rows, partials: true}}}
			err := l.acquireScratch(context.Background(), 1<<20)
			if what != "short" {
				if !errors.Is(err, device.ErrOutOfMemory) {
					t.Errorf("%s rows: %v", what, err)
				}
				continue
			}
			has := int64(0)
			if l.scratch != nil {
				has = l.scratch.Size()
			}
			if err != nil || l.route.part != 0 || l.route.launches != OneLaunch || l.route.pool != b || has < b.PartialBytes() {
				t.Errorf("%s rows: %v, %+v, %d bytes of scratch memory for %d", what, err, l.route, has, b.PartialBytes())
			}
		}
	}
}

// TestScratch_ShorterParts: parts of a batch whose rows are written first become shorter where memory is short.
func TestScratch_ShorterParts(t *testing.T) {
	of := &TableView{}
	of.Rows.RowBytes = 64
	for _, k := range []sink{{stride: 100, part: 4096, rows: 4096}, {pool: &reduce.Batch{Rows: 4096, Bags: 1}, part: 4096, rows: 4096}} {
		l := &lane{owner: &Device{Device: &smallDevice{left: 64 << 10}}, route: route{table: of, launches: OneLaunch, sink: k, absent: true}}
		err := l.acquireScratch(context.Background(), l.route.scratchBytes(0))
		if need := l.route.scratchBytes(0); err != nil || l.route.part != 512 || l.route.parts() != 8 || l.scratch.Size() < need || need > 64<<10 {
			t.Errorf("%v: parts of %d rows, %d bytes", err, l.route.part, need)
		}
		l.route.part = 1
		l.owner = &Device{Device: &smallDevice{}}
		if err := l.acquireScratch(context.Background(), l.route.scratchBytes(0)); !errors.Is(err, device.ErrOutOfMemory) {
			t.Errorf("without memory: %v", err)
		}
	}
}
