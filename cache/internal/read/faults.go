package read

import (
	"fmt"
	"sync"
)

// faults are the errors of batches that have ended since the last call of take.
type faults struct {
	mu    sync.Mutex
	first error
	more  int
}

// add records the error of a batch, or of replays. It ignores nil.
func (f *faults) add(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first == nil {
		f.first = err
	} else {
		f.more++
	}
}

// take returns the errors since the last call as one, or nil if there were none.
func (f *faults) take() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.first
	if f.more > 0 {
		err = fmt.Errorf("%w (and %d more such errors)", err, f.more)
	}
	f.first, f.more = nil, 0
	return err
}

// Faults returns the errors of the batches of Enqueue and of the replays that have ended since the last call.
// With wait, it first waits for those under way. Without wait, it waits for nothing, as programs ask before each
// read. The error of a replay then comes with a call some milliseconds later.
func (s *Set) Faults(wait bool) error {
	for _, d := range s.Devices {
		if wait {
			for _, b := range d.flight() {
				b.Wait()
			}
			d.drainReplays()
		}
		d.SettleFinished()
		if wait {
			d.SettleReplays()
		} else {
			d.askForReplays()
		}
	}
	return s.faults.take()
}
