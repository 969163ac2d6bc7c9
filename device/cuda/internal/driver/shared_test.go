//go:build cuda

package driver

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func init() {
	children["shared"] = func() {
		d, peer := must(OpenDevice(1)), must(OpenDevice(0))
		c := must(d.Retain())
		fmt.Println(d.Shares(), d.ReadOnlyHost())
		m, err := c.AllocShared(2<<20+1, []Device{peer})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(m.Bytes(), m.DevicePtr(), m.Imported())
		fd := must(m.Export())
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFD, 0)
		fmt.Println("inherited:", errno != 0 || flags&syscall.FD_CLOEXEC == 0)
		check(m.Free())
		check(m.Free())
		for _, writable := range []bool{false, true} {
			m, err := c.ImportShared(5, 3<<20, writable, func(on Device) ([]Device, error) { return []Device{d, on}, nil })
			if err != nil {
				fmt.Println(err)
				continue
			}
			fmt.Println(m.Bytes(), m.Imported())
			check(m.Free())
		}
		_, err = c.ImportShared(5, 3<<20, true, func(on Device) ([]Device, error) { return nil, fmt.Errorf("nobody reads %d", on.Ordinal()) })
		fmt.Println(err)
		_, err = c.AllocShared(1, make([]Device, 64))
		fmt.Println(err)
	}
}

const created = "cuMemCreate 4194304 1 1 1 1 0, 32 bytes of properties"

// sharedCalls returns the calls about memory that the child makes.
func sharedCalls(t *testing.T, env ...string) (printed string, calls []string) {
	printed, calls = runChild(t, "shared", append(env, fakeDriver(t, false))...)
	return printed, slices.DeleteFunc(calls, func(s string) bool { return !strings.HasPrefix(s, "cuMem") })
}

func TestShared_Calls(t *testing.T) {
	got, calls := sharedCalls(t)
	want := `<nil> true
2097153 123145302310912 false
inherited: false
3145728 true
3145728 true
nobody reads 0
cuda: cuMemSetAccess of 2097152 bytes on device 1: CUDA_ERROR_INVALID_VALUE (invalid argument)
`
	if got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	mapped := func(handle string, flags int, devices ...int) (calls []string) {
		calls = []string{"cuMemAddressReserve 4194304 0 0 0", "cuMemMap 0x700000000000 4194304 0 " + handle + " 0"}
		for _, d := range devices {
			calls = append(calls, fmt.Sprintf("cuMemSetAccess 0x700000000000 4194304 of %d: 1 %d %d", len(devices), d, flags))
		}
		return calls
	}
	freed := []string{"cuMemUnmap 0x700000000000 4194304", "cuMemAddressFree 0x700000000000 4194304"}
	imported := []string{"cuMemImportFromShareableHandle 5 1", "cuMemGetAllocationPropertiesFromHandle 0x8000000000000002"}
	const unit0, unit1 = "cuMemGetAllocationGranularity 1 1 1 0 1", "cuMemGetAllocationGranularity 1 1 1 1 1"
	const release1, release2 = "cuMemRelease 0x8000000000000001", "cuMemRelease 0x8000000000000002"
	wantCalls := slices.Concat(
		[]string{unit1, created}, mapped("0x8000000000000001", 3, 1, 0), []string{"cuMemExportToShareableHandle 0x8000000000000001 1 0"}, freed, []string{release1},
		imported, []string{unit0}, mapped("0x8000000000000002", 1, 1, 0), []string{release2}, freed,
		imported, []string{unit0}, mapped("0x8000000000000002", 3, 1, 0), []string{release2}, freed,
		imported, []string{release2},
		[]string{unit1, "cuMemCreate 2097152 1 1 1 1 0, 32 bytes of properties", "cuMemAddressReserve 2097152 0 0 0", "cuMemMap 0x700000000000 2097152 0 0x8000000000000001 0",
			"cuMemUnmap 0x700000000000 2097152", "cuMemAddressFree 0x700000000000 2097152", release1},
	)
	if !slices.Equal(calls, wantCalls) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(calls, "\n"), strings.Join(wantCalls, "\n"))
	}
}

// TestShared_ReadOnlyRefused: where the driver has no access to read only, memory is mapped to be written.
func TestShared_ReadOnlyRefused(t *testing.T) {
	for _, result := range []string{"1", "801"} {
		got, calls := sharedCalls(t, "FAKE_CUDA_READ_ONLY="+result)
		if strings.Count(got, "3145728 true\n") != 2 || strings.Count(strings.Join(calls, "\n"), "cuMemSetAccess 0x700000000000 4194304 of 2: 1 1 3") != 3 {
			t.Errorf("result %s: %s\n%s", result, got, strings.Join(calls, "\n"))
		}
	}
	if got, _ := sharedCalls(t, "FAKE_CUDA_READ_ONLY=719"); !strings.Contains(got, "cuda: cuMemSetAccess of 4194304 bytes on device 1: CUDA_ERROR_LAUNCH_FAILED (launch failed)\n3145728 true\n") {
		t.Errorf("another error: %s", got)
	}
}

// TestShared_Failures: whatever call fails is named, and what was made before it is undone.
func TestShared_Failures(t *testing.T) {
	for _, entry := range []string{"cuMemGetAllocationGranularity", "cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"} {
		got, calls := sharedCalls(t, "FAKE_CUDA_FAIL="+entry+"=2")
		if !strings.Contains(got, "cuda: "+entry) || !strings.Contains(got, "CUDA_ERROR_OUT_OF_MEMORY (out of memory)") {
			t.Errorf("%s: %s", entry, got)
		}
		for made, undone := range map[string]string{"cuMemCreate": "cuMemRelease", "cuMemAddressReserve": "cuMemAddressFree", "cuMemMap": "cuMemUnmap"} {
			count := func(call string) (n int) {
				for _, c := range calls {
					if strings.HasPrefix(c, call+" ") {
						n++
					}
				}
				return n
			}
			if count(made) != count(undone) {
				t.Errorf("%s fails: %d of %s, %d of %s", entry, count(made), made, count(undone), undone)
			}
		}
	}
	for _, entry := range []string{"cuMemImportFromShareableHandle", "cuMemGetAllocationPropertiesFromHandle"} {
		got, calls := sharedCalls(t, "FAKE_CUDA_FAIL="+entry+"=1")
		if strings.Count(got, "cuda: "+entry+" of descriptor 5 on device 1: CUDA_ERROR_INVALID_VALUE (invalid argument)\n") != 3 {
			t.Errorf("%s: %s", entry, got)
		}
		if released, want := strings.Count(strings.Join(calls, "\n"), "cuMemRelease 0x8000000000000002"), map[bool]int{true: 0, false: 3}[entry == "cuMemImportFromShareableHandle"]; released != want {
			t.Errorf("%s: imported memory was released %d times, want %d", entry, released, want)
		}
	}
	if got, _ := sharedCalls(t, "FAKE_CUDA_LOCATION=3"); strings.Count(got, "cuMemGetAllocationPropertiesFromHandle of descriptor 5") != 3 {
		t.Errorf("memory of the host: %s", got)
	}
}
