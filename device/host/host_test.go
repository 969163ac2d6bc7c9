package host

import (
	"errors"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
)

func TestFor_CoversEveryPartOnce(t *testing.T) {
	for _, w := range []workers{1, 2, 5} {
		for _, n := range []int{0, 1, 7, 8, 9, 1000} {
			var seen [1000]atomic.Int32
			w.For(n, 8, func(from, to int) {
				if to-from > 8 || from >= to {
					t.Errorf("part [%d, %d)", from, to)
				}
				for i := from; i < to; i++ {
					seen[i].Add(1)
				}
			})
			for i := range seen {
				if got, want := seen[i].Load(), int32(1); i < n && got != want || i >= n && got != 0 {
					t.Fatalf("workers %d, n %d: %d ran %d times", w, n, i, got)
				}
			}
		}
	}
}

func TestAlloc_AlignedAndChecked(t *testing.T) {
	d := Open(2, 1)[1]
	for _, n := range []int64{0, 1, 127, 4096} {
		b, err := d.Alloc(n, "test")
		if err != nil || b.Size() != n || int64(len(b.Bytes())) != n {
			t.Fatalf("Alloc(%d): %d bytes, %v", n, b.Size(), err)
		}
		if n > 0 && uintptr(unsafe.Pointer(&b.Bytes()[0]))%align != 0 {
			t.Errorf("Alloc(%d) is not aligned", n)
		}
	}
	if _, err := d.Alloc(-1, "slab"); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("Alloc(-1): %v", err)
	}
	if d.Info().Index != 1 || d.Info().Kind != "host" {
		t.Errorf("Info() = %+v", d.Info())
	}
}
