package cache_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
)

// FuzzGather_Offsets tries offsets of every kind. Good ones give the sums that the documented order gives; bad ones are an error, and the output stays as it
// is. Each byte of steps leads from an offset to the next one, backwards from 128 on.
func FuzzGather_Offsets(f *testing.F) {
	const tableRows, columns = 50, 8
	data := floatTable(tableRows, columns, dtype.Float32, false, 3)
	table, err := cache.FromBytes("features", dtype.Float32, data, columns*4)
	if err != nil {
		f.Fatal(err)
	}
	c, err := cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 1000, Devices: cache.DeviceOptions{Backend: "host"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Close() })
	f.Add(uint16(10), int64(0), []byte{3, 0, 7}, uint8(0))
	f.Add(uint16(100), int64(0), []byte{33, 0, 64}, uint8(1))
	f.Add(uint16(3000), int64(0), bytes.Repeat([]byte{127}, 20), uint8(2))
	f.Add(uint16(10), int64(0), []byte{200, 10}, uint8(1))
	f.Add(uint16(10), int64(1), []byte{}, uint8(0))
	f.Add(uint16(10), int64(-1), []byte{1, 5}, uint8(2))
	f.Add(uint16(0), int64(1)<<62, []byte{127, 255}, uint8(3))
	f.Fuzz(func(t *testing.T, n uint16, first int64, steps []byte, kind uint8) {
		rows := make([]int64, n)
		for i := range rows {
			rows[i] = int64(i*7+int(kind)) % tableRows
		}
		p := pooling{Pooling: cache.Pooling{Mode: cache.PoolMode(kind >> 1 % 3), LastOffset: kind&1 != 0, Offsets: []int64{first}}}
		for _, s := range steps {
			p.Offsets = append(p.Offsets, p.Offsets[len(p.Offsets)-1]+int64(int8(s)))
		}
		good := first == 0 && slices.IsSorted(p.Offsets) && p.Offsets[len(steps)] <= int64(n)
		bags := len(p.Offsets)
		if p.LastOffset {
			if bags--; bags == 0 {
				good = good && n == 0
			}
		}
		for _, enqueued := range []bool{false, true} {
			out := bytes.Repeat([]byte{0xee}, bags*columns*4)
			err := error(nil)
			if enqueued {
				q := p
				q.Offsets, q.DeviceOffsets = nil, bytesOf(p.Offsets)
				var b *cache.Batch
				if b, err = c.On(0).Enqueue(ctx, 0, q.device(0, bytesOf(rows), device.HostBuffer(out))); err == nil {
					err = b.Wait()
				}
			} else {
				err = c.Gather(ctx, p.host(0, rows, out))
			}
			switch {
			case good && err != nil:
				t.Fatalf("offsets %v of %d rows: %v", p.Offsets, n, err)
			case good:
				checkPooled(t, data, dtype.Float32, columns, rows, &p, out, "fuzzed offsets")
			case !errors.Is(err, cache.ErrPooling):
				t.Fatalf("offsets %v of %d rows: %v, want ErrPooling", p.Offsets, n, err)
			case len(bytes.Trim(out, "\xee")) != 0:
				t.Fatalf("offsets %v of %d rows: output was written", p.Offsets, n)
			}
		}
	})
}

func bytesOf(values []int64) device.Buffer {
	return device.HostBuffer(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 8*len(values)))
}
