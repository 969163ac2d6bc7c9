/*
 * What the extension for torch calls of others: torch's stable C interface, the C++ runtime's throwing functions, and Python's limited interface.
 *
 * They are declared here, and not taken from torch's and Python's headers, so that building needs neither: every wheel has the extension. What is compiled against these functions runs
 * with torch 2.10 and later. python/tests/test_torch.py compares the declarations with the headers of the installed torch (torch/csrc/stable/c/shim.h). torch's macros, such as STABLE_TORCH_LIBRARY,
 * are C++ over the same functions. They are not used: they throw exceptions of the C++ runtime that compiles them, which torch catches only if it is its own.
 */
#ifndef TENSORCACHE_TORCH_SHIM_H
#define TENSORCACHE_TORCH_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* What older releases of torch, programs without Python, and builds of torch without CUDA lack. */
#define MAY_LACK __attribute__((weak))

extern "C" {

/* ---- torch. A function that returns an AOTITorchError returns 0 unless it fails. ---- */

typedef int32_t AOTITorchError;
typedef uint64_t StableIValue; /* an argument or a result of an operator */
struct AtenTensorOpaque;
struct TorchLibraryOpaque;
struct StableListOpaque;
struct StringOpaque;
typedef AtenTensorOpaque *AtenTensorHandle;
typedef TorchLibraryOpaque *TorchLibraryHandle;
typedef StableListOpaque *StableListHandle;
typedef StringOpaque *StringHandle;

uint64_t aoti_torch_abi_version();
AOTITorchError aoti_torch_library_init_def(const char *ns, const char *file, uint32_t line, TorchLibraryHandle *library);
AOTITorchError aoti_torch_library_init_impl(const char *ns, const char *key, const char *file, uint32_t line, TorchLibraryHandle *library);
AOTITorchError aoti_torch_library_def(TorchLibraryHandle library, const char *schema);
AOTITorchError torch_library_impl(TorchLibraryHandle library, const char *name, void (*run)(StableIValue *, uint64_t, uint64_t), uint64_t version);

int32_t aoti_torch_device_type_cpu();
int32_t aoti_torch_device_type_cuda();
int32_t aoti_torch_layout_strided();
int32_t aoti_torch_dtype_bool();
int32_t aoti_torch_dtype_uint8();
int32_t aoti_torch_dtype_uint16();
int32_t aoti_torch_dtype_uint32();
int32_t aoti_torch_dtype_uint64();
int32_t aoti_torch_dtype_int8();
int32_t aoti_torch_dtype_int16();
int32_t aoti_torch_dtype_int32();
int32_t aoti_torch_dtype_int64();
int32_t aoti_torch_dtype_float16();
int32_t aoti_torch_dtype_bfloat16();
int32_t aoti_torch_dtype_float32();
int32_t aoti_torch_dtype_float64();
int32_t aoti_torch_dtype_float8_e4m3fn();
int32_t aoti_torch_dtype_float8_e5m2();
MAY_LACK int32_t torch_dtype_float8_e8m0fnu(); /* from torch 2.11 on */

AOTITorchError aoti_torch_get_device_type(AtenTensorHandle tensor, int32_t *type);
AOTITorchError aoti_torch_get_device_index(AtenTensorHandle tensor, int32_t *index);
AOTITorchError aoti_torch_get_dtype(AtenTensorHandle tensor, int32_t *dtype);
AOTITorchError aoti_torch_get_layout(AtenTensorHandle tensor, int32_t *layout);
AOTITorchError aoti_torch_get_dim(AtenTensorHandle tensor, int64_t *axes);
AOTITorchError aoti_torch_get_numel(AtenTensorHandle tensor, int64_t *elements);
AOTITorchError aoti_torch_get_sizes(AtenTensorHandle tensor, int64_t **borrowed);
AOTITorchError aoti_torch_is_contiguous(AtenTensorHandle tensor, bool *is);
AOTITorchError torch_get_const_data_ptr(AtenTensorHandle tensor, const void **borrowed);
AOTITorchError torch_get_mutable_data_ptr(AtenTensorHandle tensor, void **borrowed);
AOTITorchError aoti_torch_empty_strided(
	int64_t axes, const int64_t *sizes, const int64_t *strides, int32_t dtype, int32_t device_type, int32_t device_index, AtenTensorHandle *owned);
AOTITorchError aoti_torch_copy_(AtenTensorHandle to, AtenTensorHandle from, int32_t non_blocking);
AOTITorchError aoti_torch_zero_(AtenTensorHandle tensor);
AOTITorchError aoti_torch_delete_tensor_object(AtenTensorHandle owned);
AOTITorchError aoti_torch_get_current_device_index(int32_t *index);
MAY_LACK AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void **stream);

AOTITorchError torch_string_c_str(StringHandle string, const char **borrowed);
AOTITorchError torch_delete_string(StringHandle owned);
AOTITorchError torch_new_list_reserve_size(size_t size, StableListHandle *owned);
AOTITorchError torch_list_size(StableListHandle list, size_t *size);
AOTITorchError torch_list_get_item(StableListHandle list, size_t index, StableIValue *owned);
AOTITorchError torch_list_push_back(StableListHandle list, StableIValue owned);
AOTITorchError torch_delete_list(StableListHandle owned);
MAY_LACK AOTITorchError torch_delete_stable_ivalue(StableIValue *owned); /* from torch 2.13 on: before, they are made by operator new */

struct _object;
MAY_LACK AOTITorchError torch_tensor_from_pyobject(void *object, AtenTensorHandle *owned); /* both from torch 2.14 on */
MAY_LACK AOTITorchError torch_tensor_to_pyobject(AtenTensorHandle tensor, void *type, void **owned);

/* ---- the C++ runtime that torch uses, whatever this library was compiled by ---- */

void operator_delete(void *) __asm__("_ZdlPv");
[[noreturn]] void throw_out_of_range(const char *text) __asm__("_ZSt20__throw_out_of_rangePKc");
[[noreturn]] void throw_invalid_argument(const char *text) __asm__("_ZSt24__throw_invalid_argumentPKc");
[[noreturn]] void throw_runtime_error(const char *text) __asm__("_ZSt21__throw_runtime_errorPKc");

/* ---- Python: functions of its limited interface, from 3.9 on ---- */

typedef _object PyObject;
struct PyMethodDef {
	const char *name;
	PyObject *(*function)(PyObject *self, PyObject *argument);
	int flags;
	const char *doc;
};
#define METH_VARARGS 0x0001
#define METH_O 0x0008

MAY_LACK PyObject *PyCFunction_NewEx(PyMethodDef *method, PyObject *self, PyObject *module);
MAY_LACK PyObject *PyCapsule_New(void *pointer, const char *name, void (*destructor)(PyObject *));
MAY_LACK void *PyCapsule_GetPointer(PyObject *capsule, const char *name);
MAY_LACK PyObject *PyObject_Type(PyObject *object);
MAY_LACK PyObject *PyObject_CallObject(PyObject *callable, PyObject *arguments);
MAY_LACK PyObject *PyObject_CallFunctionObjArgs(PyObject *callable, ...);
MAY_LACK int PyObject_IsTrue(PyObject *object);
MAY_LACK PyObject *PyTuple_GetItem(PyObject *tuple, intptr_t index);
MAY_LACK PyObject *PyList_New(intptr_t size);
MAY_LACK int PyList_SetItem(PyObject *list, intptr_t index, PyObject *given);
MAY_LACK PyObject *PyList_GetItem(PyObject *list, intptr_t index);
MAY_LACK PyObject *PyLong_FromLong(long value);
MAY_LACK long PyLong_AsLong(PyObject *number);
MAY_LACK PyObject *PyUnicode_DecodeUTF8(const char *text, intptr_t bytes, const char *errors);
MAY_LACK PyObject *PyObject_GetAttrString(PyObject *object, const char *name);
MAY_LACK PyObject *PyErr_Occurred();
MAY_LACK void Py_IncRef(PyObject *object);
MAY_LACK void Py_DecRef(PyObject *object);
MAY_LACK void *PyEval_SaveThread();
MAY_LACK void PyEval_RestoreThread(void *state);
}

#endif
