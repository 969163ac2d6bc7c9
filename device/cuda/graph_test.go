//go:build cuda && linux

package cuda_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// TestStream_Capture: what is captured does not run before the graph is launched, and then each time. A hold is over once the graph is destroyed.
func TestStream_Capture(t *testing.T) {
	d := gputest.Open(t)
	m, err := d.Alloc(64, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(m)
	one, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	s := one.(*cuda.Stream)
	first := func() byte {
		t.Helper()
		b := make([]byte, 64)
		if err := errors.Join(s.Synchronize(), device.Download(d, b, m)); err != nil {
			t.Fatal(err)
		}
		return b[0]
	}
	var hold device.Hold
	g, err := s.Capture(true, func() error {
		if on, err := s.Capturing(); !on || err != nil {
			t.Errorf("capturing: %v, %v", on, err)
		}
		// Such calls would break the capture if the driver were not told that they do not matter to it.
		b, err := d.Alloc(1<<20, "test")
		if err != nil {
			return err
		}
		d.Free(b)
		if hold, err = s.HoldCapture(); err != nil {
			return err
		}
		return s.Fill(m, 7)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := first(); got != 0 {
		t.Errorf("captured work has run: %d", got)
	}
	for range 2 {
		if err := errors.Join(s.Fill(m, 1), g.Launch(s)); err != nil {
			t.Fatal(err)
		}
		if got := first(); got != 7 {
			t.Errorf("after a launch: %d, want 7", got)
		}
	}
	if hold.Over() {
		t.Error("the hold is over before the graph is destroyed")
	}
	g.Close()
	for end := time.Now().Add(time.Minute); !hold.Over(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the hold is not over")
		}
	}
	hold.Free()
	hold.Free()
	failed := errors.New("failed")
	if g, err := s.Capture(false, func() error { return errors.Join(s.Fill(m, 9), failed) }); g != nil || !errors.Is(err, failed) {
		t.Errorf("a capture whose function fails: %v, %v", g, err)
	}
	if on, err := s.Capturing(); on || err != nil {
		t.Errorf("capturing after it: %v, %v", on, err)
	}
	if got := first(); got != 7 {
		t.Errorf("what it captured has run: %d", got)
	}
}

// TestGraph_ClosedDuringCapture: a graph that is destroyed leaves the captures of other threads whole.
func TestGraph_ClosedDuringCapture(t *testing.T) {
	d := gputest.Open(t)
	m, err := d.Alloc(64, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(m)
	capture := func(f func()) *cuda.Graph {
		t.Helper()
		one, err := d.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(one.Close)
		s := one.(*cuda.Stream)
		g, err := s.Capture(true, func() error {
			f()
			return s.Fill(m, 7)
		})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	g := capture(func() {})
	capture(func() {
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			g.Close()
		}()
		<-closed
	}).Close()
	if err := d.Err(); err != nil {
		t.Error(err)
	}
}
