// The scheduler of a launch: which blocks are resident, and which of their lanes runs next. All lanes of a launch run in its stream's thread, one at
// a time, each on a stack of its own (fiber.S). A lane runs until it yields: in a collective operation, or where it waits for memory to change.
// The order varies with the seed, so that wrong assumptions about it show.
#include "block.h"

#include <numeric>
#include <unistd.h>

namespace emulator {

__thread Runner *currentRunner __attribute__((tls_model("initial-exec")));

std::string running()
{
	Runner *r = currentRunner;
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
	currentRunner->lane = to;
	currentRunner->ran++;
	emulator_switch(keep, to->sp);
}

void yield(Lane *l)
{
	Runner *r = currentRunner;
	Warp &w = warpOf(l);
	uint32_t ready = w.ready;
	// Mostly another lane of the warp goes on; now and then runBlock chooses a warp anew.
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

// runWarp runs lanes of a warp until one yields to the runner.
static void runWarp(Runner *r, Block *b, uint32_t w)
{
	uint32_t i = pick(r, b->warp[w].ready);
	b->warp[w].ready &= ~(1u << i);
	resume(&b->lane[w * 32 + i], &r->sp);
}

// makeBlock begins a block of a launch.
static Block *makeBlock(Runner *r, uint32_t number)
{
	const Launch &launch = *r->launch;
	Block *b = takeBlock(launch.threads);
	b->number = number;
	b->left = launch.threads;
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
		l.at = Collective::None;
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

// stateOf says what each lane of a block waits for, for people.
static std::string stateOf(const Block &b)
{
	static const char *const names[] = {"running", "warpSync", "ballot", "shuffle", "scan", "sum", "blockSync"};
	std::string s;
	for (uint32_t w = 0; w < b.warps; w++) {
		const Warp &warp = b.warp[w];
		std::map<std::string, uint32_t> groups;
		for (uint32_t i = 0; i < 32 && w * 32 + i < b.lanes; i++) {
			const Lane &l = b.lane[w * 32 + i];
			std::string what = warp.ended >> i & 1 ? "ended" : names[(int)l.at];
			if (!(warp.ended >> i & 1) && l.at != Collective::None && l.at != Collective::BlockSync)
				what += text("(%#x)", l.lanes);
			groups[what] |= 1u << i;
		}
		s += text("\n  warp %u:", w);
		for (auto &[what, lanes] : groups)
			s += text(" lanes %#010x %s;", lanes, what.c_str());
	}
	return s;
}

// stuck says whether no lane can go on by itself.
static bool stuck(const Block &b)
{
	for (const Warp &w : b.warp)
		if (w.ready | w.spinning)
			return false;
	return b.left != 0;
}

// runBlocks runs all blocks of the launch, in rounds: in each round every resident block has its turns.
static void runBlocks(Runner *r)
{
	const Launch &launch = *r->launch;
	uint32_t resident = (uint32_t)(settings().multiprocessors * residentBlocks(launch.function, launch.threads, launch.shared));
	// Blocks begin in a random order: number begun * step + offset, modulo their count.
	uint32_t begun = 0, step = 1, offset = 0;
	if (launch.blocks > 1) {
		offset = r->next(launch.blocks);
		do
			step = 1 + r->next(launch.blocks - 1);
		while (std::gcd(step, launch.blocks) != 1);
	}
	double active = now();
	int idle = 0; // rounds in a row in which lanes did nothing but look whether memory has changed
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
		} else if (++idle > 4 && ended < launch.blocks) { // only the host, or another launch, can change it
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
	currentRunner = &r;
	Fault f = protect([&] { runBlocks(&r); });
	for (Block *b : r.blocks)
		giveBlock(b);
	currentRunner = nullptr;
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

EXPORT const EmulatedLane *emulatedLane() { return &self()->self; }

EXPORT void emulatedSleep()
{
	Lane *l = self();
	warpOf(l).spinning |= 1u << l->index;
	currentRunner->slept++;
	yield(l);
}

EXPORT void emulatedPause()
{
	Lane *l = self();
	if (++l->spins > 64) { // it seems to wait for something
		l->spins = 0;
		emulatedSleep();
	} else if (currentRunner->next(8) == 0) {
		warpOf(l).ready |= 1u << l->index;
		yield(l);
	}
}

EXPORT unsigned long long emulatedNanos()
{
	return (unsigned long long)(now() * 1e9 / settings().slowdown) + (1ull << 50);
}
