/*
 * Finds the driver and its entries for the stub library. See doc.go for what the library is.
 *
 * The driver is loaded and initialized once, at the first call of any entry but cuInit; a program that makes none pays
 * nothing. Everything here may be called from any thread.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"
#include "tensorcache_cuda.h"

enum {
#define SYMBOL(name) SYMBOL_##name,
#define RENAMED(name, older) SYMBOL_##name,
#include "symbols.h"
#undef SYMBOL
#undef RENAMED
	SYMBOLS
};

static const struct {
	const char *name;
	const char *older; /* NULL: always so named */
} symbols[SYMBOLS] = {
#define SYMBOL(name) {#name, NULL},
#define RENAMED(name, older) {#name, #older},
#include "symbols.h"
#undef SYMBOL
#undef RENAMED
};

#define HIDDEN __attribute__((visibility("hidden")))

extern HIDDEN void *tensorcache_cuda_slots[SYMBOLS];
HIDDEN void *tensorcache_cuda_bind(unsigned int index);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library;    /* NULL: not found */
static int usable;       /* cuInit succeeded */
static char reason[640]; /* why not usable */

/* The entry as the library has it, under its name or its older one; NULL where it has none. */
static void *find(unsigned int index)
{
	void *entry = dlsym(library, symbols[index].name);
	if (entry == NULL && symbols[index].older != NULL)
		entry = dlsym(library, symbols[index].older);
	return entry;
}

static void load(void)
{
	const char *path = secure_getenv("TENSORCACHE_LIBCUDA");
	if (path == NULL || *path == '\0')
		path = "libcuda.so.1";
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		const char *message = dlerror();
		snprintf(reason, sizeof reason, "%s", message != NULL ? message : path);
		return;
	}
	CUresult (*init)(unsigned int) = (CUresult(*)(unsigned int))find(SYMBOL_cuInit);
	if (init == NULL) {
		snprintf(reason, sizeof reason, "%s: no cuInit: not a CUDA driver", path);
		return;
	}
	CUresult result = init(0);
	if (result == CUDA_SUCCESS) {
		usable = 1;
		return;
	}
	CUresult (*describe)(CUresult, const char **);
	const char *name = NULL, *text = NULL;
	if ((describe = (CUresult(*)(CUresult, const char **))find(SYMBOL_cuGetErrorName)) != NULL)
		describe(result, &name);
	if ((describe = (CUresult(*)(CUresult, const char **))find(SYMBOL_cuGetErrorString)) != NULL)
		describe(result, &text);
	snprintf(reason, sizeof reason, "%s: cuInit: error %d: %s (%s)", path, (int)result,
		name != NULL ? name : "unknown", text != NULL ? text : "no description");
}

/* What is called in place of entries that cannot be had. The arguments of those without parameters are ignored. */

static CUresult succeed(void)
{
	return CUDA_SUCCESS;
}

static CUresult no_device(void)
{
	return CUDA_ERROR_NO_DEVICE;
}

static CUresult not_found(void)
{
	return CUDA_ERROR_NOT_FOUND;
}

static CUresult zero(int *value)
{
	if (value == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*value = 0;
	return CUDA_SUCCESS;
}

static CUresult no_text(CUresult error, const char **text)
{
	(void)error;
	if (text != NULL)
		*text = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

static void *resolve(unsigned int index)
{
	/* Succeeds and does nothing: gorgonia.org/cu calls it before main and exits the process where it fails. */
	if (index == SYMBOL_cuInit)
		return (void *)succeed;
	pthread_once(&once, load);
	if (usable) {
		void *entry = find(index);
		return entry != NULL ? entry : (void *)not_found;
	}
	void *entry = NULL;
	switch (index) {
	case SYMBOL_cuDeviceGetCount:
		return (void *)zero;
	case SYMBOL_cuDriverGetVersion: /* these three work without cuInit */
		if (library != NULL)
			entry = find(index);
		return entry != NULL ? entry : (void *)zero;
	case SYMBOL_cuGetErrorName:
	case SYMBOL_cuGetErrorString:
		if (library != NULL)
			entry = find(index);
		return entry != NULL ? entry : (void *)no_text;
	default:
		return (void *)no_device;
	}
}

/* Finds an entry and puts it in its slot. Threads that come here at once store the same address. */
void *tensorcache_cuda_bind(unsigned int index)
{
	void *entry = resolve(index);
	__atomic_store_n(&tensorcache_cuda_slots[index], entry, __ATOMIC_RELEASE);
	return entry;
}

HIDDEN const char *tensorcache_cuda_load_error(void)
{
	pthread_once(&once, load);
	return usable ? NULL : reason;
}

HIDDEN int tensorcache_cuda_has(const char *symbol)
{
	pthread_once(&once, load);
	if (!usable)
		return 0;
	for (unsigned int i = 0; i < SYMBOLS; i++)
		if (strcmp(symbols[i].name, symbol) == 0)
			return find(i) != NULL;
	return 0;
}
