package read

import (
	"sync"
	"time"
)

// Watcher is notified of the end of a batch.
type Watcher interface {
	// Rows is called before End for a window of bags, whose number of rows only the device knew. n counts the rows
	// looked up, without padding.
	Rows(n int)
	// End is called once. at is the time at which the batch finished on the device, or the zero time if that is not
	// known.
	End(err error, at time.Time)
	// Captured is called instead of End if the batch became a part of a graph.
	Captured()
}

// heldWatcher delays End and Captured of a watcher until all batches of a call are enqueued. If one of them fails,
// the watcher is never notified. Rows is passed on at once.
type heldWatcher struct {
	mu       sync.Mutex
	of       Watcher // nil once it has been notified, or never will be
	free     bool    // nothing is delayed any more
	captured bool
	ended    bool
	err      error
	at       time.Time
}

func (h *heldWatcher) Rows(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of != nil {
		h.of.Rows(n)
	}
}

func (h *heldWatcher) End(err error, at time.Time) {
	h.mu.Lock()
	h.ended, h.err, h.at = true, err, at
	h.mu.Unlock()
	h.notify()
}

func (h *heldWatcher) Captured() {
	h.mu.Lock()
	h.captured = true
	h.mu.Unlock()
	h.notify()
}

// release ends the delay: it passes on what was held, and later calls are passed on at once.
func (h *heldWatcher) release() {
	h.mu.Lock()
	h.free = true
	h.mu.Unlock()
	h.notify()
}

// forget drops the notification.
func (h *heldWatcher) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of = nil
}

func (h *heldWatcher) notify() {
	h.mu.Lock()
	w, captured, err, at := h.of, h.captured, h.err, h.at
	ready := h.free && (captured || h.ended)
	if ready {
		h.of = nil
	}
	h.mu.Unlock()
	switch {
	case w == nil || !ready:
	case captured:
		w.Captured()
	default:
		w.End(err, at)
	}
}
