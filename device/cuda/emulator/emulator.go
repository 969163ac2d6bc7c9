//go:build cuda && linux

package emulator

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>

// entry returns a function of the driver that is loaded, or NULL. Only the emulator has those named tensorcache_emulator_.
static void *entry(const char *name)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	return library != NULL ? dlsym(library, name) : NULL;
}

static int present(void) { return entry("tensorcache_emulator_fail") != NULL; }

static void fail(int device, int error, int launches)
{
	void (*f)(int, int, int) = (void (*)(int, int, int))entry("tensorcache_emulator_fail");
	if (f != NULL)
		f(device, error, launches);
}

static void slow(int device, int micros)
{
	void (*f)(int, int) = (void (*)(int, int))entry("tensorcache_emulator_slow");
	if (f != NULL)
		f(device, micros);
}

static unsigned long long calls(void)
{
	unsigned long long (*f)(void) = (unsigned long long (*)(void))entry("tensorcache_emulator_calls");
	return f != NULL ? f() : 0;
}
*/
import "C"

import (
	"time"

	"github.com/tensorcache/tensorcache/device/cuda/internal/driver"
)

// Present says whether the driver is the emulator.
func Present() bool { return driver.LoadError() == nil && C.present() != 0 }

// Fail makes a device lost, as after a fault: from then on its calls return the error. This happens at the launch that follows so many more
// launches, or at once if launches is below 0. The device works again when all that opened it have closed it. Fail does nothing if the driver is not
// the emulator.
func Fail(ordinal int, with driver.Result, launches int) {
	C.fail(C.int(ordinal), C.int(with), C.int(launches))
}

// Slow adds a time to each launch of a device, until it is called with 0. It does nothing if the driver is not the emulator.
func Slow(ordinal int, by time.Duration) { C.slow(C.int(ordinal), C.int(by.Microseconds())) }

// Calls returns how many calls of the driver there were that act on a context: launches, copies, queries of events and the like. It is 0 if the
// driver is not the emulator.
func Calls() uint64 { return uint64(C.calls()) }
