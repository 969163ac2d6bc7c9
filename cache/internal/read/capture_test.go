package read

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache/internal/board"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/transfer"
)

// failing is a device whose streams refuse some launches: stores while fails is set, and replays while breaks is set.
type failing struct {
	device.Device
	fails  atomic.Bool
	breaks atomic.Bool
	looked func() // called after each look at the replays; may be nil
}

type failingStream struct {
	device.Stream
	of *failing
}

var errLaunch = errors.New("no launch")

func (d *failing) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return failingStream{s, d}, err
}

func (s failingStream) Launch(k device.Kernel) error {
	if _, store := k.(*kernels.Store); store && s.of.fails.Load() {
		return errLaunch
	}
	if _, replay := k.(*kernels.Replay); replay && s.of.breaks.Load() {
		return errLaunch
	}
	err := s.Stream.Launch(k)
	if _, look := k.(*kernels.ReplayLook); look && s.of.looked != nil {
		s.of.looked()
	}
	return err
}

// capturing returns a device with one table, and a captured batch without rows that was replayed once.
func capturing(t *testing.T) (*failing, *Device, *capture) { return capturingOn(t, BoardPart{}) }

// capturingOn is capturing for a client of a shared cache with the board p. If p has no board, the device belongs to
// an owner.
func capturingOn(t *testing.T, p BoardPart) (*failing, *Device, *capture) {
	t.Helper()
	f := &failing{Device: host.Open(1, 1)[0]}
	s := NewSet([]device.Device{f}, Sampling{}, DefaultTuning())
	s.SetTables([]*Table{{Name: "x", Tier: &transfer.Tier{}}})
	d := s.Devices[0]
	layout := hashmap.LayoutFor(1)
	memory, err := f.Alloc(layout.Bytes(), "test")
	if err != nil {
		t.Fatal(err)
	}
	d.SetTable(0, &TableView{})
	d.SetView(&View{Map: memory, Layout: layout})
	if p.Board != nil {
		d.ServeOn(p, 0)
	}
	c := &capture{owner: d}
	if err := d.captures.add(c, RowNumbers{}, device.Buffer{}); err != nil {
		t.Fatal(err)
	}
	stream, err := f.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Launch(&c.kernel); err != nil {
		t.Fatal(err)
	}
	d.captures.join(c, nil)
	return f, d, c
}

// begin and end change a state as a replay of one block does.
func (c *capture) begin() { c.add(0) }
func (c *capture) end()   { c.add(1) }
func (c *capture) add(word int) {
	atomic.AddUint64((*uint64)(unsafe.Pointer(&c.kernel.State.Bytes()[word*8])), 1)
}

// TestCaptures_ErrorOfAView: Wait returns the error of publishing a change to replays, until a later change is
// published.
func TestCaptures_ErrorOfAView(t *testing.T) {
	f, d, c := capturing(t)
	if err := c.wait(); err != nil {
		t.Fatal(err)
	}
	f.fails.Store(true)
	d.SetView(d.View())
	if err := c.wait(); !errors.Is(err, errLaunch) || !strings.Contains(err.Error(), "captured batches") {
		t.Errorf("Wait after a failed change: %v", err)
	}
	if err := d.captures.add(&capture{owner: d}, RowNumbers{}, device.Buffer{}); !errors.Is(err, errLaunch) {
		t.Errorf("a capture while nothing can be published: %v", err)
	}
	f.fails.Store(false)
	d.SetView(d.View())
	if err := c.wait(); err != nil {
		t.Errorf("Wait after a good change: %v", err)
	}
	c.release()
	if n := d.captures.bytes.Load(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// TestCaptures_PollDoesNotWait: Poll waits neither for a replay that runs nor for one that begins meanwhile.
func TestCaptures_PollDoesNotWait(t *testing.T) {
	f, _, c := capturing(t)
	b := &Batch{captured: c}
	poll := func(what string, want bool) {
		t.Helper()
		ended := make(chan bool, 1)
		go func() {
			done, err := b.Poll()
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			ended <- done
		}()
		select {
		case done := <-ended:
			if done != want {
				t.Errorf("%s: Poll returned %v, want %v", what, done, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: Poll waits", what)
		}
	}
	poll("no replay runs", true)
	c.begin()
	poll("a replay runs", false)
	c.end()
	f.looked = c.begin
	poll("a replay begins", true)
	f.looked = nil
	poll("that replay runs", false)
	c.end()
	poll("it has ended", true)
	c.release()
}

// TestCaptures_ViewsInUse: a view stays as long as a replay may read it. While a change waits for that, other calls
// do not.
func TestCaptures_ViewsInUse(t *testing.T) {
	_, d, c := capturing(t)
	c.begin()
	seen := binary.NativeEndian.Uint64(c.kernel.Views.Bytes())
	at := kernels.ReplayViewAt(seen)
	view := string(c.kernel.Views.Bytes()[at:][:kernels.ReplayViewBytes])
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		for range kernels.ReplayTurns {
			v := *d.View()
			v.Peers++
			d.SetView(&v)
		}
	}()
	for atomic.LoadUint64((*uint64)(unsafe.Pointer(&c.kernel.Views.Bytes()[0]))) < seen+kernels.ReplayTurns-1 {
		time.Sleep(time.Millisecond)
	}
	select {
	case <-changed:
		t.Fatal("the place of a view that a replay reads was taken")
	case <-time.After(20 * time.Millisecond):
	}
	if string(c.kernel.Views.Bytes()[at:][:kernels.ReplayViewBytes]) != view {
		t.Error("a view that a replay reads has changed")
	}
	begin := time.Now()
	if done, err := c.done(); done || err != nil {
		t.Errorf("Done: %v, %v", done, err)
	}
	d.SettleReplays()
	d.ScratchBytes()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if err := d.set.WaitEpoch(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("WaitEpoch beside a replay: %v", err)
	}
	if d := time.Since(begin); d > time.Minute {
		t.Errorf("took %v while a change waited", d)
	}
	c.end()
	<-changed
	if err := d.set.WaitEpoch(context.Background()); err != nil {
		t.Error(err)
	}
	if done, err := c.done(); !done || err != nil {
		t.Errorf("Done: %v, %v", done, err)
	}
	c.release()
}

// TestOutcomeOf: counts beyond what ended replays can have are those of a running replay. They are left for later,
// and none is lost.
func TestOutcomeOf(t *testing.T) {
	var before kernels.ReplayCounts
	now := kernels.ReplayCounts{Reasons: [len(before.Reasons)]uint64{7, 0, 8}, OutOfRange: 2, Peers: 5, HostBytes: 100}
	o, counts := outcomeOf(10, 0, &now, &before) // of the 17 rows counted, only 10 can be from ended replays
	if o.Hits != 0 || o.Misses != 10 || o.Reasons[0] != 7 || o.Reasons[2] != 3 || o.outOfRange != 0 || o.PeerHits != 0 || o.HostBytes != 100 {
		t.Errorf("the first: %+v", o)
	}
	now.Reasons[2]++
	if o, counts = outcomeOf(20, 0, &now, &counts); o.Hits != 12 || o.Misses != 6 || o.outOfRange != 2 || o.PeerHits != 5 || o.HostBytes != 0 {
		t.Errorf("the second: %+v", o)
	}
	if counts != now {
		t.Errorf("%+v are settled, %+v counted", counts, now)
	}
}

// boardPart returns a board with one lane and two blocks of places. The channel receives the blocks that are vacated.
func boardPart() (BoardPart, <-chan int) {
	shape := board.Shape{Lanes: 1, Captures: 2 * statesCount, Tables: 1}
	words := make([]uint64, shape.Bytes()/8)
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), shape.Bytes())
	vacated := make(chan int, 10)
	return BoardPart{
		Board: board.New(memory, shape), Memory: device.HostBuffer(memory), Lanes: 1, Captures: 2 * statesCount,
		Vacate: func(from, count int) error {
			if count != statesCount {
				return errLaunch
			}
			vacated <- from / statesCount
			return nil
		},
	}, vacated
}

// TestCaptures_OnBoard: a replay of a client runs until it has ended on the board. Its block is vacated when the
// batch is released.
func TestCaptures_OnBoard(t *testing.T) {
	p, vacated := boardPart()
	_, d, c := capturingOn(t, p)
	if n := p.Board.Used(0, 100); n != 1 || c.onBoard != p.Board.Capture(0) {
		t.Fatalf("%d places are used", n)
	}
	idle := func(when string, want bool) {
		t.Helper()
		if done, err := c.done(); done != want || err != nil {
			t.Errorf("%s: %v, %v", when, done, err)
		}
	}
	// The replay of capturingOn did not change the board.
	idle("before a replay", true)
	c.onBoard.Begun.Store(1)
	idle("announced", false)
	c.begin()
	c.end()
	idle("its kernel has ended", false)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if err := d.set.WaitEpoch(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("WaitEpoch beside a replay: %v", err)
	}
	c.onBoard.Ended.Store(1)
	idle("ended", true)
	c.release()
	if block := <-vacated; block != 0 {
		t.Errorf("block %d was given up", block)
	}
	for range 5 { // more than the two blocks, so they are used again
		c := &capture{owner: d}
		if err := d.captures.add(c, RowNumbers{}, device.Buffer{}); err != nil {
			t.Fatal(err)
		}
		d.captures.join(c, nil)
		c.release()
	}
}

// TestCaptures_Partly: a client's batch may be captured only in part. Then its graph ends what it begins, and the
// batch's memory stays.
func TestCaptures_Partly(t *testing.T) {
	p, vacated := boardPart()
	f, d, c := capturingOn(t, p)
	f.breaks.Store(true)
	s, err := f.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.capture(s, 0, RowNumbers{}, device.Buffer{}, 0, nil, nil); !errors.Is(err, errLaunch) {
		t.Fatal(err)
	}
	place := p.Board.Capture(1)
	if _, counted, ok := place.Load(); place.Begun.Load() != 1 || place.Ended.Load() != 1 || counted.Gathers != 1 || counted.Hits != 0 || !ok {
		t.Errorf("begun %d, ended %d, counted %+v", place.Begun.Load(), place.Ended.Load(), counted)
	}
	c.release()
	select {
	case <-vacated:
		t.Error("the memory of a batch that is in a graph was given back")
	case <-time.After(10 * time.Millisecond):
	}
	if n := d.captures.count.Load(); n != 1 {
		t.Errorf("%d batches are kept", n)
	}
}

// TestOutcomeOf_BadOffsets: bad offsets of a replay with misses only are reported once, and not with a later replay.
func TestOutcomeOf_BadOffsets(t *testing.T) {
	var before, now kernels.ReplayCounts
	now.Reasons[0], now.OutOfRange = 10, 3
	o, counts := outcomeOf(10, 4, &now, &before)
	if o.Misses != 10 || o.Hits != 0 || o.outOfRange != 3 {
		t.Errorf("%+v", o)
	}
	now.Reasons[0] += 2
	if o, _ = outcomeOf(10, 4, &now, &counts); o.Misses != 2 || o.Hits != 8 || o.outOfRange != 0 {
		t.Errorf("the next replay: %+v", o)
	}
}

// TestFaults_AskedBeforeEachRead: Faults without waiting looks at replays in another goroutine, at most once per
// LookPause.
func TestFaults_AskedBeforeEachRead(t *testing.T) {
	f, d, c := capturing(t)
	d.set.Tuning.LookPause = time.Hour
	var looks atomic.Int32
	f.looked = func() { looks.Add(1) }
	ask := func() {
		if err := d.set.Faults(false); err != nil {
			t.Errorf("Faults: %v", err)
		}
	}
	ask()
	d.AwaitLooks()
	if allocations := testing.AllocsPerRun(100, ask); allocations != 0 {
		t.Errorf("%v allocations to ask again", allocations)
	}
	d.AwaitLooks()
	if n := looks.Load(); n != 1 {
		t.Errorf("%d looks for 102 calls, want 1", n)
	}
	d.captures.asked.Store(false) // the pause is over
	ask()
	d.AwaitLooks()
	if n := looks.Load(); n != 2 {
		t.Errorf("%d looks when the time has passed, want 2", n)
	}
	c.release()
	before := looks.Load()
	d.captures.asked.Store(false)
	ask()
	d.AwaitLooks()
	if n := looks.Load(); n != before {
		t.Errorf("%d looks without captured batches", n-before)
	}
}
