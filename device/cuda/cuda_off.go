//go:build !cuda || !linux

package cuda

import (
	"errors"

	"github.com/tensorcache/tensorcache/device"
)

// ErrNotBuilt is returned by every call of a build without the tag cuda.
var ErrNotBuilt = errors.New("cuda: not in this build; build on Linux with the tag cuda")

// ErrUnsupported is wrapped by Open's error for GPUs that the kernels do not run on.
var ErrUnsupported = errors.New("cuda: unsupported")

// Usable returns nil if there is a device to open, or an error that says why not.
func Usable() error { return ErrNotBuilt }

// IsDriverError reports whether err stems from the driver, or from there being none.
func IsDriverError(err error) bool { return errors.Is(err, ErrNotBuilt) }

// Open returns the first n GPUs.
func Open(int) ([]device.Device, error) { return nil, ErrNotBuilt }

// OpenGPUs returns the GPUs of the given ordinals.
func OpenGPUs([]int) ([]device.Device, error) { return nil, ErrNotBuilt }

// Count returns the number of GPUs that the driver lists: 0.
func Count() int { return 0 }

// Driver returns the version of CUDA that the driver supports.
func Driver() string { return "" }

// List returns the GPUs.
func List() ([]GPU, error) { return nil, ErrNotBuilt }

// Seen returns the GPUs that this process sees.
func Seen() ([]GPU, error) { return nil, ErrNotBuilt }
