//go:build !cuda || !linux

package cuda

import (
	"errors"

	"github.com/tensorcache/tensorcache/device"
)

// ErrNotBuilt is returned by every call of a build without the tag cuda.
var ErrNotBuilt = errors.New("cuda: not in this build; build on Linux with the tag cuda")

// Usable returns nil if there is a device to open, or an error that says why not.
func Usable() error { return ErrNotBuilt }

// Open returns the first n GPUs.
func Open(int) ([]device.Device, error) { return nil, ErrNotBuilt }

// Count returns the number of GPUs that Open can open.
func Count() int { return 0 }

// List describes all GPUs.
func List() (gpus []GPU, driverVersion int, err error) { return nil, 0, ErrNotBuilt }
