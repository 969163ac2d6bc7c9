//go:build linux

package sharetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/device"
)

// OwnerKilled: a reader in another process sees all that the owner has written, also after the owner was killed with copies under way.
func OwnerKilled(t *testing.T) {
	a, b := sockets(t)
	owner, reader := start(t, "owner", a), start(t, "reader", b)
	if line := owner.line(t); line != "sent" {
		t.Fatal("owner: ", line)
	}
	if line := reader.line(t); line != "read" {
		t.Fatal("reader: ", line)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var exit interface{ Sys() any }
	if err := owner.Wait(); err == nil {
		t.Fatal("the owner ended by itself")
	} else if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatal("owner: ", err)
	}
	fmt.Fprintln(reader.in, "dead")
	if line := reader.line(t); line != "whole" {
		t.Fatal("reader: ", line)
	}
	if err := reader.Wait(); err != nil {
		t.Error(err)
	}
}

// ReadOnly says what becomes of writes to memory that a process has imported to be read: for host and for device memory the error, or "written".
func ReadOnly(t *testing.T) (host, device string) {
	t.Helper()
	a, b := sockets(t)
	owner, writer := start(t, "owner", a), start(t, "writer", b)
	if line := owner.line(t); line != "sent" {
		t.Fatal("owner: ", line)
	}
	host, device = writer.line(t), writer.line(t)
	if err := writer.Wait(); err != nil {
		t.Error(err)
	}
	return strings.TrimPrefix(host, "host memory: "), strings.TrimPrefix(device, "device memory: ")
}

// BadDescriptors: each descriptor that is not of exported memory of that size is an error that says what is wrong with it.
func BadDescriptors(t *testing.T, of Backend) {
	d, s, err := sharerOf(of)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "rows"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(8 << 20); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	unsealed := os.NewFile(uintptr(fd), "unsealed")
	defer unsealed.Close()
	if err := unsealed.Truncate(8 << 20); err != nil {
		t.Fatal(err)
	}
	const bytes = 8 << 20
	for kind, k := range map[string]struct {
		alloc func(bytes int64, what string) (device.Buffer, error)
		from  func(f *os.File, bytes int64, writable bool, what string) (device.Buffer, error)
	}{
		"device": {s.AllocShared, s.Import},
		"host":   {func(bytes int64, what string) (device.Buffer, error) { return s.AllocSharedHost(nil, bytes, what) }, s.ImportHost},
	} {
		exported := func(bytes int64) *os.File {
			b, err := k.alloc(bytes, "slab")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Free(b) })
			f, err := s.Export(b)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			if _, err := s.Export(b.Slice(0, bytes/2)); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("buffer (%d bytes) exported must be one of AllocShared", bytes/2)) {
				t.Errorf("%s: a slice: %v", kind, err)
			}
			return f
		}
		short, closed := exported(4<<20), exported(bytes)
		closed.Close()
		for name, c := range map[string]struct {
			f    *os.File
			want string // for host memory
		}{
			"file":     {file, "a file) must be of shared memory"},
			"pipe":     {r, "a pipe) must be of shared memory"},
			"unsealed": {unsealed, "must be of memory that is sealed against shrinking"},
			"short":    {short, "shared memory (4194304 bytes) must be 8388608 bytes, the pages for 8388608"},
			"closed":   {closed, "use of closed file"},
			"nil":      {nil, "must not be nil"},
		} {
			want := c.want
			if kind == "device" && d.Info().Kind == "cuda" && name != "closed" && name != "nil" {
				want = "import of slab (8388608 bytes), which must be memory that a GPU has exported: cuda: cuMem"
			}
			b, err := k.from(c.f, bytes, false, "slab")
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "import of slab") {
				t.Errorf("%s memory, %s: %v, want %s", kind, name, err, want)
			} else {
				t.Log(err)
			}
			d.Free(b)
		}
		if _, err := k.from(short, -1, false, "slab"); !errors.Is(err, device.ErrOutOfMemory) {
			t.Errorf("%s memory, -1 bytes: %v", kind, err)
		}
		own, err := d.Alloc(bytes, "own")
		if err != nil {
			t.Fatal(err)
		}
		again, err := k.from(short, 4<<20, true, "slab")
		if err != nil {
			t.Fatalf("%s memory, after errors: %v", kind, err)
		}
		for what, b := range map[string]device.Buffer{"memory of Alloc": own, "imported memory": again, "the zero buffer": {}} {
			if _, err := s.Export(b); err == nil || !strings.Contains(err.Error(), "export") {
				t.Errorf("%s memory: %s was exported: %v", kind, what, err)
			}
		}
		d.Free(own)
		d.Free(again)
	}
	if err := d.Err(); err != nil {
		t.Error(err)
	}
}

// NothingLeft allocates, maps and frees memory so many times: no descriptor, no mapping, and no memory stays. A GPU with less memory than all rounds
// need shows that by itself. free, if not nil, returns the free bytes of a device that no one else uses.
func NothingLeft(t *testing.T, of Backend, rounds int, bytes int64, free func(device.Device) (int64, error)) {
	d, s, err := sharerOf(of)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	tier, err := s.AllocSharedHost(nil, 3<<20, "host tier")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(tier)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	once := func() {
		slab, err := s.AllocShared(bytes, "slab")
		if err != nil {
			t.Fatal(err)
		}
		f, err1 := s.Export(slab)
		g, err2 := s.Export(tier)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		a, err1 := s.Import(f, bytes, false, "slab")
		b, err2 := s.ImportHost(g, tier.Size(), false, "host tier")
		if err := errors.Join(err1, err2, f.Close(), g.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Import(null, bytes, false, "nothing"); err == nil {
			t.Fatal("nothing was imported")
		}
		for _, m := range []device.Buffer{slab, a, b} {
			d.Free(m)
		}
	}
	for range 10 { // what the driver and the runtime keep
		once()
	}
	before := held(t, d, free)
	for range rounds {
		once()
	}
	if after := held(t, d, free); after != before {
		t.Errorf("descriptors, mappings of shared memory, free bytes of the device: %v before, %v after", before, after)
	}
	if err := d.Err(); err != nil {
		t.Error(err)
	}
}

// held counts the descriptors of the process, its mappings of shared memory, and what free returns.
func held(t *testing.T, d device.Device, free func(device.Device) (int64, error)) (held [3]int64) {
	t.Helper()
	runtime.GC()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	held[0], held[1] = int64(len(fds)), int64(strings.Count(string(maps), "/memfd:"))
	if free != nil {
		if held[2], err = free(d); err != nil {
			t.Fatal(err)
		}
	}
	return held
}
