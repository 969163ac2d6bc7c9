package foreign

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"
)

// shrunk returns memory of a mapped file of which the first page is left.
func shrunk(t *testing.T) []byte {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "mapped"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page := os.Getpagesize()
	if err := f.Truncate(int64(4 * page)); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, 4*page, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	if err := f.Truncate(int64(page)); err != nil {
		t.Fatal(err)
	}
	return mem
}

// TestRead_ShrunkFile: memory of a mapped file that has become shorter is an error, what is left of it is read, and other panics stay panics.
func TestRead_ShrunkFile(t *testing.T) {
	mem := shrunk(t)
	page := os.Getpagesize()
	to := make([]byte, len(mem))
	if err := Read(func() { copy(to, mem[:page]) }); err != nil {
		t.Error(err)
	}
	for _, from := range []int{page, page + 1, len(mem) - 1, 0} {
		if err := Read(func() { copy(to, mem[from:]) }); !errors.Is(err, ErrFault) {
			t.Errorf("from byte %d: %v", from, err)
		}
	}
	if on := debug.SetPanicOnFault(false); on {
		t.Error("faults of the goroutine panic when Read has returned")
	}
	for _, f := range []func(){func() { panic("bug") }, func() { var p *int; to[0] = byte(*p) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a panic of f is lost")
				}
			}()
			Read(f)
		}()
	}
}
