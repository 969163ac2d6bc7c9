package cold

import (
	"errors"
	"slices"
	"testing"
)

// finishingLog is a Log whose batches are durable, or fail, when a test says so.
type finishingLog struct {
	Log
	appended int
	results  []chan error // of each batch
}

func (l *finishingLog) Append([]int64, [][]byte, []bool) (finish func() error, err error) {
	if l.appended == len(l.results) {
		return nil, errors.New("full")
	}
	result := l.results[l.appended]
	l.appended++
	return func() error { return <-result }, nil
}

// TestTable_CommitsInOrder: commits are published in the order of the log, whichever is durable first. One that fails, or panics, is not published, and the next one
// waits for those before it nevertheless.
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
}
