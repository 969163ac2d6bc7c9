package change

import (
	"context"

	"github.com/tensorcache/tensorcache/cache/internal/place"
)

// ProcessOverlay deals with a group that has a place of the overlay in it, and returns the bytes that are used in the overlay then.
func (w *Writer) ProcessOverlay(s place.OverlaySlot) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.processLocked(&retired{overlay: []overlaySlot{{OverlaySlot: s}}})
	return w.store.Overlay.Slots.Used()
}

// Flush waits until everything that has been retired is dealt with.
func (w *Writer) Flush(ctx context.Context) error { return w.flush(ctx) }
