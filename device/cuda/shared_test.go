//go:build cuda && linux

package cuda_test

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/device/cuda/emulator"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/sharetest"
)

// readerGPU is the variable that says which GPU a process that reads opens; 0 without it.
const readerGPU = "TENSORCACHE_TEST_READER_GPU"

func openShared(role string) (device.Device, error) {
	ordinal := 0
	if s := os.Getenv(readerGPU); s != "" && role == "reader" {
		var err error
		if ordinal, err = strconv.Atoi(s); err != nil {
			return nil, err
		}
	}
	devices, err := cuda.OpenGPUs([]int{ordinal})
	if err != nil {
		return nil, err
	}
	return devices[0], nil
}

var shared = sharetest.Backend{
	Open: openShared,
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

// TestShared_NothingLeft: on a GPU, 1000 rounds of 256 MiB are more than it has. Its free memory is logged only, as other processes may use it.
func TestShared_NothingLeft(t *testing.T) {
	gputest.Require(t)
	const rounds = 1000
	bytes, free := int64(256<<20), func(d device.Device) (int64, error) { return d.(*cuda.Device).FreeMemory() }
	if emulator.Present() {
		bytes = 3 << 20
	} else {
		logged := free
		free = func(d device.Device) (int64, error) {
			n, err := logged(d)
			t.Logf("%d bytes of the device are free", n)
			return 0, err
		}
	}
	began := time.Now()
	sharetest.NothingLeft(t, shared, rounds, bytes, free)
	t.Logf("%v a round of allocating and importing device memory, and importing host memory", time.Since(began)/rounds)
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

// virtualMemory is the emulator's variable for what its devices have of virtual memory management.
const virtualMemory = "TENSORCACHE_EMULATOR_VIRTUAL_MEMORY"

// TestShared_NotReadOnly: a GPU whose driver has no mappings that can only be read maps memory to be written, too.
func TestShared_NotReadOnly(t *testing.T) {
	if !emulator.Present() {
		t.Skip("not the emulated GPU")
	}
	t.Setenv(virtualMemory, "1") // of the processes that are started
	sharetest.OwnerKilled(t)
	if host, gpu := sharetest.ReadOnly(t); host != "written" || gpu != "written" {
		t.Errorf("writes to memory that was imported to be read: host memory: %s; device memory: %s", host, gpu)
	}
}

// TestShared_Unsupported: a GPU without virtual memory management says so, and shares host memory.
func TestShared_Unsupported(t *testing.T) {
	if !emulator.Present() {
		t.Skip("not the emulated GPU")
	}
	if os.Getenv(virtualMemory) != "0" { // the emulator reads it once
		again := exec.Command(os.Args[0], "-test.run=^TestShared_Unsupported$")
		again.Env = append(os.Environ(), virtualMemory+"=0")
		if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	d := gputest.Open(t)
	sharer := d.(device.Sharer)
	_, err := sharer.AllocShared(5000, "slab")
	const want = "cuda: shared allocation for slab (5000 bytes): device: memory cannot be shared with other processes: cuda: device 0 must support virtual memory management"
	if !errors.Is(err, device.ErrNotShared) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := sharer.Import(os.Stdin, 5000, false, "slab"); !errors.Is(err, device.ErrNotShared) {
		t.Error(err)
	}
	tier, err := sharer.AllocSharedHost(nil, 5000, "tier")
	if err != nil {
		t.Fatal(err)
	}
	d.Free(tier)
}

// TestShared_TooLarge: errors say what was asked for, and the device goes on.
func TestShared_TooLarge(t *testing.T) {
	d := gputest.Open(t)
	_, err := d.(device.Sharer).AllocShared(1<<42, "slab")
	if !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(err.Error(), "allocation for slab (4398046511104 bytes) on device 0") {
		t.Error(err)
	}
	_, err = d.(device.Sharer).AllocSharedHost(nil, 1<<42, "tier") // must not be page-locked as far as there is memory
	if !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(err.Error(), "allocation for tier (4398046511104 bytes)") {
		t.Error(err)
	}
	if err := d.Err(); err != nil {
		t.Errorf("the device counts as lost: %v", err)
	}
	b, err := d.(device.Sharer).AllocShared(1, "slab")
	if err != nil {
		t.Fatal(err)
	}
	d.Free(b)
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
