//go:build cuda && linux

package serve_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/serve"
)

const visibleRows = 3000

func init() {
	// sees ADDRESS: a client that sees the last of two GPUs only. For each line of the test, it reads all rows in every way, and says "read".
	roles["sees"] = func(p *parent, args []string) error {
		d, err := openDevice()
		if err != nil {
			return err
		}
		c, err := cache.Attach(context.Background(), args[0], cache.AttachOptions{Name: "sees"})
		if err != nil {
			return err
		}
		if a, b := c.DeviceInfo(0), c.DeviceInfo(1); c.Devices() != 2 || a.Index != -1 || b.Index != 0 || a.Kind != "cuda" || a.Address == b.Address {
			return fmt.Errorf("%d devices: %+v, %+v", c.Devices(), a, b)
		}
		b, err := capture(c, d, visibleRows)
		if err != nil {
			return err
		}
		defer b.free()
		rows, want := make([]int64, visibleRows), make([]byte, visibleRows*64)
		r := rand.New(rand.NewPCG(3, 3))
		for i := range rows {
			rows[i] = int64(i)
		}
		for p.say("attached"); ; p.say("read") {
			if _, ok := p.wait(); !ok {
				return nil
			}
			r.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
			for i, row := range rows {
				for k := range int64(8) {
					binary.LittleEndian.PutUint64(want[64*i+8*int(k):], uint64(row*8+k))
				}
			}
			out := make([]byte, len(want))
			for i, gather := range []func() error{
				func() error { return c.Gather(context.Background(), cache.Request{Rows: rows, Out: out}) },
				func() error { return c.On(1).Gather(context.Background(), cache.Request{Rows: rows, Out: out}) },
				func() (err error) { out, err = b.replay(rows); return errors.Join(err, b.batch.Wait()) },
			} {
				clear(out)
				if err := gather(); err != nil || !bytes.Equal(out, want) {
					return fmt.Errorf("way %d: %v, rows differ", i, err)
				}
			}
			if err := c.On(0).Gather(context.Background(), cache.Request{Rows: rows, Out: out}); !errors.Is(err, cache.ErrDevice) || !strings.Contains(err.Error(), "does not see") {
				return fmt.Errorf("GPU that is not seen: %v", err)
			}
			if _, err := c.On(0).Enqueue(context.Background(), b.stream.Handle(), cache.Request{DeviceRows: b.rows, DeviceOut: b.out}); !errors.Is(err, cache.ErrDevice) {
				return fmt.Errorf("GPU that is not seen: %v", err)
			}
			s, err := c.Stats()
			if err != nil {
				return err
			}
			if a, b := s.Devices[0], s.Devices[1]; !a.Lost || b.Lost || a.Gathers != 0 || b.LocalHits == 0 || b.PeerHits == 0 || (b.Misses == 0) != (s.Tables[0].Resident != nil) {
				return fmt.Errorf("%+v", s.Devices)
			}
		}
	}
}

// TestGPUs_VisibleToClient: a client that does not see one of the owner's GPUs reads the rows that lie on it by the other one, also when the owner gets other
// memory, and another owner comes.
func TestGPUs_VisibleToClient(t *testing.T) {
	if !gputest.Two(t) {
		return
	}
	for name, change := range map[string]func(*cache.Options){
		"in place": func(o *cache.Options) {},
		"packed":   func(o *cache.Options) { o.Codec, o.Host.Tier = "ibp8", cache.Packed },
		"samples":  func(o *cache.Options) { o.Refresh.Accesses, o.Refresh.Keys = 1, 1 },
		"resident": residentRows,
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, visibleRows, func(o *cache.Options) {
				shared(o)
				onGPU(o)
				o.Devices.Count, o.Devices.Placement, o.Budget = 2, cache.PlacementPartition, visibleRows*16
				change(o)
			})
			s := listen(t, c, serve.Options{})
			t.Setenv("CUDA_VISIBLE_DEVICES", "1")
			child := start(t, "sees", s.Address())
			child.expect("attached")
			read := func() {
				t.Helper()
				child.say("read")
				child.expect("read")
			}
			read()
			for i := range int64(3) {
				if name == "resident" {
					if err := c.Retarget(ctx, 0, []int{64, 16, 48}[i]); err != nil {
						t.Fatal(err)
					}
				} else if err := errors.Join(c.SetBudget(ctx, visibleRows*(18+i)), c.Refresh(ctx)); err != nil { // new memory
					t.Fatal(err)
				}
				read()
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			read()
			if s, err := c.Stats(); err != nil || s.Tables[0].Lookups != s.Tables[0].Gathers*visibleRows || s.Devices[0].Lost || s.Devices[0].Gathers != 0 || s.Devices[1].Gathers == 0 {
				t.Errorf("%v, %+v", err, s.Devices)
			}
		})
	}
}

// TestGPUs_NoneVisible: the error of a client that sees none of the owner's GPUs says so.
func TestGPUs_NoneVisible(t *testing.T) {
	if !gputest.Two(t) {
		return
	}
	c := open(t, 100, func(o *cache.Options) { shared(o); onGPU(o) })
	s := listen(t, c, serve.Options{})
	t.Setenv("CUDA_VISIBLE_DEVICES", "1")
	child := start(t, "sees", s.Address())
	if line, err := child.out.ReadString('\n'); err != nil || !strings.Contains(line, "must not all be out of sight of this process, which sees 1") {
		t.Errorf("%v, %s", err, line)
	}
}
