package read

import (
	"errors"
	"testing"

	"github.com/tensorcache/tensorcache/device"
)

// sideDevice makes at most so many streams, and counts those that are open.
type sideDevice struct {
	device.Device
	most, open int
}

type sideStream struct {
	device.Stream
	of *sideDevice
}

func (d *sideDevice) NewStream() (device.Stream, error) {
	if d.open == d.most {
		return nil, errors.New("no stream left")
	}
	d.open++
	return &sideStream{of: d}, nil
}

func (s *sideStream) Close() { s.of.open-- }

// TestSideStreams_OneForEachCaller: batches of one caller's stream share a side stream and those of another have another one; more callers than maxSides make no
// further streams; without memory for one there is none.
func TestSideStreams_OneForEachCaller(t *testing.T) {
	d := &sideDevice{most: 100}
	var s sideStreams
	seen := map[device.Stream]uintptr{}
	for range 3 {
		for caller := range uintptr(maxSides) {
			side := s.on(d, caller*0x1000)
			if of, ok := seen[side]; ok && of != caller {
				t.Fatalf("callers %d and %d share a stream, though there is room for both", of, caller)
			}
			seen[side] = caller
		}
	}
	for caller := range uintptr(50) {
		if s.on(d, 0xabc0+caller*0x10) == nil {
			t.Fatalf("caller %d has no stream", caller)
		}
	}
	if d.open != maxSides {
		t.Errorf("%d streams, want %d", d.open, maxSides)
	}
	if s.close(); d.open != 0 {
		t.Errorf("%d streams are open after close", d.open)
	}
	var none sideStreams
	if side := none.on(&sideDevice{}, 1); side != nil {
		t.Errorf("a stream (%v) of a device without memory for one", side)
	}
}
