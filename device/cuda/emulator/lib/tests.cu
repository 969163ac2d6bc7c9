#include "gpu.h"

// The kernels that tests bring as PTX of their own: see package cuda.

struct SpinArgs {
	u64 flag;
};

// Waits until the word is not 0.
KERNEL void spin(const SpinArgs a)
{
	while (loadSystem((const u32 *)a.flag) == 0)
		sleepNanos(100);
}
