// Driver entries of memory: allocation, copies and fills.
#include "driver.h"

#include <cstdio>
#include <cstring>

EXPORT CUresult cuMemGetInfo(size_t *free, size_t *total)
{
	IN_CONTEXT(d);
	*total = (size_t)settings().deviceBytes;
	*free = *total - usedBytes(d->ordinal);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc(CUdeviceptr *p, size_t bytes)
{
	IN_CONTEXT(d);
	if (forbidden())
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	*p = allocate(bytes, Kind::Device, d->ordinal);
	return *p != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// Freeing waits for what runs, as it does on GPUs.
EXPORT CUresult cuMemFree(CUdeviceptr p)
{
	Device *d = current();
	if (d == nullptr)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (forbidden())
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (p == 0)
		return (CUresult)d->error.load();
	drainDevice(d);
	if (!release(p, Kind::Device) && !release(p, Kind::Managed))
		return CUDA_ERROR_INVALID_VALUE;
	return (CUresult)d->error.load();
}

// Managed memory counts as host memory; it does not move.
EXPORT CUresult cuMemAllocManaged(CUdeviceptr *p, size_t bytes, unsigned int flags)
{
	IN_CONTEXT(d);
	if (forbidden())
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (bytes == 0 || flags != CU_MEM_ATTACH_GLOBAL)
		return CUDA_ERROR_INVALID_VALUE;
	*p = allocate(bytes, Kind::Managed, d->ordinal);
	return *p != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// managed says whether all the bytes are managed memory.
static bool managed(CUdeviceptr p, size_t bytes)
{
	Allocation a;
	return bytes > 0 && find(p, &a) && a.kind == Kind::Managed && within(p, bytes);
}

EXPORT CUresult cuMemAdvise(CUdeviceptr p, size_t bytes, CUmem_advise advice, CUdevice at)
{
	IN_CONTEXT(d);
	(void)d;
	if (!managed(p, bytes) || advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
		return CUDA_ERROR_INVALID_VALUE;
	return at == CU_DEVICE_CPU || device(at) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned int)
{
	IN_CONTEXT(d);
	if (forbidden())
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	*p = (void *)allocate(bytes, Kind::Host, d->ordinal);
	return *p != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemFreeHost(void *p)
{
	Device *d = current();
	if (d == nullptr)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (forbidden())
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	for (int i = 0; device(i) != nullptr; i++)
		drainDevice(device(i));
	if (!release((uint64_t)p, Kind::Host))
		return CUDA_ERROR_INVALID_VALUE;
	return (CUresult)d->error.load();
}

EXPORT CUresult cuMemHostGetDevicePointer(CUdeviceptr *device, void *host, unsigned int)
{
	Allocation a;
	if (!find((uint64_t)host, &a) || (a.kind != Kind::Host && a.kind != Kind::Registered))
		return CUDA_ERROR_INVALID_VALUE;
	*device = (CUdeviceptr)host;
	return CUDA_SUCCESS;
}

// writable says whether the process may write to an address. It is true if that is not known.
static bool writable(uint64_t address)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	bool may = true;
	while (maps != nullptr && fgets(line, sizeof line, maps) != nullptr) {
		unsigned long long from, to;
		char access[5];
		if (sscanf(line, "%llx-%llx %4s", &from, &to, access) == 3 && from <= address && address < to)
			may = access[1] == 'w';
	}
	if (maps != nullptr)
		fclose(maps);
	return may;
}

// Memory that the process may not write can only be registered as read-only.
EXPORT CUresult cuMemHostRegister(void *p, size_t bytes, unsigned int flags)
{
	IN_CONTEXT(d);
	if (forbidden())
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	bool readOnly = flags & CU_MEMHOSTREGISTER_READ_ONLY;
	if (readOnly && settings().virtualMemory < 2)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (bytes == 0 || !(readOnly || writable((uint64_t)p)))
		return CUDA_ERROR_INVALID_VALUE;
	return enlist((uint64_t)p, bytes, d->ordinal);
}

EXPORT CUresult cuMemHostUnregister(void *p)
{
	IN_CONTEXT(d);
	drainDevice(d);
	return release((uint64_t)p, Kind::Registered) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

EXPORT CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **values, CUdeviceptr p)
{
	Allocation a = {};
	bool known = find(p, &a);
	for (unsigned i = 0; i < count; i++)
		switch (attributes[i]) {
		case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
			*(unsigned *)values[i] = !known ? 0 : a.kind == Kind::Host || a.kind == Kind::Registered ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
			break;
		case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
			*(int *)values[i] = known ? a.device : -2;
			break;
		case CU_POINTER_ATTRIBUTE_IS_MANAGED:
			*(char *)values[i] = known && a.kind == Kind::Managed;
			break;
		case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
			*(CUdeviceptr *)values[i] = a.start;
			break;
		case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
			*(size_t *)values[i] = a.bytes;
			break;
		case CU_POINTER_ATTRIBUTE_CONTEXT:
			*(CUcontext *)values[i] = known && a.kind != Kind::Mapped ? contextOf(device(a.device)) : nullptr;
			break;
		default:
			return CUDA_ERROR_INVALID_VALUE;
		}
	return CUDA_SUCCESS;
}

// guarded returns work that is left out if the device is lost. If the work faults, the device is lost.
static std::function<void()> guarded(Device *d, std::function<void()> work)
{
	return [d, work = std::move(work)] {
		if (d->error != 0)
			return;
		Fault f = protect(work);
		if (f.error != CUDA_SUCCESS)
			lose(d, f.error, f.why);
	};
}

static CUresult copy(Stream *s, uint64_t to, uint64_t from, size_t bytes)
{
	return enqueue(s, guarded(s->device, [=] { memmove((void *)to, (const void *)from, bytes); }));
}

EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	ON_STREAM(s, stream);
	Allocation a;
	if (!within(to, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (find((uint64_t)from, &a))
		return within((uint64_t)from, bytes) ? copy(s, to, (uint64_t)from, bytes) : CUDA_ERROR_INVALID_VALUE;
	// Pageable memory has been read when the call returns.
	auto staged = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
	return enqueue(s, guarded(s->device, [=] { memcpy((void *)to, staged->data(), bytes); }));
}

EXPORT CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	ON_STREAM(s, stream);
	Allocation a;
	if (!within(from, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (find((uint64_t)to, &a))
		return within((uint64_t)to, bytes) ? copy(s, (uint64_t)to, from, bytes) : CUDA_ERROR_INVALID_VALUE;
	// Pageable memory has been written when the call returns.
	CUresult r = copy(s, (uint64_t)to, from, bytes);
	if (s->capturing)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	drain(s);
	return r != CUDA_SUCCESS ? r : (CUresult)s->device->error.load();
}

EXPORT CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	ON_STREAM(s, stream);
	if (!within(to, bytes) || !within(from, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	return copy(s, to, from, bytes);
}

// Copies of rows between allocations of the driver; no arrays, no offsets.
EXPORT CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *c, CUstream stream)
{
	ON_STREAM(s, stream);
	CUDA_MEMCPY2D k = *c;
	if (k.srcMemoryType != CU_MEMORYTYPE_UNIFIED || k.dstMemoryType != CU_MEMORYTYPE_UNIFIED || k.srcXInBytes != 0 || k.srcY != 0 ||
		k.dstXInBytes != 0 || k.dstY != 0 || k.srcPitch < k.WidthInBytes || k.dstPitch < k.WidthInBytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (k.Height == 0 || k.WidthInBytes == 0)
		return CUDA_SUCCESS;
	if (!within(k.srcDevice, (k.Height - 1) * k.srcPitch + k.WidthInBytes) || !within(k.dstDevice, (k.Height - 1) * k.dstPitch + k.WidthInBytes))
		return CUDA_ERROR_INVALID_VALUE;
	return enqueue(s, guarded(s->device, [=] {
		for (size_t i = 0; i < k.Height; i++)
			memcpy((char *)k.dstDevice + i * k.dstPitch, (const char *)k.srcDevice + i * k.srcPitch, k.WidthInBytes);
	}));
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char value, size_t count, CUstream stream)
{
	ON_STREAM(s, stream);
	if (!within(p, count))
		return CUDA_ERROR_INVALID_VALUE;
	return enqueue(s, guarded(s->device, [=] {
		if (value == 0)
			zero(p, count);
		else
			memset((void *)p, value, count);
	}));
}

EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t bytes, CUdevice to, CUstream stream)
{
	ON_STREAM(s, stream);
	if (!managed(p, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (to != CU_DEVICE_CPU && device(to) == nullptr)
		return CUDA_ERROR_INVALID_DEVICE;
	return enqueue(s, [] {});
}

EXPORT CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr p, cuuint32_t value, unsigned int)
{
	ON_STREAM(s, stream);
	if (!within(p, 4) || p % 4 != 0)
		return CUDA_ERROR_INVALID_VALUE;
	return enqueue(s, guarded(s->device, [=] { __atomic_store_n((uint32_t *)p, value, __ATOMIC_SEQ_CST); }));
}
