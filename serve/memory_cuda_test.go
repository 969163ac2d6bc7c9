//go:build cuda && linux

package serve_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/serve"
)

func init() {
	// ownrows ADDRESS ROWS: owns a table of rows of 512 bytes on a GPU, an eighth of which is cached, until the test ends.
	roles["ownrows"] = func(p *parent, args []string) error {
		rows, _ := strconv.ParseInt(args[1], 10, 64)
		table, err := cache.FromReader("rows", dtype.Int64, rows, 512, func(row int64, dst []byte) error {
			for ; len(dst) > 0; row, dst = row+1, dst[512:] {
				binary.LittleEndian.PutUint64(dst, uint64(row))
			}
			return nil
		}, nil)
		if err != nil {
			return err
		}
		c, err := cache.New(cache.Options{
			Tables: []cache.Table{table}, Budget: rows * 64, Codec: cache.CodecNone, Devices: cache.DeviceOptions{Backend: cache.BackendCUDA}, Shared: true,
		})
		if err != nil {
			return err
		}
		if _, err := serve.Listen(c, serve.Options{Address: args[0]}); err != nil {
			return err
		}
		p.say("ready")
		p.wait()
		return nil
	}
}

// TestGPU_ClientMemory measures what a client takes of the GPU's memory beside its context, with batches of 200,000 rows of a table whose misses are shared
// with the host (in -short, of a small one): without threads for misses, and with them. Nothing else may run on the GPU.
func TestGPU_ClientMemory(t *testing.T) {
	d := gputest.Open(t).(*cuda.Device)
	const most = 64 << 20
	rows, n := int64(gputest.Few(9_000_000, 20_000)), gputest.Few(200_000, 5000)
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	owner := start(t, "ownrows", address, strconv.FormatInt(rows, 10))
	owner.expect("ready")
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ids, err := d.AllocHost(int64(n)*8, "row numbers")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(ids)
	out, err := d.AllocHost(int64(n)*512, "output")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(out)
	r := rand.New(rand.NewPCG(1, 1))
	for _, threads := range []int{-1, 0} {
		free := func() int64 {
			t.Helper()
			n, err := d.FreeMemory()
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := free()
		took := func(step string) int64 {
			t.Helper()
			n := before - free()
			t.Logf("threads %d, %s: %.1f MiB", threads, step, float64(n)/(1<<20))
			return n
		}
		c, err := cache.Attach(ctx, address, cache.AttachOptions{Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		took("attached")
		for range gputest.Few(100, 2) {
			for i := range n {
				binary.LittleEndian.PutUint64(ids.Bytes()[8*i:], uint64(r.Int64N(rows)))
			}
			b, err := c.On(0).GatherDevice(context.Background(), s.(*cuda.Stream).Handle(), 0, ids, out)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(b.Wait(), s.Synchronize()); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if got, want := binary.LittleEndian.Uint64(out.Bytes()[512*i:]), binary.LittleEndian.Uint64(ids.Bytes()[8*i:]); got != want {
					t.Fatalf("row %d reads as %d", want, got)
				}
			}
		}
		all, err := c.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if n := took("gathered"); n > most {
			t.Errorf("a client takes %d bytes of the GPU's memory, want at most %d", n, most)
		}
		t.Logf("threads %d: scratch %.1f MiB, staging (half of it on the GPU) %.1f MiB; misses: %+v", threads, float64(all.ScratchBytes)/(1<<20), float64(all.StagingBytes)/(1<<20), all.Tables[0].MissStrategy)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		took("closed")
	}
}
