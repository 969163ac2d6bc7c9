/*
 * x[ids] and x.embedding_bag(...) in Python: functions that read from one table without the dispatcher, whose call from Python costs more than a small read.
 *
 * They do what most reads ask for: plain tensors while nothing traces, transforms or looks on. For everything else, and for arguments that are wrong, they return None. They use
 * functions of Python's limited interface only, so that one library serves all versions.
 */
#include <stdlib.h>
#include <string.h>

#include "tables.h"

using namespace tensorcache;

namespace {

const int maxWatchers = 8;

struct Reader {
	Table table;
	PyObject *type;    /* torch.Tensor */
	PyObject *fail;    /* called with a status and a text, raises the exception */
	PyObject *none;
	PyObject *handle;  /* functions of older releases of torch: from a tensor to a capsule of its handle, and from a list of these to tensors */
	PyObject *tensors;
	PyObject *watchers[maxWatchers]; /* functions that return something true if torch must see what is done */
	int count;
};

AtenTensorHandle handle_of(const Reader *r, PyObject *object)
{
	AtenTensorHandle handle = nullptr;
	if (torch_tensor_from_pyobject != nullptr)
		return torch_tensor_from_pyobject(object, &handle) == 0 ? handle : nullptr;
	PyObject *capsule = PyObject_CallFunctionObjArgs(r->handle, object, nullptr);
	if (capsule == nullptr)
		return nullptr;
	handle = static_cast<AtenTensorHandle>(PyCapsule_GetPointer(capsule, nullptr));
	Py_DecRef(capsule);
	return handle;
}

/* Makes a Python tensor of a handle, which is given up. */
PyObject *tensor_of(const Reader *r, Tensor *from)
{
	void *object = nullptr;
	if (torch_tensor_to_pyobject != nullptr)
		return torch_tensor_to_pyobject(from->handle, nullptr, &object) == 0 ? static_cast<PyObject *>(object) : nullptr;
	/* Of one handle the function for lists, as the other one never frees it. */
	PyObject *handles = PyList_New(1), *capsule = handles == nullptr ? nullptr : PyCapsule_New(from->handle, nullptr, nullptr);
	if (capsule != nullptr)
		PyList_SetItem(handles, 0, capsule);
	PyObject *tensors = capsule == nullptr ? nullptr : PyObject_CallFunctionObjArgs(r->tensors, handles, nullptr);
	if (handles != nullptr)
		Py_DecRef(handles);
	if (capsule != nullptr)
		from->release(); /* the function has it, also if it fails later */
	if (tensors == nullptr)
		return nullptr;
	PyObject *tensor = PyList_GetItem(tensors, 0);
	Py_IncRef(tensor);
	Py_DecRef(tensors);
	return tensor;
}

/* Leaves the call to Python, unless there is an exception. */
PyObject *none(const Reader *r)
{
	if (PyErr_Occurred() != nullptr)
		return nullptr;
	Py_IncRef(r->none);
	return r->none;
}

/* Raises the noted failure, unless it is one of arguments. Its text may end within a character. */
PyObject *failed(const Reader *r)
{
	if (failure.status == 0 || failure.status == TC_ERROR_ARGUMENT)
		return none(r);
	PyObject *status = PyLong_FromLong(failure.status), *text = PyUnicode_DecodeUTF8(failure.text, strlen(failure.text), "replace"), *never = nullptr;
	if (status != nullptr && text != nullptr)
		never = PyObject_CallFunctionObjArgs(r->fail, status, text, nullptr);
	if (status != nullptr)
		Py_DecRef(status);
	if (text != nullptr)
		Py_DecRef(text);
	return never; /* NULL, as it raises */
}

bool is_plain(const Reader *r, PyObject *object)
{
	PyObject *type = PyObject_Type(object);
	Py_DecRef(type);
	return type == r->type;
}

/* Whether torch must see what is done: 1, 0, or -1 with an exception. */
int watched(const Reader *r)
{
	for (int i = 0; i < r->count; i++) {
		PyObject *found = PyObject_CallObject(r->watchers[i], nullptr);
		if (found == nullptr)
			return -1;
		int is = PyObject_IsTrue(found);
		Py_DecRef(found);
		if (is != 0)
			return is;
	}
	return 0;
}

PyObject *read(PyObject *self, PyObject *ids)
{
	const Reader *r = static_cast<const Reader *>(PyCapsule_GetPointer(self, nullptr));
	int other = is_plain(r, ids) ? watched(r) : 1;
	if (other != 0)
		return other < 0 ? nullptr : none(r);
	Tensor given(handle_of(r, ids)), rows;
	Numbers numbers;
	if (given.handle == nullptr)
		return none(r);
	if (!as_numbers(given.handle, &numbers) || !gather(r->table, numbers, &rows, PyEval_SaveThread, PyEval_RestoreThread))
		return failed(r);
	PyObject *made = tensor_of(r, &rows);
	return made == nullptr ? none(r) : made;
}

/* Takes the handle of a tensor that may be None, and returns whether it is that or a plain one. */
bool optional_handle(const Reader *r, PyObject *object, Tensor *to)
{
	if (object == r->none)
		return true;
	if (!is_plain(r, object))
		return false;
	to->reset(handle_of(r, object));
	return to->handle != nullptr;
}

/* arguments is a tuple: ids, offsets, per_sample_weights, tc_pool_mode, include_last_offset, tc_dtype of the result or 0, whether each row is a bag, padding_idx. */
PyObject *add_up(PyObject *self, PyObject *arguments)
{
	const Reader *r = static_cast<const Reader *>(PyCapsule_GetPointer(self, nullptr));
	PyObject *given[8];
	for (int i = 0; i < 8; i++)
		if ((given[i] = PyTuple_GetItem(arguments, i)) == nullptr)
			return nullptr;
	int other = is_plain(r, given[0]) ? watched(r) : 1;
	if (other < 0)
		return nullptr;
	if (other == 0 && is_plain(r, given[2])) { /* what requires a gradient is an error */
		PyObject *requires = PyObject_GetAttrString(given[2], "requires_grad");
		other = requires == nullptr ? -1 : PyObject_IsTrue(requires);
		if (requires != nullptr)
			Py_DecRef(requires);
		if (other < 0)
			return nullptr;
	}
	Tensor ids, offsets, weights, sums;
	if (other != 0 || !optional_handle(r, given[0], &ids) || !optional_handle(r, given[1], &offsets) || !optional_handle(r, given[2], &weights))
		return none(r);
	Request request;
	request.table = r->table;
	request.ids = ids.handle, request.offsets = offsets.handle, request.weights = weights.handle;
	request.mode = static_cast<int>(PyLong_AsLong(given[3])), request.last = PyObject_IsTrue(given[4]), request.output = static_cast<int32_t>(PyLong_AsLong(given[5]));
	request.each = PyObject_IsTrue(given[6]), request.padded = given[7] != r->none;
	request.padding = request.padded ? PyLong_AsLong(given[7]) : 0;
	if (PyErr_Occurred() != nullptr)
		return nullptr;
	failure.status = 0;
	if (!add_up(&request, &sums, PyEval_SaveThread, PyEval_RestoreThread))
		return failed(r);
	PyObject *made = tensor_of(r, &sums);
	return made == nullptr ? none(r) : made;
}

PyMethodDef methods[] = {
	{"read", read, METH_O, "Returns the rows of a tensor of row numbers."},
	{"add_up", add_up, METH_VARARGS, "Returns sums of rows in bags."},
};

void destroy(PyObject *capsule)
{
	Reader *r = static_cast<Reader *>(PyCapsule_GetPointer(capsule, nullptr));
	PyObject *const held[] = {r->type, r->fail, r->none, r->handle, r->tensors};
	for (PyObject *of : held)
		Py_DecRef(of);
	for (int i = 0; i < r->count; i++)
		Py_DecRef(r->watchers[i]);
	free(r);
}

}  // namespace

/*
 * Returns a function of the table of a key: one that reads rows, or one that adds them up. arguments is a tuple: torch.Tensor, the function that raises a status, None, the functions of
 * older releases of torch for handles, and then what watches. Called by ctypes.PyDLL, which must get an object: after a failure it is arguments, which is no function.
 */
extern "C" TC_API PyObject *tensorcache_torch_reader(const char *key, int sums, PyObject *arguments, int count)
{
	Reader *r = static_cast<Reader *>(calloc(1, sizeof(Reader)));
	if (r == nullptr)
		fail(TC_ERROR_OUT_OF_MEMORY, "tensorcache: memory for the reads of table %s cannot be had", key);
	else if (count < 5 || count > 5 + maxWatchers)
		fail(TC_ERROR_INTERNAL, "tensorcache: a reader (%d arguments) must have 5 to %d", count, 5 + maxWatchers);
	if (r == nullptr || count < 5 || count > 5 + maxWatchers || !find(key, &r->table)) {
		free(r);
		Py_IncRef(arguments);
		return arguments;
	}
	PyObject **const to[] = {&r->type, &r->fail, &r->none, &r->handle, &r->tensors};
	for (int i = 0; i < count; i++) {
		PyObject *of = PyTuple_GetItem(arguments, i);
		Py_IncRef(of);
		*(i < 5 ? to[i] : &r->watchers[i - 5]) = of;
	}
	r->count = count - 5;
	PyObject *self = PyCapsule_New(r, nullptr, destroy);
	PyObject *function = self == nullptr ? nullptr : PyCFunction_NewEx(&methods[sums != 0], self, nullptr);
	if (self != nullptr)
		Py_DecRef(self);
	return function;
}
