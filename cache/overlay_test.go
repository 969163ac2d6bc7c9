package cache

import (
	"context"
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

// TestOverlay_PlacesWaitTwice deals with a group that has a place of the overlay in it: the place is free after the next one.
func TestOverlay_PlacesWaitTwice(t *testing.T) {
	table, err := FromBytes("x", Uint8, make([]byte, 4096), 64)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{Tables: []Table{table}, Codec: "none", Budget: 4096, Device: "host"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ch := &c.changes
	ch.mu.Lock()
	place, ok, err := c.overlay.put(ch.mu.sides[0], make([]byte, 64), false)
	if !ok || err != nil {
		ch.mu.Unlock()
		t.Fatal("no place", err)
	}
	ch.dealLocked(&retired{overlay: []slot{place}})
	used := c.overlay.slots.Used()
	ch.mu.Unlock()
	if used != int64(place.bytes) {
		t.Errorf("%d bytes used after an epoch, want %d", used, place.bytes)
	}
	if err := ch.flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if used := c.overlay.slots.Used(); used != 0 {
		t.Errorf("%d bytes used after two epochs", used)
	}
}
