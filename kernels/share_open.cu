#include "gpu.h"

// Batches of several streams take turns: one that comes while another's share is open waits for its end, so many nanoseconds at the most.
// Misses that were read at the same time, by the GPU alone, made both slower than one after the other: batches of 223,000 rows of 512 bytes
// on two streams took 2.53 ms each instead of 1.50. The host ends its part of a share a little later than the GPU.
#define SHARE_TURN 20'000'000
#define SHARE_QUIET 100'000

// Opens a share of the batch's misses. Where the host has not finished with the last one, its part is empty. One thread.
KERNEL void shareOpenKernel(const ShareOpenArgs a)
{
	ShareDevice *d = (ShareDevice *)a.share.device;
	ShareHost *h = (ShareHost *)a.share.host;
	Counters *counters = (Counters *)a.counters;
	u32 misses = counters->misses;
	if (misses < a.share.least)
		return;
	for (u64 since = nanos(); exchange(&d->owner, 1) != 0; sleepNanos(1000))
		if (nanos() - since > SHARE_TURN)
			return;
	u32 pieces = minimum((u32)((u64)misses * a.share.fraction >> 16) / a.share.piece, a.share.maxPieces);
	for (u64 since = nanos(); pieces != 0 && loadSystem(&d->quiet) != d->number; sleepNanos(500))
		if (nanos() - since > SHARE_QUIET)
			pieces = 0;
	u32 number = d->number + 1;
	number += number == 0;
	d->number = number;
	d->pieces = pieces;
	d->back = (misses + a.share.unit - 1) / a.share.unit;
	d->arrived = number << 12; // whatever share of an equal number in those bits it was of
	d->listed = d->next = d->exited = d->gaveUp = d->staged = d->stolen = 0;
	d->began = d->ownEnd = d->hostEnd = nanos();
	h->pieces = pieces;
	h->tier = a.share.tier;
	h->low = ~0u;
	counters->share = number;
	storeSystem(&h->opened, number);
}
