#include "publish.h"

// Publishes a batch's counters. One thread.
KERNEL void publishKernel(const PublishArgs a)
{
	Counters *count = (Counters *)a.counters;
	publish(count, countersNow(count), a.result, a.batch);
}
