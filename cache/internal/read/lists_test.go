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
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
)

// heldRows delivers rows of 16 bytes, whose first byte is the row number. Each Deliver waits for one value from free.
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

// replaying returns a captured batch of four rows. The test plays the GPU.
func replaying(t *testing.T) (*rounds, *heldRows, *abi.AbsentHost) {
	t.Helper()
	s := NewSet(host.Open(1, 1), Sampling{}, DefaultTuning())
	d, h := s.Devices[0], &heldRows{free: make(chan struct{}, 10)}
	a := &rounds{from: h, table: &TableView{Rows: kernels.HostRows{RowBytes: 16}}}
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

// listFor makes a list of rows, as the GPU does for a replay or for a part of a lane's batch.
func (r *rounds) listFor(replay uint64, rows ...uint64) {
	for i, row := range rows {
		kernels.FoundView(r.batch.Rows)[i] = kernels.Found{Word: row, Position: uint32(i)}
	}
	atomic.StoreUint64(&r.batch.HostView().Listed, replay<<32|uint64(len(rows)))
}

func takes(r *rounds) bool {
	taken, _ := r.take()
	return taken
}

func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// TestLists_ReplayAnswers: a replay's list is answered once. The replay counts as ended when its rows are written and
// their outcome is known.
func TestLists_ReplayAnswers(t *testing.T) {
	a, h, words := replaying(t)
	atomic.StoreUint64(&words.Replayed, 4)
	if takes(a) || a.replayed() != 4 {
		t.Fatalf("without rows: %d replays have ended", a.replayed())
	}
	a.listFor(5, 7, 8)
	if !takes(a) || takes(a) {
		t.Fatal("the list was not taken once")
	}
	h.free <- struct{}{}
	waitUntil(t, "no answer", func() bool { return atomic.LoadUint64(&words.Ready) == 5<<32|abi.AbsentLast|1 })
	if words.Rows[0] != 2 || a.halves[0].rows.Bytes()[0] != 7 && a.halves[0].rows.Bytes()[0] != 8 {
		t.Errorf("%d rows are staged: %x", words.Rows[0], a.halves[0].rows.Bytes()[:32])
	}
	if a.replayed() != 4 {
		t.Errorf("%d replays have ended", a.replayed())
	}
	atomic.StoreUint64(&words.Replayed, 5)
	waitUntil(t, "the replay does not end", func() bool { return a.replayed() == 5 })
	if o := a.outcomeOfReplays(); o.Rows != 2 || o.Failed != 0 {
		t.Errorf("%+v", o)
	}
	if o := a.outcomeOfReplays(); o.Rows != 0 {
		t.Errorf("again: %+v", o)
	}
	if takes(a) || h.calls.Load() != 1 {
		t.Errorf("%d reads", h.calls.Load())
	}
}

// TestLists_ReplayLate: a replay that gave up reports an error. Its rows are not staged for the next replay, whose
// list is taken only when the host is done.
func TestLists_ReplayLate(t *testing.T) {
	a, h, words := replaying(t)
	a.listFor(1, 7)
	a.take()
	waitUntil(t, "no read", func() bool { return h.calls.Load() == 1 })
	atomic.StoreUint64(&words.GaveUp, 1)
	atomic.StoreUint64(&words.Replayed, 1)
	if a.replayed() != 0 {
		t.Errorf("%d replays have ended while the first is answered", a.replayed())
	}
	a.listFor(2, 9, 9, 9)
	if takes(a) {
		t.Error("a second list was taken while the first is answered")
	}
	h.free <- struct{}{}
	waitUntil(t, "the first answer does not end", func() bool { return a.replayed() == 1 })
	if o := a.outcomeOfReplays(); o.Rows != 1 || o.Failed != 1 || !errors.Is(o.Err, errGaveUp) {
		t.Errorf("%+v", o)
	}
	if word := atomic.LoadUint64(&words.Ready); word>>32 != 1 {
		t.Errorf("ready is %#x", word)
	}
	// The second gives up before its list is taken.
	atomic.StoreUint64(&words.Replayed, 2)
	if a.replayed() != 1 {
		t.Errorf("%d replays have ended", a.replayed())
	}
	if !takes(a) {
		t.Error("the second list was not taken")
	}
	waitUntil(t, "the second answer does not end", func() bool { return a.replayed() == 2 })
	if o := a.outcomeOfReplays(); o.Rows != 3 || o.Failed != 3 || !errors.Is(o.Err, errGaveUp) {
		t.Errorf("%+v", o)
	}
	if h.calls.Load() != 1 {
		t.Error("rows were read for a replay that had ended")
	}
	// The third gives up before its list is seen, and the fourth makes the next list. The lost list is reported once.
	atomic.StoreUint64(&words.GaveUp, 3)
	atomic.StoreUint64(&words.Replayed, 3)
	for replay := range uint64(2) {
		if a.listFor(4+replay, 7, 8); !takes(a) {
			t.Error("the list behind a lost one was not taken")
		}
		h.free <- struct{}{}
		waitUntil(t, "the answer does not come", func() bool { return atomic.LoadUint64(&words.Ready) == (4+replay)<<32|abi.AbsentLast|1 })
		atomic.StoreUint64(&words.Replayed, 4+replay)
		waitUntil(t, "the replay does not end", func() bool { return a.replayed() == 4+replay })
		if o, lost := a.outcomeOfReplays(), int64(1-replay); o.Rows != 2+lost || o.Failed != lost || errors.Is(o.Err, errGaveUp) != (lost == 1) {
			t.Errorf("replay %d: %+v", 4+replay, o)
		}
	}
	a.leave()
	if a.listFor(6, 1); takes(a) {
		t.Error("a list was taken of a batch that was given up")
	}
}

// TestLists_ReplayAhead: rows read ahead are marked as used, unless later ones displaced them from the ring.
func TestLists_ReplayAhead(t *testing.T) {
	a, _, words := replaying(t)
	unused := []uint64{1<<10 - 1}
	a.lists.ahead = &kernels.Ahead{Unused: unused}
	for i, row := range []int64{8, 9, 2, 3} { // 6 rows in a ring of four: the last two displaced the first two
		a.batch.AheadView()[i] = row
	}
	atomic.StoreUint64(&words.Read, 6)
	a.take()
	if want := uint64(1<<10-1) &^ (1<<8 | 1<<9 | 1<<2 | 1<<3); unused[0] != want {
		t.Errorf("unused: %b", unused[0])
	}
}

// inParts returns a lane's batch of ten rows in parts of four. The test plays the GPU.
func inParts(t *testing.T) (*lane, *heldRows, *abi.AbsentHost) {
	t.Helper()
	r, h, words := replaying(t)
	pool := &reduce.Batch{Rows: 10}
	l := &lane{owner: r.owner, rounds: r, batch: 1<<32 - 1, ctx: context.Background(), from: h, route: route{table: r.table, absent: true, sink: sink{pool: pool, part: 4, rows: pool.Rows}}}
	l.firstPart = l.batch
	return l, h, words
}

// TestLists_LaneReadsAllParts: the lists of a batch's parts are read one after the other. Positions are those in the
// whole batch.
func TestLists_LaneReadsAllParts(t *testing.T) {
	l, h, words := inParts(t)
	for batch := range 3 { // on the same lane
		at := uint64(l.firstPart) & (1<<32 - 1)
		l.rounds.expect(l)
		for part, rows := range [][]uint64{{7, 8}, nil, {9}} {
			number := (at + uint64(part)) & (1<<32 - 1)
			l.rounds.listFor(number, rows...)
			if len(rows) == 0 {
				waitUntil(t, "the empty list is not taken", func() bool {
					l.rounds.lists.Lock()
					defer l.rounds.lists.Unlock()
					return l.rounds.lists.taken == uint32(number)
				})
				continue
			}
			if batch == 2 && part == 2 { // the GPU gives up
				waitUntil(t, "no read", func() bool { return h.calls.Load() == int32(2*batch+2) })
				atomic.StoreUint64(&words.GaveUp, number)
			}
			h.free <- struct{}{}
			waitUntil(t, "no answer", func() bool {
				return atomic.LoadUint64(&words.Ready)>>32 == number && atomic.LoadUint64(&words.Ready)&abi.AbsentLast != 0
			})
		}
		o := l.answered()
		if batch < 2 && (o.Rows != 3 || o.Failed != 0) || batch == 2 && (o.Rows != 3 || o.Failed != 1 || o.At != 8 || !errors.Is(o.Err, errGaveUp)) {
			t.Errorf("batch %d: %+v", batch, o)
		}
		if again := l.answered(); again.Rows != o.Rows {
			t.Errorf("batch %d: again %+v", batch, again)
		}
		l.batch += 3
		l.firstPart = l.batch
	}
	if d := l.owner; d.waiting.Load() != 1 || !l.countedWaiting {
		t.Errorf("%d batches wait for absent rows, want the one of the lane", d.waiting.Load())
	}
}

// TestLists_LaneLosesLists: rows fail if their list is never read because the GPU has ended the batch, or if the next
// list has replaced it.
func TestLists_LaneLosesLists(t *testing.T) {
	l, h, words := inParts(t)
	l.batch, l.firstPart = 5, 5
	l.rounds.expect(l)
	l.rounds.listFor(5, 7, 8)
	waitUntil(t, "no read", func() bool { return h.calls.Load() == 1 })
	atomic.StoreUint64(&words.GaveUp, 5) // the second part gives up, too, and its list is never seen
	atomic.StoreUint64(&words.GaveUp, 6)
	l.rounds.listFor(7, 9)
	h.free <- struct{}{}
	h.free <- struct{}{}
	waitUntil(t, "the last list is not taken", func() bool { l.rounds.lists.Lock(); defer l.rounds.lists.Unlock(); return l.rounds.lists.taken == 7 })
	waitUntil(t, "no answer", func() bool { return atomic.LoadUint64(&words.Ready)>>32 == 7 })
	if o := l.answered(); o.Rows != 4 || o.Failed != 2 || o.At != 0 || !errors.Is(o.Err, errGaveUp) {
		t.Errorf("%+v", o)
	}
	l.batch, l.firstPart = 8, 8
	l.rounds.expect(l)
	l.rounds.owner.lists.remove(l.rounds) // as if the reader were late
	l.rounds.listFor(9, 7, 8, 9)
	if o := l.answered(); o.Rows != 3 || o.Failed != 3 || o.At != 4 || !errors.Is(o.Err, errGaveUp) {
		t.Errorf("%+v", o)
	}
}

// TestLists_LateRowsEnd: rows that no half has room for are given up with their list, also if the GPU has given up a later one since.
func TestLists_LateRowsEnd(t *testing.T) {
	l, h, _ := inParts(t)
	l.batch, l.firstPart = 5, 5
	if err := l.rounds.reserve(l.owner, 16, 4, 16); err != nil || l.rounds.count != 4 { // of which two have room
		t.Fatal(l.rounds.count, err)
	}
	words := l.rounds.batch.HostView()
	l.rounds.expect(l)
	l.rounds.listFor(5, 1, 2, 3, 4)
	waitUntil(t, "no read", func() bool { return h.calls.Load() == 1 })
	atomic.StoreUint64(&words.GaveUp, 6)
	h.free <- struct{}{}
	if o := l.answered(); o.Rows != 4 || o.Failed == 0 || !errors.Is(o.Err, errGaveUp) {
		t.Errorf("%+v", o)
	}
}

// TestLists_AnsweredUsesAhead: rows that were read ahead are noted for a list that was not taken.
func TestLists_AnsweredUsesAhead(t *testing.T) {
	l, _, words := inParts(t)
	unused := []uint64{1<<10 - 1}
	l.route.table = &TableView{Rows: kernels.HostRows{RowBytes: 16, ReadAhead: &kernels.Ahead{Unused: unused}}}
	l.batch, l.firstPart, l.route.part, l.route.rows = 5, 5, 0, 0
	l.rounds.expect(l)
	l.owner.lists.remove(l.rounds) // as if the reader were late
	rows := kernels.FoundView(l.rounds.batch.Rows)
	rows[len(rows)-1] = kernels.Found{Word: 3}
	atomic.StoreUint64(&words.Ahead, 5<<32|1)
	l.rounds.listFor(5)
	l.answered()
	if unused[0] != 1<<10-1-1<<3 {
		t.Errorf("unused: %b", unused[0])
	}
}
