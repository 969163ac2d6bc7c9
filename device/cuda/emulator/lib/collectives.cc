// Collective operations: what lanes of a warp, or all lanes of a block, do together. A lane that comes to one waits until all that it names are in the
// same operation, with the same set of lanes. Lanes that have ended are not waited for. The last lane to come computes the results of all.
#include "block.h"

namespace emulator {

// openBlock lets the lanes at the block's barrier go on.
static void openBlock(Block *b)
{
	racesBarrier(b);
	b->atBlock = 0;
	for (uint32_t w = 0; w < b->warps; w++) {
		for (uint32_t left = b->warp[w].atBlock; left != 0; left &= left - 1)
			b->lane[w * 32 + (uint32_t)__builtin_ctz(left)].at = Collective::None;
		b->warp[w].ready |= b->warp[w].atBlock;
		b->warp[w].atBlock = 0;
	}
}

// finish computes the results of a collective operation of these lanes of warp w.
static void finish(Block *b, uint32_t w, uint32_t lanes, Collective what)
{
	Lane *lane = &b->lane[w * 32];
	uint32_t votes = 0;
	if (what == Collective::WarpSync)
		racesSync(b, w, lanes);
	if (what == Collective::Ballot)
		for (uint32_t left = lanes; left != 0; left &= left - 1) {
			uint32_t i = (uint32_t)__builtin_ctz(left);
			votes |= (uint32_t)(lane[i].value != 0) << i;
		}
	// valueOf returns the value that lane i reads of lane from.
	auto valueOf = [&](uint32_t i, uint32_t from) {
		if (!(lanes >> from & 1))
			fault(CUDA_ERROR_LAUNCH_FAILED, text("%s: lane %u reads lane %u, which does not take part: lanes %#x do",
							     what == Collective::Shuffle ? "shuffle" : "scan", i, from, lanes));
		return lane[from].value;
	};
	for (uint32_t left = lanes; left != 0; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctz(left), width = lane[i].parameter, first = i & ~(width - 1), result = 0;
		switch (what) {
		case Collective::Ballot:
			result = votes;
			break;
		case Collective::Shuffle:
			result = valueOf(i, lane[i].parameter);
			break;
		case Collective::Scan:
			for (uint32_t k = first; k <= i; k++)
				result += valueOf(i, k);
			break;
		case Collective::Sum:
			for (uint32_t k = first; k < first + width; k++)
				result += valueOf(i, k);
			break;
		default:
			break;
		}
		lane[i].result = result;
	}
	for (uint32_t left = lanes; left != 0; left &= left - 1)
		lane[__builtin_ctz(left)].at = Collective::None;
}

// tryFinish ends the operation that a lane waits in, if all lanes that it names have come.
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

// collective waits until all the lanes are in the operation, and returns the calling lane's result.
static uint32_t collective(Collective what, uint32_t lanes, uint32_t value, uint32_t parameter)
{
	Lane *l = self();
	Warp &w = warpOf(l);
	if (!(lanes >> l->index & 1))
		fault(CUDA_ERROR_LAUNCH_FAILED, text("lane %u is not among the lanes %#x that it names", l->index, lanes));
	l->at = what, l->lanes = lanes, l->value = value, l->parameter = parameter, l->spins = 0;
	w.waiting |= 1u << l->index;
	tryFinish(l->block, l->self.thread / 32, l);
	yield(l);
	return l->result;
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
	// Operations in which only this lane was missing go on.
	for (uint32_t left = w.waiting; left != 0; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctz(left);
		if (w.waiting >> i & 1)
			tryFinish(b, at, &b->lane[at * 32 + i]);
	}
	if (b->atBlock == b->left)
		openBlock(b);
	yield(l);
	__builtin_unreachable();
}

EXPORT void emulatedWarpSync(unsigned lanes) { collective(Collective::WarpSync, lanes, 0, 0); }
EXPORT unsigned emulatedBallot(unsigned lanes, unsigned vote) { return collective(Collective::Ballot, lanes, vote, 0); }
EXPORT unsigned emulatedShuffle(unsigned lanes, unsigned value, unsigned from) { return collective(Collective::Shuffle, lanes, value, from); }
EXPORT unsigned emulatedScan(unsigned lanes, unsigned value, unsigned width) { return collective(Collective::Scan, lanes, value, width); }
EXPORT unsigned emulatedSum(unsigned lanes, unsigned value, unsigned width) { return collective(Collective::Sum, lanes, value, width); }

EXPORT void emulatedBlockSync()
{
	Lane *l = self();
	Block *b = l->block;
	l->at = Collective::BlockSync;
	l->spins = 0;
	warpOf(l).atBlock |= 1u << l->index;
	b->atBlock++;
	if (b->atBlock == b->left)
		openBlock(b);
	yield(l);
}
