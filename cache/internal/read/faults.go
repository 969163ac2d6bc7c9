package read

import (
	"fmt"
	"sync"
)

// faults are the errors of batches that have ended since they were last asked for.
type faults struct {
	mu    sync.Mutex
	first error
	more  int
}

// add notes the error of a batch, or of replays. It ignores nil.
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

// take returns the errors since the last call as one, nil if there were none.
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

// Faults returns what was wrong with the batches of GatherDevice and the replays that have ended since the last call. With wait, it first waits
// for those under way. Without, it does not call the driver, as programs ask before each read: what was wrong with a replay is returned by a call some
// milliseconds later.
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
