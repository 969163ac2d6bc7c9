//go:build cgo

package main

import (
	"strings"
	"sync"
	"testing"
)

// TestHandles: a handle finds its object until it is removed, once.
func TestHandles(t *testing.T) {
	s := &handles[int]{kind: 5}
	seen := map[handle]bool{}
	for i := range 3000 {
		h := s.add(i)
		if seen[h] {
			t.Fatalf("handle %#x was given twice", h)
		}
		seen[h] = true
		if got, ok := s.get(h); !ok || got != i {
			t.Fatalf("get: %d, %v, want %d", got, ok, i)
		}
		if i%3 == 0 {
			continue
		}
		if got, ok := s.remove(h); !ok || got != i {
			t.Fatalf("remove: %d, %v, want %d", got, ok, i)
		}
		for _, wrong := range []handle{h, h ^ 1, h + 1<<32, 0, ^handle(0), 5, 1<<63 | 5} {
			if _, ok := s.get(wrong); ok && !seen[wrong] {
				t.Errorf("get(%#x) found an object", wrong)
			}
		}
		if _, ok := s.remove(h); ok {
			t.Fatal("a handle was removed twice")
		}
	}
}

// TestHandles_Missing: what a handle without an object is told depends on whether it ever had one.
func TestHandles_Missing(t *testing.T) {
	s := &handles[int]{kind: kindBatch}
	first := s.add(1)
	for range 3 {
		h := s.add(2)
		s.remove(h)
		s.add(3)
		if got := s.missing(h).Error(); got != "tensorcache: batch is closed" {
			t.Errorf("after remove: %s", got)
		}
	}
	for _, h := range []handle{0, first + 1<<40, first + 50<<4, first ^ 1, ^handle(0), kindBatch} {
		if got := s.missing(h).Error(); !strings.HasPrefix(got, "tensorcache: batch (0x") || !strings.HasSuffix(got, ") must be a handle that the library gave") {
			t.Errorf("%#x: %s", h, got)
		}
	}
}

// TestHandles_Threads: of several goroutines that remove a handle one gets the object, and none finds another's.
func TestHandles_Threads(t *testing.T) {
	s := &handles[*int]{kind: 1}
	for range 200 {
		want := new(int)
		h := s.add(want)
		removed := make([]bool, 4)
		var wg sync.WaitGroup
		for i := range removed {
			wg.Go(func() {
				if got, ok := s.get(h); ok && got != want {
					t.Error("get found another object")
				}
				_, removed[i] = s.remove(h)
				if other := s.add(new(int)); other == h {
					t.Error("a handle was given twice")
				}
			})
		}
		wg.Wait()
		n := 0
		for _, r := range removed {
			if r {
				n++
			}
		}
		if n != 1 {
			t.Fatalf("%d removed the handle", n)
		}
	}
}
