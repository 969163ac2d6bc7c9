// What the driver's entries share. An entry is a function of libcuda.so.1: its names, arguments and results are those of CUDA's driver API.
// The files of entries are named driver_*.cc.
#pragma once

#include "emulator.h"

using namespace emulator;

// IN_CONTEXT returns from the entry where the calling thread has no context, or a lost one. d is the context's device.
#define IN_CONTEXT(d)                                \
	Device *d = current();                       \
	if (d == nullptr)                            \
		return CUDA_ERROR_INVALID_CONTEXT;   \
	if (d->error != 0)                           \
	return (CUresult)d->error.load()

// ON_STREAM returns from the entry where the handle is of no stream, or the device is lost.
#define ON_STREAM(s, handle)                 \
	CUresult why;                        \
	Stream *s = streamOf(handle, &why);  \
	if (s == nullptr)                    \
	return why

// FOR_DEVICE returns from the entry where there is no such device.
#define FOR_DEVICE(ordinal)               \
	if (device(ordinal) == nullptr) \
	return CUDA_ERROR_INVALID_DEVICE
