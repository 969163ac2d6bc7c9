package cold

import (
	"errors"
	"slices"
	"sync"
	"testing"
)

// finishingLog is a Log whose batches are durable, or fail, when a test says so.
type finishingLog struct {
	Log
	appended int
	results  []chan error // of each batch
	mu       sync.Mutex
	applied  []int // batches
}

func (l *finishingLog) Append([]int64, [][]byte, []bool) (sync func() error, apply func(), err error) {
	if l.appended == len(l.results) {
		return nil, nil, errors.New("full")
	}
	n := l.appended
	l.appended++
	apply = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.applied = append(l.applied, n)
	}
	return func() error { return <-l.results[n] }, apply, nil
}

// seen returns the batches that are applied.
func (l *finishingLog) seen() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.applied)
}

// TestTable_CommitsInOrder: commits are applied and published in the order of the log, whichever is durable first, and each is published before the next is applied. One that
// fails, or panics, is not published, and the next one waits for those before it nevertheless.
func TestTable_CommitsInOrder(t *testing.T) {
	const commits, failing, panicking = 5, 1, 2
	log := &finishingLog{}
	for range commits {
		log.results = append(log.results, make(chan error, 1))
	}
	table := New(rowsBelow{}, Options{Log: log})
	var published []int // as the race detector sees, each publication happens before the next
	fault := errors.New("sync failed")
	var ended []chan error
	for n := range commits {
		turn := table.commits.last
		result := make(chan error, 1)
		ended = append(ended, result)
		go func() {
			defer func() {
				if recover() != nil {
					result <- errors.New("panicked")
				}
			}()
			result <- table.Commit(nil, nil, nil, func() error {
				if applied := log.seen(); len(applied) == 0 || applied[len(applied)-1] != n {
					t.Errorf("commit %d is published when %v are applied", n, applied)
				}
				if n == panicking {
					panic("publish")
				}
				published = append(published, n)
				return nil
			})
		}()
		for { // until it is in the log
			table.commits.mu.Lock()
			begun := table.commits.last != turn
			table.commits.mu.Unlock()
			if begun {
				break
			}
		}
	}
	if err := table.Commit(nil, nil, nil, nil); err == nil || err.Error() != "full" { // is not in the order
		t.Errorf("error %v", err)
	}
	for n := commits - 1; n >= 0; n-- {
		var result error
		if n == failing {
			result = fault
		}
		log.results[n] <- result
	}
	for n, result := range ended {
		switch err := <-result; {
		case n == failing && err != fault, n == panicking && err == nil, n != failing && n != panicking && err != nil:
			t.Errorf("commit %d: %v", n, err)
		}
	}
	if want := []int{0, 3, 4}; !slices.Equal(published, want) {
		t.Errorf("published %v, want %v", published, want)
	}
	if want := []int{0, panicking, 3, 4}; !slices.Equal(log.applied, want) {
		t.Errorf("applied %v, want %v", log.applied, want)
	}
}

// TestMemoryLog_Shown: the log in memory finds rows once they are applied, and counts against its limit those that are not applied yet.
func TestMemoryLog_Shown(t *testing.T) {
	l := NewMemoryLog(3*loggedBytes + 3*8)
	row := func(b byte) [][]byte { return [][]byte{slices.Repeat([]byte{b}, 8)} }
	var applies []func()
	for b := range byte(2) {
		_, apply, err := l.Append([]int64{5}, row(b), []bool{false})
		if err != nil {
			t.Fatal(err)
		}
		applies = append(applies, apply)
	}
	if _, _, ok := l.Find(5); ok {
		t.Error("the log finds a row that is not applied")
	}
	if _, _, ok, err := l.Get(5); ok || err != nil {
		t.Errorf("the log has a row that is not applied (%v), %v", ok, err)
	}
	for b, apply := range applies {
		apply()
		if stored, _, ok, err := l.Get(5); !ok || err != nil || !slices.Equal(stored, row(byte(b))[0]) {
			t.Errorf("version %d: %v, %v, %v", b, stored, ok, err)
		}
	}
	if rows, bytes := l.Held(); rows != 1 || bytes != loggedBytes+8 {
		t.Errorf("%d rows, %d bytes", rows, bytes)
	}
	if _, _, err := l.Append([]int64{6, 7}, [][]byte{row(6)[0], row(7)[0]}, []bool{false, false}); err != nil {
		t.Error(err)
	}
	if _, _, err := l.Append([]int64{8}, row(8), []bool{false}); err == nil {
		t.Error("the log takes more than its limit")
	}
}
