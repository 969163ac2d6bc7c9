#include "block.h"

#include <cstring>
#include <sys/mman.h>

namespace emulator {

static constexpr uint64_t PAGE = 4096, STACK = 64 << 10;
// Shared memory: 16 variables of up to 44 KiB each, then up to 227 KiB for the dynamic part.
static constexpr uint64_t VARIABLES = 16, VARIABLE = 48 << 10, DYNAMIC = VARIABLES * VARIABLE + PAGE, SHARED = DYNAMIC + (256 << 10);
static constexpr uint8_t UNWRITTEN = 0xa7; // what shared memory has in it when a block begins

static std::mutex mu;
static std::vector<Block *> unused;    // guarded by mu
static std::vector<uint8_t *> stacks;  // unused. guarded by mu
static std::set<uint64_t> stackGuards; // the pages below stacks. guarded by mu

// A guarded stack takes two mappings, of which Linux allows a process 65,530: where many streams run wide blocks at once, further stacks
// have no guard.
static constexpr size_t GUARDS = 16384;

static uint8_t *pages(uint64_t bytes, int access)
{
	void *p = mmap(nullptr, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		say("no memory for blocks");
		abort();
	}
	return (uint8_t *)p;
}

// takeStackLocked returns the end of a stack. Ends differ in their place in a page: they would share one set of the cache.
static uint8_t *takeStackLocked()
{
	if (stacks.empty()) {
		constexpr int n = 256;
		uint8_t *p = pages(n * (STACK + PAGE), PROT_READ | PROT_WRITE);
		for (int i = 0; i < n; i++) {
			uint8_t *guard = p + (uint64_t)i * (STACK + PAGE);
			if (stackGuards.size() < GUARDS && mprotect(guard, PAGE, PROT_NONE) == 0)
				stackGuards.insert((uint64_t)guard);
			stacks.push_back(guard + PAGE + STACK - (uint64_t)(i % 16) * 192);
		}
	}
	uint8_t *s = stacks.back();
	stacks.pop_back();
	return s;
}

uint64_t sharedSpan() { return SHARED; }

bool beyondStack(uint64_t address)
{
	std::lock_guard<std::mutex> lock(mu);
	return stackGuards.count(address / PAGE * PAGE) != 0;
}

Block *takeBlock(uint32_t lanes)
{
	std::lock_guard<std::mutex> lock(mu);
	Block *b;
	if (unused.empty()) {
		b = new Block;
		b->shared = pages(SHARED, PROT_NONE);
		for (uint64_t i = 0; i < VARIABLES; i++)
			mprotect(b->shared + i * VARIABLE, VARIABLE - PAGE, PROT_READ | PROT_WRITE);
		mprotect(b->shared + DYNAMIC, SHARED - DYNAMIC - PAGE, PROT_READ | PROT_WRITE);
	} else {
		b = unused.back();
		unused.pop_back();
	}
	while (b->stacks.size() < lanes)
		b->stacks.push_back(takeStackLocked());
	return b;
}

void giveBlock(Block *b)
{
	std::lock_guard<std::mutex> lock(mu);
	stacks.insert(stacks.end(), b->stacks.rbegin(), b->stacks.rend()); // the next block may be of other threads, and a thousand of them
	b->stacks.clear();
	unused.push_back(b);
}

void prepareShared(Block *b, uint32_t dynamicBytes)
{
	b->dynamicBytes = (dynamicBytes + 15) / 16 * 16;
	b->dynamic = b->shared + SHARED - PAGE - b->dynamicBytes;
	memset(b->dynamic, UNWRITTEN, b->dynamicBytes);
	b->variables.clear();
}

void start(Lane &l, const Launch &launch)
{
	uint64_t bytes = launch.arguments.size() * 8;
	uint64_t *sp = (uint64_t *)(l.block->stacks[l.self.thread] - (bytes + 15) / 16 * 16);
	uint64_t registers[2] = {};
	if (bytes <= 16)
		memcpy(registers, launch.arguments.data(), bytes);
	else
		memcpy(sp, launch.arguments.data(), bytes);
	*--sp = (uint64_t)&emulator_end;
	*--sp = (uint64_t)&emulator_begin;
	*--sp = 0;                                       // rbp
	*--sp = (uint64_t)launch.function->code;         // rbx
	*--sp = registers[0], *--sp = registers[1];      // r12, r13
	*--sp = 0, *--sp = 0;                            // r14, r15
	l.sp = sp;
}

std::string stateOf(const Block &b)
{
	static const char *const names[] = {"running", "warpSync", "ballot", "shuffle", "scan", "sum", "max", "min", "blockSync"};
	std::string s;
	for (uint32_t w = 0; w < b.warps; w++) {
		const Warp &warp = b.warp[w];
		std::map<std::string, uint32_t> groups;
		for (uint32_t i = 0; i < 32 && w * 32 + i < b.lanes; i++) {
			const Lane &l = b.lane[w * 32 + i];
			std::string what = warp.ended >> i & 1 ? "ended" : names[(int)l.at];
			if (!(warp.ended >> i & 1) && l.at != Meeting::None && l.at != Meeting::Block)
				what += text("(%#x)", l.lanes);
			groups[what] |= 1u << i;
		}
		s += text("\n  warp %u:", w);
		for (auto &[what, lanes] : groups)
			s += text(" lanes %#010x %s;", lanes, what.c_str());
	}
	return s;
}

} // namespace emulator

using namespace emulator;

// Shared variables are thread-local ones to the compiler (-femulated-tls), whose calls come here through dynamic.S.
struct Control {
	size_t bytes, align;
	uintptr_t number;
	void *content;
};

static constexpr uintptr_t DYNAMIC_VARIABLE = ~0ull; // see dynamic.S

EXPORT void *emulatedVariable(Control *c)
{
	Block *b = ((Lane *)emulatedLane())->block;
	if (c->number == DYNAMIC_VARIABLE)
		return b->dynamic;
	for (auto &[control, at] : b->variables)
		if (control == c)
			return at;
	uint64_t bytes = (c->bytes + 15) / 16 * 16, n = b->variables.size() + 1;
	if (n > VARIABLES || bytes > VARIABLE - PAGE)
		fault(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many shared variables, or too large ones");
	void *at = b->shared + n * VARIABLE - PAGE - bytes;
	memset(at, UNWRITTEN, bytes);
	b->variables.push_back({c, at});
	return at;
}

EXPORT unsigned emulatedSharedAddress(const void *p)
{
	Block *b = ((Lane *)emulatedLane())->block;
	uint64_t at = (uint64_t)p - (uint64_t)b->shared;
	if (at >= SHARED)
		fault(CUDA_ERROR_INVALID_ADDRESS_SPACE, text("%p is not in the block's shared memory", p));
	return (unsigned)at;
}

EXPORT void *emulatedSharedPointer(unsigned address)
{
	return ((Lane *)emulatedLane())->block->shared + address;
}
