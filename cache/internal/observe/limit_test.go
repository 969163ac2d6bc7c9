package observe

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestLimit_MissesFirst: Gathers without misses leave half of the room to those with misses, whatever the rate.
func TestLimit_MissesFirst(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{1e-9, 1e-3, 1, 1.5} { // so low that hardly a token comes while the test runs
		l := newLimit(rate)
		take := func(ofInterest bool) (n int) {
			for range 100 {
				if l.gather(ofInterest) {
					n++
				}
			}
			return n
		}
		if n := take(false); n != 1 {
			t.Errorf("rate %v: %d Gathers without misses, want 1", rate, n)
		}
		if n := take(true); n != 1 {
			t.Errorf("rate %v: then %d with misses, want 1", rate, n)
		}
		if n := take(false); n != 0 {
			t.Errorf("rate %v: then %d without misses, want 0", rate, n)
		}
	}
	if newLimit(0) != nil {
		t.Error("rate 0 is a limit")
	}
	if l := newLimit(1e12); !l.candidate() || !l.gather(false) || !l.gather(false) {
		t.Error("a rate above all that there can be is a limit")
	}
}

// TestLimit_Changes: Updates and Invalidates have room of their own; other operations are not limited.
func TestLimit_Changes(t *testing.T) {
	t.Parallel()
	l := newLimit(1e-9)
	for l.gather(true) {
	}
	n := 0
	for range 100 {
		for _, what := range []string{"update", "invalidate"} {
			if l.change(what) {
				n++
			}
		}
		if !l.change("refresh") || !l.change("load") {
			t.Fatal("refresh or load is limited")
		}
	}
	if n != 2 {
		t.Errorf("%d changes, want 2", n)
	}
}

// TestBucket_Concurrent: goroutines get no more tokens together than there are.
func TestBucket_Concurrent(t *testing.T) {
	t.Parallel()
	var b bucket
	b.set(1e-6) // two tokens
	var n atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if b.take(0) {
					n.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n.Load() != 2 {
		t.Errorf("%d tokens, want 2", n.Load())
	}
}
