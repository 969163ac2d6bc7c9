//go:build cuda

package driver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/tensorcache/tensorcache/internal/race"
)

type launchArgs struct {
	A DevicePtr
	B uint64
	C int16
	D uint8
	E [3]uint32
}

var exampleArgs = launchArgs{A: 0xfedcba9876543210, B: 1<<63 + 1, C: -7, D: 200, E: [3]uint32{4000000001, 2, 4000000003}}

func init() {
	children["calls"] = func() {
		d := must(OpenDevice(1))
		peer := must(OpenDevice(0))
		fmt.Println(must(d.PCIBusID()), must(d.CanAccessPeer(peer)), must(d.Link(cu.PerformanceRank, peer)),
			must(d.Attribute(MaxSharedMemoryPerBlockOptin)))
		c := must(d.Retain())
		pc := must(peer.Retain())
		check(c.EnablePeer(pc))
		_, total, err := c.MemInfo()
		check(err)
		fmt.Println(total)

		s := must(c.NewStream())
		p := must(c.Alloc(4096))
		h := must(c.AllocHost(4096))
		copy(h.Bytes(), "sent to the device and back")
		at := unsafe.Pointer(&h.Bytes()[0])
		check(s.CopyToDeviceAsync(p, at, 27))
		check(s.CopyToHostAsync(unsafe.Add(at, 100), p, 27))
		fmt.Println(string(h.Bytes()[100:127]), uintptr(h.DevicePtr()) == uintptr(at))
		check(s.Fill8Async(0x300000000003, 0xab, 6<<40))
		check(s.WriteValue32(0x400000000004, 0xfffffff0))
		r := must(c.RegisterHost(unsafe.Add(at, 1<<20), 1<<40, false))
		check(r.Free())
		check(r.Free())
		fmt.Println(s.IsCapturing())

		e := must(c.NewEvent(true))
		check(e.Record(s))
		fmt.Println(must(e.Since(e)))

		m := must(c.LoadModule([]byte(".version 7.0")))
		k := must(m.Function("k"))
		a := exampleArgs
		check(k.Launch(s, 1, 4, 7, unsafe.Pointer(&a), nil))
		check(k.Launch(must(c.WrapStream(0x10001)), 1<<30, 1024, 0, unsafe.Pointer(&a), nil))
		_, err = m.Function("missing")
		fmt.Println(err)
		_, err = c.LoadModule([]byte("nonsense"))
		fmt.Println(err)
		_, err = c.WrapStream(0x10000)
		fmt.Println(err)
		_, err = k.MaxActiveBlocks(128, 0) // an entry that the fake driver lacks
		fmt.Println(err, errors.Is(err, Result(500)))

		check(cu.Memcpy3DPeer(exampleCopy()))
		ref := must(cu.Module{}.TexRef("t"))
		check(ref.SetMipmapLevelClamp(1.5, -2.25))

		check(m.Unload())
		check(m.Unload())
		check(e.Destroy())
		check(e.Destroy())
		check(s.Destroy())
		check(s.Destroy())
		check(c.Free(p))
		check(h.Free())
		check(c.Release())
		check(c.Release())
	}
	children["old"] = func() {
		c := must(must(OpenDevice(0)).Retain())
		s := must(c.NewStream())
		check(s.WriteValue32(0x400000000004, 7))
		_, err := s.IsCapturing()
		fmt.Println(err)
	}
	children["failures"] = func() {
		d := must(OpenDevice(0))
		c := must(d.Retain())
		s := must(c.NewStream())
		_, err := c.Alloc(1 << 30)
		fmt.Println(err, errors.Is(err, OutOfMemory), IsSticky(err))
		_, err = c.AllocHost(1 << 20)
		fmt.Println(err, IsSticky(err))
		err = s.Synchronize()
		fmt.Println(err, IsSticky(err))
		k := must(must(c.LoadModule([]byte("x"))).Function("k"))
		fmt.Println(k.Launch(s, 10, 32, 64, unsafe.Pointer(&launchArgs{}), nil))
		fmt.Println(s.CopyToDeviceAsync(1, nil, 5))
		check(c.EnablePeer(c)) // enabled already
	}
	children["allocations"] = func() {
		c := must(must(OpenDevice(0)).Retain())
		s := must(c.NewStream())
		e := must(c.NewEvent(false))
		h := must(c.AllocHost(4096))
		k := must(must(c.LoadModule([]byte("x"))).Function("k"))
		fmt.Println(testing.AllocsPerRun(1000, func() {
			a := exampleArgs
			check(k.Launch(s, 1, 32, 0, unsafe.Pointer(&a), nil))
		}), testing.AllocsPerRun(1000, func() {
			check(e.Record(s))
			_, err := s.IsCapturing()
			check(err)
			check(s.CopyToDeviceAsync(h.DevicePtr(), unsafe.Pointer(&h.Bytes()[0]), 16))
			check(s.WriteValue32(h.DevicePtr(), 1))
		}))
	}
}

func exampleCopy() cu.Memcpy3dPeerParam {
	null := must(cu.Make3DArray(cu.Array3Desc{}))
	return cu.Memcpy3dPeerParam{
		SrcXInBytes: 1 << 40, SrcLOD: 2, SrcMemoryType: cu.DeviceMemory, SrcDevice: 0x500000000005, SrcArray: null,
		DstZ: 3, DstMemoryType: cu.HostMemory, DstDevice: 0x600000000006, DstHeight: 4, DstArray: null,
		WidthInBytes: 5 << 40, Depth: 6,
	}
}

func TestCalls_Arguments(t *testing.T) {
	got, calls := runChild(t, "calls", fakeDriver(t, false))
	want := `0000:1C:00.0 true 110 971
5497558138882
sent to the device and back true
true <nil>
1.5ms
cuda: cuModuleGetFunction "missing" on device 1: CUDA_ERROR_NOT_FOUND (named symbol not found)
cuda: cuModuleLoadDataEx of 8 bytes on device 1: CUDA_ERROR_INVALID_PTX (PTX rejected): line 1: nonsense; line 2: more
cuda: stream 0x10000 is of another context than the primary context of device 1
cuda: cuOccupancyMaxActiveBlocksPerMultiprocessor of k on device 1: CUDA_ERROR_NOT_FOUND (named symbol not found) true
`
	if got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	wantCalls := []string{
		"cuInit 0",
		"cuDeviceGetAttribute 97 1",
		"cuDevicePrimaryCtxRetain 1",
		"cuDevicePrimaryCtxRetain 0",
		"cuCtxEnablePeerAccess in 0xc0de0001 to 0xc0de0000 0",
		"cuStreamCreateWithPriority 1 0",
		"cuMemAlloc_v2 4096",
		"cuMemHostAlloc 4096 3",
		"cuMemcpyHtoDAsync_v2 27 0x57e0",
		"cuMemcpyDtoHAsync_v2 27 0x57e0",
		"cuMemsetD8Async 0x300000000003 171 6597069766656 0x57e0",
		"cuStreamWriteValue32_v2 0x57e0 0x400000000004 4294967280 0",
		"cuMemHostRegister_v2 1099511627776 3",
		"cuMemHostUnregister",
		"cuEventCreate 0",
		"cuEventRecord 0xe4e47 0x57e0",
		"option 7 4",
		"option 6 8192",
		"cuModuleLoadDataEx 12",
		"cuLaunchKernel in 0xc0de0001 0xf00 grid 1 1 1 block 4 1 1 shared 7 stream 0x57e0 extra (nil): " +
			"0xfedcba9876543210 0x8000000000000001 -7 200 4000000001 2 4000000003",
		"cuLaunchKernel in 0xc0de0001 0xf00 grid 1073741824 1 1 block 1024 1 1 shared 0 stream 0x10001 extra (nil): " +
			"0xfedcba9876543210 0x8000000000000001 -7 200 4000000001 2 4000000003",
		"option 7 4",
		"option 6 8192",
		"cuModuleLoadDataEx 8",
		"cuMemcpy3DPeer 1099511627776 2 2 0x500000000005 (nil) 3 1 0x600000000006 (nil) 4 5497558138880 6",
		"cuTexRefSetMipmapLevelClamp 0x7e 1.5 -2.25",
		"cuModuleUnload 0x30d",
		"cuEventDestroy_v2 0xe4e47",
		"cuStreamDestroy_v2 0x57e0",
		"cuMemFree_v2",
		"cuMemFreeHost",
		"cuDevicePrimaryCtxRelease_v2 1",
	}
	if !slices.Equal(calls, wantCalls) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(calls, "\n"), strings.Join(wantCalls, "\n"))
	}
}

func TestCalls_OldDriver(t *testing.T) {
	got, calls := runChild(t, "old", fakeDriver(t, true))
	if want := "cuda: cuStreamIsCapturing on device 0: CUDA_ERROR_NOT_FOUND (named symbol not found)\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !slices.Contains(calls, "cuStreamWriteValue32 0x57e0 0x400000000004 7 0") {
		t.Errorf("no cuStreamWriteValue32 in %q", calls)
	}
}

func TestCalls_Failures(t *testing.T) {
	got, _ := runChild(t, "failures", fakeDriver(t, false), "FAKE_CUDA_FAIL=cuMemAlloc_v2=2,cuMemHostAlloc=304,"+
		"cuStreamSynchronize=700,cuLaunchKernel=719,cuMemcpyHtoDAsync_v2=1,cuCtxEnablePeerAccess=704")
	want := `cuda: cuMemAlloc of 1073741824 bytes on device 0: CUDA_ERROR_OUT_OF_MEMORY (out of memory) true false
cuda: cuMemHostAlloc of 1048576 bytes on device 0: CUDA_ERROR_OPERATING_SYSTEM (operating system call failed) false
cuda: cuStreamSynchronize on device 0: CUDA_ERROR_ILLEGAL_ADDRESS (illegal memory access) true
cuda: cuLaunchKernel of k, grid 10, block 32, 64 bytes shared on device 0: CUDA_ERROR_LAUNCH_FAILED (launch failed)
cuda: cuMemcpyHtoDAsync of 5 bytes on device 0: CUDA_ERROR_INVALID_VALUE (invalid argument)
`
	if got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func TestCalls_AllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	got, _ := runChild(t, "allocations", fakeDriver(t, false), "FAKE_CUDA_LOG=/dev/null")
	if got != "0 0\n" {
		t.Errorf("allocations per call: %s", got)
	}
}
