package board

import (
	"testing"
	"unsafe"

	"github.com/tensorcache/tensorcache/slab"
)

func newBoard(t *testing.T, s Shape) (*Board, []byte) {
	t.Helper()
	words := make([]uint64, s.Bytes()/8)
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), s.Bytes())
	return New(memory, s), memory
}

// TestRecord_Whole: whoever reads a record sees each batch as a whole, whatever the writer does meanwhile.
func TestRecord_Whole(t *testing.T) {
	b, _ := newBoard(t, Shape{Lanes: 2, Tables: 3})
	r, stop := b.Record(1, 2), make(chan struct{})
	go func() {
		defer close(stop)
		one := Totals{Gathers: 1, Hits: 2, PeerHits: 3, HostBytes: 4}
		for i := range one.Reasons {
			one.Reasons[i] = int64(5 + i)
		}
		for range 200_000 {
			r.Add(&one)
		}
	}()
	check := func() (gathers int64) {
		got, ok := r.Load()
		for !ok {
			got, ok = r.Load()
		}
		n := got.Gathers
		if got.Hits != 2*n || got.PeerHits != 3*n || got.HostBytes != 4*n {
			t.Fatalf("%+v", got)
		}
		for i, reason := range got.Reasons {
			if reason != int64(5+i)*n {
				t.Fatalf("%+v", got)
			}
		}
		return n
	}
	for last := int64(0); ; {
		n := check()
		if n < last {
			t.Fatalf("%d after %d", n, last)
		}
		last = n
		select {
		case <-stop:
			if n := check(); n != 200_000 {
				t.Fatal(n)
			}
			return
		default:
		}
	}
}

// TestRecord_Busy: a record that a client changes all the time is not read for ever.
func TestRecord_Busy(t *testing.T) {
	b, _ := newBoard(t, Shape{Lanes: 1, Tables: 1})
	calls := uint64(0)
	changing := func() uint64 {
		if calls++; calls > 1e6 {
			t.Fatal("it is read for ever")
		}
		return calls
	}
	if got, ok := b.Record(0, 0).load(changing); ok || got != (Totals{}) {
		t.Errorf("%+v", got)
	}
}

// TestRecord_Interrupted: a client that is killed while it counts has counted the batch or not.
func TestRecord_Interrupted(t *testing.T) {
	b, _ := newBoard(t, Shape{Lanes: 1, Tables: 1})
	r := b.Record(0, 0)
	r.Add(&Totals{Gathers: 1, Hits: 10})
	version := r.version.Load()
	r.Add(&Totals{Gathers: 1, Hits: 5})
	r.version.Store(version) // killed before the last store
	if got, ok := r.Load(); !ok || got.Gathers != 1 || got.Hits != 10 {
		t.Errorf("%+v", got)
	}
}

func TestBoard_Sum(t *testing.T) {
	b, memory := newBoard(t, Shape{Lanes: 4, Tables: 2})
	for i := range 4 {
		if i != 2 { // a lane without batches
			b.Lane(i).Begun.Add(1)
		}
		one := Totals{Gathers: 1, Hits: int64(1) << (8 * i)}
		one.Reasons[slab.Evicted] = 1
		b.Record(i, 1).Add(&one)
	}
	if got, ok := b.Sum(1, 1, 4); !ok || got.Hits != 1<<8+1<<24 || got.Misses() != 2 || got.Gathers != 2 {
		t.Errorf("%+v", got)
	}
	if got, ok := b.Sum(0, 0, 4); !ok || got != (Totals{}) {
		t.Errorf("%+v", got)
	}
	if n := b.Lane(0).Running(); n != 1 {
		t.Errorf("batch %d runs", n)
	}
	b.Lane(0).Ended.Store(1)
	if b.Lane(0).Running() != 0 || !b.Lane(0).Passed(1) || b.Lane(0).Passed(2) {
		t.Error("batch 1 has ended")
	}
	for _, s := range []Shape{{Lanes: 3, Tables: 2}, {Lanes: 0, Tables: 2}, {Lanes: 4, Tables: -2}} {
		if _, err := Open(memory, s); err == nil {
			t.Errorf("%+v is no shape of this memory", s)
		}
	}
	if _, err := Open(memory, b.Shape()); err != nil {
		t.Error(err)
	}
	memory[0] = 9
	if _, err := Open(memory, b.Shape()); err == nil || err.Error() != "board: version (9) must be 2" {
		t.Error(err)
	}
}
