//go:build cgo

package main

import (
	"sync"
	"sync/atomic"
)

// A handle is the number of an object that C code holds:
//
//	[63:32] the slot's generation, from 1 on
//	[31:4]  the slot
//	[3:0]   the kind of object, not 0
//
// A slot is used again for later objects with the next generation, so a handle that was given up is not mistaken for another.
type handle = uintptr

const (
	kindCache = 1 + iota
	kindOpening
	kindBatch

	slotsPerChunk = 1 << 10
	maxChunks     = 1 << 12
)

// handles are the objects of one kind that C code holds. Looking one up takes no lock.
type handles[T any] struct {
	kind   handle
	chunks [maxChunks]atomic.Pointer[[slotsPerChunk]atomic.Pointer[held[T]]]

	mu   sync.Mutex
	free []handle // given up, with their next generation
	used handle   // slots used so far
}

// kinds are the names of the kinds of objects.
var kinds = [...]string{kindCache: "cache", kindOpening: "opening", kindBatch: "batch"}

// held is an object and the handle by which it is known. Of a slot whose object is removed it has the handle that comes next, of kind 0.
type held[T any] struct {
	handle handle
	object T
}

// add returns the handle of a new object, 0 if there are too many.
func (s *handles[T]) add(object T) handle {
	s.mu.Lock()
	var h handle
	if n := len(s.free); n > 0 {
		h, s.free = s.free[n-1], s.free[:n-1]
	} else {
		if s.used == slotsPerChunk*maxChunks {
			s.mu.Unlock()
			return 0
		}
		h = 1<<32 | s.used<<4 | s.kind
		if s.used%slotsPerChunk == 0 {
			s.chunks[s.used/slotsPerChunk].Store(new([slotsPerChunk]atomic.Pointer[held[T]]))
		}
		s.used++
	}
	s.mu.Unlock()
	s.slot(h).Store(&held[T]{h, object})
	return h
}

// slot returns the slot of a handle, nil if the number is no handle of this kind.
func (s *handles[T]) slot(h handle) *atomic.Pointer[held[T]] {
	i := h >> 4 & (1<<28 - 1)
	if h&15 != s.kind || i >= slotsPerChunk*maxChunks {
		return nil
	}
	chunk := s.chunks[i/slotsPerChunk].Load()
	if chunk == nil {
		return nil
	}
	return &chunk[i%slotsPerChunk]
}

// get returns the object of a handle.
func (s *handles[T]) get(h handle) (object T, ok bool) {
	if slot := s.slot(h); slot != nil {
		if e := slot.Load(); e != nil && e.handle == h {
			return e.object, true
		}
	}
	return object, false
}

// given says whether a handle was given before and is given up.
func (s *handles[T]) given(h handle) bool {
	slot := s.slot(h)
	if slot == nil {
		return false
	}
	e := slot.Load()
	return e != nil && h>>32 > 0 && h>>32 < e.handle>>32
}

// remove gives a handle up and returns its object, once.
func (s *handles[T]) remove(h handle) (object T, ok bool) {
	slot := s.slot(h)
	if slot == nil {
		return object, false
	}
	e := slot.Load()
	if e == nil || e.handle != h || !slot.CompareAndSwap(e, &held[T]{handle: (h + 1<<32) &^ 15}) {
		return object, false
	}
	s.mu.Lock()
	s.free = append(s.free, h+1<<32)
	s.mu.Unlock()
	return e.object, true
}

var (
	caches   = &handles[*served]{kind: kindCache}
	openings = &handles[*opening]{kind: kindOpening}
	batches  = &handles[*batch]{kind: kindBatch}
)
