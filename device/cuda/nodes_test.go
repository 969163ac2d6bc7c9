//go:build cuda && linux

package cuda_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/numa"
)

// TestDevice_AllocHostOn: memory on a node of the host is page-locked memory like any: zeroed, the device's at the same address, copied
// both ways, given back.
func TestDevice_AllocHostOn(t *testing.T) {
	d := gputest.Open(t)
	machine, err := numa.Read("/")
	if err != nil || len(machine.Usable()) == 0 {
		t.Skipf("this machine's memory nodes are not known: %v", err)
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := rand.New(rand.NewPCG(1, 1))
	for range 3 { // memory given back is had again
		for _, size := range []int64{0, 1, 4097, 5 << 20} {
			b, err := d.(device.NodeAllocator).AllocHostOn(machine.Usable(), size, "test")
			if errors.Is(err, numa.ErrRefused) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if b.Size() != size || int64(len(b.Bytes())) != size || cap(b.Bytes()) != len(b.Bytes()) || uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b.Bytes())))) != b.Addr() {
				t.Fatalf("%d bytes at %#x for %d", b.Size(), b.Addr(), size)
			}
			if bytes.Count(b.Bytes(), []byte{0}) != int(size) {
				t.Fatal("not zeroed")
			}
			if size > 0 {
				for i := range b.Bytes() {
					b.Bytes()[i] = byte(r.Uint32())
				}
				want := bytes.Clone(b.Bytes())
				on, err := d.Alloc(size, "test")
				if err != nil {
					t.Fatal(err)
				}
				err = errors.Join(s.Copy(on, b), s.Synchronize())
				clear(b.Bytes())
				if err = errors.Join(err, s.Copy(b, on), s.Synchronize()); err != nil || !bytes.Equal(b.Bytes(), want) {
					t.Fatalf("%d bytes: %v", size, err)
				}
				d.Free(on)
			}
			d.Free(b)
			d.Free(b)
		}
	}
	if err := d.Err(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		nodes []int
		bytes int64
		want  string
	}{
		{[]int{1023}, 100, "cuda: allocation for test: numa: refused by the system: memory (100 bytes) on nodes 1023: mbind: "},
		{[]int{0}, -1, "device: allocation for test (-1 bytes) must be 0 to 2^46"},
	} {
		if b, err := d.(device.NodeAllocator).AllocHostOn(c.nodes, c.bytes, "test"); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%d bytes on %v: %v, %v", c.bytes, c.nodes, b, err)
		}
	}
}

// TestDevice_AllocHostLarge: memory that is mapped instead of the driver's is zeroed, copied from and to, and had again.
func TestDevice_AllocHostLarge(t *testing.T) {
	d := gputest.Open(t)
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const size = 64<<20 + 5
	on, err := d.Alloc(size, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(on)
	for range 2 {
		b, err := d.AllocHost(size, "test")
		if err != nil {
			t.Fatal(err)
		}
		m := b.Bytes()
		if b.Size() != size || len(m) != size || cap(m) != size || bytes.Count(m, []byte{0}) != size {
			t.Fatalf("%d bytes of %d, or not zeroed", len(m), b.Size())
		}
		m[0], m[size/2], m[size-1] = 1, 2, 3
		err = errors.Join(s.Copy(on, b), s.Synchronize())
		clear(m)
		if err = errors.Join(err, s.Copy(b, on), s.Synchronize()); err != nil || m[0] != 1 || m[size/2] != 2 || m[size-1] != 3 {
			t.Fatal("not as copied", err)
		}
		d.Free(b)
	}
	if err := d.Err(); err != nil {
		t.Fatal(err)
	}
}
