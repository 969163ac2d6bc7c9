// Allocations of devices and of page-locked memory. All lie in one range of addresses. Each is between two pages that cannot be reached, and ends
// where the second begins, or up to 255 bytes before it, so that it begins at a multiple of ALIGN. Addresses of freed allocations are not used
// again until the range is used up.
#include "emulator.h"
#include "lane.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>

namespace emulator {

static constexpr uint64_t PAGE = 4096, ALIGN = 256, RANGE = 1ull << 40;
static constexpr uint8_t BEHIND = 0xb5; // bytes between an allocation and the page behind it
static constexpr uint8_t FRESH = 0xf5;  // the bytes of an allocation's first page before anybody writes them

static std::mutex mu;
static std::map<uint64_t, Allocation> allocations; // by start. guarded by mu
static uint64_t base, next;                        // guarded by mu
static uint64_t used[9];                           // by device; host memory is the last. guarded by mu

void initMemory()
{
	void *p = mmap(nullptr, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		say("no room for addresses: %s", strerror(errno));
		abort();
	}
	base = next = (uint64_t)p;
	emulatedBase = base;
	emulatedBytes = RANGE;
}

// place returns the first of so many free addresses, from behind the last allocation on and then from the beginning, or 0.
static uint64_t place(uint64_t bytes)
{
	for (int wrapped = 0; wrapped < 2; wrapped++) {
		auto behind = allocations.lower_bound(next);
		while (next + bytes <= base + RANGE) {
			while (behind != allocations.end() && behind->second.mapStart + behind->second.mapBytes <= next)
				++behind;
			if (behind == allocations.end() || behind->second.mapStart < base || behind->second.mapStart >= next + bytes ||
			    behind->second.kind == Kind::Registered)
				return next;
			next = behind->second.mapStart + behind->second.mapBytes;
		}
		next = base;
	}
	return 0;
}

uint64_t allocate(uint64_t bytes, Kind kind, int device)
{
	std::lock_guard<std::mutex> lock(mu);
	uint64_t &sum = used[kind == Kind::Device ? device : 8];
	uint64_t limit = (uint64_t)(kind == Kind::Device ? settings().deviceBytes : settings().hostBytes);
	if (bytes == 0 || bytes > limit || sum + bytes > limit)
		return 0;
	uint64_t inner = (bytes + PAGE - 1) / PAGE * PAGE, all = inner + 2 * PAGE, at = place(all);
	if (at == 0 || mprotect((void *)(at + PAGE), inner, PROT_READ | PROT_WRITE) != 0)
		return 0;
	next = at + all;
	sum += bytes;
	Allocation a = {at + PAGE + (inner - bytes) / ALIGN * ALIGN, bytes, kind, device, at, all};
	memset((void *)(at + PAGE), FRESH, PAGE);
	memset((void *)(a.start + bytes), BEHIND, at + PAGE + inner - a.start - bytes);
	allocations[a.start] = a;
	return a.start;
}

CUresult enlist(uint64_t start, uint64_t bytes, int device)
{
	std::lock_guard<std::mutex> lock(mu);
	uint64_t limit = (uint64_t)settings().hostBytes;
	if (allocations.count(start) != 0)
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (bytes > limit || used[8] + bytes > limit)
		return CUDA_ERROR_OUT_OF_MEMORY;
	used[8] += bytes;
	allocations[start] = Allocation{start, bytes, Kind::Registered, device, start, bytes};
	return CUDA_SUCCESS;
}

uint64_t reserve(uint64_t bytes)
{
	std::lock_guard<std::mutex> lock(mu);
	uint64_t all = bytes + GRANULARITY + PAGE, at = bytes <= RANGE / 2 ? place(all) : 0;
	if (at == 0)
		return 0;
	next = at + all;
	uint64_t start = (at + PAGE + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
	allocations[start] = {start, bytes, Kind::Reserved, -1, at, all};
	return start;
}

// whole returns the allocation that is of that kind and has exactly these bytes, or nullptr.
static Allocation *whole(uint64_t start, uint64_t bytes, Kind kind)
{
	auto at = allocations.find(start);
	return at != allocations.end() && at->second.kind == kind && at->second.bytes == bytes ? &at->second : nullptr;
}

bool mapAt(uint64_t start, uint64_t bytes, int fd, int device)
{
	std::lock_guard<std::mutex> lock(mu);
	Allocation *a = whole(start, bytes, Kind::Reserved);
	if (a == nullptr || mmap((void *)start, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		return false;
	a->kind = Kind::Mapped;
	a->device = device;
	return true;
}

bool permit(uint64_t start, uint64_t bytes, bool write)
{
	std::lock_guard<std::mutex> lock(mu);
	return whole(start, bytes, Kind::Mapped) != nullptr && mprotect((void *)start, bytes, PROT_READ | (write ? PROT_WRITE : 0)) == 0;
}

bool unmapAt(uint64_t start, uint64_t bytes)
{
	std::lock_guard<std::mutex> lock(mu);
	Allocation *a = whole(start, bytes, Kind::Mapped);
	if (a == nullptr ||
	    mmap((void *)start, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return false;
	a->kind = Kind::Reserved;
	return true;
}

bool charge(int device, int64_t bytes)
{
	std::lock_guard<std::mutex> lock(mu);
	if (bytes > 0 && (int64_t)used[device] + bytes > settings().deviceBytes)
		return false;
	used[device] += (uint64_t)bytes;
	return true;
}

static bool overrunLocked(const Allocation &a)
{
	if (a.kind != Kind::Device && a.kind != Kind::Host && a.kind != Kind::Managed)
		return false;
	for (uint64_t p = a.start + a.bytes, end = a.mapStart + a.mapBytes - PAGE; p < end; p++)
		if (*(const uint8_t *)p != BEHIND)
			return true;
	return false;
}

static const char *nameOf(Kind k)
{
	static const char *const names[] = {"device", "page-locked", "registered", "reserved", "mapped device", "managed"};
	return names[(int)k];
}

static std::string nameOf(const Allocation &a)
{
	return text("%llu bytes of %s memory at %#llx, made by device %d", (unsigned long long)a.bytes, nameOf(a.kind),
		    (unsigned long long)a.start, a.device);
}

std::string overrun()
{
	std::lock_guard<std::mutex> lock(mu);
	for (auto &[start, a] : allocations)
		if (overrunLocked(a)) {
			memset((void *)(a.start + a.bytes), BEHIND, a.mapStart + a.mapBytes - PAGE - a.start - a.bytes);
			return "bytes behind " + nameOf(a) + " were written";
		}
	return "";
}

bool release(uint64_t start, Kind kind)
{
	std::lock_guard<std::mutex> lock(mu);
	auto at = allocations.find(start);
	if (at == allocations.end() || at->second.kind != kind)
		return false;
	Allocation a = at->second;
	if (overrunLocked(a))
		say("freed memory: bytes behind %s were written", nameOf(a).c_str());
	allocations.erase(at);
	if (kind != Kind::Reserved)
		used[kind == Kind::Device ? a.device : 8] -= a.bytes;
	if (kind == Kind::Registered || kind == Kind::Reserved)
		return true;
	if (mmap((void *)a.mapStart, a.mapBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		say("munmap: %s", strerror(errno));
	return true;
}

static bool findLocked(uint64_t address, Allocation *found)
{
	auto at = allocations.upper_bound(address);
	if (at == allocations.begin())
		return false;
	--at;
	if (address - at->second.start >= at->second.bytes || at->second.kind == Kind::Reserved)
		return false;
	*found = at->second;
	return true;
}

bool find(uint64_t address, Allocation *found)
{
	std::lock_guard<std::mutex> lock(mu);
	return findLocked(address, found);
}

bool within(uint64_t address, uint64_t bytes)
{
	Allocation a;
	return bytes == 0 || (find(address, &a) && bytes <= a.bytes - (address - a.start));
}

std::string describe(uint64_t address)
{
	std::lock_guard<std::mutex> lock(mu);
	Allocation a;
	if (findLocked(address, &a))
		return text("%llu bytes into the %s", (unsigned long long)(address - a.start), nameOf(a).c_str());
	std::string s = address - base < RANGE ? "in no allocation" : "not memory that kernels reach";
	auto behind = allocations.upper_bound(address);
	if (behind != allocations.begin()) {
		const Allocation &b = std::prev(behind)->second;
		if (address - b.start - b.bytes < 1 << 20)
			s += text("; %llu bytes behind the last of the %s", (unsigned long long)(address - b.start - b.bytes), nameOf(b).c_str());
	}
	if (behind != allocations.end() && behind->second.start - address < 1 << 20)
		s += text("; %llu bytes before the %s", (unsigned long long)(behind->second.start - address), nameOf(behind->second).c_str());
	return s;
}

uint64_t usedBytes(int device)
{
	std::lock_guard<std::mutex> lock(mu);
	return used[device];
}

void zero(uint64_t to, uint64_t bytes)
{
	uint64_t first = (to + PAGE - 1) / PAGE * PAGE, end = (to + bytes) / PAGE * PAGE;
	Allocation a;
	if (bytes < 64 * PAGE || !find(to, &a) || a.kind == Kind::Registered ||
	    madvise((void *)first, end - first, a.kind == Kind::Mapped ? MADV_REMOVE : MADV_DONTNEED) != 0) {
		memset((void *)to, 0, bytes);
		return;
	}
	memset((void *)to, 0, first - to);
	memset((void *)end, 0, to + bytes - end);
}

} // namespace emulator

using namespace emulator;

__attribute__((visibility("default"))) unsigned long long emulatedBase, emulatedBytes;

EXPORT void emulatedReach(unsigned long long address, unsigned bytes, int write)
{
	if (address & (bytes - 1))
		fault(CUDA_ERROR_MISALIGNED_ADDRESS, text("%s of %u bytes at %#llx", write ? "write" : "read", bytes, address));
	if (address - emulatedBase < emulatedBytes || within(address, bytes))
		return;
	fault(CUDA_ERROR_ILLEGAL_ADDRESS, text("%s of %#llx, %s", write ? "write" : "read", address, describe(address).c_str()));
}
