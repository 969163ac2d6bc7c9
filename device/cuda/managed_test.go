//go:build cuda && linux

package cuda_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// TestDevice_AllocManaged: kernels and the host see the same bytes, wherever they are told to lie. More than the device has free is refused before
// the driver is asked for it, and so are other places than those of managed memory.
func TestDevice_AllocManaged(t *testing.T) {
	d := gputest.Open(t).(*cuda.Device)
	const size = 3<<20 + 5
	b, err := d.AllocManaged(size, "test")
	if errors.Is(err, cuda.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	on, err := d.Alloc(size, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(on)
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, onDevice := range []int64{0, 1 << 20, size} {
		for i := range b.Bytes() {
			b.Bytes()[i] = byte(rng.Uint32())
		}
		want := bytes.Clone(b.Bytes())
		if err := d.SettleManaged(b, onDevice); err != nil {
			t.Fatalf("%d bytes on the device: %v", onDevice, err)
		}
		got := make([]byte, size)
		if err := errors.Join(s.Copy(on, b), s.Synchronize(), device.Download(d, got, on)); err != nil || !bytes.Equal(got, want) || !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%d bytes on the device: others than were written, or %v", onDevice, err)
		}
	}
	if err := d.SettleManaged(b, size+1); err == nil {
		t.Error("more bytes on the device than there are")
	}
	if _, err := d.AdoptHost(b.Bytes(), "test"); err == nil || !strings.Contains(err.Error(), "must not be managed memory") {
		t.Errorf("adopted: %v", err)
	}
	free, err := d.FreeMemory()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.AllocManaged(free+1<<40, "test"); !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(err.Error(), "that device 0 has free") {
		t.Errorf("more than is free: %v", err)
	}
	d.Free(b)
	if err := d.SettleManaged(b, 1); err == nil {
		t.Error("freed memory is settled")
	}
}
