//go:build cgo

package main

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// A handle is the number of an object that C code holds: the kind of object in the lowest 4 bits, and above them firstHandle plus how many handles of the kind the
// library has given so far. No number is given twice, so a handle that was given up is not mistaken for another, and small numbers are no handles.
type handle = uintptr

const (
	kindCache = 1 + iota
	kindOpening
	kindBatch
	kindModel

	firstHandle = 1 << 40
)

// kinds are the names of the kinds of objects.
var kinds = [...]string{kindCache: "cache", kindOpening: "opening", kindBatch: "batch", kindModel: "model"}

// handles are the objects of one kind that C code holds. Looking one up takes no lock.
type handles[T any] struct {
	kind    handle
	last    atomic.Uintptr
	objects sync.Map // from handle to T
}

var (
	caches   = &handles[*served]{kind: kindCache}
	openings = &handles[*opening]{kind: kindOpening}
	batches  = &handles[*batch]{kind: kindBatch}
	models   = &handles[*opened]{kind: kindModel}
)

// add returns the handle of a new object.
func (s *handles[T]) add(object T) handle {
	h := (firstHandle+s.last.Add(1))<<4 | s.kind
	s.objects.Store(h, object)
	return h
}

// get returns the object of a handle.
func (s *handles[T]) get(h handle) (object T, ok bool) {
	found, ok := s.objects.Load(h)
	if ok {
		object = found.(T)
	}
	return object, ok
}

// remove gives a handle up and returns its object, once.
func (s *handles[T]) remove(h handle) (object T, ok bool) {
	found, ok := s.objects.LoadAndDelete(h)
	if ok {
		object = found.(T)
	}
	return object, ok
}

// missing returns the error of a handle without an object: of one that was given up, or of a number that is none.
func (s *handles[T]) missing(h handle) error {
	err := fmt.Errorf("tensorcache: %s (%#x) must be a handle that the library gave", kinds[s.kind], h)
	if n := h >> 4; h&15 == s.kind && n > firstHandle && n-firstHandle <= s.last.Load() {
		err = fmt.Errorf("tensorcache: %s is closed", kinds[s.kind])
	}
	return failure{statusClosed, err}
}
