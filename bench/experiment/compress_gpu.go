package experiment

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// GPU speeds are of so many bytes of rows in a batch, at most; the median of so many runs after one untimed.
const (
	gpuBatchBytes = 256 << 20
	gpuRuns       = 9
)

// gpuSpeeds are what a GPU does with a codec's rows, in GB of rows a second.
type gpuSpeeds struct{ encode, decode float64 }

// openGPU returns the first GPU, nil where there is none that can be used.
func openGPU() (device.Device, error) {
	if cuda.Usable() != nil || cuda.Count() == 0 {
		return nil, nil
	}
	devices, err := cuda.Open(1)
	if err != nil {
		return nil, err
	}
	return devices[0], nil
}

// measureGPU decodes random rows from the device's memory and encodes the table there, as far as there are kernels for it.
func measureGPU(d device.Device, c codec.Codec, t *dataset.Table, stored []byte, lengths []int) (speeds gpuSpeeds, err error) {
	on, ok := c.(codec.OnDevice)
	if !ok || !kernels.Decodes(on.DeviceForm()) {
		return speeds, nil
	}
	s, err := d.NewStream()
	if err != nil {
		return speeds, err
	}
	defer s.Close()
	var buffers []device.Buffer
	defer func() {
		for _, b := range buffers {
			d.Free(b)
		}
	}()
	alloc := func(n int64) (b device.Buffer) {
		if err == nil {
			b, err = d.Alloc(n, "compress")
			buffers = append(buffers, b)
		}
		return b
	}
	put := func(data []byte) device.Buffer {
		b := alloc(int64(len(data)))
		if err == nil {
			err = device.Upload(d, b, data)
		}
		return b
	}
	attached, err := kernels.AttachCodec(d, c)
	if err != nil {
		return speeds, err
	}
	buffers = append(buffers, attached.Meta)

	rows := max(1, min(t.Rows, gpuBatchBytes/t.RowBytes))
	image := make([]byte, 0, len(stored)/t.Rows*rows)
	locations := make([]slab.Location, rows)
	for i, at := 0, stored; i < rows; i++ {
		n := lengths[i]
		locations[i] = slab.Compressed(0, int64(len(image)), n)
		if n == 0 {
			n, locations[i] = t.RowBytes, slab.Raw(0, int64(len(image)))
		}
		image = append(image, at[:n]...)
		image = append(image, make([]byte, slab.SlotBytes(n)-n)...)
		at = at[n:]
	}
	found := make([]byte, rows*kernels.FoundBytes)
	r := rand.New(rand.NewPCG(1, 1))
	for i, f := 0, kernels.FoundView(device.HostBuffer(found)); i < rows; i++ {
		f[i] = kernels.Found{Word: uint64(locations[r.IntN(rows)]), Position: uint32(i)}
	}
	count := make([]byte, kernels.CountersBytes)
	kernels.CountersView(device.HostBuffer(count)).Hits = uint32(rows)
	decode := &kernels.Decode{
		Found: put(found), Counters: put(count), Slabs: []device.Buffer{put(append(image, make([]byte, slab.TailSlack)...))}, Codec: attached,
		Out: alloc(int64(rows * t.RowBytes)), RowBytes: t.RowBytes,
	}
	if err != nil {
		return speeds, err
	}
	if speeds.decode, err = gpuRate(s, rows*t.RowBytes, nil, decode); err != nil || !kernels.Encodes(attached.Form, t.RowBytes) {
		return speeds, err
	}
	stride := (t.RowBytes + 3) &^ 3
	table := make([]byte, rows*stride+slab.TailSlack)
	for i := range rows {
		copy(table[i*stride:], t.Row(int64(i)))
	}
	source := put(table)
	encode := &kernels.Encode{
		Rows: alloc(int64(len(table))), Stride: int64(stride), Count: int64(rows), Codec: attached, Totals: alloc(abi.EncodeTotalsBytes),
		Scratch: alloc(max(1, kernels.EncodeScratchBytes(t.RowBytes, int64(rows)))),
	}
	if err != nil {
		return speeds, err
	}
	speeds.encode, err = gpuRate(s, rows*t.RowBytes, func() error { return s.Copy(encode.Rows, source) }, encode)
	return speeds, err
}

// gpuRate returns the GB a second that a kernel takes, each time after prepare.
func gpuRate(s device.Stream, bytes int, prepare func() error, k device.Kernel) (float64, error) {
	times := make([]float64, 0, gpuRuns)
	for i := range gpuRuns + 1 {
		if prepare != nil {
			if err := prepare(); err != nil {
				return 0, err
			}
		}
		if err := s.Synchronize(); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := errors.Join(s.Launch(k), s.Synchronize()); err != nil {
			return 0, err
		}
		if i > 0 {
			times = append(times, time.Since(start).Seconds())
		}
	}
	return float64(bytes) / 1e9 / max(Median(times), 1e-9), nil
}
