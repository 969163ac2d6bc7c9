package mrc

import (
	"errors"
	"fmt"
	"slices"
)

// Point is the miss ratio of a cache of one size: the share of accesses that miss, and the share of bytes.
type Point struct {
	Size                     int64
	MissRatio, ByteMissRatio float64
}

// histogram counts accesses by the smallest of the given cache sizes at which they hit.
type histogram struct {
	sizes           []int64
	hits, byteHits  []float64
	requests, bytes int64 // of all accesses
}

func newHistogram(sizes []int64) (histogram, error) {
	h := histogram{sizes: slices.Clone(sizes), hits: make([]float64, len(sizes)+1), byteHits: make([]float64, len(sizes)+1)}
	if len(sizes) == 0 {
		return h, errors.New("mrc: a curve must have at least 1 size")
	}
	for i, n := range sizes {
		if n < 1 || i > 0 && n <= sizes[i-1] {
			return h, fmt.Errorf("mrc: sizes must be positive and increase: size %d is %d", i, n)
		}
	}
	return h, nil
}

// add counts an access with this stack distance and row size as weight accesses.
func (h *histogram) add(distance, size int64, weight float64) {
	i, _ := slices.BinarySearch(h.sizes, distance)
	h.hits[i] += weight
	h.byteHits[i] += weight * float64(size)
}

// curve returns the points. All counts are multiplied by scale; more hits, of moreBytes bytes, are added at every size.
func (h *histogram) curve(scale, more, moreBytes float64) []Point {
	points := make([]Point, len(h.sizes))
	for i, size := range h.sizes {
		more += scale * h.hits[i]
		moreBytes += scale * h.byteHits[i]
		ratio := func(hits float64, of int64) float64 { return max(0, min(1, 1-hits/float64(max(1, of)))) }
		points[i] = Point{size, ratio(more, h.requests), ratio(moreBytes, h.bytes)}
	}
	return points
}

// Exact computes a curve from all accesses, in O(log rows) each.
type Exact struct {
	stack     stack
	histogram histogram
}

// NewExact returns an empty curve for the given cache sizes, which must be positive and ascending.
func NewExact(sizes []int64) (*Exact, error) {
	h, err := newHistogram(sizes)
	if err != nil {
		return nil, err
	}
	return &Exact{histogram: h}, nil
}

// Access counts an access. Row numbers start at 0 and are below 2^32; memory grows with the largest.
func (e *Exact) Access(row uint64, size int64) {
	others, known := e.stack.access(uint32(row), size)
	e.histogram.requests++
	e.histogram.bytes += size
	if known {
		e.histogram.add(others+size, size, 1)
	}
}

// Touch updates the stack as Access does, without counting an access.
func (e *Exact) Touch(row uint64, size int64) { e.stack.access(uint32(row), size) }

// Remove removes a row: its next access misses.
func (e *Exact) Remove(row uint64) { e.stack.remove(uint32(row)) }

// Curve returns the miss ratio at each size.
func (e *Exact) Curve() []Point { return e.histogram.curve(1, 0, 0) }
