/* What the operators and the reader of Python share: tables that programs name, and reads of them. */
#ifndef TENSORCACHE_TORCH_TABLES_H
#define TENSORCACHE_TORCH_TABLES_H

#include "tensorcache.h"
#include "shim.h"

namespace tensorcache {

const int maxAxes = 16, maxDevices = 8, maxKey = 1024;

/* Functions of libtensorcache, looked up in the process when the first table is registered. The extension is not linked to libtensorcache, which starts threads
 * when it is loaded: a program may load the operators, and fork. */
struct Library {
	decltype(&tc_last_error) last_error;
	decltype(&tc_table_get_info) table_get_info;
	decltype(&tc_device_count) device_count;
	decltype(&tc_device_get_info) device_get_info;
	decltype(&tc_gather) gather;
	decltype(&tc_gather_host_ids) gather_host_ids;
	decltype(&tc_gather_host) gather_host;
	decltype(&tc_gather_pooled) gather_pooled;
	decltype(&tc_gather_pooled_host) gather_pooled_host;
	decltype(&tc_check) check;
	decltype(&tc_update) update;
};
extern Library library;

/* Where a tensor lies, as torch numbers devices. */
struct Place {
	int32_t type, index;
};

/* A table that programs name. */
struct Table {
	char key[maxKey]; /* name:float32[64], and of rows of parts :parts behind that */
	tc_cache *cache;
	int32_t index;
	int32_t dtype;      /* torch's number */
	int32_t axes;       /* of a row */
	int64_t row[maxAxes];
	int64_t columns;    /* elements of a row */
	int32_t sumType;    /* tc_dtype of sums, 0 if rows cannot be added up */
	int64_t sumColumns; /* of sums that have another shape than rows: of float8 values with scales as parts. Else 0 */
	int32_t devices;    /* of the cache: 0 if torch reads on the host */
	int32_t gpus[maxDevices]; /* as torch numbers them, -1 for one that the process does not see */

	/* Index of the cache's device for a GPU of torch, or -1. */
	int slot(int32_t gpu) const
	{
		for (int i = 0; i < devices; i++)
			if (gpus[i] == gpu)
				return i;
		return -1;
	}

	/* Where rows are read for ids at a place, and the index of the cache's device, -1 for the host: for ids on the host on torch's current GPU if the cache is on it, else on
	 * its first that torch sees. It says whether the table can be read there. */
	bool reading(Place *place, int *slot) const;
};

/* The failure of this thread's last call: a tc_status, and a text that begins with "tensorcache: ". */
struct Failure {
	int status;
	char text[1024];
};
extern __thread Failure failure;

/* Notes a failure, and returns false. failed_call takes the text of the library. */
bool fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool failed_call(int status);

/* A tensor that is given up at the end of the scope. */
class Tensor {
public:
	Tensor() = default;
	explicit Tensor(AtenTensorHandle owned) : handle(owned) {}
	Tensor(const Tensor &) = delete;
	Tensor &operator=(const Tensor &) = delete;
	~Tensor() { reset(nullptr); }
	void reset(AtenTensorHandle owned)
	{
		if (handle != nullptr)
			aoti_torch_delete_tensor_object(handle);
		handle = owned;
	}
	AtenTensorHandle release()
	{
		AtenTensorHandle owned = handle;
		handle = nullptr;
		return owned;
	}
	AtenTensorHandle handle = nullptr;
};

/* Makes a tensor whose elements lie back to back, without values. */
bool empty(const int64_t *sizes, int64_t axes, int32_t dtype, Place place, Tensor *to);

/* Row numbers or offsets as the library reads them. */
struct Numbers {
	const void *data;
	int32_t type; /* tc_dtype */
	int64_t n, axes;
	const int64_t *sizes;
	Place place;
};

/* Says whether a tensor of integers can be read as it is: int64 or int32, back to back. It fails with status 0 for what cannot. */
bool as_numbers(AtenTensorHandle ids, Numbers *to);

/* Release Python's global interpreter lock (GIL), and take it back, given what the first returned. NULL in programs without Python. */
typedef void *(*ReleaseGIL)();
typedef void (*TakeGIL)(void *);

/* Code in its scope runs without the GIL. */
class WithoutGIL {
public:
	WithoutGIL(ReleaseGIL release_gil, TakeGIL take_gil) : state(release_gil == nullptr ? nullptr : release_gil()), take_gil(take_gil) {}
	WithoutGIL(const WithoutGIL &) = delete;
	~WithoutGIL()
	{
		if (take_gil != nullptr)
			take_gil(state);
	}

private:
	void *const state;
	const TakeGIL take_gil;
};

/* Reads rows into a new tensor, where Table::reading says. */
bool gather(const Table &table, const Numbers &ids, Tensor *out, ReleaseGIL release_gil, TakeGIL take_gil);

/* One table's part of a call: the arguments of Table.embedding_bag in Python. */
struct Request {
	Table table;
	AtenTensorHandle ids = nullptr, offsets = nullptr, weights = nullptr; /* borrowed */
	int mode = TC_POOL_SUM;
	bool last = false, each = false; /* each: every row is a bag, for ids of any shape */
	bool padded = false;
	int64_t padding = 0;
	int32_t output = 0;          /* tc_dtype, 0 for that of sums */
	int64_t first = 0, bags = -1; /* of offsets that are of several tables */

	Tensor keptIds, keptOffsets, keptWeights;
};

/* Adds up the rows of one table in bags, into a new tensor. */
bool add_up(Request *request, Tensor *out, ReleaseGIL release_gil, TakeGIL take_gil);

/* Whether this copy of the library has defined the operators: not if another one that is loaded has, which does not find what is registered here. */
extern bool defined;

/* Copies what is registered under a key. */
bool find(const char *key, Table *to);

}  // namespace tensorcache

#endif
