#include "gpu.h"

// Opens a share of the batch's misses, unless another one is open. Where the host has not finished with the last one, its part
// is empty. One thread.
KERNEL void shareOpenKernel(const ShareOpenArgs a)
{
	ShareDevice *d = (ShareDevice *)a.share.device;
	ShareHost *h = (ShareHost *)a.share.host;
	Counters *counters = (Counters *)a.counters;
	u32 misses = counters->misses;
	if (misses < a.share.least || exchange(&d->owner, 1) != 0)
		return;
	u32 pieces = minimum((u32)((u64)misses * a.share.fraction >> 16) / a.share.piece, a.share.maxPieces);
	if (loadSystem(&d->quiet) != d->number)
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
