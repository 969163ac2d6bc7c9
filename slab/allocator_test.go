package slab

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// longest returns the longest run of free units.
func longest(owner []bool) (best int) {
	run := 0
	for _, o := range owner {
		if run++; o {
			run = 0
		}
		best = max(best, run)
	}
	return best
}

// TestAllocator_Model runs random Alloc, AllocRun, Free and Grow against the list of live slots: no overlap, no loss, all space comes back.
func TestAllocator_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		payload := rapid.Int64Range(0, 1<<16).Draw(t, "payload")
		first := Align * rapid.Int64Range(0, 100).Draw(t, "first")
		a := NewAllocator(first, payload)
		type slot struct {
			offset int64
			bytes  int
		}
		var live []slot
		owner := make([]bool, payload/Align)
		var used int64
		// take notes a slot that was allocated.
		take := func(t *rapid.T, off int64, n int) {
			if off < first || off+int64(n) > a.End() {
				t.Fatalf("a slot of %d at %d is outside %d to %d", n, off, first, a.End())
			}
			for u := (off - first) / Align; u < (off-first+int64(n))/Align; u++ {
				if owner[u] {
					t.Fatalf("a slot of %d at %d overlaps a live one", n, off)
				}
				owner[u] = true
			}
			live = append(live, slot{off, n})
			used += int64(n)
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			if more := rapid.Int64Range(-1<<10, 1<<10).Draw(t, "grow"); more > 0 && more%16 == 0 {
				payload += more
				a.Grow(payload)
				owner = append(owner, make([]bool, payload/Align-int64(len(owner)))...)
			}
			if len(live) > 0 && rapid.Bool().Draw(t, "free") {
				i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				s := live[i]
				live[i] = live[len(live)-1]
				live = live[:len(live)-1]
				a.Free(s.offset, s.bytes)
				used -= int64(s.bytes)
				for u := (s.offset - first) / Align; u < (s.offset-first+int64(s.bytes))/Align; u++ {
					owner[u] = false
				}
			} else if rapid.IntRange(0, 3).Draw(t, "run") == 0 {
				run, sum := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) int { return SlotBytes(rapid.IntRange(1, 600).Draw(t, "bytes")) }), 1, 20).Draw(t, "slots"), 0
				for _, n := range run {
					sum += n
				}
				off, ok := a.AllocRun(int64(sum), slices.Values(run))
				if !ok {
					if n := longest(owner); n*Align >= sum {
						t.Fatalf("AllocRun(%d) failed with %d free bytes in a row", sum, n*Align)
					}
					continue
				}
				for _, n := range run { // each is freed on its own
					take(t, off, n)
					off += int64(n)
				}
			} else {
				n := SlotBytes(rapid.OneOf(rapid.IntRange(1, 600), rapid.IntRange(1, 1<<15)).Draw(t, "bytes"))
				off, ok := a.Alloc(n)
				if !ok {
					if best := longest(owner); best*Align >= n {
						t.Fatalf("Alloc(%d) failed with %d free bytes in a row", n, best*Align)
					}
					continue
				}
				take(t, off, n)
			}
			if a.Used() != used || used > a.Capacity() || a.Capacity() != payload/Align*Align || a.End() != first+a.Capacity() {
				t.Fatalf("Used() = %d, want %d of %d", a.Used(), used, a.Capacity())
			}
		}
		for _, s := range live {
			a.Free(s.offset, s.bytes)
		}
		if a.Used() != 0 {
			t.Fatalf("after freeing all: %d used", a.Used())
		}
		if n := a.Capacity(); n > 0 {
			if _, ok := a.Alloc(int(n)); !ok {
				t.Fatalf("after freeing all: no slot of all %d bytes", n)
			}
		}
	})
}

func TestSlotBytes_RoundsUp(t *testing.T) {
	for stored, want := range map[int]int{1: 16, 16: 16, 17: 32, MaxRowBytes: 1 << 20} {
		if got := SlotBytes(stored); got != want {
			t.Errorf("SlotBytes(%d) = %d, want %d", stored, got, want)
		}
	}
}

func BenchmarkAllocator(b *testing.B) {
	a := NewAllocator(0, 1<<30)
	var ring [4096]struct {
		off int64
		n   int
	}
	for i := range b.N {
		s := &ring[i%len(ring)]
		if s.n != 0 {
			a.Free(s.off, s.n)
		}
		s.n = 16 * (1 + i*7%40)
		s.off, _ = a.Alloc(s.n)
	}
}

// TestAllocator_ClaimTakesWhatIsFree: Claim hands out exactly the free bytes of the windows, in slots that are freed like others.
func TestAllocator_ClaimTakesWhatIsFree(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	const payload = 40_000
	for range 200 {
		first := Align * int64(r.IntN(300))
		a := NewAllocator(first, payload)
		type slot struct{ offset, bytes int64 }
		var live []slot
		for range 300 {
			if n := int64(1+r.IntN(30)) * Align; r.IntN(3) > 0 || len(live) == 0 {
				if offset, ok := a.Alloc(int(n)); ok {
					live = append(live, slot{offset, n})
				}
			} else {
				i := r.IntN(len(live))
				a.Free(live[i].offset, int(live[i].bytes))
				live[i] = live[len(live)-1]
				live = live[:len(live)-1]
			}
		}
		width := int64(1+r.IntN(200)) * Align
		windows := map[int64]bool{}
		for w := range (first + payload + width - 1) / width {
			windows[w] = r.IntN(3) == 0
		}
		chosen := func(w int64) bool { return windows[w] }
		inside := func(from, to int64) (sum int64) {
			for at := from; at < to; at += Align {
				if chosen(at / width) {
					sum += Align
				}
			}
			return sum
		}
		free := inside(first, first+payload)
		for _, s := range live {
			free -= inside(s.offset, s.offset+s.bytes)
		}
		used := a.Used()
		for _, n := range []int64{payload + Align, Align, 5*Align + 1, int64(r.IntN(40)) * Align, 3000 * Align} {
			holes := int64(0)
			for _, bytes := range a.Extents() {
				if bytes < n {
					holes += bytes
				}
			}
			if got := a.HoleBytes(int(n)); got != holes || n > payload && holes != payload-used {
				t.Fatalf("%d free bytes in extents shorter than %d, want %d; %d bytes are used", got, n, holes, used)
			}
		}
		claimed := a.Claim(width, chosen)
		for _, s := range claimed {
			if free -= s[1]; inside(s[0], s[0]+s[1]) != s[1] || s[1] <= 0 {
				t.Fatalf("claimed %d bytes at %d", s[1], s[0])
			}
			live = append(live, slot{s[0], s[1]})
		}
		if free != 0 || len(a.Claim(width, chosen)) != 0 {
			t.Fatalf("%d free bytes of the windows are not claimed", free)
		}
		for _, s := range live {
			a.Free(s.offset, int(s.bytes))
		}
		if offset, ok := a.Alloc(payload); !ok || offset != first {
			t.Fatal("free space is lost")
		}
	}
}
