// Driver entries of devices, contexts and errors.
#include "emulator.h"

#include <cstring>

namespace emulator {

static Device *devices()
{
	static Device *all = [] {
		initMemory();
		initFaults();
		Device *d = new Device[8];
		for (int i = 0; i < 8; i++) {
			d[i].ordinal = i;
			d[i].launchMicros = settings().launchMicros;
		}
		// "device:error:launches": the device fails with the error at the launch after so many.
		if (const char *fail = getenv("TENSORCACHE_EMULATOR_FAIL")) {
			int ordinal, error, after;
			if (sscanf(fail, "%d:%d:%d", &ordinal, &error, &after) != 3 || ordinal < 0 || ordinal > 7)
				say("TENSORCACHE_EMULATOR_FAIL (%s) must be device:error:launches", fail);
			else
				d[ordinal].failWith = error, d[ordinal].failAfter = after;
		}
		return d;
	}();
	return all;
}

Device *device(int ordinal) { return ordinal >= 0 && ordinal < settings().devices ? devices() + ordinal : nullptr; }

Device *deviceOf(CUcontext c)
{
	for (int i = 0; i < settings().devices; i++)
		if ((CUcontext)(devices() + i) == c)
			return devices() + i;
	return nullptr;
}

static thread_local std::vector<Device *> stack;

Device *current() { return stack.empty() ? nullptr : stack.back(); }

void lose(Device *d, CUresult error, const std::string &why)
{
	int none = 0;
	if (d->error.compare_exchange_strong(none, error))
		say("device %d is lost (error %d): %s", d->ordinal, (int)error, why.c_str());
}

} // namespace emulator

using namespace emulator;

EXPORT CUresult cuInit(unsigned int flags)
{
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	device(0);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
	*version = 12080;
	return CUDA_SUCCESS;
}

static const struct {
	int error;
	const char *name, *text;
} errors[] = {
	{0, "CUDA_SUCCESS", "no error"},
	{1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
	{218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
	{400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{600, "CUDA_ERROR_NOT_READY", "device not ready"},
	{700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	{701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
	{702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
	{704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
	{705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
	{714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error"},
	{716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
	{717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "operation not supported on this address space"},
	{719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	{800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
	{801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	{900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
	{901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
	{999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

EXPORT CUresult cuGetErrorName(CUresult error, const char **name)
{
	*name = nullptr;
	for (auto &e : errors)
		if (e.error == (int)error)
			*name = e.name;
	return *name != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text)
{
	*text = nullptr;
	for (auto &e : errors)
		if (e.error == (int)error)
			*text = e.text;
	return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
	*count = settings().devices;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *d, int ordinal)
{
	*d = ordinal;
	return device(ordinal) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// FOR_DEVICE returns from the entry where there is no such device.
#define FOR_DEVICE(ordinal)               \
	if (device(ordinal) == nullptr) \
	return CUDA_ERROR_INVALID_DEVICE

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice d)
{
	FOR_DEVICE(d);
	snprintf(name, (size_t)length, "emulated GPU");
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice d)
{
	FOR_DEVICE(d);
	snprintf(id, (size_t)length, "0000:%02X:00.0", settings().number[d] + 1);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *id, CUdevice d)
{
	FOR_DEVICE(d);
	memset(id, settings().number[d] + 1, sizeof *id);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem(size_t *bytes, CUdevice d)
{
	FOR_DEVICE(d);
	*bytes = (size_t)settings().deviceBytes;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice d)
{
	FOR_DEVICE(d);
	switch ((int)attribute) {
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
		*value = 1024;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
		*value = 0x7fffffff;
		break;
	case CU_DEVICE_ATTRIBUTE_SHARED_MEMORY_PER_BLOCK:
		*value = 48 << 10;
		break;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
		*value = 32;
		break;
	case CU_DEVICE_ATTRIBUTE_REGISTERS_PER_BLOCK:
	case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
		*value = 65536;
		break;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*value = settings().multiprocessors;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
		*value = 2048;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = 9;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
		*value = settings().sharedBytes + 1024;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
		*value = settings().sharedBytes;
		break;
	case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
		*value = 50 << 20;
		break;
	case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
	case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
		*value = 1000000;
		break;
	case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
		*value = 64;
		break;
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
	case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
	case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
		*value = 1;
		break;
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
		*value = settings().virtualMemory > 0;
		break;
	case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
		*value = settings().virtualMemory > 1;
		break;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		*value = settings().number[d] + 1;
		break;
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
		*value = -1;
		break;
	default:
		*value = 0;
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice peer)
{
	FOR_DEVICE(d);
	FOR_DEVICE(peer);
	*can = d != peer;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)
{
	FOR_DEVICE(from);
	FOR_DEVICE(to);
	*value = attribute != CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK && from != to;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
	FOR_DEVICE(ordinal);
	Device *d = device(ordinal);
	std::lock_guard<std::mutex> lock(d->mu);
	d->retained++;
	*context = contextOf(d);
	return CUDA_SUCCESS;
}

// The last release destroys the context; one made after it is sound, as in a new process.
EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
	FOR_DEVICE(ordinal);
	Device *d = device(ordinal);
	{
		std::lock_guard<std::mutex> lock(d->mu);
		if (d->retained == 0)
			return CUDA_ERROR_INVALID_CONTEXT;
		if (d->retained > 1) {
			d->retained--;
			return CUDA_SUCCESS;
		}
	}
	drainDevice(d);
	std::lock_guard<std::mutex> lock(d->mu);
	d->retained--;
	d->error = 0;
	d->peers.clear();
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active)
{
	FOR_DEVICE(ordinal);
	Device *d = device(ordinal);
	std::lock_guard<std::mutex> lock(d->mu);
	*flags = 0;
	*active = d->retained > 0;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent(CUcontext context)
{
	Device *d = deviceOf(context);
	if (d == nullptr)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack.push_back(d);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent(CUcontext *context)
{
	if (stack.empty())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (context != nullptr)
		*context = contextOf(stack.back());
	stack.pop_back();
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
	*context = stack.empty() ? nullptr : contextOf(stack.back());
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
	Device *d = deviceOf(context);
	if (context != nullptr && d == nullptr)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!stack.empty())
		stack.pop_back();
	if (d != nullptr)
		stack.push_back(d);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *d)
{
	if (stack.empty())
		return CUDA_ERROR_INVALID_CONTEXT;
	*d = stack.back()->ordinal;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	if (stack.empty())
		return CUDA_ERROR_INVALID_CONTEXT;
	*least = 0;
	*greatest = -5;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int)
{
	Device *d = current(), *of = deviceOf(peer);
	if (d == nullptr || of == nullptr || d == of)
		return CUDA_ERROR_INVALID_CONTEXT;
	std::lock_guard<std::mutex> lock(d->mu);
	return d->peers.insert(of->ordinal).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
	Device *d = current(), *of = deviceOf(peer);
	if (d == nullptr || of == nullptr)
		return CUDA_ERROR_INVALID_CONTEXT;
	std::lock_guard<std::mutex> lock(d->mu);
	return d->peers.erase(of->ordinal) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

// For tests: the device fails with the error at the launch after so many, or, where that is below 0, at once.
EXPORT void tensorcache_emulator_fail(int ordinal, int error, int launches)
{
	Device *d = device(ordinal);
	if (d == nullptr)
		return;
	if (launches < 0) {
		lose(d, (CUresult)error, "asked to by a test");
		return;
	}
	d->failWith = error;
	d->failAfter = launches;
}

// For tests: each launch of the device takes so many microseconds longer.
EXPORT void tensorcache_emulator_slow(int ordinal, int micros)
{
	if (Device *d = device(ordinal))
		d->launchMicros = micros;
}
