package transfer

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/zeebo/xxh3"
)

// TestSharing_Prices: a cache that holds all rows divides a slot by all rows that share it; one that holds few divides that of a pair hardly, that of a thousand rows nearly by all.
func TestSharing_Prices(t *testing.T) {
	const slot, mapBytes = 512, 20
	var s Sharing
	for range 100 {
		s.Add(2, slot)
		s.Add(1000, slot)
	}
	all, held := s.Prices(1, mapBytes)
	for _, rows := range []int64{2, 1000} {
		if got, want := all.Of(rows, slot), max(1, slot/rows); got != want || held[bits.Len64(uint64(rows))] != 1 {
			t.Errorf("of %d rows one pays %d bytes if all are cached, want %d", rows, got, want)
		}
	}
	few, held := s.Prices(0.05, mapBytes)
	if got := few.Of(2, slot); got < slot*9/10 || got > slot {
		t.Errorf("one of a pair pays %d bytes of %d if one row of 20 is cached", got, slot)
	}
	if got := few.Of(1000, slot); got > 2 || held[bits.Len64(1000)] < 0.5 {
		t.Errorf("one of a thousand rows pays %d bytes of %d if one row of 20 is cached, and %v of them are", got, slot, held[bits.Len64(1000)])
	}
	last := 0.0
	for share := 0.0; share <= 1; share += 0.05 {
		rows, bytes := s.Cached(share, mapBytes, 10_000, 10_000*slot)
		if rows < last || rows > 10_000+100*1002 || bytes > 10_200*slot {
			t.Errorf("a share of %v is %v rows of %v bytes, after %v", share, rows, bytes, last)
		}
		last = rows
	}
	if rows, bytes := s.Cached(1, mapBytes, 10_000, 10_000*slot); rows != 10_000+100*1002 || bytes != 10_200*slot {
		t.Errorf("all rows are %v rows of %v bytes", rows, bytes)
	}
	if got := (&Prices{}).Of(5, 100); got != 1 {
		t.Errorf("a price of nothing is %d bytes, want 1", got)
	}
}

// TestEqualSearch_Concurrent: goroutines that look rows up at once find each equal row, in an entry of a row of the same content.
func TestEqualSearch_Concurrent(t *testing.T) {
	const rows, contents, workers = 20_000, 700, 4
	content := func(row int64) uint64 {
		return rand.New(rand.NewPCG(1, uint64(row))).Uint64N(contents)
	}
	s := newEqualSearch(rows*equalShare, rows)
	defer s.memory.Free()
	missed, wg := [workers]map[uint64]int{}, sync.WaitGroup{}
	for w := range workers {
		missed[w] = map[uint64]int{}
		wg.Go(func() {
			for row := int64(w); row < rows; row += workers {
				of := content(row)
				hash := xxh3.Hash(binary.LittleEndian.AppendUint64(nil, of))
				other, entry, ok := s.find(row, hash, func(other int64) bool { return content(other) == of })
				if !ok {
					missed[w][of]++
				} else if content(other) != of || rowOf(atomic.LoadUint64(&s.slots[entry])) != other {
					t.Errorf("row %d of content %d is like row %d of content %d, whose entry is of row %d", row, of, other, content(other), rowOf(atomic.LoadUint64(&s.slots[entry])))
				}
			}
		})
	}
	wg.Wait()
	entered := map[uint64]int{}
	for _, of := range missed {
		for content, n := range of {
			entered[content] += n
		}
	}
	for content, n := range entered {
		if n != 1 {
			t.Errorf("%d rows of content %d found no other, want the first", n, content)
		}
	}
}
