// The meetings of lanes, and who runs next. See lane.h.
#include "block.h"

#include <cstring>
#include <numeric>
#include <unistd.h>

namespace emulator {

static thread_local Runner *running_ __attribute__((tls_model("initial-exec")));

Runner *runner() { return running_; }


static Lane *self() { return running_->lane; }
static Warp &warpOf(Lane *l) { return l->block->warp[l->self.thread / 32]; }

std::string running()
{
	Runner *r = running_;
	if (r == nullptr)
		return "copy";
	const Function *f = r->launch->function;
	std::string s = text("kernel %s of module %s", f->entry.name.c_str(), f->module->name.c_str());
	if (r->lane != nullptr)
		s += text(", block %u of %u, thread %u of %u", r->lane->self.block, r->lane->self.blocks, r->lane->self.thread, r->lane->self.threads);
	return s;
}

// pick returns one of the lanes, in an order that varies.
static uint32_t pick(Runner *r, uint32_t lanes)
{
	uint32_t turn = r->next(64), rotated = lanes >> (turn & 31) | (turn & 31 ? lanes << (32 - (turn & 31)) : 0);
	uint32_t at = turn & 32 ? (uint32_t)__builtin_ctz(rotated) : 31 - (uint32_t)__builtin_clz(rotated);
	return (at + turn) & 31;
}

static void resume(Lane *to, void **keep)
{
	running_->lane = to;
	running_->ran++;
	emulator_switch(keep, to->sp);
}

void give(Lane *l)
{
	Runner *r = running_;
	Warp &w = warpOf(l);
	uint32_t ready = w.ready;
	// Mostly a lane of the warp goes on; now and then the runner chooses a warp.
	if (ready != 0 && r->next(16) != 0) {
		uint32_t i = pick(r, ready);
		w.ready &= ~(1u << i);
		Lane *to = &l->block->lane[l->self.thread / 32 * 32 + i];
		if (to == l)
			return;
		resume(to, &l->sp);
		return;
	}
	r->lane = nullptr;
	emulator_switch(&l->sp, r->sp);
}

// runWarp runs lanes of a warp until one gives way to the runner.
static void runWarp(Runner *r, Block *b, uint32_t w)
{
	uint32_t i = pick(r, b->warp[w].ready);
	b->warp[w].ready &= ~(1u << i);
	resume(&b->lane[w * 32 + i], &r->sp);
}

// openBlock lets the lanes at the block's barrier go on.
static void openBlock(Block *b)
{
	racesBarrier(b);
	b->atBlock = 0;
	for (uint32_t w = 0; w < b->warps; w++) {
		for (uint32_t left = b->warp[w].atBlock; left != 0; left &= left - 1)
			b->lane[w * 32 + (uint32_t)__builtin_ctz(left)].at = Meeting::None;
		b->warp[w].ready |= b->warp[w].atBlock;
		b->warp[w].atBlock = 0;
	}
}

// finish computes what a meeting of the lanes gives each.
static void finish(Block *b, uint32_t w, uint32_t lanes, Meeting what)
{
	Lane *lane = &b->lane[w * 32];
	uint32_t votes = 0;
	if (what == Meeting::Sync)
		racesSync(b, w, lanes);
	if (what == Meeting::Ballot)
		for (uint32_t left = lanes; left != 0; left &= left - 1) {
			uint32_t i = (uint32_t)__builtin_ctz(left);
			votes |= (uint32_t)(lane[i].value != 0) << i;
		}
	for (uint32_t left = lanes; left != 0; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctz(left), width = lane[i].parameter, result = 0;
		switch (what) {
		case Meeting::Ballot:
			result = votes;
			break;
		case Meeting::Shuffle: {
			uint32_t from = lane[i].parameter;
			if (!(lanes >> from & 1))
				fault(CUDA_ERROR_LAUNCH_FAILED, text("shuffle: lane %u reads lane %u, which does not take part: lanes %#x do", i, from, lanes));
			result = lane[from].value;
			break;
		}
		case Meeting::Scan:
		case Meeting::Sum:
		case Meeting::Max:
		case Meeting::Min: {
			uint32_t first = i & ~(width - 1), end = what == Meeting::Scan ? i + 1 : first + width;
			result = lane[first].value;
			for (uint32_t k = first; k < end; k++) {
				if (!(lanes >> k & 1))
					fault(CUDA_ERROR_LAUNCH_FAILED, text("scan: lane %u reads lane %u, which does not take part: lanes %#x do", i, k, lanes));
				uint32_t x = lane[k].value;
				if (k != first)
					result = what == Meeting::Max ? (x > result ? x : result) : what == Meeting::Min ? (x < result ? x : result) : result + x;
			}
			break;
		}
		default:
			break;
		}
		lane[i].result = result;
	}
	for (uint32_t left = lanes; left != 0; left &= left - 1)
		lane[__builtin_ctz(left)].at = Meeting::None;
}

// tryFinish ends the meeting that a lane waits in, if all who are named have come.
static void tryFinish(Block *b, uint32_t w, Lane *l)
{
	Warp &warp = b->warp[w];
	uint32_t need = l->lanes & ~warp.ended;
	if (need & ~warp.waiting)
		return;
	for (uint32_t left = need; left != 0; left &= left - 1) {
		const Lane &other = b->lane[w * 32 + (uint32_t)__builtin_ctz(left)];
		if (other.at != l->at || other.lanes != l->lanes)
			return;
	}
	finish(b, w, need, l->at);
	warp.waiting &= ~need;
	warp.ready |= need;
}

static uint32_t meet(Meeting what, uint32_t lanes, uint32_t value, uint32_t parameter)
{
	Lane *l = self();
	Warp &w = warpOf(l);
	if (!(lanes >> l->index & 1))
		fault(CUDA_ERROR_LAUNCH_FAILED, text("lane %u is not among the lanes %#x that it names", l->index, lanes));
	l->at = what, l->lanes = lanes, l->value = value, l->parameter = parameter, l->spins = 0;
	w.waiting |= 1u << l->index;
	tryFinish(l->block, l->self.thread / 32, l);
	give(l);
	return l->result;
}

// makeBlock begins a block of a launch.
static Block *makeBlock(Runner *r, uint32_t number)
{
	const Launch &launch = *r->launch;
	Block *b = takeBlock(launch.threads);
	b->runner = r;
	b->number = number;
	b->lanes = b->left = launch.threads;
	b->warps = (launch.threads + 31) / 32;
	b->atBlock = 0;
	if (b->lane.size() < b->lanes)
		b->lane.resize(b->lanes);
	b->warp.assign(b->warps, Warp{});
	prepareShared(b, launch.shared);
	racesBegin(b, launch.function->module->reportsAccesses);
	for (uint32_t t = 0; t < b->lanes; t++) {
		Lane &l = b->lane[t];
		l.self = {t, launch.threads, number, launch.blocks};
		l.block = b;
		l.index = (uint8_t)(t % 32);
		l.at = Meeting::None;
		l.group = 0;
		l.spins = 0;
		l.copies.clear();
		b->warp[t / 32].ready |= 1u << (t % 32);
		start(l, launch);
	}
	for (uint32_t w = 0; w < b->warps; w++)
		b->warp[w].ended = ~b->warp[w].ready; // a last warp may be short
	return b;
}

// runBlock lets a block's warps run in turns, until all wait or for a while.
static void runBlock(Runner *r, Block *b)
{
	bool ran = true;
	for (uint32_t rounds = 1 + r->next(64); rounds > 0 && ran; rounds--) {
		ran = false;
		for (uint32_t n = 0, offset = r->next(b->warps); n < b->warps; n++) {
			uint32_t w = n + offset < b->warps ? n + offset : n + offset - b->warps;
			for (uint32_t turns = 0; b->warp[w].ready != 0 && turns < 8; turns++) {
				runWarp(r, b, w);
				ran = true;
			}
		}
	}
}

// stuck says whether no lane can go on by itself.
static bool stuck(const Block &b)
{
	for (const Warp &w : b.warp)
		if (w.ready | w.spinning)
			return false;
	return b.left != 0;
}

static void runBlocks(Runner *r)
{
	const Launch &launch = *r->launch;
	uint32_t resident = (uint32_t)(settings().multiprocessors * residentBlocks(launch.function, launch.threads, launch.shared));
	// Blocks begin in an order that nobody may count on.
	uint32_t begun = 0, step = 1, offset = 0;
	if (launch.blocks > 1) {
		offset = r->next(launch.blocks);
		do
			step = 1 + r->next(launch.blocks - 1);
		while (std::gcd(step, launch.blocks) != 1);
	}
	double active = now();
	int idle = 0; // looks at lanes that spin
	for (uint32_t ended = 0; ended < launch.blocks;) {
		while (begun < launch.blocks && r->blocks.size() < resident) {
			r->blocks.push_back(makeBlock(r, (uint32_t)(((uint64_t)begun * step + offset) % launch.blocks)));
			begun++;
			if (begun == launch.blocks && launch.begun)
				pass(launch.begun);
		}
		r->ran = r->slept = 0;
		for (size_t i = 0; i < r->blocks.size();) {
			Block *b = r->blocks[i];
			runBlock(r, b);
			if (b->left == 0) {
				ended++;
				r->blocks.erase(r->blocks.begin() + (ptrdiff_t)i);
				giveBlock(b);
				continue;
			}
			if (stuck(*b))
				fault(CUDA_ERROR_LAUNCH_FAILED, text("block %u waits for lanes that do not come:", b->number) + stateOf(*b));
			i++;
		}
		if (r->ran != r->slept) {
			active = now();
			idle = 0;
		} else if (++idle > 4 && ended < launch.blocks) { // all that do not wait spin
			if (now() - active > settings().timeout)
				fault(CUDA_ERROR_LAUNCH_TIMEOUT, text("blocks spin for %g s; block %u:", settings().timeout, r->blocks[0]->number) +
						       stateOf(*r->blocks[0]));
			if (launch.device->error != 0)
				fault((CUresult)launch.device->error.load(), "the device is lost");
			usleep(50);
		}
		for (Block *b : r->blocks)
			for (Warp &w : b->warp)
				w.ready |= w.spinning, w.spinning = 0;
	}
}

void runLaunch(const Launch &launch)
{
	Runner r;
	r.launch = &launch;
	r.random = (settings().seed + 1) * 0x9e3779b97f4a7c15ull ^ (launch.seed + 1) * 0xbf58476d1ce4e5b9ull;
	running_ = &r;
	Fault f = protect([&] { runBlocks(&r); });
	for (Block *b : r.blocks)
		giveBlock(b);
	running_ = nullptr;
	if (launch.begun)
		pass(launch.begun);
	if (f.error == CUDA_SUCCESS) {
		std::string over = overrun();
		if (!over.empty())
			f = {CUDA_ERROR_ILLEGAL_ADDRESS, "kernel " + launch.function->entry.name + ", or one beside it: " + over};
	}
	if (f.error != CUDA_SUCCESS)
		lose(launch.device, f.error, f.why);
}

} // namespace emulator

using namespace emulator;

extern "C" [[noreturn]] __attribute__((visibility("hidden"))) void emulator_lane_ends()
{
	Lane *l = self();
	Block *b = l->block;
	uint32_t at = l->self.thread / 32;
	Warp &w = b->warp[at];
	w.ended |= 1u << l->index;
	b->left--;
	// Meetings that waited for it alone take place.
	for (uint32_t left = w.waiting; left != 0; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctz(left);
		if (w.waiting >> i & 1)
			tryFinish(b, at, &b->lane[at * 32 + i]);
	}
	if (b->atBlock == b->left)
		openBlock(b);
	give(l);
	__builtin_unreachable();
}

EXPORT const EmulatedLane *emulatedLane() { return &self()->self; }

EXPORT void emulatedWarpSync(unsigned lanes) { meet(Meeting::Sync, lanes, 0, 0); }
EXPORT unsigned emulatedBallot(unsigned lanes, unsigned vote) { return meet(Meeting::Ballot, lanes, vote, 0); }
EXPORT unsigned emulatedShuffle(unsigned lanes, unsigned value, unsigned from) { return meet(Meeting::Shuffle, lanes, value, from); }
EXPORT unsigned emulatedScan(unsigned lanes, unsigned value, unsigned width) { return meet(Meeting::Scan, lanes, value, width); }
EXPORT unsigned emulatedSum(unsigned lanes, unsigned value, unsigned width) { return meet(Meeting::Sum, lanes, value, width); }
EXPORT unsigned emulatedMax(unsigned lanes, unsigned value, unsigned width) { return meet(Meeting::Max, lanes, value, width); }
EXPORT unsigned emulatedMin(unsigned lanes, unsigned value, unsigned width) { return meet(Meeting::Min, lanes, value, width); }

EXPORT void emulatedBlockSync()
{
	Lane *l = self();
	Block *b = l->block;
	l->at = Meeting::Block;
	l->spins = 0;
	warpOf(l).atBlock |= 1u << l->index;
	b->atBlock++;
	if (b->atBlock == b->left)
		openBlock(b);
	give(l);
}

EXPORT void emulatedSleep()
{
	Lane *l = self();
	warpOf(l).spinning |= 1u << l->index;
	running_->slept++;
	give(l);
}

EXPORT void emulatedPause()
{
	Lane *l = self();
	if (++l->spins > 64) { // it seems to wait for something
		l->spins = 0;
		emulatedSleep();
	} else if (running_->next(8) == 0) {
		warpOf(l).ready |= 1u << l->index;
		give(l);
	}
}

EXPORT unsigned long long emulatedNanos()
{
	return (unsigned long long)(now() * 1e9 / settings().slowdown) + (1ull << 50);
}

EXPORT void emulatedCopy(void *shared, unsigned long long global, unsigned bytes)
{
	Lane *l = self();
	emulatedReach(global, bytes, 0);
	uint64_t at = (uint64_t)shared - (uint64_t)l->block->shared;
	if (at >= sharedSpan())
		fault(CUDA_ERROR_INVALID_ADDRESS_SPACE, text("copy to %p, which is not in the block's shared memory", shared));
	if (at & (bytes - 1))
		fault(CUDA_ERROR_MISALIGNED_ADDRESS, text("copy of %u bytes to %#llx of shared memory", bytes, (unsigned long long)at));
	volatile char first = *(const volatile char *)global, lastByte = *(const volatile char *)(global + bytes - 1); // faults come here
	(void)first, (void)lastByte;
	memset(shared, 0xc9, bytes);
	racesCopy(l, shared, bytes, __builtin_return_address(0));
	l->copies.push_back({shared, global, bytes, l->group});
}

EXPORT void emulatedCopyCommit() { self()->group++; }

EXPORT void emulatedCopyWait(unsigned groups)
{
	Lane *l = self();
	size_t kept = 0;
	for (const PendingCopy &c : l->copies) {
		if (groups != ~0u && c.group + groups >= l->group)
			l->copies[kept++] = c;
		else {
			memcpy(c.to, (const void *)c.from, c.bytes);
			racesCopied(l, c.to, c.bytes);
		}
	}
	l->copies.resize(kept);
}

EXPORT void emulatedReach(unsigned long long address, unsigned bytes, int write)
{
	if (address & (bytes - 1))
		fault(CUDA_ERROR_MISALIGNED_ADDRESS, text("%s of %u bytes at %#llx", write ? "write" : "read", bytes, address));
	if (address - emulatedBase < emulatedBytes || within(address, bytes))
		return;
	fault(CUDA_ERROR_ILLEGAL_ADDRESS, text("%s of %#llx, %s", write ? "write" : "read", address, describe(address).c_str()));
}
