package scratch

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFolder_Interrupted: a reservation that signals interrupt is made in parts, each until it is made. Other errors end it.
func TestFolder_Interrupted(t *testing.T) {
	defer func() { fallocate = unix.Fallocate }()
	const n = 2*reservePart + 5
	var asked []int64
	calls, failure := 0, error(nil)
	fallocate = func(fd int, mode uint32, at, n int64) error {
		calls++
		switch {
		case calls == 1, calls%2 == 0: // all bytes, and each part at its first call
			return unix.EINTR
		case failure != nil:
			return failure
		}
		asked = append(asked, at, n)
		return unix.Fallocate(fd, mode, at, n)
	}
	f := In(t.TempDir())
	defer f.Close()
	b, err := f.Bytes(n)
	if err != nil || len(b) != n || calls != 7 || !slices.Equal(asked, []int64{0, reservePart, reservePart, reservePart, 2 * reservePart, 5}) {
		t.Fatalf("%d bytes, %d calls, parts %v: %v", len(b), calls, asked, err)
	}
	b[n-1] = 1
	calls, failure = 0, unix.ENOSPC
	if _, err := f.Bytes(n); !errors.Is(err, unix.ENOSPC) || calls != 3 {
		t.Errorf("%d calls: %v", calls, err)
	}
}
