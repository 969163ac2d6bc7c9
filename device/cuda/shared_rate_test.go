//go:build cuda && linux

package cuda_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/device/cuda/emulator"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// TestShared_Rate measures what kernels and copies read of memory of the device's own, of shared memory, and of an import of it.
func TestShared_Rate(t *testing.T) {
	d := gputest.Open(t)
	sharer := d.(device.Sharer)
	deviceBytes, hostBytes, rounds := int64(1<<30), int64(4<<30), 20
	if emulator.Present() {
		deviceBytes, hostBytes, rounds = 1<<20, 1<<20, 2
	}
	took := func(what string, do func() (device.Buffer, error)) device.Buffer {
		t.Helper()
		began := time.Now()
		b, err := do()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s of %d MiB: %v", what, b.Size()>>20, time.Since(began).Round(10*time.Microsecond))
		t.Cleanup(func() { d.Free(b) })
		return b
	}
	export := func(b device.Buffer) *os.File {
		t.Helper()
		f, err := sharer.Export(b)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	to := took("device memory allocated", func() (device.Buffer, error) { return d.Alloc(deviceBytes, "copy") })
	own := took("device memory allocated", func() (device.Buffer, error) { return d.Alloc(deviceBytes, "own") })
	slab := took("shared device memory allocated", func() (device.Buffer, error) { return sharer.AllocShared(deviceBytes, "slab") })
	slabFile := export(slab)
	taken := took("device memory imported", func() (device.Buffer, error) { return sharer.Import(slabFile, deviceBytes, false, "slab") })
	ownTier := took("host memory allocated", func() (device.Buffer, error) { return d.AllocHost(hostBytes, "own") })
	tier := took("shared host memory allocated", func() (device.Buffer, error) { return sharer.AllocSharedHost(nil, hostBytes, "tier") })
	tierFile := export(tier)
	takenTier := took("host memory imported", func() (device.Buffer, error) { return sharer.ImportHost(tierFile, hostBytes, false, "tier") })

	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	start, err1 := d.NewTimer()
	end, err2 := d.NewTimer()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	defer start.Close()
	defer end.Close()
	// rate returns the bytes a second that a piece of work reads, at best.
	rate := func(bytes int64, work func() error) (best float64) {
		for range rounds {
			if err := errors.Join(s.Record(start), work(), s.Record(end), s.Synchronize()); err != nil {
				t.Fatal(err)
			}
			took, err := end.Since(start)
			if err != nil {
				t.Fatal(err)
			}
			best = max(best, float64(bytes)/took.Seconds()/1e9)
		}
		return best
	}
	part := min(deviceBytes, 64<<20)
	gather := func(from device.Buffer) func() error {
		return func() error {
			const threads = 256
			return gatherKernel.Launch(s.(*cuda.Stream), int(part/16/threads), threads, 0,
				&copyArgs{To: to.Addr(), From: from.Addr(), Rows: uint32(from.Size() / 256)})
		}
	}
	for _, c := range []struct {
		what               string
		bytes              int64
		work               func(from device.Buffer) func() error
		own, shared, taken device.Buffer
	}{
		{"kernel reads device memory", deviceBytes, func(b device.Buffer) func() error { return func() error { return launchCopy(s, to, b) } }, own, slab, taken},
		{"copy of device memory", deviceBytes, func(b device.Buffer) func() error { return func() error { return s.Copy(to, b) } }, own, slab, taken},
		{"kernel gathers rows of 256 bytes of device memory", part, gather, own, slab, taken},
		{"copy of host memory", part, func(b device.Buffer) func() error {
			return func() error { return s.Copy(to.Slice(0, part), b.Slice(0, part)) }
		}, ownTier, tier, takenTier},
		{"kernel gathers rows of 256 bytes of host memory", part, gather, ownTier, tier, takenTier},
	} {
		base := rate(c.bytes, c.work(c.own))
		t.Logf("%s: %.1f GB/s; of shared memory %.3f times as much, of an import %.3f times as much", c.what, base,
			rate(c.bytes, c.work(c.shared))/base, rate(c.bytes, c.work(c.taken))/base)
	}
}
