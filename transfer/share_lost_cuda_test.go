//go:build cuda && linux

package transfer

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/device/cuda/emulator"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// TestShare_DeviceLost loses the device at each of a batch's launches: the batch fails, the workers stop looking for what will not come,
// and the Sharer can be closed.
func TestShare_DeviceLost(t *testing.T) {
	gputest.Require(t)
	if !emulator.Present() {
		t.Skip("needs the emulated GPU, which can be lost")
	}
	for launches := range 4 { // two order the misses
		t.Run(fmt.Sprint(launches), func(t *testing.T) {
			devices, err := cuda.Open(1)
			if err != nil {
				t.Fatal(err)
			}
			d := devices[0]
			t.Cleanup(func() { _ = d.Close() }) // it was lost
			s := newSharing(t, d, 5000, 128, InPlace, "ibp4", ShareOptions{Threads: 2, Piece: 16, Unit: 8, Timeout: time.Minute})
			rows := s.random(500, rand.New(rand.NewPCG(12, 12)))
			emulator.Fail(0, 214, launches)
			if err := s.gather(new(Plan), rows); err == nil {
				t.Fatalf("a batch of a device that was lost at launch %d succeeded", launches)
			}
			eventually(t, "the workers still look for shares of a lost device", func() bool {
				idle := atomic.LoadUint32(&s.sharer.host.Retired) == s.sharer.enqueued.Load()
				return (idle || s.sharer.failed.Load()) && atomic.LoadUint32(&s.sharer.work.hot) == 0
			})
		})
	}
}
