package change

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// A device encodes rows in page-locked memory to the bytes and lengths that processors do, and writes nothing else.
func TestEncoder_AsProcessors(t *testing.T) {
	devices := host.Open(1, 0)
	if gpu, err := gputest.OpenIfAny(t); err == nil {
		devices = append(devices, gpu)
	}
	rows := gputest.Few(300, 120)
	for _, d := range devices {
		for i, name := range registry.Concrete() {
			for j, rowBytes := range []int{20, 256, 1028, 4096} {
				if !gputest.Drawn(i+j, 3) {
					continue
				}
				data := append(gputest.FloatRows(gputest.DType(rowBytes), rows/2, rowBytes, 22), gputest.Rows("random", rows-rows/2, rowBytes, 23)...)
				c, err := registry.Train(name, data, rowBytes, gputest.DType(rowBytes))
				if err != nil {
					continue // no codec for rows of that length
				}
				if c, ok := c.(codec.OnDevice); d.Info().Kind != "host" && (!ok || !kernels.Encodes(c.DeviceForm(), rowBytes)) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", d.Info().Kind, name, rowBytes), func(t *testing.T) {
					encodesAsProcessors(t, d, c, data, rowBytes)
				})
			}
		}
	}
}

func encodesAsProcessors(t *testing.T, d device.Device, of codec.Codec, data []byte, rowBytes int) {
	n, stride := len(data)/rowBytes, place.OverlayBytes(rowBytes)
	mem, err := d.AllocHost(int64(n*stride)+slab.TailSlack, "overlay")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(mem)
	c, err := kernels.AttachCodec(d, of)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(c.Meta)
	var e encoder
	defer e.close(d)
	for round := range 2 { // what the first leaves behind is nothing to the second
		want := bytes.Repeat([]byte{0xa5}, len(mem.Bytes()))
		lengths, raw := make([]uint32, n), 0
		for i := range n {
			row, to := data[(i*(round+1)%n)*rowBytes:][:rowBytes], want[i*stride:]
			copy(to, row)
			dst := make([]byte, of.EncodeBound())
			length, err := of.Encode(dst, row)
			if err != nil {
				length = rowBytes
				raw++
			} else {
				copy(to, dst[:length])
			}
			lengths[i] = uint32(length)
			copy(mem.Bytes()[i*stride:][:stride], bytes.Repeat([]byte{0xa5}, stride))
			copy(mem.Bytes()[i*stride:], row)
		}
		copy(mem.Bytes()[n*stride:], want[n*stride:])
		if raw == 0 || raw == n && of.Name() != "ndzip" { // whose rows are 512 bytes or do not shrink
			t.Fatalf("%d rows of %d do not shrink", raw, n)
		}
		stored := make([]uint32, n)
		if ok, err := e.encode(d, c, mem.Slice(0, int64(n*stride)), stride, stored); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if !slices.Equal(stored, lengths) || !bytes.Equal(mem.Bytes(), want) {
			t.Errorf("round %d: other bytes or lengths than those of processors", round)
		}
	}
}
