package kernels_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/kernels"
)

// TestReplay_BoardEqualsHost: what replays write to a board is what the host execution writes, and is what they have counted.
func TestReplay_BoardEqualsHost(t *testing.T) {
	const rows, from, times, words = 1000, 41, 4, 48
	gpu, reason := gputest.OpenIfAny(t)
	both(t, gpu, reason, func(b *bench) (after [][]byte) {
		board := b.pinned(make([]byte, words*8))
		k := kernels.Replay{
			Serve: kernels.Serve{Lookup: kernels.Lookup{Rows: b.putRows(make([]int64, rows), false)}}, State: b.alloc(kernels.ReplayStateBytes),
			Board: board, BoardFrom: from,
		}
		b.set(k.State, make([]byte, kernels.ReplayStateBytes))
		for i := uint64(1); i <= times; i++ {
			b.launch(k.Begins())
			after = append(after, bytes.Clone(board.Bytes()))
			state := b.get(k.State)
			if n := binary.LittleEndian.Uint64(state[104:]); n != i {
				t.Fatalf("replay %d is announced as %d", i, n)
			}
			for w, n := range []uint64{11, 1 << 40, 1, 2, 3, 4, 5, 0, 6} { // peers, stored bytes, five reasons, corrupt, out of range
				binary.LittleEndian.PutUint64(state[16+8*w:], n*i)
			}
			b.set(k.State, state)
			b.launch(k.Ends())
			after = append(after, bytes.Clone(board.Bytes()))
			word := func(at uint64) uint64 { return binary.LittleEndian.Uint64(board.Bytes()[8*at:]) }
			copied := 16 + 16*((from+i)%2)
			for w, want := range []uint64{1, rows - 15 - 6, 11, 1 << 40, 1, 2, 3, 4, 5} {
				if got := word(copied + uint64(w)); got != want*i {
					t.Errorf("replay %d: word %d of the copy is %d, want %d", i, w, got, want*i)
				}
			}
			if hits, others := binary.LittleEndian.Uint64(b.get(k.State)[112:]), binary.LittleEndian.Uint64(b.get(k.State)[120:]); hits != (rows-15-6)*i || others != (15+6)*i {
				t.Errorf("replay %d: %d hits, %d others", i, hits, others)
			}
			if word(0) != from+i || word(1) != from+i {
				t.Errorf("replay %d: begun %d, ended %d", i, word(0), word(1))
			}
		}
		state := b.get(k.State)
		binary.LittleEndian.PutUint64(state[80:], 5*rows) // more out of range than rows: bad offsets
		b.set(k.State, state)
		b.launch(k.Begins())
		b.launch(k.Ends())
		if hits := binary.LittleEndian.Uint64(board.Bytes()[8*(17+16*((from+times+1)%2)):]); hits != (rows-15-6)*times {
			t.Errorf("%d hits after a replay without any", hits)
		}
		return append(after, bytes.Clone(board.Bytes()))
	}, func(t *testing.T, want, got [][]byte) {
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Errorf("after kernel %d: %x, want %x", i, got[i], want[i])
			}
		}
	})
}
