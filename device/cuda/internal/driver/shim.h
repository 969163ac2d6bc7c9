/*
 * What gorgonia.org/cu lacks or does too slowly. Each function makes the context current, calls the driver and restores
 * what was current, all on one thread, and returns the CUresult. Handles cross as integers: to Go they are no pointers.
 */
#ifndef TENSORCACHE_CUDA_SHIM_H
#define TENSORCACHE_CUDA_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* The most devices that are given access to memory. */
#define TENSORCACHE_MAX_DEVICES 64

/* The most parameters a kernel may have here. */
#define TENSORCACHE_MAX_PARAMS 64

/* One piece of work for a stream. */
enum tensorcache_what { TENSORCACHE_LAUNCH, TENSORCACHE_RECORD, TENSORCACHE_WAIT };

struct tensorcache_command {
	uint32_t what;
	uint32_t args; /* a launch: where its one parameter lies, in words of 8 bytes */
	uintptr_t stream;
	uintptr_t function;
	uintptr_t event; /* a launch: 0, or passes once all blocks have begun */
	uint32_t blocks, threads, shared;
};

/* What the JIT compiler is told and says. Logs are NUL-terminated; NULL: not wanted. */
struct tensorcache_jit {
	uint32_t max_registers;      /* 0: no limit */
	uint32_t optimization_level; /* 0..4 */
	uint32_t line_info;          /* 0 or 1 */
	uint32_t verbose;            /* 0 or 1 */
	uint32_t info_bytes;         /* of the log buffers */
	uint32_t error_bytes;
	float milliseconds;          /* out: time spent compiling */
};

/* What is known about an address. Filled with zeros, device -1, where the driver knows nothing. */
struct tensorcache_pointer {
	uint32_t memory_type; /* a CUmemorytype, or 0 */
	int32_t device;
	uint32_t managed;
	uint32_t reserved;
	uint64_t start;
	uint64_t bytes;
	uint64_t context;
};

/* Without a context. */
int tensorcache_error_name(int result, const char **name);
int tensorcache_error_string(int result, const char **text);
int tensorcache_device_pci_bus_id(int device, char *id, int length);

/* Page-locked memory. */
int tensorcache_pointer_info(uintptr_t ctx, uint64_t pointer, struct tensorcache_pointer *info);
int tensorcache_host_alloc(uintptr_t ctx, size_t bytes, unsigned int flags, void **pointer, uint64_t *device);
int tensorcache_host_register(uintptr_t ctx, void *pointer, size_t bytes, unsigned int flags, uint64_t *device);
int tensorcache_host_unregister(uintptr_t ctx, void *pointer);
int tensorcache_host_address(uintptr_t ctx, void *pointer, uint64_t *device);

/*
 * Managed memory. settle advises the driver to keep the bytes at the location, a device or CU_DEVICE_CPU, and to have them mapped for the reader where
 * that is another one, and moves them there. *call is the driver's entry that failed.
 */
int tensorcache_managed_alloc(uintptr_t ctx, size_t bytes, void **pointer);
int tensorcache_managed_settle(uintptr_t ctx, uint64_t pointer, size_t bytes, int location, int reader, uintptr_t stream, const char **call);

/*
 * Device memory that other processes can map. Sizes are multiples of the granularity. *call is the driver's entry that failed. map gives the
 * devices access; without writable, to read, or if the driver refuses that, to read and write. import keeps fd as it is.
 */
int tensorcache_shared_granularity(uintptr_t ctx, int device, size_t *bytes);
int tensorcache_shared_create(uintptr_t ctx, int device, size_t bytes, uint64_t *handle);
int tensorcache_shared_import(uintptr_t ctx, int fd, uint64_t *handle, int *device, const char **call);
int tensorcache_shared_export(uintptr_t ctx, uint64_t handle, int *fd);
int tensorcache_shared_map(uintptr_t ctx, uint64_t handle, size_t bytes, const int *devices, uint32_t count, int writable,
	uint64_t *address, const char **call);
int tensorcache_shared_unmap(uintptr_t ctx, uint64_t address, size_t bytes, const char **call);
int tensorcache_shared_release(uintptr_t ctx, uint64_t handle);

/* Copies and fills, enqueued. */
int tensorcache_copy_to_device(uintptr_t ctx, uint64_t destination, const void *source, size_t bytes, uintptr_t stream);
int tensorcache_copy_to_host(uintptr_t ctx, void *destination, uint64_t source, size_t bytes, uintptr_t stream);
int tensorcache_copy_device(uintptr_t ctx, uint64_t destination, uint64_t source, size_t bytes, uintptr_t stream);
int tensorcache_copy_rows(uintptr_t ctx, uint64_t destination, size_t stride, uint64_t source, size_t row, size_t rows, uintptr_t stream);
int tensorcache_fill8(uintptr_t ctx, uint64_t pointer, uint8_t value, size_t count, uintptr_t stream);

/* Streams and events. */
int tensorcache_stream_ctx(uintptr_t ctx, uintptr_t stream, uintptr_t *owner);
int tensorcache_stream_capturing(uintptr_t ctx, uintptr_t stream, int *status);
int tensorcache_stream_begin_capture(uintptr_t ctx, uintptr_t stream, int mode);
int tensorcache_stream_end_capture(uintptr_t ctx, uintptr_t stream, uintptr_t *graph);
int tensorcache_stream_synchronize(uintptr_t ctx, uintptr_t stream);
int tensorcache_stream_wait_event(uintptr_t ctx, uintptr_t stream, uintptr_t event);
int tensorcache_stream_write_value32(uintptr_t ctx, uintptr_t stream, uint64_t address, uint32_t value);
int tensorcache_event_record(uintptr_t ctx, uintptr_t event, uintptr_t stream);
int tensorcache_event_query(uintptr_t ctx, uintptr_t event);
int tensorcache_event_synchronize(uintptr_t ctx, uintptr_t event);
int tensorcache_event_elapsed(uintptr_t ctx, uintptr_t start, uintptr_t end, float *milliseconds);

/*
 * Graphs. A hold says when the graph that a stream captures, and all that was instantiated of it, has been destroyed. It is memory of the C
 * heap with two owners, the graph and the one who made it; the one that gives it up last frees it.
 */
struct tensorcache_hold;
int tensorcache_hold_capture(uintptr_t ctx, uintptr_t stream, struct tensorcache_hold **hold);
int tensorcache_hold_over(struct tensorcache_hold *hold);
void tensorcache_hold_free(struct tensorcache_hold *hold);
int tensorcache_graph_instantiate(uintptr_t ctx, uintptr_t graph, uintptr_t *exec);
int tensorcache_graph_launch(uintptr_t ctx, uintptr_t exec, uintptr_t stream);
int tensorcache_graph_destroy(uintptr_t ctx, uintptr_t graph);
int tensorcache_graph_exec_destroy(uintptr_t ctx, uintptr_t exec);

/*
 * While some thread captures a graph, calls such as allocations make that capture fail, whichever thread makes them, unless the calling
 * thread says that it knows what it does. relax says so and returns what the thread had said before, for restore.
 */
int tensorcache_relax(void);
void tensorcache_restore(int mode);

/* Modules and functions. */
int tensorcache_module_load(uintptr_t ctx, const char *image, struct tensorcache_jit *jit, char *info, char *error,
	uintptr_t *module);
int tensorcache_module_unload(uintptr_t ctx, uintptr_t module);
int tensorcache_module_function(uintptr_t ctx, uintptr_t module, const char *name, uintptr_t *function);
int tensorcache_function_attribute(uintptr_t ctx, uintptr_t function, int attribute, int *value);
int tensorcache_function_set_attribute(uintptr_t ctx, uintptr_t function, int attribute, int value);
int tensorcache_function_occupancy(uintptr_t ctx, uintptr_t function, int block, size_t shared, int *blocks);

/*
 * Launches a kernel. Its parameter i is at args + offsets[i]; the driver copies all of them before this returns.
 */
int tensorcache_launch(uintptr_t ctx, uintptr_t function, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z,
	uint32_t block_x, uint32_t block_y, uint32_t block_z, uint32_t shared, uintptr_t stream,
	const void *args, const uint16_t *offsets, uint32_t count);

/* The same, of one parameter; the event passes once all blocks have begun. Drivers before CUDA 12.3 know no such events. */
int tensorcache_launch_begun(uintptr_t ctx, uintptr_t function, uint32_t grid, uint32_t block, uint32_t shared,
	uintptr_t stream, const void *arg, uintptr_t event);

/* Several commands in one call, up to the first that fails; *enqueued is how many did not. */
int tensorcache_enqueue(uintptr_t ctx, const struct tensorcache_command *commands, uint32_t count, const uint64_t *args,
	uint32_t *enqueued);

#endif
