/*
 * libtensorcache_torch: rows of caches as operators of torch, for programs in C++ without Python, such as those that run a model of AOTInductor.
 *
 *     #include <tensorcache.h>
 *     #include <tensorcache_torch.h>
 *
 *     tc_cache *cache = ...;                                        // tc_open
 *     tensorcache_torch_register("users", cache, 0);                // table 0 of the cache is what programs call users
 *     torch::inductor::AOTIModelPackageLoader model("model.pt2");   // exported with x[ids], x being the table "users" of tensorcache.open
 *     auto rows = model.run({ids});
 *
 * Link with -ltensorcache_torch -ltensorcache and with torch 2.10 or later. When the library is loaded it defines the operators of the namespace tensorcache,
 * which docs/python.md lists. They run on the CPU and on GPUs, there in the order of torch's current stream.
 *
 * An exported program names a table by a text. The text has the table's name, the type of its elements and the shape of its rows, "users:float32[64]", so that
 * a program never reads a table of other rows than it was compiled for. A table that a program names and nobody has registered is an error of the operator.
 */
#ifndef TENSORCACHE_TORCH_H
#define TENSORCACHE_TORCH_H

#include "tensorcache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Registers table number table (from 0) of the cache under a name, by which operators of exported programs read it. A registered table of the same name, element
 * type and row shape is replaced; calls that have begun finish on the old one. The cache stays the caller's, who unregisters the table before tc_close; reads of a
 * closed cache are errors. Safe for concurrent use. TC_ERROR_ARGUMENT: name is NULL or longer than 1,023 bytes with what is added, a row has more than 16 axes, the cache is on more than 8 GPUs,
 * libtensorcache.so is not loaded, or another copy of this library has defined the operators. Other statuses are those of tc_table_get_info. */
TC_API tc_status tensorcache_torch_register(const char *name, tc_cache *cache, int32_t table);

/* Undoes tensorcache_torch_register. Calls that have begun are not affected. TC_ERROR_TABLE: nothing is registered for this table under this name. */
TC_API tc_status tensorcache_torch_unregister(const char *name, tc_cache *cache, int32_t table);

/* The text of this thread's last failed call of the two functions above, valid until the thread's next failed call of this library. */
TC_API const char *tensorcache_torch_error(void);

#ifdef __cplusplus
}
#endif

#endif
