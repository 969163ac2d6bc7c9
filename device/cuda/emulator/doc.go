// Package emulator is what tests ask of the emulated GPU: a CUDA driver, libcuda.so.1, that runs the kernels on the host's processors,
// so that the CUDA backend can be tested where there is no GPU. It is safe for concurrent use.
//
// lib is that driver, in C++; kernels/emulated.h is what takes the place of PTX in kernels/gpu.h; emulator.mk builds both, the
// kernels from the sources and with the macros that kernels/build.sh lists. A module is known by the hash of its PTX.
//
//   - A device is its allocations, which lie between pages that cannot be reached. A stream is a queue and a thread.
//   - A launch runs in its stream's thread. As many of its blocks as the GPU would hold at once take turns, in an order that varies
//     with a seed; each of their lanes has a stack. A lane gives way where it meets others: at barriers, votes, shuffles and
//     scans, now and then at atomic operations, and where it waits for another block or the host.
//   - A captured graph is what was enqueued on its streams, in that order. Its branches do not run at once.
//   - Asynchronous copies happen when they are waited for; shared memory begins with bytes that nobody wrote.
//   - Modules that are built to say what they access have races in shared memory found: lib/races.cc, make test-races.
//   - Faults, meetings that lanes do not come to, and calls that a GPU would refuse end the launch and lose the device, with a line on
//     standard error that names kernel, block and thread.
//
// docs/gpu.md says what it shows, what it cannot, and the environment variables that it reads.
package emulator
