//go:build cgo && linux

package main

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
)

// TestMessage_PageLocked lowers the process's limit, as containers do.
func TestMessage_PageLocked(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: min(64<<10, old.Max), Max: old.Max}); err != nil {
		t.Skip(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old)
	lack := fmt.Errorf("cuda: allocation for page-locked host tier (5120 bytes) on device 0: %w", device.ErrOutOfMemory)
	text := message(fmt.Errorf("cache: %w", lack))
	for _, part := range []string{"page-locked host tier (5120 bytes)", "This process may still take", "`ulimit -l` is 64 KiB: set it to unlimited"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
	// Memory of the GPU has nothing to do with it.
	of := fmt.Errorf("cuda: allocation for slab (5120 bytes) on device 0: %w", device.ErrOutOfMemory)
	if got := message(of); got != of.Error() {
		t.Error(got)
	}
}

// TestMessage_Names compares the words of errors with those of tc_config.
func TestMessage_Names(t *testing.T) {
	table, err := cache.FromBytes("x", dtype.Float32, make([]byte, 4096), 64)
	if err != nil {
		t.Fatal(err)
	}
	_, err = cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 16})
	if err == nil || !strings.Contains(message(err), "gpu_memory (16 B) must hold") {
		t.Errorf("%v", err)
	}
}
