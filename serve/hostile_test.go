//go:build linux

package serve_test

import (
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/wire"
	"github.com/tensorcache/tensorcache/serve"
)

// hostile is a client that speaks the protocol and writes to its board what it likes.
type hostile struct {
	*wire.Peer
	welcome wire.Welcome
	board   []atomic.Uint64
}

// Words of the board, as docs/format/board.md has them.
const (
	boardHead    = 16
	boardUsed    = 4
	boardLane    = 16
	boardCapture = 48
	boardRecord  = 24
)

func attachHostile(t *testing.T, s *serve.Server) (*hostile, error) {
	t.Helper()
	h, files := &hostile{}, map[uint64]*wire.Message{}
	peer, _, err := wire.Dial(ctx, s.Address(), "hostile", wire.DefaultTimeout, func(m *wire.Message) {
		var n wire.MemoryNotice
		if wire.Decode(m.Body, &n) != nil {
			return
		}
		for i, r := range n.Regions {
			if r.What == "board" {
				files[r.ID] = &wire.Message{Files: m.Files[i : i+1]}
			} else {
				m.Files[i].Close()
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Peer = peer
	t.Cleanup(peer.Close)
	if _, err := peer.Call(ctx, wire.Attach, wire.AttachRequest{Lanes: 2}, nil, &h.welcome); err != nil {
		return nil, err
	}
	f := files[h.welcome.Board].Files[0]
	defer f.Close()
	bytes := 8 * (h.recordsAt() + boardRecord*h.welcome.Lanes*len(h.welcome.Tables))
	mem, err := unix.Mmap(int(f.Fd()), 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	h.board = unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(&mem[0])), bytes/8)
	h.board[1].Store(h.welcome.Views.Generation)
	if _, err := peer.Call(ctx, wire.Ready, wire.Mapped{Client: h.welcome.Client}, nil, nil); err != nil {
		t.Fatal(err)
	}
	return h, nil
}

// capturesAt and recordsAt are where these begin on the board of a cache of one device.
func (h *hostile) capturesAt() int { return boardHead + boardLane*h.welcome.Lanes }
func (h *hostile) recordsAt() int  { return h.capturesAt() + boardCapture*h.welcome.Captures }

// count writes counters of lane 0 and table 0, as a batch that has ended.
func (h *hostile) count(gathers, hits, peers, bytes, cold int64) {
	h.board[boardHead].Add(1)
	h.board[boardHead+1].Add(1)
	r := h.board[h.recordsAt():]
	for copy := range 2 {
		for i, n := range []int64{gathers, hits, peers, bytes, cold} {
			r[1+9*copy+i].Store(uint64(n))
		}
	}
}

// TestHostile_Counters: counters that no client can have are not believed: those before them stay, and count on when the client is gone.
func TestHostile_Counters(t *testing.T) {
	for name, of := range map[string][5]int64{
		"negative": {1, -5, 0, 0, 0}, "less than before": {0, 0, 0, 0, 0}, "too many": {1, math.MaxInt64, 0, 0, 0}, "too many Gathers": {1 << 50, 3, 0, 0, 0},
		"too many bytes": {1, 1, 0, math.MaxInt64, 1}, "reasons": {1, 1, 0, 0, math.MinInt64}, "more peers than hits": {3, 100, 101, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, 100, shared)
			s := listen(t, c, serve.Options{})
			h, err := attachHostile(t, s)
			if err != nil {
				t.Fatal(err)
			}
			h.count(1, 30, 10, 100, 12)
			check := func() {
				t.Helper()
				all, err := c.Stats()
				if err != nil {
					t.Fatal(err)
				}
				if one := all.Tables[0]; one.Gathers != 1 || one.Hits != 30 || one.PeerHits != 10 || one.Misses != 12 || one.HostBytesMoved != 100 || all.Devices[0].Lookups != 42 {
					t.Errorf("%+v, %+v", one, all.Devices[0])
				}
			}
			check()
			if status, err := s.Status(); err != nil || status.Lookups != 42 || status.Attached[0].Lookups != 42 {
				t.Errorf("%v, %+v", err, status)
			}
			h.count(of[0], of[1], of[2], of[3], of[4])
			check()
			if status, err := s.Status(); err != nil || status.Lookups != 42 || status.Attached[0].Lookups != 42 {
				t.Errorf("%v, %+v", err, status)
			}
			h.count(2, 60, 10, 100, 12) // too late
			check()
			h.board[2].Store(1)
			h.Close()
			until(t, "it has left", func() bool { all, err := c.Stats(); return err == nil && len(all.Clients) == 0 })
			check()
		})
	}
}

// TestHostile_Dropped: a client that drops its connection again and again does not get more boards than the owner allows.
func TestHostile_Dropped(t *testing.T) {
	const most = 3
	c := open(t, 100, shared)
	s := listen(t, c, serve.Options{MaxClients: most})
	before := footprintNow(t).Mapped
	attached := 0
	for ; attached < 10*most; attached++ {
		h, err := attachHostile(t, s)
		if err != nil {
			if !strings.Contains(err.Error(), "serve: attachments whose connections have ended (4) must be at most 3") {
				t.Fatal(err)
			}
			break
		}
		h.Close()
		until(t, "the owner knows", func() bool { status, err := s.Status(); return err == nil && status.Clients == 0 })
	}
	all, err := c.Stats()
	if err != nil || attached != most+1 || len(all.Clients) != attached {
		t.Errorf("%v, %d attached, %+v", err, attached, all.Clients)
	}
	if now := footprintNow(t).Mapped; now > before+2*attached { // the owner's and this process's mapping of each board
		t.Errorf("%d mappings, %d before", now, before)
	}
	if _, err := cache.Attach(ctx, s.Address(), cache.AttachOptions{}); !errors.Is(err, cache.ErrOwner) {
		t.Error(err)
	}
}

// TestHostile_Captures: places of captured batches are looked at within bounds, nonsense in them is not counted, and a place is not given up while a
// replay runs.
func TestHostile_Captures(t *testing.T) {
	c := open(t, 100, func(o *cache.Options) { shared(o); o.Host.Overlay = 4 << 10 })
	s := listen(t, c, serve.Options{StoppedAfter: 100 * time.Millisecond})
	h, err := attachHostile(t, s)
	if err != nil {
		t.Fatal(err)
	}
	place := func(i int) []atomic.Uint64 { return h.board[h.capturesAt()+i*boardCapture:][:boardCapture] }
	h.board[boardUsed].Store(math.MaxUint64)
	last := place(h.welcome.Captures - 1)
	for i, n := range []uint64{1, 70, 20, 100, 30} {
		last[32+i].Store(n)
	}
	last[0].Store(1)
	last[1].Store(1)
	place(0)[2].Store(1 << 31) // no table
	place(0)[16].Store(5)
	check := func() {
		t.Helper()
		if all, err := c.Stats(); err != nil || all.Tables[0].Gathers != 1 || all.Tables[0].Hits != 70 || all.Tables[0].Misses != 30 || all.Devices[0].PeerHits != 20 {
			t.Errorf("%v, %+v", err, all.Tables[0])
		}
	}
	check()
	vacate := func(device, from, count int) error {
		_, err := h.Call(ctx, wire.FreeCaptures, wire.FreeCapturesRequest{Device: device, From: from, Count: count}, nil, nil)
		return err
	}
	for _, bad := range [][3]int{{1, 0, 1}, {-1, 0, 1}, {0, -1, 1}, {0, 0, h.welcome.Captures + 1}, {0, math.MaxInt, 2}, {0, 2, math.MaxInt}, {0, 0, -1}, {0, 0, 1}} {
		if err := vacate(bad[0], bad[1], bad[2]); err == nil || !strings.Contains(err.Error(), "must be") {
			t.Errorf("vacate %v: %v", bad, err)
		}
	}
	last[0].Store(2) // a replay runs
	if err := vacate(0, h.welcome.Captures-1, 1); err == nil || !strings.Contains(err.Error(), "none of whose replays runs") {
		t.Error(err)
	}
	row, held := make([]byte, 64), error(nil)
	for i := 0; held == nil && i < 3000; i++ {
		held = c.Update(ctx, 0, []int64{int64(i % 100)}, row)
	}
	if !errors.Is(held, cache.ErrHeld) {
		t.Errorf("changes beside a replay that runs: %v", held)
	}
	last[1].Store(2) // its copy is the first one
	for i, n := range []uint64{1, 70, 20, 100, 30} {
		last[16+i].Store(n)
	}
	if err := vacate(0, h.welcome.Captures-1, 1); err != nil {
		t.Error(err)
	}
	for i := 16; i < boardCapture; i++ {
		if n := last[i].Load(); n != 0 {
			t.Errorf("word %d is %d after the place was given up", i, n)
		}
	}
	check()
	place(1)[16].Store(math.MaxUint64) // negative
	check()
}
