package cache_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
)

// narrow returns row numbers as int32.
func narrow(rows []int64) []int32 {
	out := make([]int32, len(rows))
	for i, r := range rows {
		out[i] = int32(r)
	}
	return out
}

// TestGather_Rows32 gathers by int32 row numbers, whichever way a batch is served, and refuses those out of range.
func TestGather_Rows32(t *testing.T) {
	race.SkipSequential(t)
	testRows32(t, cache.BackendHost, host.Open(1, 1)[0])
}

// TestGPU_Rows32 is TestGather_Rows32 on a GPU.
func TestGPU_Rows32(t *testing.T) { testRows32(t, cache.BackendCUDA, gputest.Open(t)) }

func testRows32(t *testing.T, backend cache.Backend, d device.Device) {
	const rows, rowBytes = 3000, 128
	data := normalTable(rows, rowBytes/4, 1)
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: int64(len(data) / 3), Devices: cache.DeviceOptions{Backend: backend},
	})
	r := rand.New(rand.NewPCG(1, 1))
	for name, serve := range map[string]func() func(){
		"together": func() func() { return func() {} }, "apart": cache.ServeApart, "hits first": cache.ServeHitsFirst,
	} {
		t.Run(name, func(t *testing.T) {
			defer serve()()
			for _, n := range []int{0, 1, 33, 2000, 20_000} {
				ids := zipf(r, rows, n)
				out := make([]byte, n*rowBytes)
				for _, gather := range []func() error{
					func() error { return c.Gather(ctx, cache.Request{Rows32: narrow(ids), Out: out}) },
					func() error { return c.On(0).Gather(ctx, cache.Request{Rows32: narrow(ids), Out: out}) },
				} {
					clear(out)
					if err := gather(); err != nil {
						t.Fatal(err)
					}
					checkRows(t, data, rowBytes, ids, out)
				}
			}
			ids := append(zipf(r, rows, 1000), -1, rows)
			out := make([]byte, len(ids)*rowBytes)
			err := c.Gather(ctx, cache.Request{Rows32: narrow(ids), Out: out})
			if want := fmt.Sprintf("row number (-1) at position 1000 must be 0 to %d of table x; 2 of 1002 are out of range", rows-1); !errors.Is(err, cache.ErrRows) || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("Gather32: %v", err)
			}
			if !bytes.Equal(out, make([]byte, len(out))) {
				t.Error("the output of a refused batch is written")
			}
			b := &deviceBatch{d: d}
			if b.rows, err = d.Alloc(int64(4*len(ids)), "test"); err != nil {
				t.Fatal(err)
			}
			if b.out, err = d.Alloc(int64(len(out)), "test"); err != nil {
				t.Fatal(err)
			}
			defer func() { d.Free(b.rows); d.Free(b.out) }()
			if err := device.Upload(d, b.rows, cache.AsBytes(narrow(ids))); err != nil {
				t.Fatal(err)
			}
			p, err := c.On(0).Enqueue(ctx, 0, cache.Request{DeviceRows: b.rows, DeviceRows32: true, DeviceOut: b.out})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Wait(); !errors.Is(err, cache.ErrRows) || !strings.Contains(err.Error(), "first at position 1000") {
				t.Errorf("Wait: %v", err)
			}
			checkRows(t, data, rowBytes, ids[:1000], b.read(t))
		})
	}
	if _, err := c.On(0).Enqueue(ctx, 0, cache.Request{DeviceRows: device.HostBuffer(make([]byte, 6)), DeviceRows32: true, DeviceOut: device.HostBuffer(make([]byte, 6*rowBytes))}); err == nil {
		t.Error("6 bytes of row numbers are accepted")
	}
}
