//go:build cuda && linux

package cuda

import (
	"errors"

	"github.com/tensorcache/tensorcache/device/cuda/internal/driver"
)

// IsDriverError reports whether err is, or wraps, a failed call of the driver, or says that there is no usable driver.
func IsDriverError(err error) bool {
	_, failed := errors.AsType[*driver.Error](err)
	_, result := errors.AsType[driver.Result](err)
	return failed || result || errors.Is(err, driver.ErrNoDriver)
}
