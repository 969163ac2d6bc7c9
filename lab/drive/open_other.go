//go:build !linux

package drive

import (
	"os"
	"time"
)

// open opens a file for reads through the page cache: direct ones are for Linux only.
func open(path string) (*os.File, error) { return os.Open(path) }

// processorTime is not known here.
func processorTime() time.Duration { return 0 }

func aligned(n int) []byte { return make([]byte, n) }
