package eintr

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

func TestRetry(t *testing.T) {
	for _, end := range []error{nil, syscall.ENOSPC, errors.New("other")} {
		calls := 0
		err := Retry(func() error {
			if calls++; calls == 3 {
				return end
			}
			return os.NewSyscallError("fallocate", syscall.EINTR)
		})
		if err != end || calls != 3 {
			t.Errorf("%d calls, error %v, want %v", calls, err, end)
		}
	}
}
