/*
 * The operators of the namespace tensorcache, for the CPU and for GPUs. Python adds what needs it: shapes of symbolic and fake tensors, the error of
 * gradients, and torch.vmap (python/tensorcache/_tensors.py).
 *
 * Functions return false after noting a failure. A boxed operator then throws, when everything that it holds is given up: this library is compiled without
 * exceptions of its own, and those of torch's runtime pass through it without running destructors.
 */
#include <string.h>

#include "tables.h"

namespace tensorcache {
namespace {

[[noreturn]] void raise()
{
	switch (failure.status) {
	case TC_ERROR_ROWS:
		throw_out_of_range(failure.text); /* IndexError in Python */
	case TC_ERROR_ARGUMENT:
	case TC_ERROR_BUDGET:
		throw_invalid_argument(failure.text); /* ValueError */
	default:
		throw_runtime_error(failure.text); /* RuntimeError */
	}
}

/* ---- arguments */

/* Arguments of an operator, which are its own: each is given up once, by the function that takes it or at the end. */
AtenTensorHandle tensor_of(StableIValue value)
{
	return reinterpret_cast<AtenTensorHandle>(value);
}

/* Takes what a value that may be None holds, and says whether it holds something. */
bool take_optional(StableIValue value, StableIValue *to)
{
	StableIValue *held = reinterpret_cast<StableIValue *>(value);
	if (held == nullptr)
		return false;
	*to = *held;
	if (torch_delete_stable_ivalue != nullptr)
		torch_delete_stable_ivalue(held);
	else
		operator_delete(held);
	return true;
}

AtenTensorHandle optional_tensor(StableIValue value)
{
	StableIValue held = 0;
	return take_optional(value, &held) ? tensor_of(held) : nullptr;
}

/* The text of an argument, which is given up at the end of the scope. */
class Text {
public:
	Text() = default;
	explicit Text(StableIValue value) { take(value); }
	Text(const Text &) = delete;
	~Text()
	{
		if (handle != nullptr)
			torch_delete_string(handle);
	}
	void take(StableIValue value)
	{
		handle = reinterpret_cast<StringHandle>(value);
		torch_string_c_str(handle, &text);
	}
	const char *text = "";

private:
	StringHandle handle = nullptr;
};

template <class T> class Array {
public:
	explicit Array(size_t n) : size(n), items(new T[n]) {}
	Array(const Array &) = delete;
	~Array() { delete[] items; }
	T &operator[](size_t i) { return items[i]; }
	const size_t size;
	T *const items;
};

struct OptionalTensor : Tensor {};

void take(StableIValue value, Tensor *to)
{
	to->reset(tensor_of(value));
}

void take(StableIValue value, OptionalTensor *to)
{
	to->reset(optional_tensor(value));
}

void take(StableIValue value, Text *to)
{
	to->take(value);
}

void take(StableIValue value, int64_t *to)
{
	*to = static_cast<int64_t>(value);
}

/* The items of a list. Each is a copy that somebody must give up: all are taken at once, and given up at the end of the scope. */
template <class T> class List : public Array<T> {
public:
	explicit List(StableIValue value) : List(reinterpret_cast<StableListHandle>(value)) {}

private:
	explicit List(StableListHandle list) : Array<T>(size_of(list))
	{
		for (size_t i = 0; i < this->size; i++) {
			StableIValue item;
			if (torch_list_get_item(list, i, &item) == 0)
				take(item, &this->items[i]);
		}
		torch_delete_list(list);
	}
	static size_t size_of(StableListHandle list)
	{
		size_t size = 0;
		torch_list_size(list, &size);
		return size;
	}
};

/* ---- tensors */

bool place_of(AtenTensorHandle tensor, Place *to)
{
	if (aoti_torch_get_device_type(tensor, &to->type) || aoti_torch_get_device_index(tensor, &to->index))
		return fail(TC_ERROR_ARGUMENT, "tensorcache: tensors must have a device");
	return true;
}

bool is_integer(int32_t dtype)
{
	return dtype == aoti_torch_dtype_int64() || dtype == aoti_torch_dtype_int32() || dtype == aoti_torch_dtype_int16() || dtype == aoti_torch_dtype_int8() ||
		dtype == aoti_torch_dtype_uint8() || dtype == aoti_torch_dtype_uint16() || dtype == aoti_torch_dtype_uint32() || dtype == aoti_torch_dtype_uint64();
}

/* Copies a tensor to a place, as elements of a type that lie back to back. The library reads host memory at once: copies to it are waited for. */
bool copy(AtenTensorHandle from, int32_t dtype, Place place, Tensor *to)
{
	int64_t axes, *sizes;
	if (aoti_torch_get_dim(from, &axes) || aoti_torch_get_sizes(from, &sizes) || !empty(sizes, axes, dtype, place, to))
		return fail(TC_ERROR_ARGUMENT, "tensorcache: tensors must be dense, with at most 33 axes");
	return aoti_torch_copy_(to->handle, from, place.type != aoti_torch_device_type_cpu()) == 0 || fail(TC_ERROR_ARGUMENT, "tensorcache: a tensor cannot be copied to where the table is read");
}

/* Gives integers as the library reads them, at a place: the tensor itself, or a copy, which is kept. */
bool integers(const char *what, AtenTensorHandle given, Place place, Tensor *kept, Numbers *to)
{
	int32_t dtype;
	if (as_numbers(given, to) && to->place.type == place.type && to->place.index == place.index)
		return true;
	if (aoti_torch_get_dtype(given, &dtype) || !is_integer(dtype))
		return fail(TC_ERROR_ARGUMENT, "tensorcache: %s must be dense tensors of integers", what);
	dtype = dtype == aoti_torch_dtype_int32() ? dtype : aoti_torch_dtype_int64();
	return copy(given, dtype, place, kept) && (as_numbers(kept->handle, to) || fail(TC_ERROR_ARGUMENT, "tensorcache: %s must be on the CPU or on a GPU", what));
}

/* Makes a tensor of per_sample_weights one of float32 at a place, back to back: itself, or a copy, which is kept. */
bool factors(AtenTensorHandle *weights, Place place, Tensor *kept)
{
	int32_t dtype;
	bool contiguous;
	Place at;
	if (!place_of(*weights, &at) || aoti_torch_get_dtype(*weights, &dtype) || aoti_torch_is_contiguous(*weights, &contiguous))
		return false;
	if (dtype == aoti_torch_dtype_float32() && contiguous && at.type == place.type && at.index == place.index)
		return true;
	bool real = is_integer(dtype) || dtype == aoti_torch_dtype_float32() || dtype == aoti_torch_dtype_float64() || dtype == aoti_torch_dtype_float16() ||
		dtype == aoti_torch_dtype_bfloat16();
	if (!real)
		return fail(TC_ERROR_ARGUMENT, "tensorcache: per_sample_weights must be real numbers");
	return copy(*weights, aoti_torch_dtype_float32(), place, kept) && (*weights = kept->handle);
}

/* Where a table is read for ids: see Table::reading. */
bool reading_place(const Table &table, AtenTensorHandle ids, Place *place, int *slot)
{
	if (!place_of(ids, place))
		return false;
	return table.reading(place, slot) || fail(TC_ERROR_ARGUMENT, "tensorcache: ids must be on the CPU or on a GPU of the cache of table %s", table.key);
}

/* ---- rows added up */

int32_t torch_float(int32_t type)
{
	return type == TC_FLOAT16 ? aoti_torch_dtype_float16() : type == TC_BFLOAT16 ? aoti_torch_dtype_bfloat16() : aoti_torch_dtype_float32();
}

int32_t element_bytes(int32_t type)
{
	return type == TC_FLOAT32 ? 4 : 2;
}

/* The type of a result by its name, which torch and this library have in common. It is a text, as AOTInductor of torch 2.10 mistakes torch's numbers of types. */
bool output_type(StableIValue dtype, int32_t *to)
{
	Text name(dtype);
	*to = strcmp(name.text, "float32") == 0 ? TC_FLOAT32 : strcmp(name.text, "float16") == 0 ? TC_FLOAT16 : strcmp(name.text, "bfloat16") == 0 ? TC_BFLOAT16 : 0;
	return *to != 0 || fail(TC_ERROR_ARGUMENT, "tensorcache: dtype (%s) must be float32, float16 or bfloat16", name.text);
}

bool optional_output(StableIValue dtype, int32_t *to)
{
	StableIValue held = 0;
	*to = 0;
	return !take_optional(dtype, &held) || output_type(held, to);
}

bool mode_of(const char *text, int *to)
{
	*to = strcmp(text, "sum") == 0 ? TC_POOL_SUM : strcmp(text, "mean") == 0 ? TC_POOL_MEAN : strcmp(text, "max") == 0 ? TC_POOL_MAX : -1;
	return *to >= 0 || fail(TC_ERROR_ARGUMENT, "tensorcache: mode (%s) must be 'sum', 'mean' or 'max'", text);
}

/* Fills the library's structure, and makes the output, or has it go to columns of joined from column at on. */
bool prepare(Request &r, Place place, tc_pooled *to, Tensor *out, AtenTensorHandle joined, int64_t at)
{
	Numbers ids, offsets = {};
	if (!integers("ids", r.ids, place, &r.keptIds, &ids) || r.offsets != nullptr && !integers("offsets", r.offsets, place, &r.keptOffsets, &offsets))
		return false;
	tc_pooled_default(to);
	to->table = r.table.index, to->mode = r.mode, to->output = r.output ? r.output : r.table.sumType;
	if (r.table.sumType == 0)
		return fail(TC_ERROR_ARGUMENT, "tensorcache: table %s must have float32, float16, bfloat16 or float8 elements to be added up", r.table.key);
	if (r.weights != nullptr) {
		int64_t axes, *sizes;
		const void *data;
		if (r.mode != TC_POOL_SUM)
			return fail(TC_ERROR_ARGUMENT, "tensorcache: per_sample_weights must come with mode 'sum'");
		if (!factors(&r.weights, place, &r.keptWeights) || aoti_torch_get_sizes(r.weights, &sizes) || aoti_torch_get_dim(r.weights, &axes))
			return false;
		if (axes != ids.axes || memcmp(sizes, ids.sizes, sizeof *sizes * (size_t)axes) != 0)
			return fail(TC_ERROR_ARGUMENT, "tensorcache: per_sample_weights must have the shape of ids, of %lld row numbers on %lld axes", (long long)ids.n, (long long)ids.axes);
		if (torch_get_const_data_ptr(r.weights, &data))
			return false;
		to->weights = static_cast<const float *>(data);
	}
	if (r.padded) {
		tc_table_info info = {};
		info.size = sizeof info;
		if (int status = library.table_get_info(r.table.cache, r.table.index, &info))
			return failed_call(status);
		if (r.padding < -info.rows || r.padding >= info.rows)
			return fail(TC_ERROR_ARGUMENT, "tensorcache: padding_idx (%lld) must be a row of the table, -%lld to %lld", (long long)r.padding, (long long)info.rows, (long long)info.rows - 1);
		to->has_padding = 1, to->padding = r.padding < 0 ? r.padding + info.rows : r.padding;
	}
	int64_t sizes[2 * maxAxes + 2], axes = 1;
	sizes[0] = r.bags;
	if (r.each) {
		if (ids.axes > maxAxes)
			return fail(TC_ERROR_ARGUMENT, "tensorcache: ids (%lld axes) must have at most %d", (long long)ids.axes, maxAxes);
		to->bag = 1, axes = ids.axes;
		memcpy(sizes, ids.sizes, sizeof *sizes * (size_t)axes);
	} else if (r.bags >= 0) {
		to->first_bag = r.first, to->bags = r.bags;
	} else if (ids.axes == 2) {
		if (r.offsets != nullptr || r.last)
			return fail(TC_ERROR_ARGUMENT, "tensorcache: offsets must be None for ids of two axes, which are bags of one length");
		sizes[0] = ids.sizes[0], to->bag = ids.sizes[1];
	} else if (ids.axes != 1 || r.offsets == nullptr || offsets.axes != 1 || r.last && offsets.n == 0) {
		return fail(TC_ERROR_ARGUMENT, "tensorcache: ids (%lld axes) must have one axis, with offsets of one axis, or two axes without", (long long)ids.axes);
	} else {
		sizes[0] = offsets.n - r.last;
	}
	if (r.table.sumColumns)
		sizes[axes++] = r.table.sumColumns;
	else
		for (int32_t i = 0; i < r.table.axes; i++)
			sizes[axes++] = r.table.row[i];
	void *data;
	if (joined == nullptr && !empty(sizes, axes, torch_float(to->output), place, out) || torch_get_mutable_data_ptr(joined ? joined : out->handle, &data))
		return false;
	to->ids = ids.data, to->id_type = ids.type, to->n = ids.n;
	if (r.offsets != nullptr)
		to->offsets = offsets.data, to->offset_type = offsets.type, to->offset_count = offsets.n, to->last_offset = r.last;
	to->out = data;
	if (joined != nullptr) {
		int64_t *lengths;
		if (aoti_torch_get_sizes(joined, &lengths))
			return false;
		to->out = static_cast<char *>(data) + at * element_bytes(to->output), to->out_stride = lengths[1] * element_bytes(to->output);
	}
	if (to->bag == 0 && r.offsets == nullptr && aoti_torch_zero_(out->handle)) /* bags without rows: the library would see none */
		return false;
	return true;
}

/* Adds up the rows of several tables of one cache in one call, into tensors of their own, or into columns of joined side by side. */
bool add_up(Request *requests, size_t n, Tensor *outs, AtenTensorHandle joined, ReleaseGIL release_gil = nullptr, TakeGIL take_gil = nullptr)
{
	WithoutGIL scope(release_gil, take_gil);
	Array<tc_pooled> batches(n);
	Place place;
	int slot;
	int64_t at = 0;
	for (size_t i = 0; i < n; i++) {
		Request &r = requests[i];
		Place own;
		int ownSlot;
		if (!reading_place(r.table, r.ids, &own, &ownSlot))
			return false;
		if (i == 0)
			place = own, slot = ownSlot;
		if (own.type != place.type || own.index != place.index)
			return fail(TC_ERROR_ARGUMENT, "tensorcache: ids of all tables must be on one device");
		if (r.table.cache != requests[0].table.cache)
			return fail(TC_ERROR_ARGUMENT, "tensorcache: tables of one call must be of one cache");
		if (!prepare(r, place, &batches[i], outs ? &outs[i] : nullptr, joined, at))
			return failure.status ? false : fail(TC_ERROR_ARGUMENT, "tensorcache: tensors must be dense");
		at += r.table.sumColumns ? r.table.sumColumns : r.table.columns;
	}
	if (n == 0)
		return true;
	tc_cache *cache = requests[0].table.cache;
	void *stream = nullptr;
	if (slot >= 0 && aoti_torch_get_current_cuda_stream(place.index, &stream))
		return fail(TC_ERROR_DEVICE, "tensorcache: torch must have a current stream of GPU %d", place.index);
	int status;
	if (slot < 0)
		status = library.gather_pooled_host(cache, -1, batches.items, static_cast<int32_t>(n));
	else if ((status = library.check(cache, 0)) == 0)
		status = library.gather_pooled(cache, slot, batches.items, static_cast<int32_t>(n), stream, nullptr);
	return status == 0 || failed_call(status);
}

StableIValue list_of(Array<Tensor> &tensors)
{
	StableListHandle list = nullptr;
	torch_new_list_reserve_size(tensors.size, &list);
	for (size_t i = 0; i < tensors.size; i++)
		torch_list_push_back(list, reinterpret_cast<StableIValue>(tensors[i].release()));
	return reinterpret_cast<StableIValue>(list);
}

/* ---- operators: each takes its arguments from the stack and puts the result there */

bool run_gather(StableIValue *stack)
{
	Tensor ids(tensor_of(stack[0])), kept, out;
	Text key(stack[1]);
	Table table;
	Place place;
	Numbers numbers;
	if (!find(key.text, &table) || !place_of(ids.handle, &place) || !integers("ids", ids.handle, place, &kept, &numbers))
		return false;
	if (!gather(table, numbers, &out, nullptr, nullptr))
		return failure.status ? false : fail(TC_ERROR_ARGUMENT, "tensorcache: ids must be on the CPU or on a GPU of the cache of table %s", table.key);
	stack[0] = reinterpret_cast<StableIValue>(out.release());
	return true;
}

bool run_one(Request &r, const char *key, StableIValue *stack)
{
	Tensor out;
	if (!find(key, &r.table) || !add_up(&r, 1, &out, nullptr))
		return false;
	stack[0] = reinterpret_cast<StableIValue>(out.release());
	return true;
}

bool run_gather_as(StableIValue *stack)
{
	Tensor ids(tensor_of(stack[0]));
	Text key(stack[1]);
	Request r;
	r.ids = ids.handle, r.each = true;
	return output_type(stack[2], &r.output) && run_one(r, key.text, stack);
}

bool run_embedding_bag(StableIValue *stack)
{
	Tensor ids(tensor_of(stack[0])), offsets(optional_tensor(stack[1])), weights(optional_tensor(stack[4]));
	Text key(stack[2]), mode(stack[3]);
	Request r;
	StableIValue padding = 0;
	r.ids = ids.handle, r.offsets = offsets.handle, r.weights = weights.handle, r.last = stack[5] & 1;
	r.padded = take_optional(stack[6], &padding);
	r.padding = static_cast<int64_t>(padding);
	bool typed = optional_output(stack[7], &r.output); /* taken before anything can fail */
	return typed && mode_of(mode.text, &r.mode) && run_one(r, key.text, stack);
}

bool run_embedding_bags(StableIValue *stack)
{
	List<Tensor> ids(stack[0]);
	List<OptionalTensor> offsets(stack[1]), weights(stack[4]);
	List<Text> tables(stack[2]), modes(stack[3]);
	bool last = stack[5] & 1;
	int32_t output;
	bool good = optional_output(stack[6], &output);
	size_t n = ids.size;
	if (offsets.size != n || tables.size != n || modes.size != n || weights.size != n)
		return fail(TC_ERROR_ARGUMENT, "tensorcache: offsets, tables, modes and per_sample_weights must be lists as long as ids (%zu)", n);
	Array<Tensor> outs(n);
	Array<Request> requests(n);
	for (size_t i = 0; i < n; i++) {
		Request &r = requests[i];
		r.ids = ids[i].handle, r.offsets = offsets[i].handle, r.weights = weights[i].handle;
		r.last = last && r.offsets != nullptr, r.output = output;
		good = good && find(tables[i].text, &r.table) && mode_of(modes[i].text, &r.mode);
	}
	if (!good || !add_up(requests.items, n, outs.items, nullptr))
		return false;
	stack[0] = list_of(outs);
	return true;
}

bool run_keyed_bags(StableIValue *stack)
{
	Tensor values(tensor_of(stack[0])), offsets(tensor_of(stack[1])), weights(optional_tensor(stack[6])), joined, keptValues, keptOffsets, keptWeights;
	List<Text> tables(stack[2]), modes(stack[5]);
	List<int64_t> first(stack[3]);
	int64_t bags = static_cast<int64_t>(stack[4]), columns = 0;
	int32_t output;
	bool good = optional_output(stack[7], &output);
	size_t n = tables.size;
	if (first.size != n || modes.size != n || n == 0)
		return fail(TC_ERROR_ARGUMENT, "tensorcache: first_bags and modes must be lists as long as tables (%zu), which must be at least one", n);
	Array<Request> requests(n);
	for (size_t i = 0; i < n; i++) {
		Request &r = requests[i];
		r.first = first[i], r.bags = bags, r.last = true;
		good = good && find(tables[i].text, &r.table) && mode_of(modes[i].text, &r.mode);
		columns += r.table.sumColumns ? r.table.sumColumns : r.table.columns;
	}
	if (!good)
		return false;
	/* The type that holds all: float32, unless all have the same. */
	for (size_t i = 0; i < n && output == 0; i++)
		if (requests[i].table.sumType != requests[0].table.sumType)
			output = TC_FLOAT32;
	output = output ? output : requests[0].table.sumType;
	/* What the tables share is moved and converted once. */
	Place place;
	int slot;
	Numbers numbers;
	if (!reading_place(requests[0].table, values.handle, &place, &slot))
		return false;
	if (!integers("values", values.handle, place, &keptValues, &numbers) || !integers("offsets", offsets.handle, place, &keptOffsets, &numbers))
		return false;
	AtenTensorHandle shared = weights.handle;
	if (shared != nullptr && !factors(&shared, place, &keptWeights))
		return false;
	int64_t sizes[2] = {bags, columns};
	if (!empty(sizes, 2, torch_float(output), place, &joined))
		return false;
	for (size_t i = 0; i < n; i++) {
		requests[i].ids = keptValues.handle ? keptValues.handle : values.handle;
		requests[i].offsets = keptOffsets.handle ? keptOffsets.handle : offsets.handle;
		requests[i].weights = shared, requests[i].output = output;
	}
	if (bags > 0 && !add_up(requests.items, n, nullptr, joined.handle))
		return false;
	stack[0] = reinterpret_cast<StableIValue>(joined.release());
	return true;
}

bool run_update(StableIValue *stack)
{
	Tensor ids(tensor_of(stack[0])), rows(tensor_of(stack[1])), keptIds, keptRows;
	Text key(stack[2]);
	Table table;
	Numbers numbers;
	Place host = {aoti_torch_device_type_cpu(), 0};
	int32_t dtype;
	int64_t axes, *sizes;
	const void *data;
	if (!find(key.text, &table))
		return false;
	if (aoti_torch_get_dtype(rows.handle, &dtype) || dtype != table.dtype)
		return fail(TC_ERROR_ARGUMENT, "tensorcache: rows (torch's type %d) must have the type of table %s", dtype, table.key);
	if (!copy(rows.handle, dtype, host, &keptRows) || aoti_torch_get_dtype(ids.handle, &dtype))
		return false;
	if (!is_integer(dtype))
		return fail(TC_ERROR_ARGUMENT, "tensorcache: ids must be dense tensors of integers");
	if (!copy(ids.handle, aoti_torch_dtype_int64(), host, &keptIds) || !as_numbers(keptIds.handle, &numbers))
		return false;
	bool fits = aoti_torch_get_dim(keptRows.handle, &axes) == 0 && aoti_torch_get_sizes(keptRows.handle, &sizes) == 0 && axes == numbers.axes + table.axes;
	for (int64_t i = 0; i < axes && fits; i++)
		fits = sizes[i] == (i < numbers.axes ? numbers.sizes[i] : table.row[i - numbers.axes]);
	if (!fits)
		return fail(TC_ERROR_ARGUMENT, "tensorcache: rows must have the shape of ids and of a row of table %s", table.key);
	if (torch_get_const_data_ptr(keptRows.handle, &data))
		return false;
	int status = library.update(table.cache, table.index, numbers.data, numbers.type, numbers.n, data, 0);
	return status == 0 || failed_call(status);
}

/* The function that torch calls. */
template <bool (*run)(StableIValue *)> void boxed(StableIValue *stack, uint64_t, uint64_t)
{
	failure.status = 0;
	if (!run(stack)) {
		if (failure.status == 0)
			fail(TC_ERROR_INTERNAL, "tensorcache: torch could not do what was asked of a tensor");
		raise();
	}
}

struct Operator {
	const char *name, *schema;
	void (*run)(StableIValue *, uint64_t, uint64_t);
};

const Operator operators[] = {
	{"gather", "gather(Tensor ids, str table) -> Tensor", boxed<run_gather>},
	{"gather_as", "gather_as(Tensor ids, str table, str dtype) -> Tensor", boxed<run_gather_as>},
	{"embedding_bag",
		"embedding_bag(Tensor ids, Tensor? offsets, str table, str mode='mean', Tensor? per_sample_weights=None, bool include_last_offset=False, "
		"int? padding_idx=None, str? dtype=None) -> Tensor",
		boxed<run_embedding_bag>},
	{"embedding_bags",
		"embedding_bags(Tensor[] ids, Tensor?[] offsets, str[] tables, str[] modes, Tensor?[] per_sample_weights, bool include_last_offset=False, "
		"str? dtype=None) -> Tensor[]",
		boxed<run_embedding_bags>},
	{"keyed_bags",
		"keyed_bags(Tensor values, Tensor offsets, str[] tables, int[] first_bags, SymInt bags, str[] modes, Tensor? per_sample_weights=None, "
		"str? dtype=None) -> Tensor",
		boxed<run_keyed_bags>},
	{"update", "update(Tensor ids, Tensor rows, str table) -> ()", boxed<run_update>},
};

/* Registers the operators when the library is loaded, unless another copy of it has. torch keeps what it returns as long as the process. */
__attribute__((constructor)) void define()
{
	const uint64_t built_for = 2ULL << 56 | 10ULL << 48; /* torch 2.10 */
	TorchLibraryHandle library, implementation;
	if (aoti_torch_library_init_def("tensorcache", __FILE_NAME__, __LINE__, &library))
		return;
	defined = true;
	for (const Operator &of : operators)
		aoti_torch_library_def(library, of.schema);
	const char *const keys[] = {"CPU", "CUDA"};
	for (const char *key : keys) {
		aoti_torch_library_init_impl("tensorcache", key, __FILE_NAME__, __LINE__, &implementation);
		for (const Operator &of : operators)
			torch_library_impl(implementation, of.name, of.run, built_for);
	}
}

}  // namespace

bool add_up(Request *request, Tensor *out, ReleaseGIL release_gil, TakeGIL take_gil)
{
	return add_up(request, 1, out, nullptr, release_gil, take_gil);
}

}  // namespace tensorcache

/* Which interface the Python package has before it, for which it asks first. Raise it, and _INTERFACE in _extension.py, with each change of a schema above, of
 * tensorcache_torch_register_as or of tensorcache_torch_reader. */
extern "C" TC_API int32_t tensorcache_torch_interface(void)
{
	return 1;
}
