package read

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/kernels"
)

// oneLane is a device that refuses to allocate once all and taken are set.
type oneLane struct {
	device.Device
	all   bool
	taken atomic.Int64
}

func (d *oneLane) Alloc(bytes int64, what string) (device.Buffer, error) {
	if d.all && d.taken.Load() > 0 {
		return device.Buffer{}, fmt.Errorf("%s: %w", what, device.ErrOutOfMemory)
	}
	return d.Device.Alloc(bytes, what)
}

// TestLane_WaitsWhereMemoryIsForOne: a batch without memory for a lane waits for another batch's lane. Without
// another lane it gets an error.
func TestLane_WaitsWhereMemoryIsForOne(t *testing.T) {
	small := &oneLane{Device: host.Open(1, 1)[0], all: true}
	d := &Device{Device: small, lanes: make([]atomic.Pointer[lane], 4)}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r := route{launches: OneLaunch}
	first, err := d.acquire(ctx, r, 1)
	if err != nil {
		t.Fatal(err)
	}
	small.taken.Store(1)
	second := make(chan *lane)
	go func() {
		l, err := d.acquire(ctx, r, 1)
		if err != nil {
			t.Error(err)
		}
		second <- l
	}()
	for d.progress.waiting.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	d.release(first, nil)
	if l := <-second; l != first {
		t.Error("the second batch has another lane than the first one had")
	}
	none := &Device{Device: small, lanes: make([]atomic.Pointer[lane], 4)}
	if _, err := none.acquire(ctx, r, 1); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("without other lanes: %v", err)
	}
}

// TestLane_OneMoreForEachThatWaits: a batch that waits for absent rows does not take a lane from others.
func TestLane_OneMoreForEachThatWaits(t *testing.T) {
	d := &Device{Device: host.Open(1, 1)[0], lanes: make([]atomic.Pointer[lane], 3), spare: 2}
	ctx, cancel := context.WithCancel(context.Background())
	r := route{launches: OneLaunch}
	first, err := d.acquire(ctx, r, 1)
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan *lane)
	go func() {
		l, err := d.acquire(ctx, r, 1)
		if err != nil {
			t.Error(err)
		}
		second <- l
	}()
	for d.progress.waiting.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	first.countAbsentWait()
	if l := <-second; l == first {
		t.Error("two batches have the same lane")
	} else {
		l.countAbsentWait()
		l.countAbsentWait() // for the rows of its next part
	}
	if n := d.laneLimit(); n != 3 {
		t.Errorf("%d lanes while two batches wait, want 3", n)
	}
	d.release(first, nil)
	if n := d.laneLimit(); n != 2 {
		t.Errorf("%d lanes while one batch waits, want 2", n)
	}
	cancel()
	for _, n := range []int32{1, 0} {
		if got := d.waiting.Load(); got != n {
			t.Errorf("%d batches wait, want %d", got, n)
		}
		d.release(d.lanes[1].Load(), nil)
	}
}

// TestPauseAfter_BacksOff: a batch that is queued for a second is polled about 1,000 times, not 50,000 times. Its
// list is seen at most an eighth of that time late.
func TestPauseAfter_BacksOff(t *testing.T) {
	looks := 0
	for waited := spinLists; waited < time.Second; looks++ {
		pause := pauseAfter(waited)
		if pause > max(minListPause, waited/8) {
			t.Errorf("a pause of %v after %v", pause, waited)
		}
		waited += pause
	}
	if looks > 1100 {
		t.Errorf("%d looks in a second", looks)
	}
}

type notified struct {
	ends, captured int
	err            error
	rows           int
}

func (n *notified) Rows(rows int) { n.rows = rows }

func (n *notified) End(err error, _ time.Time) { n.ends, n.err = n.ends+1, err }
func (n *notified) Captured()                  { n.captured++ }

// TestHeldWatcher: a watcher is notified once, after all batches of a call are enqueued, or not at all.
func TestHeldWatcher(t *testing.T) {
	failed := errors.New("failed")
	for _, c := range []struct {
		name string
		do   func(h *heldWatcher)
		want notified
	}{
		{"ends before", func(h *heldWatcher) { h.End(failed, time.Time{}); h.release() }, notified{1, 0, failed, 0}},
		{"ends later", func(h *heldWatcher) { h.release(); h.End(nil, time.Time{}); h.End(failed, time.Time{}) }, notified{1, 0, nil, 0}},
		{"captured", func(h *heldWatcher) { h.Captured(); h.release() }, notified{0, 1, nil, 0}},
		{"a window", func(h *heldWatcher) { h.Rows(7); h.End(nil, time.Time{}); h.release() }, notified{1, 0, nil, 7}},
		{"forgotten", func(h *heldWatcher) { h.forget(); h.Rows(7) }, notified{}},
		{"forgotten when it has ended", func(h *heldWatcher) { h.End(nil, time.Time{}); h.forget(); h.release(); h.End(failed, time.Time{}) }, notified{}},
	} {
		var got notified
		c.do(&heldWatcher{of: &got})
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestLane_SpareKeepsNoStaging: a spare lane frees its page-locked memory when it is released; others keep theirs.
// The next batch of either kind has what it needs.
func TestLane_SpareKeepsNoStaging(t *testing.T) {
	d := &Device{Device: host.Open(1, 1)[0], set: &Set{Tuning: DefaultTuning()}, lanes: make([]atomic.Pointer[lane], 2), spare: 1}
	d.waiting.Store(1)
	for range 2 {
		var lanes []*lane
		for range 2 {
			l, err := d.acquire(context.Background(), route{table: &TableView{Rows: kernels.HostRows{RowBytes: 64}}, launches: OneLaunch, absent: true}, 100)
			if err != nil {
				t.Fatal(err)
			}
			lanes = append(lanes, l)
		}
		one := lanes[0].rounds.memory.Size()
		if both := d.PageLockedBytes(); one < 100*64 || lanes[1].rounds.memory.Size() != one || both != 2*one || d.StagingBytes() != both {
			t.Errorf("%d bytes of one lane, %d of both", one, both)
		}
		for _, l := range lanes {
			d.release(l, nil)
		}
		d.freeing.Wait()
		if left := d.PageLockedBytes(); left != one || lanes[0].rounds.memory.Size() != one {
			t.Errorf("%d bytes are left, want the %d of the lane that is not spare", left, one)
		}
	}
	for i := range d.lanes {
		d.lanes[i].Load().close()
	}
	if left := d.PageLockedBytes(); left != 0 {
		t.Errorf("%d bytes are left after all", left)
	}
}

// TestLane_NothingIsFreedWhileABatchWaits: freeing page-locked memory waits for the GPU, which may wait for rows. So it
// is done when no batch may wait.
func TestLane_NothingIsFreedWhileABatchWaits(t *testing.T) {
	d := &Device{Device: host.Open(1, 1)[0], set: &Set{Tuning: DefaultTuning()}, lanes: make([]atomic.Pointer[lane], 2), spare: 2}
	d.waiting.Store(2)
	var lanes []*lane
	for range 2 {
		l, err := d.acquire(context.Background(), route{table: &TableView{Rows: kernels.HostRows{RowBytes: 64}}, launches: OneLaunch, absent: true}, 100)
		if err != nil {
			t.Fatal(err)
		}
		l.beginWait()
		l.beginWait() // for another part
		lanes = append(lanes, l)
	}
	both := d.PageLockedBytes()
	d.release(lanes[0], nil)
	d.freeing.Wait()
	if left := d.PageLockedBytes(); left != both || lanes[0].rounds.memory.Size() != 0 {
		t.Errorf("%d of %d bytes are left while a batch waits", left, both)
	}
	d.release(lanes[1], nil)
	d.freeing.Wait()
	if left := d.PageLockedBytes(); left != 0 {
		t.Errorf("%d of %d bytes are left when none waits", left, both)
	}
}

// TestLane_SurplusIsUsedAgain: while some batch always waits, spare lanes take the memory that others gave up.
func TestLane_SurplusIsUsedAgain(t *testing.T) {
	d := &Device{Device: host.Open(1, 1)[0], set: &Set{Tuning: DefaultTuning()}, lanes: make([]atomic.Pointer[lane], 2), spare: 2}
	d.waiting.Store(2)
	begin := func(rows int) *lane {
		t.Helper()
		l, err := d.acquire(context.Background(), route{table: &TableView{Rows: kernels.HostRows{RowBytes: 64}}, launches: OneLaunch, absent: true}, rows)
		if err != nil {
			t.Fatal(err)
		}
		l.beginWait()
		words := l.rounds.batch.HostView()
		if l.rounds.memory.Size() == 0 || *words != (abi.AbsentHost{}) {
			t.Errorf("the words name batches of another lane: %+v", *words)
		}
		*words = abi.AbsentHost{Listed: 1<<32 | 3, Ready: 1<<32 | 1}
		return l
	}
	last := begin(100)
	both := int64(0)
	for i := range 50 {
		next := begin(100 - i)
		if i == 0 {
			both = d.PageLockedBytes()
		}
		d.release(last, nil)
		last = next
	}
	if held := d.PageLockedBytes(); held != both {
		t.Errorf("%d bytes after 50 batches, of which two at most ran at once, want %d", held, both)
	}
	d.release(last, nil)
	d.freeing.Wait()
	if left := d.PageLockedBytes(); left != 0 {
		t.Errorf("%d bytes are left when none waits", left)
	}
}
