package numa_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/internal/numa"
)

// mmap maps bytes until the test ends.
func mmap(t *testing.T, fd, bytes, access, flags int) []byte {
	t.Helper()
	b, err := unix.Mmap(fd, 0, bytes, access, flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return b
}

var static [1 << 16]byte // in the program's zeroed data

func TestAdoptable(t *testing.T) {
	const rw, anonymous = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANON
	page := os.Getpagesize()
	fd, err := unix.MemfdCreate("rows", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	file, err := os.CreateTemp(t.TempDir(), "rows")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, f := range []int{fd, int(file.Fd())} {
		if err := unix.Ftruncate(f, int64(8*page)); err != nil {
			t.Fatal(err)
		}
	}
	half := mmap(t, -1, 8*page, rw, anonymous) // its second half is read-only
	if err := unix.Mprotect(half[4*page:], unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	hole := mmap(t, -1, 8*page, rw, anonymous)
	if _, _, errno := unix.Syscall(unix.SYS_MUNMAP, uintptr(unsafe.Pointer(&hole[6*page])), uintptr(page), 0); errno != 0 {
		t.Fatal(errno)
	}
	cases := map[string]struct {
		mem  []byte
		want string // of the error; "": none
	}{
		"anonymous":            {mmap(t, -1, 8*page, rw, anonymous), ""},
		"shared anonymous":     {mmap(t, -1, 8*page, rw, unix.MAP_SHARED|unix.MAP_ANON), ""},
		"memfd":                {mmap(t, fd, 8*page, rw, unix.MAP_SHARED), ""},
		"half of a mapping":    {half[:4*page], ""},
		"of two mappings":      {half, fmt.Sprintf("numa: memory (at byte %d, r--p of anonymous memory) must be readable and writable", 4*page)},
		"hole":                 {hole, fmt.Sprintf("must be mapped: byte %d is not", 6*page)},
		"file":                 {mmap(t, int(file.Fd()), 8*page, rw, unix.MAP_SHARED), "of " + filepath.Dir(file.Name())},
		"private file":         {mmap(t, int(file.Fd()), 8*page, rw, unix.MAP_PRIVATE), "must not be of a file"},
		"read-only":            {mmap(t, -1, 8*page, unix.PROT_READ, anonymous), "must be readable and writable"},
		"read-only memfd":      {mmap(t, fd, 8*page, unix.PROT_READ, unix.MAP_SHARED), "must be readable and writable"},
		"large of the Go heap": {make([]byte, 300<<20), "numa: memory (at byte 0) must not be of the Go heap"},
		"small of the Go heap": {make([]byte, 5000), "must not be of the Go heap"},
		"the program's text":   {unsafe.Slice(unsafe.StringData("constant text"), 5), "must be readable and writable"},
		"the program's data":   {static[:], ""},
		"nothing":              {nil, "numa: memory (0 bytes) must not be empty"},
	}
	if shm, err := os.CreateTemp("/dev/shm", "tensorcache"); err == nil {
		defer os.Remove(shm.Name())
		defer shm.Close()
		if err := shm.Truncate(int64(8 * page)); err != nil {
			t.Fatal(err)
		}
		c := cases["anonymous"]
		c.mem = mmap(t, int(shm.Fd()), 8*page, rw, unix.MAP_SHARED)
		cases["/dev/shm"] = c
	}
	for name, c := range cases {
		err := numa.Adoptable(c.mem)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
