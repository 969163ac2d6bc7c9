/* Memory, streams and graphs of the device that the checks run on. The driver is loaded by hand, as a program of another library would have it. */
#include <dlfcn.h>

#include "check.h"
#include "cuda.h"

int on_cuda;

static void *driver;

static void *entry(const char *name)
{
	void *f = dlsym(driver, name);
	if (f == NULL)
		FAIL("libcuda.so.1 has no %s", name);
	return f;
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
/* Calls an entry of the driver by its exported name, which cuda.h's macros give. */
#define CU(name, ...)                                                            \
	do {                                                                         \
		CUresult r_ = ((__typeof__(&name))entry(TEXT(name)))(__VA_ARGS__);       \
		if (r_ != CUDA_SUCCESS)                                                  \
			FAIL("%s: error %d", TEXT(name), (int)r_);                           \
	} while (0)

/* Sets the primary context of GPU 0 for the calling thread. */
void device_begin(void)
{
	if (!on_cuda)
		return;
	if (driver == NULL && (driver = dlopen("libcuda.so.1", RTLD_NOW)) == NULL)
		FAIL("%s", dlerror());
	CUdevice d;
	CUcontext ctx;
	CU(cuInit, 0);
	CU(cuDeviceGet, &d, 0);
	CU(cuDevicePrimaryCtxRetain, &ctx, d);
	CU(cuCtxSetCurrent, ctx);
}

void *device_alloc(size_t bytes)
{
	if (!on_cuda) {
		void *p = malloc(bytes + 1);
		CHECK(p != NULL);
		return p;
	}
	CUdeviceptr p;
	CU(cuMemAlloc, &p, bytes + 1);
	return (void *)(uintptr_t)p;
}

void device_free(void *p)
{
	if (on_cuda)
		CU(cuMemFree, (CUdeviceptr)(uintptr_t)p);
	else
		free(p);
}

void device_put(void *to, const void *from, size_t bytes)
{
	if (!on_cuda) {
		memcpy(to, from, bytes);
		return;
	}
	if (bytes == 0)
		return;
	CU(cuMemcpyHtoDAsync, (CUdeviceptr)(uintptr_t)to, from, bytes, NULL);
	CU(cuStreamSynchronize, NULL);
}

void device_get(void *to, const void *from, size_t bytes)
{
	if (!on_cuda) {
		memcpy(to, from, bytes);
		return;
	}
	if (bytes == 0)
		return;
	CU(cuMemcpyDtoHAsync, to, (CUdeviceptr)(uintptr_t)from, bytes, NULL);
	CU(cuStreamSynchronize, NULL);
}

void *stream_new(void)
{
	CUstream s = NULL;
	if (on_cuda)
		CU(cuStreamCreate, &s, 0);
	return s;
}

void stream_wait(void *stream)
{
	if (on_cuda)
		CU(cuStreamSynchronize, stream);
}

void *stream_apart(void)
{
	CUstream s;
	CU(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	return s;
}

int emulated(void)
{
	return on_cuda && dlsym(driver, "tensorcache_emulator_fail") != NULL;
}

void *device_fill(size_t left)
{
	size_t free_bytes, all;
	CU(cuMemGetInfo, &free_bytes, &all);
	CHECK(free_bytes > left);
	return device_alloc(free_bytes - left);
}

void *graph_begin(void *stream)
{
	CU(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	return stream;
}

void *graph_end(void *stream)
{
	CUgraph g;
	CUgraphExec e;
	CU(cuStreamEndCapture, stream, &g);
	CU(cuGraphInstantiateWithFlags, &e, g, 0);
	CU(cuGraphDestroy, g);
	return e;
}

void graph_launch(void *graph, void *stream)
{
	CU(cuGraphLaunch, graph, stream);
}

void graph_destroy(void *graph)
{
	CU(cuGraphExecDestroy, graph);
}
