package read

import (
	"sync"
	"time"
)

// Watcher is notified of the end of a batch.
type Watcher interface {
	// Rows is called before End for a window of a batch's bags, of which only the device knew how many rows it has: those looked up, without padding.
	Rows(n int)
	// End is called once. at is the time at which the batch finished on the device, or the zero time if that is not known.
	End(err error, at time.Time)
	// Captured is called instead of End if the batch became a part of a graph.
	Captured()
}

// heldWatcher keeps what a watcher is to be notified of until all batches of a call are enqueued: none is if one of them fails.
type heldWatcher struct {
	mu       sync.Mutex
	of       Watcher // nil once it has been notified, or is not to be
	free     bool    // nothing is held back any more
	captured bool
	ended    bool
	err      error
	at       time.Time
}

// Rows implements Watcher.
func (h *heldWatcher) Rows(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of != nil {
		h.of.Rows(n)
	}
}

// End implements Watcher.
func (h *heldWatcher) End(err error, at time.Time) {
	h.mu.Lock()
	h.ended, h.err, h.at = true, err, at
	h.mu.Unlock()
	h.notify()
}

// Captured implements Watcher.
func (h *heldWatcher) Captured() {
	h.mu.Lock()
	h.captured = true
	h.mu.Unlock()
	h.notify()
}

// release notifies the watcher of what has been, and from now on of what is.
func (h *heldWatcher) release() {
	h.mu.Lock()
	h.free = true
	h.mu.Unlock()
	h.notify()
}

// forget has the watcher not be notified.
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
