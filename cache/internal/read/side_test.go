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

// handled is a stream of a caller.
type handled struct {
	device.Stream
	handle uintptr
}

func (s handled) Handle() uintptr { return s.handle }

// TestLane_Side: batches on a caller's stream decode on that stream's side stream, whichever lane they have; those on the lane's own stream, with absent rows, or
// of a device whose streams have no handles, on the lane's second one.
func TestLane_Side(t *testing.T) {
	d := &Device{Device: &sideDevice{most: 100}}
	lanes := [2]*lane{}
	for i := range lanes {
		lanes[i] = &lane{owner: d, stream: handled{handle: 1}, second: handled{handle: uintptr(100 + i)}}
	}
	caller, other := handled{handle: 7}, handled{handle: 8}
	side := lanes[0].side(caller)
	if side == lanes[0].second || side != lanes[1].side(caller) || side == lanes[0].side(other) {
		t.Error("lanes must share the side stream of a caller's stream, and no other")
	}
	if lanes[0].side(lanes[0].stream) != lanes[0].second || lanes[0].side(&sideStream{}) != lanes[0].second {
		t.Error("a batch on the lane's own stream, or on one without a handle, must have the lane's second stream")
	}
	if lanes[1].route.absent = true; lanes[1].side(caller) != lanes[1].second {
		t.Error("a batch with absent rows must have the lane's second stream")
	}
}

// TestSideStreams_OneForEachCaller: batches of one caller's stream share a side stream and those of another have another one; more callers than maxSides have
// none, and neither has one for which there is no memory.
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
		if s.on(d, 0xabc0+caller*0x10) != nil {
			t.Fatalf("caller %d shares a stream with another one", caller)
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
