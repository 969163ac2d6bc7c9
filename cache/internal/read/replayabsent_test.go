package read

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/kernels"
)

// heldRows delivers rows of 16 bytes, which are their numbers, once free has a value for each call.
type heldRows struct {
	free  chan struct{}
	calls atomic.Int32
}

func (h *heldRows) Gather(context.Context, []int64, []uint32, []byte, int) cold.Outcome {
	panic("not asked")
}
func (h *heldRows) Longest() time.Duration { return time.Hour }
func (h *heldRows) Deliver(_ context.Context, rows []int64, put func(i int, stored []byte, compressed bool, err error)) {
	h.calls.Add(1)
	<-h.free
	for i, row := range rows {
		put(i, append([]byte{byte(row)}, make([]byte, 15)...), false, nil)
	}
}

// replaying is a captured batch of four rows whose GPU the test plays.
func replaying(t *testing.T) (*replayAbsent, *heldRows, *abi.AbsentHost) {
	t.Helper()
	s := NewSet(host.Open(1, 1), Sampling{}, DefaultTuning())
	d, h := s.Devices[0], &heldRows{free: make(chan struct{}, 10)}
	a := &replayAbsent{rounds: rounds{from: h, table: &TableView{Rows: kernels.HostRows{RowBytes: 16}}}}
	if err := a.reserve(d, 16, 4, 1<<20); err != nil {
		t.Fatal(err)
	}
	b, err := d.allocNear(4*8, "test")
	if err != nil {
		t.Fatal(err)
	}
	a.batch.Ahead = b
	return a, h, a.batch.HostView()
}

// list lists rows for a replay.
func (a *replayAbsent) listFor(replay uint64, rows ...uint64) {
	for i, row := range rows {
		kernels.FoundView(a.batch.Rows)[i] = kernels.Found{Word: row, Position: uint32(i)}
	}
	atomic.StoreUint64(&a.batch.HostView().Listed, replay<<32|uint64(len(rows)))
}

func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// TestReplayAbsent_Answers: a replay is answered once, and counts as ended when its rows are written and what became of them is known.
func TestReplayAbsent_Answers(t *testing.T) {
	a, h, words := replaying(t)
	atomic.StoreUint64(&words.Replayed, 4)
	if a.take() || a.ended() != 4 {
		t.Fatalf("without rows: %d replays have ended", a.ended())
	}
	a.listFor(5, 7, 8)
	if !a.take() || a.take() {
		t.Fatal("the list was not taken once")
	}
	h.free <- struct{}{}
	waitUntil(t, "no answer", func() bool { return atomic.LoadUint64(&words.Ready) == 5<<32|abi.AbsentLast|1 })
	if words.Rows[0] != 2 || a.halves[0].rows.Bytes()[0] != 7 && a.halves[0].rows.Bytes()[0] != 8 {
		t.Errorf("%d rows are staged: %x", words.Rows[0], a.halves[0].rows.Bytes()[:32])
	}
	if a.ended() != 4 {
		t.Errorf("%d replays have ended", a.ended())
	}
	atomic.StoreUint64(&words.Replayed, 5)
	waitUntil(t, "the replay does not end", func() bool { return a.ended() == 5 })
	if o := a.outcome(); o.Rows != 2 || o.Failed != 0 {
		t.Errorf("%+v", o)
	}
	if o := a.outcome(); o.Rows != 0 {
		t.Errorf("again: %+v", o)
	}
	if a.take() || h.calls.Load() != 1 {
		t.Errorf("%d reads", h.calls.Load())
	}
}

// TestReplayAbsent_Late: rows of a replay that has given up are an error, and not taken for those of the next one, which waits until the host is done.
func TestReplayAbsent_Late(t *testing.T) {
	a, h, words := replaying(t)
	a.listFor(1, 7)
	a.take()
	waitUntil(t, "no read", func() bool { return h.calls.Load() == 1 })
	atomic.StoreUint64(&words.GaveUp, 1)
	atomic.StoreUint64(&words.Replayed, 1)
	if a.ended() != 0 {
		t.Errorf("%d replays have ended while the first is answered", a.ended())
	}
	a.listFor(2, 9, 9, 9)
	if a.take() {
		t.Error("a second list was taken while the first is answered")
	}
	h.free <- struct{}{}
	waitUntil(t, "the first answer does not end", func() bool { return a.ended() == 1 })
	if o := a.outcome(); o.Rows != 1 || o.Failed != 1 || !errors.Is(o.Err, errGaveUp) {
		t.Errorf("%+v", o)
	}
	if word := atomic.LoadUint64(&words.Ready); word>>32 != 1 {
		t.Errorf("ready is %#x", word)
	}
	// The second gives up before its list is taken.
	atomic.StoreUint64(&words.Replayed, 2)
	if a.ended() != 1 {
		t.Errorf("%d replays have ended", a.ended())
	}
	if !a.take() {
		t.Error("the second list was not taken")
	}
	waitUntil(t, "the second answer does not end", func() bool { return a.ended() == 2 })
	if o := a.outcome(); o.Rows != 3 || o.Failed != 3 || !errors.Is(o.Err, errGaveUp) {
		t.Errorf("%+v", o)
	}
	if h.calls.Load() != 1 {
		t.Error("rows were read for a replay that had ended")
	}
	// The fourth comes before the list of the third was seen, which has given up. Giving up is reported once.
	atomic.StoreUint64(&words.GaveUp, 3)
	atomic.StoreUint64(&words.Replayed, 3)
	for replay := range uint64(2) {
		if a.listFor(4+replay, 7, 8); !a.take() {
			t.Error("the list behind a lost one was not taken")
		}
		h.free <- struct{}{}
		waitUntil(t, "the answer does not come", func() bool { return atomic.LoadUint64(&words.Ready) == (4+replay)<<32|abi.AbsentLast|1 })
		atomic.StoreUint64(&words.Replayed, 4+replay)
		waitUntil(t, "the replay does not end", func() bool { return a.ended() == 4+replay })
		if o, lost := a.outcome(), int64(1-replay); o.Rows != 2+lost || o.Failed != lost || errors.Is(o.Err, errGaveUp) != (lost == 1) {
			t.Errorf("replay %d: %+v", 4+replay, o)
		}
	}
	a.leave()
	if a.listFor(6, 1); a.take() {
		t.Error("a list was taken of a batch that was given up")
	}
}

// TestReplayAbsent_Ahead: rows that were read ahead are noted, as far as later ones have not displaced them.
func TestReplayAbsent_Ahead(t *testing.T) {
	a, _, words := replaying(t)
	unused := []uint64{1<<10 - 1}
	a.batch.Tier.ReadAhead = &kernels.Ahead{Unused: unused}
	for i, row := range []int64{8, 9, 2, 3} { // 6 rows, of which the last two displaced the first
		a.batch.AheadView()[i] = row
	}
	atomic.StoreUint64(&words.Read, 6)
	a.take()
	if want := uint64(1<<10-1) &^ (1<<8 | 1<<9 | 1<<2 | 1<<3); unused[0] != want {
		t.Errorf("unused: %b", unused[0])
	}
}
