//go:build cuda && linux

package serve_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/device/cuda/emulator"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/serve"
)

// illegalAddress is CUDA_ERROR_ILLEGAL_ADDRESS.
const illegalAddress = 700

func init() {
	// late ADDRESS GPU: a client in whose process a GPU has failed, too, attaches and reads.
	roles["late"] = func(p *parent, args []string) error {
		gpu := 0
		fmt.Sscan(args[1], &gpu)
		if _, err := cuda.OpenGPUs([]int{gpu}); err != nil {
			return err
		}
		emulator.Fail(gpu, illegalAddress, -1)
		c, err := cache.Attach(context.Background(), args[0], cache.AttachOptions{Name: "late"})
		if err != nil {
			return err
		}
		out := make([]byte, 64)
		err = c.On(gpu).Gather(context.Background(), cache.Request{Rows: []int64{1}, Out: out})
		if !errors.Is(err, cache.ErrDevice) || !strings.Contains(err.Error(), "the owner has lost it: ") {
			return fmt.Errorf("on the lost GPU: %w", err)
		}
		for row := range int64(lifeRows / 10) {
			if err := c.Gather(context.Background(), cache.Request{Rows: []int64{row}, Out: out}); err != nil || out[0] != byte(row*8) || out[1] != byte(row*8>>8) {
				return fmt.Errorf("row %d: %v, %x", row, err, out)
			}
		}
		p.say("read")
		p.wait()
		return c.Close()
	}
}

// TestGPUs_AttachAfterLoss: processes attach to an owner that has lost one of its GPUs, also the first one, and read on the others.
func TestGPUs_AttachAfterLoss(t *testing.T) {
	if !emulator.Present() {
		t.Skip("not the emulated GPU")
	}
	if !gputest.Two(t) {
		return
	}
	for gpu := range 2 {
		t.Run(fmt.Sprint(gpu), func(t *testing.T) {
			c := open(t, lifeRows/10, func(o *cache.Options) {
				shared(o)
				onGPU(o)
				o.Devices.Count, o.Devices.Placement = 2, cache.PlacementPartition
			})
			s := listen(t, c, serve.Options{})
			emulator.Fail(gpu, illegalAddress, -1)
			until(t, "the owner knows", func() bool {
				err := c.On(gpu).Gather(ctx, cache.Request{Rows: []int64{1}, Out: make([]byte, 64)})
				s, failed := c.Stats()
				return errors.Is(err, cache.ErrDevice) && failed == nil && s.Devices[gpu].Lost
			})
			child := start(t, "late", s.Address(), fmt.Sprint(gpu))
			child.expect("read")
			if err := c.Update(ctx, 0, []int64{3}, make([]byte, 64)); err != nil { // with a client on the board
				t.Error(err)
			}
			checkOthers(t, c, gpu)
			child.say("end")
		})
	}
}

// checkOthers reads rows of open's table but row 3 on the GPU that is left.
func checkOthers(t *testing.T, c *cache.Cache, lost int) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 1))
	out := make([]byte, 64)
	for range 20 {
		row := 4 + r.Int64N(lifeRows/10-4)
		if err := c.On(1-lost).Gather(ctx, cache.Request{Rows: []int64{row}, Out: out}); err != nil || out[0] != byte(row*8) {
			t.Fatalf("row %d: %v, %x", row, err, out)
		}
	}
}
