// Package driver is the CUDA driver API as the CUDA backend needs it: devices, contexts, memory, streams, events,
// modules and launches. It exists under the build tag cuda, on linux/amd64 and linux/arm64; without the tag only the
// error types do. Safe for concurrent use, from any goroutine; what may not be used at once (an object and the call
// that destroys it) is as in the driver API.
//
// # The driver is found at run time
//
// A build needs neither the CUDA toolkit nor a driver. cuda.h in the folder include is our own, and the link takes a
// static stub library, libcuda.a, made from the folder stub: every entry is a jump to what dlopen finds in
// libcuda.so.1 (or in the file that the environment variable TENSORCACHE_LIBCUDA names), bound at its first call. The
// driver is loaded and initialized at the first call of any entry but cuInit, which always succeeds; so a binary that
// has this package starts on every machine, and one that uses no GPU does not wait for the driver. Where no driver is
// usable the device count is 0, every other entry returns CUDA_ERROR_NO_DEVICE, and LoadError says why. An entry that
// the driver lacks returns CUDA_ERROR_NOT_FOUND.
//
// # Contexts
//
// The driver API works on the context that is current to the calling thread, and goroutines change threads. So every
// method here makes its context current for the length of the call and then restores what was current: in C, in one
// crossing, where calls are frequent; with the thread locked where they are not. Callers need lock nothing, and a
// context of somebody else in the same process is left alone. Context is the device's primary context, the one that
// the CUDA runtime and frameworks built on it use.
//
// # What comes from gorgonia.org/cu
//
// Devices and their attributes, peers, the primary context, device memory, and the making and destroying of streams and
// events are gorgonia.org/cu's. Modules (it loses the compiler's log), launches (it allocates and copies 8
// bytes for every parameter), everything enqueued on a stream (one crossing instead of three) and page-locked memory
// (which it lacks) are ours, in shim.c.
//
// # Memory
//
// The caller owns everything it makes and destroys it in the reverse order; nothing has a finalizer. Copies are
// asynchronous: Go memory used in one must be pinned (runtime.Pinner) until the stream has passed it.
package driver
