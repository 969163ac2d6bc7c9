/* The tables that programs name, and reads of their rows. */
#include "tables.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorcache_torch.h"

namespace tensorcache {

Library library;
bool defined;
__thread Failure failure;

namespace {

struct Registered {
	Table table;
	Registered *next;
};

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of everything below, and of loading library */
Registered *registered;

struct Lock {
	Lock() { pthread_mutex_lock(&mutex); }
	~Lock() { pthread_mutex_unlock(&mutex); }
};

struct Element {
	const char *name;
	int32_t (*dtype)(); /* torch's number */
};

/* float8_e8m0fnu, for whose number torch 2.10 has no function. */
int32_t float8_e8m0()
{
	return torch_dtype_float8_e8m0fnu == nullptr ? 44 : torch_dtype_float8_e8m0fnu();
}

const Element elements[] = {
	{}, {"float16", aoti_torch_dtype_float16}, {"bfloat16", aoti_torch_dtype_bfloat16}, {"float32", aoti_torch_dtype_float32}, {"float64", aoti_torch_dtype_float64},
	{"int8", aoti_torch_dtype_int8}, {"int16", aoti_torch_dtype_int16}, {"int32", aoti_torch_dtype_int32}, {"int64", aoti_torch_dtype_int64},
	{"uint8", aoti_torch_dtype_uint8}, {"uint16", aoti_torch_dtype_uint16}, {"uint32", aoti_torch_dtype_uint32}, {"uint64", aoti_torch_dtype_uint64},
	{"bool", aoti_torch_dtype_bool}, {"float8_e4m3fn", aoti_torch_dtype_float8_e4m3fn}, {"float8_e5m2", aoti_torch_dtype_float8_e5m2},
	{"float8_e8m0fnu", float8_e8m0},
};
static_assert(TC_FLOAT16 == 1 && TC_FLOAT64 == 4 && TC_UINT64 == 12 && TC_BOOL == 13 && TC_FLOAT8_E8M0 == 16, "elements is indexed by tc_dtype");

bool load()
{
	void *handle = dlopen("libtensorcache.so", RTLD_NOLOAD | RTLD_NOW);
	if (handle == nullptr)
		return fail(TC_ERROR_ARGUMENT, "tensorcache: libtensorcache.so must be loaded before tables of it are registered");
	bool all = true;
	auto take = [&](auto *to, const char *name) {
		*(void **)to = dlsym(handle, name);
		if (*to == nullptr)
			all = fail(TC_ERROR_ARGUMENT, "tensorcache: libtensorcache.so must have %s: it is of another version than libtensorcache_torch.so", name);
	};
	take(&library.last_error, "tc_last_error");
	take(&library.table_get_info, "tc_table_get_info");
	take(&library.device_count, "tc_device_count");
	take(&library.device_get_info, "tc_device_get_info");
	take(&library.gather, "tc_gather");
	take(&library.gather_host_ids, "tc_gather_host_ids");
	take(&library.gather_host, "tc_gather_host");
	take(&library.gather_pooled, "tc_gather_pooled");
	take(&library.gather_pooled_host, "tc_gather_pooled_host");
	take(&library.update, "tc_update");
	take(&library.check, "tc_check");
	if (!all)
		library = {}; /* so that check is there only if all are */
	return all;
}

Registered **entry(const char *key)
{
	Registered **at = &registered;
	while (*at != nullptr && strcmp((*at)->table.key, key) != 0)
		at = &(*at)->next;
	return at;
}

/* The number of values of rows of float8 values and a scale for each block of them, 0 for other parts: those that tc_gather_pooled multiplies. */
int64_t values_of(const char *parts)
{
	const char *second = strchr(parts, ',');
	bool values = strncmp(parts, "float8_e4m3fn*", 14) == 0 || strncmp(parts, "float8_e5m2*", 12) == 0;
	if (!values || second == nullptr || strchr(second + 1, ',') != nullptr)
		return 0;
	bool scales = strncmp(second + 1, "float8_e8m0fnu", 14) == 0 || strncmp(second + 1, "float32", 7) == 0;
	const char *count = strchr(second, '*');
	int64_t n = atoll(strchr(parts, '*') + 1), blocks = count == nullptr ? 1 : atoll(count + 1);
	return scales && blocks > 0 && n % blocks == 0 ? n : 0;
}

/* Says what a table is. row has the lengths of the axes of a row, or is NULL for what the library knows of them. */
bool describe(tc_cache *cache, int32_t index, const int64_t *row, int32_t axes, Table *to, tc_table_info *info)
{
	if (!defined)
		return fail(TC_ERROR_ARGUMENT, "tensorcache: tables must be registered with the copy of libtensorcache_torch.so that was loaded first: it has defined the operators");
	if (library.check == nullptr && !load())
		return false;
	info->size = sizeof *info;
	if (int status = library.table_get_info(cache, index, info))
		return failed_call(status);
	const Element &element = elements[info->dtype];
	if (row == nullptr)
		row = info->shape + 1, axes = info->axes - 1;
	if (axes > maxAxes)
		return fail(TC_ERROR_ARGUMENT, "tensorcache: table %s (rows of %d axes) must have rows of at most %d", info->name, axes, maxAxes);
	to->cache = cache, to->index = index, to->dtype = element.dtype(), to->axes = axes, to->columns = 1;
	for (int32_t i = 0; i < axes; i++)
		to->row[i] = row[i], to->columns *= row[i];
	if (to->columns != info->columns)
		return fail(TC_ERROR_INTERNAL, "tensorcache: table %s must have rows of %lld elements: it has %lld", info->name, (long long)to->columns, (long long)info->columns);
	bool floats = info->dtype == TC_FLOAT16 || info->dtype == TC_BFLOAT16 || info->dtype == TC_FLOAT32;
	bool float8 = info->dtype == TC_FLOAT8_E4M3 || info->dtype == TC_FLOAT8_E5M2;
	to->sumColumns = values_of(info->parts);
	to->sumType = floats ? info->dtype : float8 || to->sumColumns ? TC_FLOAT32 : 0;
	return true;
}

bool fits_devices(int32_t devices)
{
	return devices <= maxDevices || fail(TC_ERROR_ARGUMENT, "tensorcache: a cache (%d GPUs) must have at most %d for its tables to be registered", devices, maxDevices);
}

/* Notes the GPUs of a cache. Without a GPU that torch sees, rows are read on the host. */
bool note_gpus(tc_cache *cache, Table *to)
{
	int32_t count = 0, current;
	if (int status = library.device_count(cache, &count))
		return failed_call(status);
	for (int32_t i = 0; i < count; i++) {
		tc_device_info device = {};
		device.size = sizeof device;
		if (int status = library.device_get_info(cache, i, &device))
			return failed_call(status);
		if (device.backend != TC_BACKEND_CUDA || aoti_torch_get_current_cuda_stream == nullptr || aoti_torch_get_current_device_index(&current))
			return true;
		if (!fits_devices(count))
			return false;
		to->gpus[to->devices++] = device.gpu;
	}
	return true;
}

/* Writes the text by which programs name a table. */
bool name_key(const char *name, const tc_table_info &info, Table *to)
{
	size_t at = 0;
	auto add = [&](const char *format, auto value) { at += at < maxKey ? (size_t)snprintf(to->key + at, maxKey - at, format, value) : 0; };
	add("%s", name == nullptr ? "" : name);
	add(":%s[", elements[info.dtype].name);
	for (int32_t i = 0; i < to->axes; i++)
		add(i ? ",%lld" : "%lld", (long long)to->row[i]);
	add(info.parts[0] ? "]:%s" : "]%s", info.parts);
	return name != nullptr && at < maxKey || fail(TC_ERROR_ARGUMENT, "tensorcache: name (%zu bytes with type and shape) must be a text of less than %d", at, maxKey);
}

/* Registers a table under its key, in the place of one that has the same. */
tc_status put(Registered *r, bool described)
{
	if (r == nullptr)
		fail(TC_ERROR_OUT_OF_MEMORY, "tensorcache: memory for a registered table cannot be had");
	if (!described) {
		free(r);
		return static_cast<tc_status>(failure.status);
	}
	Registered **at = entry(r->table.key);
	if (Registered *old = *at) {
		*at = old->next;
		free(old);
	}
	r->next = registered;
	registered = r;
	return TC_OK;
}

}  // namespace

bool fail(int status, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(failure.text, sizeof failure.text, format, arguments);
	va_end(arguments);
	failure.status = status;
	return false;
}

bool failed_call(int status)
{
	return fail(status, "%s", library.last_error());
}

bool find(const char *key, Table *to)
{
	Lock lock;
	if (Registered *found = *entry(key)) {
		*to = found->table;
		return true;
	}
	const char *end = strrchr(key, '['); /* back to the type of the elements, behind the name */
	while (end != nullptr && end > key && *end != ':')
		end--;
	for (Registered *r = registered; r != nullptr && end != nullptr; r = r->next)
		if (strncmp(r->table.key, key, (size_t)(end - key) + 1) == 0)
			return fail(TC_ERROR_TABLE, "tensorcache: table %s must be %s, which the program was compiled for", r->table.key, key);
	return fail(TC_ERROR_TABLE, "tensorcache: table %s must be open in this process, or registered by tensorcache_torch_register: it was not, or is no longer there", key);
}

bool empty(const int64_t *sizes, int64_t axes, int32_t dtype, Place place, Tensor *to)
{
	int64_t strides[2 * maxAxes + 2], step = 1;
	if (axes > (int64_t)(sizeof strides / sizeof *strides))
		return fail(TC_ERROR_ARGUMENT, "tensorcache: ids (%lld axes with those of a row) must have at most %d", (long long)axes, 2 * maxAxes + 2);
	for (int64_t i = axes; i-- > 0;) {
		strides[i] = step;
		step *= sizes[i] > 1 ? sizes[i] : 1;
	}
	AtenTensorHandle made = nullptr;
	if (aoti_torch_empty_strided(axes, sizes, strides, dtype, place.type, place.index, &made) != 0)
		return fail(TC_ERROR_OUT_OF_MEMORY, "tensorcache: a tensor of %lld elements for the result cannot be made", (long long)step);
	to->reset(made);
	return true;
}

bool as_numbers(AtenTensorHandle ids, Numbers *to)
{
	int32_t dtype, layout;
	bool contiguous;
	int64_t *sizes;
	failure.status = 0;
	if (aoti_torch_get_dtype(ids, &dtype) || aoti_torch_get_layout(ids, &layout) || layout != aoti_torch_layout_strided())
		return false;
	if (dtype == aoti_torch_dtype_int64())
		to->type = TC_INT64;
	else if (dtype == aoti_torch_dtype_int32())
		to->type = TC_INT32;
	else
		return false;
	if (aoti_torch_is_contiguous(ids, &contiguous) || !contiguous)
		return false;
	if (aoti_torch_get_device_type(ids, &to->place.type) || aoti_torch_get_device_index(ids, &to->place.index) || aoti_torch_get_dim(ids, &to->axes) ||
		aoti_torch_get_numel(ids, &to->n) || aoti_torch_get_sizes(ids, &sizes))
		return false;
	to->sizes = sizes;
	if (to->place.type != aoti_torch_device_type_cpu() && to->place.type != aoti_torch_device_type_cuda())
		return false;
	return torch_get_const_data_ptr(ids, &to->data) == 0;
}

bool Table::reading(Place *place, int *to) const
{
	*to = -1;
	if (place->type == aoti_torch_device_type_cuda())
		return (*to = slot(place->index)) >= 0;
	if (place->type != aoti_torch_device_type_cpu())
		return false;
	if (devices == 0)
		return true;
	int32_t current = -1;
	aoti_torch_get_current_device_index(&current);
	*to = slot(current);
	for (int i = 0; i < devices && *to < 0; i++)
		*to = gpus[i] >= 0 ? i : -1;
	if (*to >= 0)
		*place = Place{aoti_torch_device_type_cuda(), gpus[*to]};
	return true;
}

bool gather(const Table &table, const Numbers &ids, Tensor *out, ReleaseGIL release_gil, TakeGIL take_gil)
{
	Place place = ids.place;
	int slot;
	failure.status = 0;
	if (!table.reading(&place, &slot))
		return false;
	int64_t sizes[2 * maxAxes + 2];
	if (ids.axes > maxAxes)
		return fail(TC_ERROR_ARGUMENT, "tensorcache: ids (%lld axes) must have at most %d", (long long)ids.axes, maxAxes);
	for (int64_t i = 0; i < ids.axes; i++)
		sizes[i] = ids.sizes[i];
	for (int32_t i = 0; i < table.axes; i++)
		sizes[ids.axes + i] = table.row[i];
	void *rows, *stream = nullptr;
	WithoutGIL scope(release_gil, take_gil);
	if (!empty(sizes, ids.axes + table.axes, table.dtype, place, out) || torch_get_mutable_data_ptr(out->handle, &rows))
		return false;
	if (slot >= 0 && aoti_torch_get_current_cuda_stream(place.index, &stream))
		return fail(TC_ERROR_DEVICE, "tensorcache: torch must have a current stream of GPU %d", place.index);
	int status;
	if (slot < 0)
		status = library.gather_host(table.cache, -1, table.index, ids.data, ids.type, ids.n, rows, 0);
	else if (ids.place.type == aoti_torch_device_type_cpu())
		status = library.gather_host_ids(table.cache, slot, table.index, ids.data, ids.type, ids.n, rows, 0, stream, nullptr);
	else if ((status = library.check(table.cache, 0)) == 0) /* row numbers out of range of earlier reads that have finished */
		status = library.gather(table.cache, slot, table.index, ids.data, ids.type, ids.n, rows, 0, stream, nullptr);
	return status == 0 || failed_call(status); /* before the GIL is taken: a finalizer that runs then could replace the error */
}

}  // namespace tensorcache

using namespace tensorcache;

extern "C" {

TC_API tc_status tensorcache_torch_register(const char *name, tc_cache *cache, int32_t table)
{
	Lock lock;
	tc_table_info info = {};
	Registered *r = static_cast<Registered *>(calloc(1, sizeof(Registered)));
	return put(r, r && describe(cache, table, nullptr, 0, &r->table, &info) && note_gpus(cache, &r->table) && name_key(name, info, &r->table));
}

/* tensorcache_torch_register for the Python package, which knows the key, and shapes and GPUs as torch sees them. */
TC_API tc_status tensorcache_torch_register_as(
	const char *key, tc_cache *cache, int32_t table, const int64_t *row, int32_t axes, const int32_t *gpus, int32_t devices)
{
	Lock lock;
	tc_table_info info = {};
	Registered *r = static_cast<Registered *>(calloc(1, sizeof(Registered)));
	bool described = r && fits_devices(devices) && describe(cache, table, row, axes, &r->table, &info);
	if (described && strlen(key) >= maxKey)
		described = fail(TC_ERROR_ARGUMENT, "tensorcache: name (%zu bytes with type and shape) must be a text of less than %d", strlen(key), maxKey);
	if (described) {
		strcpy(r->table.key, key);
		r->table.devices = devices;
		for (int32_t i = 0; i < devices; i++)
			r->table.gpus[i] = gpus[i];
	}
	return put(r, described);
}

TC_API tc_status tensorcache_torch_unregister(const char *name, tc_cache *cache, int32_t table)
{
	Lock lock;
	size_t length = name == nullptr ? 0 : strlen(name);
	for (Registered **at = &registered; *at != nullptr && name != nullptr; at = &(*at)->next) {
		Registered *r = *at;
		if (r->table.cache == cache && r->table.index == table && strncmp(r->table.key, name, length) == 0 && (r->table.key[length] == ':' || r->table.key[length] == 0)) {
			*at = r->next;
			free(r);
			return TC_OK;
		}
	}
	fail(TC_ERROR_TABLE, "tensorcache: table %s must be registered", name == nullptr ? "NULL" : name);
	return TC_ERROR_TABLE;
}

TC_API const char *tensorcache_torch_error(void)
{
	return failure.text;
}
}
