// Driver entries of streams and events.
#include "driver.h"

EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int, int priority)
{
	Device *d = current();
	if (d == nullptr)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (d->error != 0)
		return (CUresult)d->error.load();
	return newStream(d, priority, (Stream **)stream);
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

EXPORT CUresult cuStreamDestroy(CUstream stream)
{
	CUresult why;
	Stream *s = streamOf(stream, &why);
	Device *d = current();
	if (s == nullptr && (d == nullptr || d->error == 0))
		return why;
	if (s != nullptr)
		endStream(s);
	return d != nullptr ? (CUresult)d->error.load() : CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
	ON_STREAM(s, stream);
	*context = contextOf(s->device);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
	ON_STREAM(s, stream);
	*priority = s->priority;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
	ON_STREAM(s, stream);
	if (s->capturing)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	drain(s);
	return (CUresult)s->device->error.load();
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
	Device *d = current();
	if (d == nullptr)
		return CUDA_ERROR_INVALID_CONTEXT;
	*event = (CUevent) new Event{flags, nullptr, {}};
	return (CUresult)d->error.load();
}

EXPORT CUresult cuEventDestroy(CUevent event)
{
	delete (Event *)event;
	Device *d = current();
	return d != nullptr ? (CUresult)d->error.load() : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
	ON_STREAM(s, stream);
	return recordEvent((Event *)event, s);
}

EXPORT CUresult cuEventQuery(CUevent event)
{
	Device *d = current();
	if (d == nullptr)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (forbidden())
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (d->error != 0)
		return (CUresult)d->error.load();
	return hasPassed(markOf((Event *)event)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
	Device *d = current();
	if (d == nullptr)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (forbidden())
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	awaitMark(markOf((Event *)event));
	return (CUresult)d->error.load();
}

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
	Event *a = (Event *)start, *b = (Event *)end;
	auto from = markOf(a), to = markOf(b);
	if (((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING) || from == nullptr || to == nullptr)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!hasPassed(from) || !hasPassed(to))
		return CUDA_ERROR_NOT_READY;
	*milliseconds = (float)((to->seconds - from->seconds) * 1e3 / settings().slowdown);
	return CUDA_SUCCESS;
}
