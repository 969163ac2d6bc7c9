/* What the stub library offers besides the driver's own entries. */
#ifndef TENSORCACHE_CUDA_LOADER_H
#define TENSORCACHE_CUDA_LOADER_H

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Says why no driver is usable: the dynamic loader's message, or what the driver's cuInit returned. NULL when the
 * driver is usable. The text stays valid. The first call, like the first driver call, loads the driver.
 */
const char *tensorcache_cuda_load_error(void);

/* Whether the driver is usable and has the entry, one of those in symbols.h. */
int tensorcache_cuda_has(const char *symbol);

#ifdef __cplusplus
}
#endif

#endif
