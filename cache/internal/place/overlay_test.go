package place

import (
	"testing"
)

// TestOverlaySlot_HoldsWhatDecodersRead pins how far a decoder reads: five words from the first one that begins at or after
// the row's end.
func TestOverlaySlot_HoldsWhatDecodersRead(t *testing.T) {
	for stored := 1; stored < 1024; stored++ {
		read := (stored+3)/4*4 + 5*4
		if got := overlaySlot(stored, true); got%overlayAlign != 0 || got < read {
			t.Fatalf("slot of %d bytes for %d compressed, of which %d are read", got, stored, read)
		}
		if got := overlaySlot(stored, false); got%overlayAlign != 0 || got < stored || got >= stored+overlayAlign {
			t.Fatalf("slot of %d bytes for %d raw", got, stored)
		}
	}
}
