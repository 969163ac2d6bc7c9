package change

import (
	"context"

	"github.com/tensorcache/tensorcache/cache/internal/place"
)

// ProcessOverlay processes a group that holds an overlay slot, and returns the bytes then used in the overlay.
func (w *Writer) ProcessOverlay(s place.OverlaySlot) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.processLocked(&retired{overlay: []overlaySlot{{OverlaySlot: s}}})
	return w.store.Overlay.Slots.Used()
}

// Flush waits until everything that has been retired is processed.
func (w *Writer) Flush(ctx context.Context) error { return w.flush(ctx) }

// ProcessingLocked says whether what has been retired is being dealt with. REQUIRES: the writer's lock is held.
func (w *Writer) ProcessingLocked() bool { return w.mu.retire.running }
