//go:build !linux

package main

import (
	"context"
	"errors"
	"os"
	"time"
)

// execute needs Linux, as GPUs do.
func execute(context.Context, []string, *os.File, time.Duration) error {
	return errors.New("steps run on Linux only")
}
