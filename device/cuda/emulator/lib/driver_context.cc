// Driver entries of contexts: of their life, of the thread's stack of them, and of access to other devices' memory.
#include "driver.h"

namespace emulator {

static thread_local std::vector<Device *> stack;

// Each entry that acts on a context asks for it once.
static std::atomic<unsigned long long> calls;

Device *current()
{
	calls++;
	return stack.empty() ? nullptr : stack.back();
}

} // namespace emulator

// For tests: how many calls there were that act on a context, such as launches and queries of events.
EXPORT unsigned long long tensorcache_emulator_calls() { return calls; }

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
	FOR_DEVICE(ordinal);
	Device *d = device(ordinal);
	std::lock_guard<std::mutex> lock(d->mu);
	d->retained++;
	*context = contextOf(d);
	return CUDA_SUCCESS;
}

// The last release destroys the context; one made after it is sound, as in a new process.
EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
	FOR_DEVICE(ordinal);
	Device *d = device(ordinal);
	{
		std::lock_guard<std::mutex> lock(d->mu);
		if (d->retained == 0)
			return CUDA_ERROR_INVALID_CONTEXT;
		if (d->retained > 1) {
			d->retained--;
			return CUDA_SUCCESS;
		}
	}
	drainDevice(d);
	std::lock_guard<std::mutex> lock(d->mu);
	d->retained--;
	d->error = 0;
	d->peers.clear();
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active)
{
	FOR_DEVICE(ordinal);
	Device *d = device(ordinal);
	std::lock_guard<std::mutex> lock(d->mu);
	*flags = 0;
	*active = d->retained > 0;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent(CUcontext context)
{
	Device *d = deviceOf(context);
	if (d == nullptr)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack.push_back(d);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent(CUcontext *context)
{
	if (stack.empty())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (context != nullptr)
		*context = contextOf(stack.back());
	stack.pop_back();
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
	*context = stack.empty() ? nullptr : contextOf(stack.back());
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
	Device *d = deviceOf(context);
	if (context != nullptr && d == nullptr)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!stack.empty())
		stack.pop_back();
	if (d != nullptr)
		stack.push_back(d);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *d)
{
	if (stack.empty())
		return CUDA_ERROR_INVALID_CONTEXT;
	*d = stack.back()->ordinal;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	if (stack.empty())
		return CUDA_ERROR_INVALID_CONTEXT;
	*least = 0;
	*greatest = -5;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int)
{
	Device *d = current(), *of = deviceOf(peer);
	if (d == nullptr || of == nullptr || d == of)
		return CUDA_ERROR_INVALID_CONTEXT;
	std::lock_guard<std::mutex> lock(d->mu);
	return d->peers.insert(of->ordinal).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
	Device *d = current(), *of = deviceOf(peer);
	if (d == nullptr || of == nullptr)
		return CUDA_ERROR_INVALID_CONTEXT;
	std::lock_guard<std::mutex> lock(d->mu);
	return d->peers.erase(of->ordinal) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
