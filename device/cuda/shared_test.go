//go:build cuda && linux

package cuda_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/device/cuda/emulator"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/sharetest"
)

// copyWords copies words, a thread a word.
const copyWords = `.version 8.0
.target sm_80
.address_size 64
.visible .entry copyWords(.param .align 8 .b8 args[24]) {
	.reg .u64 to, from, at;
	.reg .u32 i, threads, block, words, x;
	.reg .pred behind;
	ld.param.u64 to, [args];
	ld.param.u64 from, [args+8];
	ld.param.u32 words, [args+16];
	mov.u32 i, %tid.x;
	mov.u32 threads, %ntid.x;
	mov.u32 block, %ctaid.x;
	mad.lo.u32 i, block, threads, i;
	setp.ge.u32 behind, i, words;
	@behind bra end;
	mul.wide.u32 at, i, 4;
	add.u64 to, to, at;
	add.u64 from, from, at;
	ld.global.u32 x, [from];
	st.global.u32 [to], x;
end:
	ret;
}
`

type copyArgs struct {
	To, From uint64
	Words    uint32
	_        uint32
}

var copyKernel = cuda.NewFunction[copyArgs](&cuda.Module{Name: "copyWords", PTX: func() ([]byte, error) { return []byte(copyWords), nil }}, "copyWords")

// launchCopy copies whole words by a kernel.
func launchCopy(s device.Stream, to, from device.Buffer) error {
	words := int(to.Size() / 4)
	return copyKernel.Launch(s.(*cuda.Stream), (words+255)/256, 256, 0, &copyArgs{To: to.Addr(), From: from.Addr(), Words: uint32(words)})
}

func openFirst() (device.Device, error) {
	devices, err := cuda.Open(1)
	if err != nil {
		return nil, err
	}
	return devices[0], nil
}

var shared = sharetest.Backend{
	Open: openFirst,
	Read: func(d device.Device, b device.Buffer) ([]byte, error) {
		to, err := d.Alloc(b.Size(), "copy")
		if err != nil {
			return nil, err
		}
		defer d.Free(to)
		s, err := d.NewStream()
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if err := errors.Join(launchCopy(s, to, b), s.Synchronize()); err != nil {
			return nil, err
		}
		got := make([]byte, b.Size())
		return got, device.Download(d, got, to)
	},
	Write: func(d device.Device, b device.Buffer) error {
		from, err := d.Alloc(4, "word")
		if err != nil {
			return err
		}
		s, err := d.NewStream()
		if err != nil {
			return err
		}
		return errors.Join(launchCopy(s, b.Slice(0, 4), from), s.Synchronize())
	},
}

func TestMain(m *testing.M) { sharetest.Main(m, shared) }

func TestShared_OwnerKilled(t *testing.T) {
	gputest.Require(t)
	sharetest.OwnerKilled(t)
}

func TestShared_BadDescriptors(t *testing.T) {
	gputest.Require(t)
	sharetest.BadDescriptors(t, shared)
}

func TestShared_NothingLeft(t *testing.T) {
	gputest.Require(t)
	began := time.Now()
	const rounds = 1000
	sharetest.NothingLeft(t, shared, rounds, func(d device.Device) (int64, error) { return d.(*cuda.Device).FreeMemory() })
	t.Logf("%v a round of an import of device memory, one of host memory and an allocation", time.Since(began)/rounds)
}

// TestShared_ReadOnly: processors fault. Kernels are refused by the emulator, and by GPUs whose driver has mappings that can only be read.
func TestShared_ReadOnly(t *testing.T) {
	gputest.Require(t)
	host, gpu := sharetest.ReadOnly(t)
	t.Logf("writes to memory that was imported to be read: host memory: %s; device memory: %s", host, gpu)
	if emulator.Present() && (!strings.HasPrefix(host, "fault: ") || !strings.Contains(gpu, "CUDA_ERROR_ILLEGAL_ADDRESS")) {
		t.Error("the memory was written")
	}
}

// TestShared_Capture: memory is allocated, imported and freed while a stream captures.
func TestShared_Capture(t *testing.T) {
	d := gputest.Open(t)
	sharer := d.(device.Sharer)
	one, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	s := one.(*cuda.Stream)
	m, err := d.Alloc(64, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(m)
	g, err := s.Capture(true, func() error {
		a, err := sharer.AllocShared(100, "slab")
		if err != nil {
			return err
		}
		b, err := sharer.AllocSharedHost(nil, 100, "tier")
		if err != nil {
			return err
		}
		for buffer, take := range map[*device.Buffer]func(*os.File, int64, bool, string) (device.Buffer, error){&a: sharer.Import, &b: sharer.ImportHost} {
			f, err := sharer.Export(*buffer)
			if err != nil {
				return err
			}
			again, err := take(f, 100, false, "again")
			if err != nil {
				return err
			}
			f.Close()
			d.Free(again)
			d.Free(*buffer)
		}
		return s.Fill(m, 7)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := errors.Join(g.Launch(s), s.Synchronize()); err != nil {
		t.Error(err)
	}
}

// TestShared_Rate measures what kernels read of memory of Alloc, of AllocShared and of an import of it.
func TestShared_Rate(t *testing.T) {
	d := gputest.Open(t)
	sharer := d.(device.Sharer)
	bytes, rounds := int64(1<<30), 20
	if emulator.Present() {
		bytes, rounds = 1<<20, 2
	}
	own, err := d.Alloc(bytes, "own")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(own)
	to, err := d.Alloc(bytes, "copy")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(to)
	given, err := sharer.AllocShared(bytes, "slab")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(given)
	f, err := sharer.Export(given)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	taken, err := sharer.Import(f, bytes, false, "slab")
	if err != nil {
		t.Fatal(err)
	}
	mapped := time.Since(began)
	f.Close()
	defer d.Free(taken)
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
	rate := func(from device.Buffer, copies func(to, from device.Buffer) error) (best float64) {
		for range rounds {
			if err := errors.Join(s.Record(start), copies(to, from), s.Record(end), s.Synchronize()); err != nil {
				t.Fatal(err)
			}
			took, err := end.Since(start)
			if err != nil {
				t.Fatal(err)
			}
			best = max(best, float64(2*bytes)/took.Seconds()/1e9)
		}
		return best
	}
	for name, copies := range map[string]func(to, from device.Buffer) error{
		"kernel": func(to, from device.Buffer) error { return launchCopy(s, to, from) },
		"copy":   s.Copy,
	} {
		base := rate(own, copies)
		t.Logf("%s of %d MiB, read + write: %.0f GB/s from memory of Alloc; from shared memory %.3f times as much, from an import %.3f times as much; imported in %v",
			name, bytes>>20, base, rate(given, copies)/base, rate(taken, copies)/base, mapped)
	}
}
