// Package cuda is the backend for NVIDIA GPUs. It uses the CUDA driver API. It is built on Linux with the build tag cuda. In
// other builds Open returns ErrNotBuilt.
//
// A [device.Kernel] runs on a GPU if it is also a [Kernel]. Its RunCUDA enqueues the launches of its [Function]s. The driver compiles
// their PTX when a device first needs it.
//
// Devices are safe for concurrent use. A device works in the GPU's primary context, which it shares with other code of the process,
// and releases it on Close. After an error that destroys the context every call fails, and Err returns that error.
package cuda
