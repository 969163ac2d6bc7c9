package memlimit

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHeld_Ownerless: memory that is mapped is held if nobody maps it writable, as an owner does.
func TestHeld_Ownerless(t *testing.T) {
	const n = 3 << 20
	fd, err := unix.MemfdCreate("tensorcache host tier", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(fd, 0, 0, n); err != nil {
		t.Fatal(err)
	}
	mapped := func(rights int) func() {
		b, err := unix.Mmap(fd, 0, n, rights, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		return func() { unix.Munmap(b) }
	}
	own := func() (bytes int64) {
		holders, sum := held()
		for _, h := range holders {
			if h.PID == os.Getpid() && sum >= h.Bytes && h.Name != "" {
				bytes = h.Bytes
			}
		}
		return bytes
	}
	client := mapped(unix.PROT_READ)
	unix.Close(fd) // as clients do
	if got := own(); got != n {
		t.Errorf("%d bytes are held, want %d", got, n)
	}
	if text := Held(); !strings.Contains(text, fmt.Sprintf("(process %d) 3.1 MB", os.Getpid())) {
		t.Errorf("text %q", text)
	}
	client()
	if got := own(); got != 0 {
		t.Errorf("%d bytes are held after the end, want 0", got)
	}
	if fd, err = unix.MemfdCreate("tensorcache host tier", unix.MFD_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, n); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	defer mapped(unix.PROT_READ)()
	defer mapped(unix.PROT_READ | unix.PROT_WRITE)()
	if got := own(); got != 0 {
		t.Errorf("%d bytes with an owner are held, want 0", got)
	}
}
