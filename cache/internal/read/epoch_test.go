package read

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/device/host"
)

// serving returns a set of one device on the host backend with the given number of idle lanes.
func serving(t *testing.T, lanes int) *Set {
	t.Helper()
	s := NewSet(host.Open(1, 1), Sampling{}, DefaultTuning())
	s.Devices[0].Serve()
	s.Devices[0].lanes = make([]atomic.Pointer[lane], lanes)
	for range lanes {
		l, err := s.Devices[0].openLane()
		if err != nil {
			t.Fatal(err)
		}
		l.busy.Store(false)
	}
	return s
}

// TestSet_WaitEpoch: when WaitEpoch returns, no batch reads what was replaced before the call.
func TestSet_WaitEpoch(t *testing.T) {
	const lanes = 4
	s := serving(t, lanes)
	var version atomic.Int64
	var held [lanes]atomic.Int64 // version that the lane's batch reads, 0 for none
	stop := make(chan struct{})
	var readers sync.WaitGroup
	version.Store(1)
	for i := range lanes {
		l := s.Devices[0].lanes[i].Load()
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				l.running.Store(true)
				l.words.Begun.Add(1)
				held[i].Store(version.Load())
				if i > 0 {
					time.Sleep(time.Duration(i) * 10 * time.Microsecond)
				}
				held[i].Store(0)
				l.end()
			}
		})
	}
	for range 2000 {
		now := version.Add(1)
		if err := s.WaitEpoch(context.Background()); err != nil {
			t.Fatal(err)
		}
		for i := range held {
			if v := held[i].Load(); v != 0 && v < now {
				t.Fatalf("lane %d holds version %d after the epoch of version %d", i, v, now)
			}
		}
	}
	close(stop)
	readers.Wait()
}

// TestSet_WaitEpoch_Cancelled: WaitEpoch ends with its context, and then no longer counts as a waiter.
func TestSet_WaitEpoch_Cancelled(t *testing.T) {
	s := serving(t, 1)
	end := s.Devices[0].HoldEpoch()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if err := s.WaitEpoch(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if n := s.Devices[0].progress.waiting.Load(); n != 0 {
		t.Errorf("%d wait", n)
	}
	end()
	if err := s.WaitEpoch(context.Background()); err != nil {
		t.Error(err)
	}
}
