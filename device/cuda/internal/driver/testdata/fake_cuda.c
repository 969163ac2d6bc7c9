/*
 * A driver that drives nothing, for the tests of the loader and of package driver. It has a handful of entries, under
 * their exported names. Each appends what it was given to the file FAKE_CUDA_LOG, one line a call; device memory is
 * host memory and everything happens at once. FAKE_CUDA_INIT is what cuInit returns, FAKE_CUDA_COUNT the number of
 * devices, FAKE_CUDA_FAIL a list of "entry=result". Built with -DOLD it lacks what drivers before CUDA 11.7 do.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"

/* The settings, asked for once: asking takes longer than all else here. */
static const char *log_path, *failures;

__attribute__((constructor)) static void settings(void)
{
	log_path = getenv("FAKE_CUDA_LOG");
	if (log_path != NULL && *log_path == '\0')
		log_path = NULL;
	failures = getenv("FAKE_CUDA_FAIL");
}

static int number(const char *name, int otherwise)
{
	const char *text = getenv(name);
	return text != NULL ? atoi(text) : otherwise;
}

static void record(const char *format, ...)
{
	char line[512];
	va_list args;
	if (log_path == NULL)
		return;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line - 1, format, args);
	va_end(args);
	line[n++] = '\n';
	int file = open(log_path, O_WRONLY | O_CREAT | O_APPEND, 0666);
	if (write(file, line, (size_t)n) != n)
		abort();
	close(file);
}

static CUresult failure(const char *entry)
{
	const char *at = failures != NULL ? strstr(failures, entry) : NULL;
	return at != NULL && at[strlen(entry)] == '=' ? (CUresult)atoi(at + strlen(entry) + 1) : CUDA_SUCCESS;
}

/* Contexts: a stack for each thread. Entries that need one ask for it. */

static __thread CUcontext stack[8];
static __thread int depth;

#define CONTEXT(device) ((CUcontext)(uintptr_t)(0xc0de0000 + (device)))
#define HANDLE(type, value) ((type)(uintptr_t)(value))

#define ENTER(entry)                                     \
	do {                                             \
		CUresult failed = failure(#entry);       \
		if (failed != CUDA_SUCCESS)              \
			return failed;                   \
	} while (0)

#define ENTER_CONTEXT(entry)                             \
	do {                                             \
		ENTER(entry);                            \
		if (depth == 0)                          \
			return CUDA_ERROR_INVALID_CONTEXT; \
	} while (0)

CUresult cuInit(unsigned int flags)
{
	record("cuInit %u", flags);
	return (CUresult)number("FAKE_CUDA_INIT", 0);
}

CUresult cuDriverGetVersion(int *version)
{
	*version = 12080;
	return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
	*name = (int)error == 4242 ? "CUDA_ERROR_FAKE" : error == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH ?
		"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : NULL;
	return *name != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
	*text = (int)error == 4242 ? "newer than the table" : error == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH ? "mismatch" : NULL;
	return *text != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetCount(int *count)
{
	*count = number("FAKE_CUDA_COUNT", 2);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	if (ordinal < 0 || ordinal >= number("FAKE_CUDA_COUNT", 2))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
	snprintf(name, (size_t)length, "Fake GPU %d", device);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
	snprintf(id, (size_t)length, "0000:%02X:00.0", device + 0x1b);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	memset(uuid, 0x11 * (device + 1), sizeof *uuid);
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
	*bytes = ((size_t)1 << 40) + (size_t)device;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	record("cuDeviceGetAttribute %d %d", (int)attribute, device);
	*value = (int)attribute * 10 + device;
	return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	*can = device != peer;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice source, CUdevice destination)
{
	*value = (int)attribute * 100 + source * 10 + destination;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	ENTER(cuDevicePrimaryCtxRetain);
	record("cuDevicePrimaryCtxRetain %d", device);
	*context = CONTEXT(device);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	record("cuDevicePrimaryCtxRelease_v2 %d", device);
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
	if (depth == (int)(sizeof stack / sizeof *stack))
		abort();
	stack[depth++] = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
	if (depth == 0)
		abort();
	*context = stack[--depth];
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
	*context = depth > 0 ? stack[depth - 1] : NULL;
	return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	ENTER_CONTEXT(cuCtxEnablePeerAccess);
	record("cuCtxEnablePeerAccess in %p to %p %u", (void *)stack[depth - 1], (void *)peer, flags);
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t *free, size_t *total)
{
	ENTER_CONTEXT(cuMemGetInfo_v2);
	*free = ((size_t)3 << 40) + 1;
	*total = ((size_t)5 << 40) + 2;
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *pointer, size_t bytes)
{
	ENTER_CONTEXT(cuMemAlloc_v2);
	record("cuMemAlloc_v2 %zu", bytes);
	*pointer = (CUdeviceptr)(uintptr_t)calloc(1, bytes);
	return *pointer != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFree(CUdeviceptr pointer)
{
	ENTER_CONTEXT(cuMemFree_v2);
	record("cuMemFree_v2");
	free((void *)(uintptr_t)pointer);
	return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
	ENTER_CONTEXT(cuMemAllocManaged);
	record("cuMemAllocManaged %zu %u", bytes, flags);
	*pointer = (CUdeviceptr)(uintptr_t)calloc(1, bytes);
	return *pointer != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUdevice device)
{
	ENTER_CONTEXT(cuMemAdvise);
	record("cuMemAdvise %u %zu %d %d", *(unsigned char *)(uintptr_t)pointer, bytes, (int)advice, device);
	return CUDA_SUCCESS;
}

CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream)
{
	ENTER_CONTEXT(cuMemPrefetchAsync);
	record("cuMemPrefetchAsync %u %zu %d %p", *(unsigned char *)(uintptr_t)pointer, bytes, device, (void *)stream);
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
	ENTER_CONTEXT(cuMemGetAllocationGranularity);
	record("cuMemGetAllocationGranularity %d %d %d %d %d", (int)prop->type, (int)prop->requestedHandleTypes, (int)prop->location.type,
		prop->location.id, (int)option);
	*bytes = 2 << 20;
	return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags)
{
	ENTER_CONTEXT(cuMemCreate);
	record("cuMemCreate %zu %d %d %d %d %llu, %zu bytes of properties", bytes, (int)prop->type, (int)prop->requestedHandleTypes,
		(int)prop->location.type, prop->location.id, flags, sizeof *prop);
	*handle = 0x8000000000000001;
	return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
	unsigned long long flags)
{
	ENTER_CONTEXT(cuMemExportToShareableHandle);
	record("cuMemExportToShareableHandle %#llx %d %llu", handle, (int)type, flags);
	*(int *)shareable = open("/dev/null", O_RDONLY);
	return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type)
{
	ENTER_CONTEXT(cuMemImportFromShareableHandle);
	record("cuMemImportFromShareableHandle %d %d", (int)(intptr_t)shareable, (int)type);
	*handle = 0x8000000000000002;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	ENTER_CONTEXT(cuMemGetAllocationPropertiesFromHandle);
	record("cuMemGetAllocationPropertiesFromHandle %#llx", handle);
	prop->location.type = (CUmemLocationType)number("FAKE_CUDA_LOCATION", CU_MEM_LOCATION_TYPE_DEVICE);
	prop->location.id = 0;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags)
{
	ENTER_CONTEXT(cuMemAddressReserve);
	record("cuMemAddressReserve %zu %zu %llu %llu", bytes, alignment, wanted, flags);
	*pointer = 0x700000000000;
	return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	ENTER_CONTEXT(cuMemMap);
	record("cuMemMap %#llx %zu %zu %#llx %llu", pointer, bytes, offset, handle, flags);
	return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
	ENTER_CONTEXT(cuMemSetAccess);
	for (size_t i = 0; i < count; i++)
		record("cuMemSetAccess %#llx %zu of %zu: %d %d %d", pointer, bytes, count, (int)access[i].location.type, access[i].location.id,
			(int)access[i].flags);
	return access[0].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ? (CUresult)number("FAKE_CUDA_READ_ONLY", 0) : CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
	ENTER_CONTEXT(cuMemUnmap);
	record("cuMemUnmap %#llx %zu", pointer, bytes);
	return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
	ENTER_CONTEXT(cuMemAddressFree);
	record("cuMemAddressFree %#llx %zu", pointer, bytes);
	return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	ENTER_CONTEXT(cuMemRelease);
	record("cuMemRelease %#llx", handle);
	return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
	ENTER_CONTEXT(cuMemHostAlloc);
	record("cuMemHostAlloc %zu %u", bytes, flags);
	*pointer = calloc(1, bytes);
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *device, void *host, unsigned int flags)
{
	ENTER_CONTEXT(cuMemHostGetDevicePointer_v2);
	(void)flags;
	*device = (CUdeviceptr)(uintptr_t)host;
	return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *pointer)
{
	ENTER_CONTEXT(cuMemFreeHost);
	record("cuMemFreeHost");
	free(pointer);
	return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned int flags)
{
	ENTER_CONTEXT(cuMemHostRegister_v2);
	(void)pointer;
	record("cuMemHostRegister_v2 %zu %u", bytes, flags);
	return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *pointer)
{
	ENTER_CONTEXT(cuMemHostUnregister);
	(void)pointer;
	record("cuMemHostUnregister");
	return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr destination, const void *source, size_t bytes, CUstream stream)
{
	ENTER_CONTEXT(cuMemcpyHtoDAsync_v2);
	record("cuMemcpyHtoDAsync_v2 %zu %p", bytes, (void *)stream);
	memcpy((void *)(uintptr_t)destination, source, bytes);
	return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync(void *destination, CUdeviceptr source, size_t bytes, CUstream stream)
{
	ENTER_CONTEXT(cuMemcpyDtoHAsync_v2);
	record("cuMemcpyDtoHAsync_v2 %zu %p", bytes, (void *)stream);
	memcpy(destination, (void *)(uintptr_t)source, bytes);
	return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr pointer, unsigned char value, size_t count, CUstream stream)
{
	ENTER_CONTEXT(cuMemsetD8Async);
	record("cuMemsetD8Async %#llx %u %zu %p", pointer, value, count, (void *)stream);
	return CUDA_SUCCESS;
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *copy)
{
	record("cuMemcpy3DPeer %zu %zu %d %#llx %p %zu %d %#llx %p %zu %zu %zu", copy->srcXInBytes, copy->srcLOD,
		(int)copy->srcMemoryType, copy->srcDevice, (void *)copy->srcContext, copy->dstZ, (int)copy->dstMemoryType,
		copy->dstDevice, (void *)copy->dstContext, copy->dstHeight, copy->WidthInBytes, copy->Depth);
	return CUDA_SUCCESS;
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
	(void)descriptor;
	*array = NULL;
	return CUDA_SUCCESS;
}

CUresult cuModuleGetTexRef(CUtexref *reference, CUmodule module, const char *name)
{
	(void)module, (void)name;
	*reference = HANDLE(CUtexref, 0x7e);
	return CUDA_SUCCESS;
}

CUresult cuTexRefSetMipmapLevelClamp(CUtexref reference, float min, float max)
{
	record("cuTexRefSetMipmapLevelClamp %p %g %g", (void *)reference, min, max);
	return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	ENTER_CONTEXT(cuStreamCreateWithPriority);
	record("cuStreamCreateWithPriority %u %d", flags, priority);
	*stream = HANDLE(CUstream, 0x57e0);
	return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream)
{
	ENTER_CONTEXT(cuStreamDestroy_v2);
	record("cuStreamDestroy_v2 %p", (void *)stream);
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
	ENTER_CONTEXT(cuStreamGetCtx);
	*context = CONTEXT((uintptr_t)stream & 1);
	return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
	ENTER_CONTEXT(cuStreamSynchronize);
	(void)stream;
	return CUDA_SUCCESS;
}

#ifndef OLD
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	ENTER_CONTEXT(cuStreamIsCapturing);
	(void)stream;
	*status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	return CUDA_SUCCESS;
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
	ENTER_CONTEXT(cuStreamWriteValue32_v2);
	record("cuStreamWriteValue32_v2 %p %#llx %u %u", (void *)stream, address, value, flags);
	return CUDA_SUCCESS;
}
#else
#undef cuStreamWriteValue32
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
	ENTER_CONTEXT(cuStreamWriteValue32);
	record("cuStreamWriteValue32 %p %#llx %u %u", (void *)stream, address, value, flags);
	return CUDA_SUCCESS;
}
#endif

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
	ENTER_CONTEXT(cuEventCreate);
	record("cuEventCreate %u", flags);
	*event = HANDLE(CUevent, 0xe4e47);
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
	ENTER_CONTEXT(cuEventDestroy_v2);
	record("cuEventDestroy_v2 %p", (void *)event);
	return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	ENTER_CONTEXT(cuEventRecord);
	record("cuEventRecord %p %p", (void *)event, (void *)stream);
	return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
	ENTER_CONTEXT(cuEventElapsedTime);
	(void)start, (void)end;
	*milliseconds = 1.5f;
	return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values)
{
	char *error = NULL;
	ENTER_CONTEXT(cuModuleLoadDataEx);
	for (unsigned int i = 0; i < count; i++) {
		uintptr_t value = (uintptr_t)values[i];
		switch (options[i]) {
		case CU_JIT_WALL_TIME:
			memcpy(&values[i], &(float){12.5f}, sizeof(float));
			break;
		case CU_JIT_ERROR_LOG_BUFFER:
			error = values[i];
			break;
		default:
			record("option %d %llu", (int)options[i], (unsigned long long)value);
		}
	}
	record("cuModuleLoadDataEx %zu", strlen(image));
	if (strstr(image, "nonsense") != NULL) {
		strcpy(error, "line 1: nonsense\nline 2: more\n");
		return CUDA_ERROR_INVALID_PTX;
	}
	*module = HANDLE(CUmodule, 0x30d);
	return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
	ENTER_CONTEXT(cuModuleUnload);
	record("cuModuleUnload %p", (void *)module);
	return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	ENTER_CONTEXT(cuModuleGetFunction);
	(void)module;
	if (strcmp(name, "missing") == 0)
		return CUDA_ERROR_NOT_FOUND;
	*function = HANDLE(CUfunction, strcmp(name, "one") == 0 ? 0x10e : 0xf00);
	return CUDA_SUCCESS;
}

/* Logs the launch of the kernel "one", whose one parameter is two words. */
static void record_one(CUfunction function, unsigned int grid, unsigned int block, unsigned int shared, CUstream stream,
	void **params, CUevent begun)
{
	const unsigned long long *words = params[0];
	record("launch in %p %p grid %u block %u shared %u stream %p begun %p: %#llx %#llx", (void *)stack[depth - 1],
		(void *)function, grid, block, shared, (void *)stream, (void *)begun, words[0], words[1]);
}

CUresult cuLaunchKernel(CUfunction function, unsigned int gridX, unsigned int gridY, unsigned int gridZ,
	unsigned int blockX, unsigned int blockY, unsigned int blockZ,
	unsigned int sharedBytes, CUstream stream, void **params, void **extra)
{
	ENTER_CONTEXT(cuLaunchKernel);
	if (log_path == NULL)
		return CUDA_SUCCESS;
	if (function == HANDLE(CUfunction, 0x10e)) {
		record_one(function, gridX, blockX, sharedBytes, stream, params, NULL);
		return CUDA_SUCCESS;
	}
	const struct { unsigned long long a, b; short c; unsigned char d; unsigned int e[3]; } *args = params[0];
	record("cuLaunchKernel in %p %p grid %u %u %u block %u %u %u shared %u stream %p extra %p: %#llx %#llx %d %u "
	       "%u %u %u",
		(void *)stack[depth - 1], (void *)function, gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes,
		(void *)stream, (void *)extra, args->a, args->b, args->c, args->d,
		args->e[0], args->e[1], args->e[2]);
	return CUDA_SUCCESS;
}

#ifndef OLD
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	ENTER_CONTEXT(cuLaunchKernelEx);
	(void)extra;
	if (config->numAttrs != 1 || config->attrs[0].id != CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
		return CUDA_ERROR_INVALID_VALUE;
	if (log_path != NULL)
		record_one(function, config->gridDimX, config->blockDimX, config->sharedMemBytes, config->hStream, params,
			config->attrs[0].value.launchCompletionEvent.event);
	return CUDA_SUCCESS;
}
#endif

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	ENTER_CONTEXT(cuStreamWaitEvent);
	record("cuStreamWaitEvent %p %p %u", (void *)stream, (void *)event, flags);
	return CUDA_SUCCESS;
}
