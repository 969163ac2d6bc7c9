//go:build cuda

#include "shim.h"

#include <cuda.h>
#include <stdlib.h>

_Static_assert(sizeof(uintptr_t) == sizeof(void *), "handles are pointers");

/* Returns from the function with the result of call, made in the context. */
#define IN_CONTEXT(ctx, call)                                    \
	do {                                                     \
		CUcontext popped;                                \
		CUresult result = cuCtxPushCurrent((CUcontext)(ctx)); \
		if (result != CUDA_SUCCESS)                      \
			return result;                           \
		result = (call);                                 \
		CUresult pop = cuCtxPopCurrent(&popped);         \
		return result != CUDA_SUCCESS ? result : pop;    \
	} while (0)

int tensorcache_relax(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	/* Drivers without the call capture no graphs that others could break. */
	return cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS ? (int)mode : -1;
}

void tensorcache_restore(int was)
{
	CUstreamCaptureMode mode = (CUstreamCaptureMode)was;
	if (was >= 0)
		cuThreadExchangeStreamCaptureMode(&mode);
}

/* IN_CONTEXT for calls that would break the captures of other threads: see tensorcache_relax. */
#define IN_CONTEXT_RELAXED(ctx, call)                                                                          \
	do {                                                                                                   \
		int mode;                                                                                      \
		IN_CONTEXT(ctx, (mode = tensorcache_relax(), result = (call), tensorcache_restore(mode), result)); \
	} while (0)

int tensorcache_error_name(int result, const char **name)
{
	return cuGetErrorName((CUresult)result, name);
}

int tensorcache_error_string(int result, const char **text)
{
	return cuGetErrorString((CUresult)result, text);
}

int tensorcache_device_pci_bus_id(int device, char *id, int length)
{
	return cuDeviceGetPCIBusId(id, length, device);
}

int tensorcache_pointer_info(uintptr_t ctx, uint64_t pointer, struct tensorcache_pointer *info)
{
	CUpointer_attribute attributes[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		CU_POINTER_ATTRIBUTE_IS_MANAGED,       CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
		CU_POINTER_ATTRIBUTE_RANGE_SIZE,       CU_POINTER_ATTRIBUTE_CONTEXT,
	};
	/* managed is a bool, one byte: the rest of its word stays 0 */
	void *values[] = {&info->memory_type, &info->device, &info->managed, &info->start, &info->bytes, &info->context};
	*info = (struct tensorcache_pointer){.device = -1};
	IN_CONTEXT(ctx, cuPointerGetAttributes(sizeof attributes / sizeof *attributes, attributes, values, pointer));
}

static CUresult host_alloc(size_t bytes, unsigned int flags, void **pointer, uint64_t *device)
{
	CUdeviceptr address = 0;
	CUresult result = cuMemHostAlloc(pointer, bytes, flags);
	if (result != CUDA_SUCCESS)
		return result;
	if ((result = cuMemHostGetDevicePointer(&address, *pointer, 0)) != CUDA_SUCCESS)
		cuMemFreeHost(*pointer);
	*device = address;
	return result;
}

int tensorcache_host_alloc(uintptr_t ctx, size_t bytes, unsigned int flags, void **pointer, uint64_t *device)
{
	IN_CONTEXT_RELAXED(ctx, host_alloc(bytes, flags, pointer, device));
}

static CUresult host_register(void *pointer, size_t bytes, unsigned int flags, uint64_t *device)
{
	CUdeviceptr address = 0;
	CUresult result = cuMemHostRegister(pointer, bytes, flags);
	if (result != CUDA_SUCCESS)
		return result;
	if ((result = cuMemHostGetDevicePointer(&address, pointer, 0)) != CUDA_SUCCESS)
		cuMemHostUnregister(pointer);
	*device = address;
	return result;
}

int tensorcache_host_register(uintptr_t ctx, void *pointer, size_t bytes, unsigned int flags, uint64_t *device)
{
	IN_CONTEXT_RELAXED(ctx, host_register(pointer, bytes, flags, device));
}

int tensorcache_host_unregister(uintptr_t ctx, void *pointer)
{
	IN_CONTEXT_RELAXED(ctx, cuMemHostUnregister(pointer));
}

int tensorcache_host_address(uintptr_t ctx, void *pointer, uint64_t *device)
{
	CUdeviceptr address = 0;
	*device = 0;
	IN_CONTEXT(ctx, (result = cuMemHostGetDevicePointer(&address, pointer, 0), *device = address, result));
}

int tensorcache_managed_alloc(uintptr_t ctx, size_t bytes, void **pointer)
{
	CUdeviceptr address = 0;
	IN_CONTEXT_RELAXED(ctx, (result = cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL), *pointer = (void *)(uintptr_t)address, result));
}

static CUresult managed_settle(CUdeviceptr pointer, size_t bytes, CUdevice location, CUdevice reader, CUstream stream, const char **call)
{
	*call = "cuMemAdvise";
	CUresult result = cuMemAdvise(pointer, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location);
	if (result == CUDA_SUCCESS && location != reader)
		result = cuMemAdvise(pointer, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, reader);
	if (result != CUDA_SUCCESS)
		return result;
	*call = "cuMemPrefetchAsync";
	return cuMemPrefetchAsync(pointer, bytes, location, stream);
}

int tensorcache_managed_settle(uintptr_t ctx, uint64_t pointer, size_t bytes, int location, int reader, uintptr_t stream, const char **call)
{
	*call = "cuCtxPushCurrent";
	IN_CONTEXT_RELAXED(ctx, managed_settle(pointer, bytes, location, reader, (CUstream)stream, call));
}

static CUmemAllocationProp shared_prop(int device)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
}

int tensorcache_shared_granularity(uintptr_t ctx, int device, size_t *bytes)
{
	const CUmemAllocationProp prop = shared_prop(device);
	IN_CONTEXT_RELAXED(ctx, cuMemGetAllocationGranularity(bytes, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
}

int tensorcache_shared_create(uintptr_t ctx, int device, size_t bytes, uint64_t *handle)
{
	const CUmemAllocationProp prop = shared_prop(device);
	CUmemGenericAllocationHandle made = 0;
	IN_CONTEXT_RELAXED(ctx, (result = cuMemCreate(&made, bytes, &prop, 0), *handle = made, result));
}

static CUresult shared_import(int fd, uint64_t *handle, int *device, const char **call)
{
	CUmemGenericAllocationHandle made = 0;
	CUmemAllocationProp prop = {0};
	*call = "cuMemImportFromShareableHandle";
	CUresult result = cuMemImportFromShareableHandle(&made, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (result != CUDA_SUCCESS)
		return result;
	*call = "cuMemGetAllocationPropertiesFromHandle";
	result = cuMemGetAllocationPropertiesFromHandle(&prop, made);
	if (result == CUDA_ERROR_INVALID_DEVICE) { // one that this process does not see
		prop.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = -1};
		result = CUDA_SUCCESS;
	}
	if (result == CUDA_SUCCESS && prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		result = CUDA_ERROR_INVALID_DEVICE;
	if (result != CUDA_SUCCESS) {
		cuMemRelease(made);
		return result;
	}
	*handle = made;
	*device = prop.location.id;
	return CUDA_SUCCESS;
}

int tensorcache_shared_import(uintptr_t ctx, int fd, uint64_t *handle, int *device, const char **call)
{
	*call = "cuCtxPushCurrent";
	IN_CONTEXT_RELAXED(ctx, shared_import(fd, handle, device, call));
}

int tensorcache_shared_export(uintptr_t ctx, uint64_t handle, int *fd)
{
	IN_CONTEXT_RELAXED(ctx, cuMemExportToShareableHandle(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

static CUresult shared_access(CUdeviceptr pointer, size_t bytes, const int *devices, uint32_t count, CUmemAccess_flags flags)
{
	CUmemAccessDesc access[TENSORCACHE_MAX_DEVICES];
	if (count > TENSORCACHE_MAX_DEVICES)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < count; i++)
		access[i] = (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = devices[i]}, .flags = flags};
	return cuMemSetAccess(pointer, bytes, access, count);
}

static CUresult shared_map(CUmemGenericAllocationHandle handle, size_t bytes, const int *devices, uint32_t count, int writable,
	uint64_t *address, const char **call)
{
	CUdeviceptr pointer = 0;
	*call = "cuMemAddressReserve";
	CUresult result = cuMemAddressReserve(&pointer, bytes, 0, 0, 0);
	if (result != CUDA_SUCCESS)
		return result;
	*call = "cuMemMap";
	if ((result = cuMemMap(pointer, bytes, 0, handle, 0)) != CUDA_SUCCESS) {
		cuMemAddressFree(pointer, bytes);
		return result;
	}
	*call = "cuMemSetAccess";
	if (!writable)
		result = shared_access(pointer, bytes, devices, count, CU_MEM_ACCESS_FLAGS_PROT_READ);
	if (writable || result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE)
		result = shared_access(pointer, bytes, devices, count, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	if (result != CUDA_SUCCESS) {
		cuMemUnmap(pointer, bytes);
		cuMemAddressFree(pointer, bytes);
		return result;
	}
	*address = pointer;
	return CUDA_SUCCESS;
}

int tensorcache_shared_map(uintptr_t ctx, uint64_t handle, size_t bytes, const int *devices, uint32_t count, int writable,
	uint64_t *address, const char **call)
{
	*call = "cuCtxPushCurrent";
	IN_CONTEXT_RELAXED(ctx, shared_map(handle, bytes, devices, count, writable, address, call));
}

static CUresult shared_unmap(CUdeviceptr pointer, size_t bytes, const char **call)
{
	*call = "cuMemUnmap";
	CUresult result = cuMemUnmap(pointer, bytes);
	if (result != CUDA_SUCCESS)
		return result;
	*call = "cuMemAddressFree";
	return cuMemAddressFree(pointer, bytes);
}

int tensorcache_shared_unmap(uintptr_t ctx, uint64_t address, size_t bytes, const char **call)
{
	*call = "cuCtxPushCurrent";
	IN_CONTEXT_RELAXED(ctx, shared_unmap(address, bytes, call));
}

int tensorcache_shared_release(uintptr_t ctx, uint64_t handle)
{
	IN_CONTEXT_RELAXED(ctx, cuMemRelease(handle));
}

int tensorcache_copy_to_device(uintptr_t ctx, uint64_t destination, const void *source, size_t bytes, uintptr_t stream)
{
	IN_CONTEXT(ctx, cuMemcpyHtoDAsync(destination, source, bytes, (CUstream)stream));
}

int tensorcache_copy_to_host(uintptr_t ctx, void *destination, uint64_t source, size_t bytes, uintptr_t stream)
{
	IN_CONTEXT(ctx, cuMemcpyDtoHAsync(destination, source, bytes, (CUstream)stream));
}

int tensorcache_copy_device(uintptr_t ctx, uint64_t destination, uint64_t source, size_t bytes, uintptr_t stream)
{
	IN_CONTEXT(ctx, cuMemcpyDtoDAsync(destination, source, bytes, (CUstream)stream));
}

int tensorcache_copy_rows(uintptr_t ctx, uint64_t destination, size_t stride, uint64_t source, size_t row, size_t rows, uintptr_t stream)
{
	const CUDA_MEMCPY2D copy = {
		.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = source, .srcPitch = row,
		.dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = destination, .dstPitch = stride,
		.WidthInBytes = row, .Height = rows,
	};
	IN_CONTEXT(ctx, cuMemcpy2DAsync(&copy, (CUstream)stream));
}

int tensorcache_fill8(uintptr_t ctx, uint64_t pointer, uint8_t value, size_t count, uintptr_t stream)
{
	IN_CONTEXT(ctx, cuMemsetD8Async(pointer, value, count, (CUstream)stream));
}

int tensorcache_stream_ctx(uintptr_t ctx, uintptr_t stream, uintptr_t *owner)
{
	IN_CONTEXT(ctx, cuStreamGetCtx((CUstream)stream, (CUcontext *)owner));
}

int tensorcache_stream_capturing(uintptr_t ctx, uintptr_t stream, int *status)
{
	IN_CONTEXT(ctx, cuStreamIsCapturing((CUstream)stream, (CUstreamCaptureStatus *)status));
}

int tensorcache_stream_begin_capture(uintptr_t ctx, uintptr_t stream, int mode)
{
	IN_CONTEXT(ctx, cuStreamBeginCapture((CUstream)stream, (CUstreamCaptureMode)mode));
}

int tensorcache_stream_end_capture(uintptr_t ctx, uintptr_t stream, uintptr_t *graph)
{
	IN_CONTEXT(ctx, cuStreamEndCapture((CUstream)stream, (CUgraph *)graph));
}

struct tensorcache_hold {
	int owners, over;
};

void tensorcache_hold_free(struct tensorcache_hold *hold)
{
	if (__atomic_sub_fetch(&hold->owners, 1, __ATOMIC_ACQ_REL) == 0)
		free(hold);
}

int tensorcache_hold_over(struct tensorcache_hold *hold)
{
	return __atomic_load_n(&hold->over, __ATOMIC_ACQUIRE);
}

/* The driver calls it in a thread of its own, where no call of the driver is allowed. */
static void hold_destroyed(void *pointer)
{
	struct tensorcache_hold *hold = pointer;
	__atomic_store_n(&hold->over, 1, __ATOMIC_RELEASE);
	tensorcache_hold_free(hold);
}

static CUresult hold_capture(CUstream stream, struct tensorcache_hold *hold)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUgraph graph = NULL;
	CUuserObject object;
	CUresult result = cuStreamGetCaptureInfo(stream, &status, NULL, &graph, NULL, NULL);
	if (result != CUDA_SUCCESS)
		return result;
	if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE || graph == NULL)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	hold->owners = 2;
	result = cuUserObjectCreate(&object, hold, hold_destroyed, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
	if (result != CUDA_SUCCESS) {
		hold->owners = 1;
		return result;
	}
	result = cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
	if (result != CUDA_SUCCESS)
		cuUserObjectRelease(object, 1);
	return result;
}

static CUresult hold_capture_in(uintptr_t ctx, CUstream stream, struct tensorcache_hold *hold)
{
	IN_CONTEXT(ctx, hold_capture(stream, hold));
}

int tensorcache_hold_capture(uintptr_t ctx, uintptr_t stream, struct tensorcache_hold **made)
{
	struct tensorcache_hold *hold = calloc(1, sizeof *hold);
	if (hold == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	hold->owners = 1;
	CUresult result = hold_capture_in(ctx, (CUstream)stream, hold);
	if (result != CUDA_SUCCESS)
		tensorcache_hold_free(hold);
	else
		*made = hold;
	return result;
}

int tensorcache_graph_instantiate(uintptr_t ctx, uintptr_t graph, uintptr_t *exec)
{
	IN_CONTEXT_RELAXED(ctx, cuGraphInstantiateWithFlags((CUgraphExec *)exec, (CUgraph)graph, 0));
}

int tensorcache_graph_launch(uintptr_t ctx, uintptr_t exec, uintptr_t stream)
{
	IN_CONTEXT(ctx, cuGraphLaunch((CUgraphExec)exec, (CUstream)stream));
}

int tensorcache_graph_destroy(uintptr_t ctx, uintptr_t graph)
{
	IN_CONTEXT(ctx, cuGraphDestroy((CUgraph)graph));
}

int tensorcache_graph_exec_destroy(uintptr_t ctx, uintptr_t exec)
{
	IN_CONTEXT_RELAXED(ctx, cuGraphExecDestroy((CUgraphExec)exec));
}

int tensorcache_stream_synchronize(uintptr_t ctx, uintptr_t stream)
{
	IN_CONTEXT_RELAXED(ctx, cuStreamSynchronize((CUstream)stream));
}

int tensorcache_stream_wait_event(uintptr_t ctx, uintptr_t stream, uintptr_t event)
{
	IN_CONTEXT(ctx, cuStreamWaitEvent((CUstream)stream, (CUevent)event, 0));
}

int tensorcache_stream_write_value32(uintptr_t ctx, uintptr_t stream, uint64_t address, uint32_t value)
{
	IN_CONTEXT(ctx, cuStreamWriteValue32((CUstream)stream, address, value, CU_STREAM_WRITE_VALUE_DEFAULT));
}

int tensorcache_event_record(uintptr_t ctx, uintptr_t event, uintptr_t stream)
{
	IN_CONTEXT(ctx, cuEventRecord((CUevent)event, (CUstream)stream));
}

int tensorcache_event_query(uintptr_t ctx, uintptr_t event)
{
	IN_CONTEXT_RELAXED(ctx, cuEventQuery((CUevent)event));
}

int tensorcache_event_synchronize(uintptr_t ctx, uintptr_t event)
{
	IN_CONTEXT_RELAXED(ctx, cuEventSynchronize((CUevent)event));
}

int tensorcache_event_elapsed(uintptr_t ctx, uintptr_t start, uintptr_t end, float *milliseconds)
{
	IN_CONTEXT(ctx, cuEventElapsedTime(milliseconds, (CUevent)start, (CUevent)end));
}

static CUresult module_load(const char *image, struct tensorcache_jit *jit, char *info, char *error, CUmodule *module)
{
	CUjit_option options[9];
	union { /* the driver reads and writes values in place of the pointers */
		void *pointer;
		uintptr_t word;
		uint32_t bits;
		float number;
	} values[9] = {{NULL}};
	unsigned int count = 0;
	_Static_assert(sizeof values[0] == sizeof(void *), "an option's value is pointer-sized");

	options[count] = CU_JIT_WALL_TIME; /* first: read back below */
	count++;
	options[count] = CU_JIT_OPTIMIZATION_LEVEL;
	values[count++].word = jit->optimization_level;
	if (jit->max_registers > 0) {
		options[count] = CU_JIT_MAX_REGISTERS;
		values[count++].word = jit->max_registers;
	}
	if (jit->line_info) {
		options[count] = CU_JIT_GENERATE_LINE_INFO;
		values[count++].word = 1;
	}
	if (jit->verbose) {
		options[count] = CU_JIT_LOG_VERBOSE;
		values[count++].word = 1;
	}
	if (info != NULL) {
		options[count] = CU_JIT_INFO_LOG_BUFFER;
		values[count++].pointer = info;
		options[count] = CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES;
		values[count++].word = jit->info_bytes;
	}
	if (error != NULL) {
		options[count] = CU_JIT_ERROR_LOG_BUFFER;
		values[count++].pointer = error;
		options[count] = CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES;
		values[count++].word = jit->error_bytes;
	}

	CUresult result = cuModuleLoadDataEx(module, image, count, options, (void **)values);
	jit->milliseconds = values[0].number;
	return result;
}

int tensorcache_module_load(uintptr_t ctx, const char *image, struct tensorcache_jit *jit, char *info, char *error,
	uintptr_t *module)
{
	IN_CONTEXT_RELAXED(ctx, module_load(image, jit, info, error, (CUmodule *)module));
}

int tensorcache_module_unload(uintptr_t ctx, uintptr_t module)
{
	IN_CONTEXT_RELAXED(ctx, cuModuleUnload((CUmodule)module));
}

int tensorcache_module_function(uintptr_t ctx, uintptr_t module, const char *name, uintptr_t *function)
{
	IN_CONTEXT(ctx, cuModuleGetFunction((CUfunction *)function, (CUmodule)module, name));
}

int tensorcache_function_attribute(uintptr_t ctx, uintptr_t function, int attribute, int *value)
{
	IN_CONTEXT(ctx, cuFuncGetAttribute(value, (CUfunction_attribute)attribute, (CUfunction)function));
}

int tensorcache_function_set_attribute(uintptr_t ctx, uintptr_t function, int attribute, int value)
{
	IN_CONTEXT(ctx, cuFuncSetAttribute((CUfunction)function, (CUfunction_attribute)attribute, value));
}

int tensorcache_function_occupancy(uintptr_t ctx, uintptr_t function, int block, size_t shared, int *blocks)
{
	IN_CONTEXT(ctx, cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, (CUfunction)function, block, shared));
}

int tensorcache_launch(uintptr_t ctx, uintptr_t function, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z,
	uint32_t block_x, uint32_t block_y, uint32_t block_z, uint32_t shared, uintptr_t stream,
	const void *args, const uint16_t *offsets, uint32_t count)
{
	void *params[TENSORCACHE_MAX_PARAMS];
	if (count > TENSORCACHE_MAX_PARAMS)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < count; i++)
		params[i] = (char *)args + offsets[i];
	IN_CONTEXT(ctx, cuLaunchKernel((CUfunction)function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
		(CUstream)stream, params, NULL));
}

static CUresult launch_begun(CUfunction function, uint32_t grid, uint32_t block, uint32_t shared, CUstream stream,
	const void *arg, CUevent event)
{
	void *params[] = {(void *)arg};
	CUlaunchAttribute begun = {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT};
	begun.value.launchCompletionEvent.event = event;
	CUlaunchConfig config = {
		.gridDimX = grid, .gridDimY = 1, .gridDimZ = 1, .blockDimX = block, .blockDimY = 1, .blockDimZ = 1,
		.sharedMemBytes = shared, .hStream = stream, .attrs = &begun, .numAttrs = 1,
	};
	return cuLaunchKernelEx(&config, function, params, NULL);
}

int tensorcache_launch_begun(uintptr_t ctx, uintptr_t function, uint32_t grid, uint32_t block, uint32_t shared,
	uintptr_t stream, const void *arg, uintptr_t event)
{
	IN_CONTEXT(ctx, launch_begun((CUfunction)function, grid, block, shared, (CUstream)stream, arg, (CUevent)event));
}

static CUresult enqueue(const struct tensorcache_command *c, const uint64_t *args)
{
	CUstream stream = (CUstream)c->stream;
	void *params[] = {(void *)(args + c->args)};
	switch (c->what) {
	case TENSORCACHE_RECORD:
		return cuEventRecord((CUevent)c->event, stream);
	case TENSORCACHE_WAIT:
		return cuStreamWaitEvent(stream, (CUevent)c->event, 0);
	}
	if (c->event != 0)
		return launch_begun((CUfunction)c->function, c->blocks, c->threads, c->shared, stream, params[0], (CUevent)c->event);
	return cuLaunchKernel((CUfunction)c->function, c->blocks, 1, 1, c->threads, 1, 1, c->shared, stream, params, NULL);
}

static CUresult enqueue_all(const struct tensorcache_command *commands, uint32_t count, const uint64_t *args, uint32_t *enqueued)
{
	CUresult result = CUDA_SUCCESS;
	for (*enqueued = 0; *enqueued < count; ++*enqueued)
		if ((result = enqueue(commands + *enqueued, args)) != CUDA_SUCCESS)
			break;
	return result;
}

int tensorcache_enqueue(uintptr_t ctx, const struct tensorcache_command *commands, uint32_t count, const uint64_t *args,
	uint32_t *enqueued)
{
	*enqueued = 0;
	IN_CONTEXT(ctx, enqueue_all(commands, count, args, enqueued));
}
