// Driver entries of virtual memory management. A piece is device memory without an address, in a file in memory that other processes can map.
// A piece is mapped at a whole reservation of addresses, as the backend does it; parts of either cannot be mapped.
#include "driver.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

struct Piece {
	uint64_t bytes;
	int fd, device; // device -1: one that this process does not see
	bool imported;
	unsigned references; // one for each mapping, and one for the handle until it is released
};

std::mutex mu;
std::map<uint64_t, Piece> pieces;    // by handle. guarded by mu
std::map<uint64_t, uint64_t> mapped; // handles by address. guarded by mu
std::map<uint64_t, bool> released;   // by handle. guarded by mu
uint64_t handles = 0x7000;           // guarded by mu

// The name of a piece's file is this and the number of its device among all devices of the host.
constexpr char NAME[] = "emulated GPU ";

void dropLocked(uint64_t handle)
{
	auto p = pieces.find(handle);
	if (--p->second.references > 0)
		return;
	close(p->second.fd);
	if (!p->second.imported)
		charge(p->second.device, -(int64_t)p->second.bytes);
	pieces.erase(p);
	released.erase(handle);
}

uint64_t addLocked(const Piece &p)
{
	pieces[++handles] = p;
	released[handles] = false;
	return handles;
}

// liveLocked returns the piece of a handle that has not been released, or nullptr.
Piece *liveLocked(uint64_t handle)
{
	auto p = pieces.find(handle);
	return p != pieces.end() && !released[handle] ? &p->second : nullptr;
}

CUresult check(const CUmemAllocationProp *prop)
{
	if (settings().virtualMemory == 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	return device(prop->location.id) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

} // namespace

// CHECK returns from the entry where a capture forbids the call or there is no virtual memory management.
#define CHECK()                                            \
	do {                                               \
		if (settings().virtualMemory == 0)         \
			return CUDA_ERROR_NOT_SUPPORTED;   \
		if (forbidden())                           \
			return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; \
	} while (0)

EXPORT CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags)
{
	*bytes = GRANULARITY;
	return check(prop);
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags)
{
	CHECK();
	if (CUresult bad = check(prop); bad != CUDA_SUCCESS)
		return bad;
	if (bytes == 0 || bytes % GRANULARITY != 0 || flags != 0 || prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	int ordinal = prop->location.id;
	if (device(ordinal)->error != 0)
		return (CUresult)device(ordinal)->error.load();
	if (!charge(ordinal, (int64_t)bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	int fd = memfd_create((NAME + std::to_string(settings().number[ordinal])).c_str(), MFD_CLOEXEC);
	static const std::string fresh(4096, '\xf5'); // as memory of cuMemAlloc begins
	if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 || pwrite(fd, fresh.data(), fresh.size(), 0) < 0) {
		say("shared memory (%zu bytes): %s", bytes, strerror(errno));
		if (fd >= 0)
			close(fd);
		charge(ordinal, -(int64_t)bytes);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	std::lock_guard<std::mutex> lock(mu);
	*handle = addLocked({bytes, fd, ordinal, false, 1});
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	CHECK();
	std::lock_guard<std::mutex> lock(mu);
	if (liveLocked(handle) == nullptr)
		return CUDA_ERROR_INVALID_VALUE;
	released[handle] = true;
	dropLocked(handle);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
					     unsigned long long flags)
{
	CHECK();
	std::lock_guard<std::mutex> lock(mu);
	Piece *p = liveLocked(handle);
	if (p == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	int fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*(int *)shareable = fd;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type)
{
	CHECK();
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	int from = (int)(intptr_t)shareable, ordinal = settings().devices - 1;
	char name[64] = "";
	const std::string prefix = std::string("/memfd:") + NAME;
	ssize_t length = readlink(("/proc/self/fd/" + std::to_string(from)).c_str(), name, sizeof name - 1);
	if (length <= (ssize_t)prefix.size() || strncmp(name, prefix.c_str(), prefix.size()) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	while (ordinal >= 0 && settings().number[ordinal] != atoi(name + prefix.size()))
		ordinal--;
	off_t bytes = lseek(from, 0, SEEK_END);
	int fd = fcntl(from, F_DUPFD_CLOEXEC, 0);
	if (fd < 0 || bytes <= 0) {
		if (fd >= 0)
			close(fd);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	std::lock_guard<std::mutex> lock(mu);
	*handle = addLocked({(uint64_t)bytes, fd, ordinal, true, 1});
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	std::lock_guard<std::mutex> lock(mu);
	Piece *p = liveLocked(handle);
	if (p == nullptr)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = {};
	prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	prop->location = {CU_MEM_LOCATION_TYPE_DEVICE, p->device};
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *p, size_t bytes, size_t alignment, CUdeviceptr, unsigned long long flags)
{
	CHECK();
	if (bytes == 0 || bytes % GRANULARITY != 0 || alignment > GRANULARITY || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	*p = reserve(bytes);
	return *p != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr p, size_t bytes)
{
	CHECK();
	(void)bytes;
	return release(p, Kind::Reserved) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemMap(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	CHECK();
	std::lock_guard<std::mutex> lock(mu);
	Piece *piece = liveLocked(handle);
	if (piece == nullptr || piece->bytes != bytes || offset != 0 || flags != 0 || !mapAt(p, bytes, piece->fd, piece->device))
		return CUDA_ERROR_INVALID_VALUE;
	piece->references++;
	mapped[p] = handle;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
	CHECK();
	bool write = false;
	for (size_t i = 0; i < count; i++) {
		if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || device(access[i].location.id) == nullptr)
			return CUDA_ERROR_INVALID_DEVICE;
		if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ && settings().virtualMemory < 2)
			return CUDA_ERROR_NOT_SUPPORTED;
		write |= access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	}
	return count > 0 && permit(p, bytes, write) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr p, size_t bytes)
{
	CHECK();
	std::lock_guard<std::mutex> lock(mu);
	auto m = mapped.find(p);
	if (m == mapped.end() || !unmapAt(p, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	dropLocked(m->second);
	mapped.erase(m);
	return CUDA_SUCCESS;
}
