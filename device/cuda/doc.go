// Package cuda is the backend for NVIDIA GPUs, on the CUDA driver API. It exists under the build tag cuda, on Linux; in
// other builds Open returns an error that says so.
//
// A [device.Kernel] runs here if it is a [Kernel] too: its RunCUDA enqueues the launches of its [Function]s, whose PTX the
// driver compiles when a device first needs it.
//
// Devices are safe for concurrent use. A device works in its primary context, which it shares with everybody else in the
// process, and gives back on Close. After an error that loses the context every call fails with it, and Err returns it.
package cuda
