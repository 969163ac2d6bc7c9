// Package driver is the part of the CUDA driver API that the CUDA backend needs: devices, contexts, memory, streams, events,
// modules and launches. It is built with the build tag cuda, on linux/amd64 and linux/arm64. Without the tag it has only the
// error types. It is safe for concurrent use. As in the driver API, an object must not be used during or after the call that
// destroys it.
//
// # The driver is found at run time
//
// A build needs neither the CUDA toolkit nor a driver. The folder include has a cuda.h of this project. Binaries are linked with
// a static stub library, libcuda.a, which is made from the folder stub. Each entry of the stub jumps to the entry of that name in
// libcuda.so.1, or in the file that the environment variable TENSORCACHE_LIBCUDA names. It is looked up at the first call. The
// driver is loaded and initialized at the first call of any entry but cuInit, which always succeeds. So binaries with this package
// start on every machine, and do not wait for the driver if they use no GPU. If no driver is usable, the device count is 0, every
// other entry returns CUDA_ERROR_NO_DEVICE, and LoadError says why. An entry that the driver lacks returns CUDA_ERROR_NOT_FOUND.
//
// # Contexts
//
// The driver API works on the current context of the calling thread, and goroutines change threads. So every method makes its
// context current for the call, and then restores the context that was current. Frequent calls do this in C, in one call from
// Go. Others lock the goroutine to its thread. Callers need no locks, and contexts of other code in the process are not changed.
// Context is the device's primary context, which the CUDA runtime and frameworks built on it use too.
//
// # What comes from gorgonia.org/cu
//
// gorgonia.org/cu makes the calls for devices and their attributes, peers, the primary context and device memory, and creates and
// destroys streams and events. shim.c makes the others: it loads modules, because the library loses the compiler's log; it launches,
// because the library allocates and copies 8 bytes for every parameter; it makes all calls on streams, with one call from Go instead
// of three; and it allocates page-locked memory and memory that processes share, which the library cannot.
//
// # Memory
//
// The caller owns the objects that it creates, and destroys them in the reverse order. There are no finalizers. Copies are
// asynchronous: Go memory must be pinned (runtime.Pinner) until its copy is done.
package driver
