package cache_test

import (
	"bytes"
	"context"
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

// checkStrided fails the test unless out has rows stride bytes apart, and 0xa5 between them. Those of other numbers are zeros.
func checkStrided(t *testing.T, data []byte, rowBytes, stride int, ids []int64, out []byte) {
	t.Helper()
	for i, id := range ids {
		want := make([]byte, rowBytes)
		if id >= 0 && int(id) < len(data)/rowBytes {
			want = data[int(id)*rowBytes:][:rowBytes]
		}
		if !bytes.Equal(out[i*stride:][:rowBytes], want) {
			t.Fatalf("position %d of %d, row %d: wrong bytes", i, len(ids), id)
		}
		if i < len(ids)-1 && len(bytes.Trim(out[i*stride+rowBytes:(i+1)*stride], "\xa5")) != 0 {
			t.Fatalf("bytes behind position %d of %d were written", i, len(ids))
		}
	}
}

// testStrides gathers rows of a cache's only table at several distances, by every call.
func testStrides(t *testing.T, c *cache.Cache, d device.Device, data []byte, rowBytes int, counts ...int) {
	rows := len(data) / rowBytes
	r := rand.New(rand.NewPCG(uint64(rowBytes), 1))
	for _, n := range counts {
		ids := randomRows(r, n, rows)
		strides := []int{rowBytes + 64, rowBytes, rowBytes + 1, 2*rowBytes + 4}
		if n*rowBytes > 16<<20 { // which takes long
			strides = strides[:1]
		} else if testing.Short() {
			strides = []int{rowBytes + 64, rowBytes + 1}
		}
		for _, stride := range strides {
			out := make([]byte, max(0, (n-1)*stride+min(n, 1)*rowBytes))
			gather := func(of ...cache.Request) error { return c.Gather(ctx, of...) }
			for name, err := range map[string]func() error{
				"int64": func() error { return gather(cache.Request{Rows: ids, Out: out, Stride: int64(stride)}) },
				"int32": func() error { return gather(cache.Request{Rows32: narrow(ids), Out: out, Stride: int64(stride)}) },
				"one device": func() error {
					return c.On(0).Gather(ctx, cache.Request{Rows: ids, Out: out, Stride: int64(stride)})
				},
				"several": func() error {
					return gather(cache.Request{Out: nil, Stride: int64(stride)}, cache.Request{Rows: ids, Out: out, Stride: int64(stride)})
				},
			} {
				fill(out)
				if err := err(); err != nil {
					t.Fatalf("%s, %d rows, %d bytes apart: %v", name, n, stride, err)
				}
				checkStrided(t, data, rowBytes, stride, ids, out)
			}
			many := append(ids, -1)
			out = make([]byte, n*stride+rowBytes)
			fill(out)
			b := putBatch(t, d, many, 0)
			var err error
			if b.out, err = d.Alloc(int64(len(out)), "test"); err != nil {
				t.Fatal(err)
			}
			if err := device.Upload(d, b.out, out); err != nil {
				t.Fatal(err)
			}
			q := cache.Request{DeviceRows: b.rows, DeviceOut: b.out, Stride: int64(stride)}
			for _, requests := range [][]cache.Request{{q}, {{Stride: int64(stride)}, q}} {
				batch, err := c.On(0).Enqueue(ctx, 0, requests...)
				if err != nil {
					t.Fatalf("%d rows, %d bytes apart: %v", n, stride, err)
				}
				if err := batch.Wait(); !errors.Is(err, cache.ErrRows) || !strings.Contains(err.Error(), fmt.Sprintf("the first at position %d;", n)) {
					t.Errorf("%d rows, %d bytes apart: %v", n, stride, err)
				}
				checkStrided(t, data, rowBytes, stride, many, b.read(t))
			}
		}
	}
}

func fill(out []byte) {
	for i := range out {
		out[i] = 0xa5
	}
}

// TestGather_Strided: rows that are copied lie Stride bytes apart, and what lies between them stays as it is: tables of every kind, batches in one part and in several.
func TestGather_Strided(t *testing.T) {
	race.SkipSequential(t)
	testStrided(t, cache.BackendHost, host.Open(1, 1)[0])
}

// TestGPU_Strided is TestGather_Strided on a GPU.
func TestGPU_Strided(t *testing.T) {
	onGPU(t)
	testStrided(t, cache.BackendCUDA, gputest.Open(t))
}

func testStrided(t *testing.T, backend cache.Backend, d device.Device) {
	for _, one := range []struct {
		rowBytes int
		serve    func() func()
	}{{128, func() func() { return func() {} }}, {401, cache.ServeApart}, {128, cache.ServeHitsFirst}, {9000, cache.ServeApart}} {
		t.Run(fmt.Sprint("cached, ", one.rowBytes), func(t *testing.T) {
			t.Cleanup(one.serve())
			data := gputest.Rows("mixed", 500, one.rowBytes, 1)
			c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, one.rowBytes)}, Budget: int64(len(data) / 3), Devices: cache.DeviceOptions{Backend: backend}})
			testStrides(t, c, d, data, one.rowBytes, 0, 1, 33, 600)
			if one.rowBytes == 9000 && !(testing.Short() && backend == cache.BackendCUDA) { // more than the memory that rows pass through; the C library's checks have it on the emulated GPU
				testStrides(t, c, d, data, one.rowBytes, 36<<20/9000)
			}
		})
	}
	for _, rowBytes := range []int{100, 8192} {
		t.Run(fmt.Sprint("resident, ", rowBytes), func(t *testing.T) {
			data := gputest.Rows("mixed", 300, rowBytes, 2)
			c := openResident(t, data, rowBytes, "none", cache.ResidentOptions{Target: rowBytes &^ 15}, 1, func(o *cache.Options) { o.Devices.Backend = backend })
			testStrides(t, c, d, data, rowBytes, 0, 1, 700)
		})
	}
	t.Run("pages", func(t *testing.T) {
		data := versionedRows(pagedRows, pagedRowBytes)
		c := overPages(t, packed(t, data, pagedRowBytes, "ibp4", nil), cache.Options{Budget: 300 << 10, Host: cache.HostOptions{Memory: 800 << 10}})
		testStrides(t, c, d, data, pagedRowBytes, 1, 300, 5<<20/pagedRowBytes)
		if s := stats(t, c).Tables[0].Tiers; s.AbsentRows == 0 {
			t.Error("no row was absent")
		}
	})
}

// TestGather_StridedPageFails: a row that cannot be read is zeros, and what lies between rows stays as it is.
func TestGather_StridedPageFails(t *testing.T) {
	data := versionedRows(pagedRows, pagedRowBytes)
	var f faults
	c := overPages(t, packed(t, data, pagedRowBytes, "none", f.page), cache.Options{Budget: 300 << 10, Host: cache.HostOptions{Memory: 800 << 10}})
	f.set(func(context.Context, uint32) error { return errors.New("no page") })
	const n, stride = 5 << 20 / pagedRowBytes, pagedRowBytes + 8
	ids := randomRows(rand.New(rand.NewPCG(1, 1)), n, pagedRows)
	out := make([]byte, (n-1)*stride+pagedRowBytes)
	fill(out)
	if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out, Stride: stride}); !errors.Is(err, cache.ErrCold) {
		t.Fatalf("%v, want ErrCold", err)
	}
	for i := range ids {
		if len(bytes.Trim(out[i*stride:][:pagedRowBytes], "\x00")) == 0 {
			ids[i] = -1
		}
	}
	checkStrided(t, data, pagedRowBytes, stride, ids, out)
}

// TestGather_BadStride: distances that do not fit the rows, and outputs that do not fit the distance, are refused by name, and nothing is written.
func TestGather_BadStride(t *testing.T) {
	data := normalTable(10, 8, 1)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, 32)}, Budget: 1 << 20, Devices: cache.DeviceOptions{Backend: "host"}})
	ids := []int64{1, 2}
	for _, test := range []struct {
		stride int64
		bytes  int
		want   string
	}{
		{31, 63, "distance of rows (31 bytes) must be 0, or from the 32 bytes of a row of table x to 2^40"},
		{-64, 64, "distance of rows (-64 bytes) must be 0"},
		{1<<40 + 1, 64, "distance of rows (1099511627777 bytes) must be 0"},
		{64, 95, "95 bytes for 2 rows of table x, 64 bytes apart, must be 96"},
		{64, 128, "128 bytes for 2 rows of table x, 64 bytes apart, must be 96"},
		{32, 65, "65 bytes for 2 rows of table x, 32 bytes apart, must be 64"},
	} {
		out := make([]byte, test.bytes)
		q := cache.Request{Rows: ids, Out: out, Stride: test.stride}
		on := cache.Request{DeviceRows: bytesOf(ids), DeviceOut: device.HostBuffer(out), Stride: test.stride}
		_, enqueued := c.On(0).Enqueue(ctx, 0, on)
		_, together := c.On(0).Enqueue(ctx, 0, cache.Request{}, on)
		for name, err := range map[string]error{"one": c.Gather(ctx, q), "two": c.Gather(ctx, cache.Request{}, q), "enqueued": enqueued, "enqueued, two": together} {
			if !errors.Is(err, cache.ErrOutput) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s, %d bytes apart: %v, want %s", name, test.stride, err, test.want)
			}
		}
		if len(bytes.Trim(out, "\x00")) != 0 {
			t.Errorf("%d bytes apart: the output was written", test.stride)
		}
	}
	var out [32]byte
	if err := c.Gather(ctx, cache.Request{Rows: ids[:1], Out: out[:], Stride: 1 << 40}); err != nil {
		t.Errorf("one row, 2^40 bytes apart: %v", err)
	}
}
