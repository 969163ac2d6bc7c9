// Driver entries of modules, functions and launches.
#include "driver.h"

#include <cstring>

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values)
{
	Device *d = current();
	if (d == nullptr)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (forbidden())
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (d->error != 0)
		return (CUresult)d->error.load();
	char *log = nullptr;
	size_t room = 0;
	for (unsigned i = 0; i < count; i++)
		switch (options[i]) {
		case CU_JIT_WALL_TIME:
			memset(&values[i], 0, sizeof values[i]);
			break;
		case CU_JIT_ERROR_LOG_BUFFER:
			log = (char *)values[i];
			break;
		case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
			room = (size_t)values[i];
			break;
		default:
			break;
		}
	std::string why;
	CUresult r = loadModule((const char *)image, &why, (Module **)module);
	if (r != CUDA_SUCCESS && log != nullptr && room > 0)
		snprintf(log, room, "%s", why.c_str());
	return r;
}

// The module's code stays: kernels of it may be under way.
EXPORT CUresult cuModuleUnload(CUmodule module)
{
	Device *d = current();
	if (d == nullptr)
		return CUDA_ERROR_INVALID_CONTEXT;
	drainDevice(d);
	delete (Module *)module;
	return (CUresult)d->error.load();
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	Module *m = (Module *)module;
	auto f = m->functions.find(name);
	if (f == m->functions.end())
		return CUDA_ERROR_NOT_FOUND;
	*function = (CUfunction)f->second.get();
	return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
	Function *f = (Function *)function;
	switch ((int)attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = (int)f->entry.maxThreads;
		break;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*value = (int)f->entry.staticShared;
		break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = 32;
		break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
		*value = 80;
		break;
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value = 90;
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*value = f->dynamicLimit;
		break;
	default:
		*value = 0;
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
	Function *f = (Function *)function;
	if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
		if (value < 0 || value + (int)f->entry.staticShared > settings().sharedBytes)
			return CUDA_ERROR_INVALID_VALUE;
		f->dynamicLimit = value;
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared)
{
	Function *f = (Function *)function;
	*blocks = (int)shared > f->dynamicLimit ? 0 : residentBlocks(f, (unsigned)threads, (unsigned)shared);
	return CUDA_SUCCESS;
}

static CUresult launch(CUfunction function, unsigned blocks, unsigned threads, unsigned shared, CUstream stream, void **parameters, Event *begun)
{
	ON_STREAM(s, stream);
	Function *f = (Function *)function;
	const Entry &e = f->entry;
	if (blocks == 0 || blocks > 0x7fffffff || threads == 0 || threads > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	if (threads > e.maxThreads || (int)shared > f->dynamicLimit || residentBlocks(f, threads, shared) == 0)
		return CUDA_ERROR_INVALID_VALUE;
	Device *d = s->device;
	auto l = std::make_shared<Launch>();
	l->device = d;
	l->function = f;
	l->blocks = blocks;
	l->threads = threads;
	l->shared = shared;
	l->arguments.resize((e.bytes + 7) / 8);
	for (size_t i = 0; i < e.sizes.size(); i++)
		memcpy((char *)l->arguments.data() + e.offsets[i], parameters[i], e.sizes[i]);
	l->seed = (uint64_t)d->launches++ << 16 | s->number;
	if (begun != nullptr) {
		l->begun = std::make_shared<Mark>();
		if (s->capturing)
			begun->captured = s->capturing;
		else
			setMark(begun, l->begun);
	}
	return enqueue(s, [d, l] {
		if (d->failAfter >= 0 && d->failAfter-- == 0)
			lose(d, (CUresult)d->failWith.load(), "asked to by a test");
		if (int micros = d->launchMicros)
			std::this_thread::sleep_for(std::chrono::microseconds(micros));
		if (d->error == 0)
			runLaunch(*l);
		else if (l->begun)
			pass(l->begun);
		l->seed += 1ull << 40; // a graph's next replay has its lanes in another order
	});
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int gridX, unsigned int gridY, unsigned int gridZ, unsigned int blockX,
	unsigned int blockY, unsigned int blockZ, unsigned int shared, CUstream stream, void **parameters, void **extra)
{
	if (gridY != 1 || gridZ != 1 || blockY != 1 || blockZ != 1 || extra != nullptr)
		return CUDA_ERROR_NOT_SUPPORTED;
	return launch(function, gridX, blockX, shared, stream, parameters, nullptr);
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction function, void **parameters, void **extra)
{
	if (c->gridDimY != 1 || c->gridDimZ != 1 || c->blockDimY != 1 || c->blockDimZ != 1 || extra != nullptr)
		return CUDA_ERROR_NOT_SUPPORTED;
	Event *begun = nullptr;
	for (unsigned i = 0; i < c->numAttrs; i++) {
		if (c->attrs[i].id != CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
			return CUDA_ERROR_NOT_SUPPORTED;
		begun = (Event *)c->attrs[i].value.launchCompletionEvent.event;
	}
	return launch(function, c->gridDimX, c->blockDimX, c->sharedMemBytes, c->hStream, parameters, begun);
}
