// Package emulator is the emulated GPU, and what tests ask of it. The emulated GPU is a CUDA driver, libcuda.so.1, that runs the kernels on
// the host's processors, so that the CUDA backend can be tested where there is no GPU. The package is safe for concurrent use.
//
// The driver is C++, in lib. Kernels are compiled for the host from their sources, with kernels/emulated.h in place of the PTX in
// kernels/gpu.h, each module of kernels/build.sh a shared object. The backend loads a module as PTX; the driver finds its shared object by
// the hash of that PTX. emulator.mk builds both.
//
// How it works, and where:
//
//   - driver_*.cc are the functions of CUDA's driver API. They share driver.h.
//   - device.cc, stream.cc, memory.cc, module.cc and settings.cc are what these act on. A stream is a queue and a thread. Allocations lie
//     between pages that cannot be reached. emulator.h is what all share.
//   - driver_graph.cc: a captured graph is the list of what was enqueued on its streams. Its branches do not run at the same time.
//   - schedule.cc runs a launch, in the thread of its stream. As many blocks as a GPU would hold at once take turns, in an order that
//     varies with a seed. Each lane has a stack (stacks.cc) and runs until it yields (fiber.S). block.h is what the parts of a launch share.
//   - collectives.cc: barriers, votes, shuffles and sums. A lane yields in each of them, now and then at atomic operations, and where it
//     waits for memory to change.
//   - shared.cc and copies.cc: shared memory begins with bytes that nobody wrote. Asynchronous copies arrive when they are waited for.
//   - races.cc: races in shared memory, in modules that are built to report their accesses (accesses.cc): make test-races.
//   - fault.cc: a fault of memory, a collective operation that a lane does not come to, or a call that a GPU would refuse, ends the launch.
//     The device is lost, and a line on standard error names kernel, block and thread.
//   - lane.h is what kernels call. tests.cu has the kernels that tests bring as PTX.
//
// docs/gpu.md says what the emulated GPU finds and what it cannot, and lists its environment variables.
package emulator
