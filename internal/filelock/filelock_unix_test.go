//go:build unix

package filelock

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestTry_RemovedFiles: also where holders remove the file, one at a time has the lock.
func TestTry_RemovedFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	var holders, most, taken atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				f, err := Try(path)
				if err != nil {
					continue
				}
				taken.Add(1)
				if n := holders.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(10 * time.Microsecond) // for others to come
				holders.Add(-1)
				os.Remove(path)
				f.Close()
			}
		})
	}
	wg.Wait()
	if taken.Load() < 8 || most.Load() != 1 {
		t.Errorf("taken %d times, by up to %d at once", taken.Load(), most.Load())
	}
}
