/*
 * x[ids] in Python: a function that reads rows of one table without the dispatcher, whose call from Python costs more than a small read.
 *
 * It reads what most reads are of: plain tensors of int64 or int32 while nothing traces, transforms or looks on. For everything else it returns a value that
 * says so. It uses functions of Python's limited interface only, so that one library serves all versions.
 */
#include <stdlib.h>

#include "tables.h"

using namespace tensorcache;

namespace {

const int maxWatchers = 8;

struct Reader {
	Table table;
	PyObject *type;    /* torch.Tensor */
	PyObject *check;   /* called with a status, raises its exception */
	PyObject *other;   /* what is returned for ids that are not for this function */
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
	PyObject *handles = PyList_New(1), *capsule = PyCapsule_New(from->release(), nullptr, nullptr);
	PyList_SetItem(handles, 0, capsule);
	PyObject *tensors = PyObject_CallFunctionObjArgs(r->tensors, handles, nullptr);
	Py_DecRef(handles);
	if (tensors == nullptr)
		return nullptr;
	PyObject *tensor = PyList_GetItem(tensors, 0);
	Py_IncRef(tensor);
	Py_DecRef(tensors);
	return tensor;
}

PyObject *raise(const Reader *r, int status)
{
	PyObject *number = PyLong_FromLong(status), *none = number == nullptr ? nullptr : PyObject_CallFunctionObjArgs(r->check, number, nullptr);
	if (number != nullptr)
		Py_DecRef(number);
	return none; /* NULL, as check raises */
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
	PyObject *type = PyObject_Type(ids);
	int other = type != r->type ? 1 : watched(r);
	Py_DecRef(type);
	if (other < 0)
		return nullptr;
	if (other == 0) {
		Tensor given(handle_of(r, ids)), rows;
		Numbers numbers;
		if (given.handle == nullptr)
			return nullptr;
		if (as_numbers(given.handle, &numbers) && gather(r->table, numbers, &rows, PyEval_SaveThread, PyEval_RestoreThread))
			return tensor_of(r, &rows);
		if (failure.status != 0)
			return raise(r, failure.status);
	}
	Py_IncRef(r->other);
	return r->other;
}

PyMethodDef method = {"read", read, METH_O, "Returns the rows of a tensor of row numbers."};

void destroy(PyObject *capsule)
{
	Reader *r = static_cast<Reader *>(PyCapsule_GetPointer(capsule, nullptr));
	PyObject *const held[] = {r->type, r->check, r->other, r->handle, r->tensors};
	for (PyObject *of : held)
		Py_DecRef(of);
	for (int i = 0; i < r->count; i++)
		Py_DecRef(r->watchers[i]);
	free(r);
}

}  // namespace

/*
 * Returns the function that reads from the table of a key. arguments is a tuple: torch.Tensor, the function that raises a status, what to return for other ids, the functions
 * of older releases of torch for handles, and then what watches. Called by ctypes.PyDLL.
 */
extern "C" TC_API PyObject *tensorcache_torch_reader(const char *key, PyObject *arguments, int count)
{
	Reader *r = static_cast<Reader *>(calloc(1, sizeof(Reader)));
	if (r == nullptr || !find(key, &r->table) || count < 5 || count > 5 + maxWatchers) {
		free(r);
		Py_IncRef(arguments); /* what is no function says so */
		return arguments;
	}
	PyObject **const to[] = {&r->type, &r->check, &r->other, &r->handle, &r->tensors};
	for (int i = 0; i < count; i++) {
		PyObject *of = PyTuple_GetItem(arguments, i);
		Py_IncRef(of);
		*(i < 5 ? to[i] : &r->watchers[i - 5]) = of;
	}
	r->count = count - 5;
	PyObject *self = PyCapsule_New(r, nullptr, destroy);
	PyObject *function = self == nullptr ? nullptr : PyCFunction_NewEx(&method, self, nullptr);
	if (self != nullptr)
		Py_DecRef(self);
	return function;
}
