package device

import (
	"errors"
	"testing"
)

func TestBuffer_Slice(t *testing.T) {
	mem := []byte{0, 1, 2, 3, 4, 5}
	b := HostBuffer(mem).Slice(1, 5).Slice(1, 3)
	if b.Size() != 2 || string(b.Bytes()) != "\x02\x03" {
		t.Errorf("%d bytes: %v", b.Size(), b.Bytes())
	}
	if cap(b.Bytes()) != 2 {
		t.Errorf("%d bytes can be reached beyond the part", cap(b.Bytes())-2)
	}
	b.Bytes()[0] = 9
	if mem[2] != 9 {
		t.Error("the part is a copy")
	}
	if far := (Buffer{}).Slice(10, 30); far.Size() != 20 || far.Bytes() != nil {
		t.Errorf("memory that the host cannot address: %d bytes, %v", far.Size(), far.Bytes())
	}
}

func TestCheckSize_Bounds(t *testing.T) {
	for _, n := range []int64{0, 1, 1 << 46} {
		if err := CheckSize(n, "slab"); err != nil {
			t.Error(err)
		}
	}
	for n, want := range map[int64]string{
		-1:         "device: allocation for slab (-1 bytes) must be 0 to 2^46: device: out of memory",
		1<<46 + 1:  "device: allocation for slab (70368744177665 bytes) must be 0 to 2^46: device: out of memory",
		-(1 << 63): "device: allocation for slab (-9223372036854775808 bytes) must be 0 to 2^46: device: out of memory",
	} {
		if err := CheckSize(n, "slab"); err == nil || err.Error() != want || !errors.Is(err, ErrOutOfMemory) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
