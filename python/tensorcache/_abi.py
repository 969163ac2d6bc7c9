"""The C interface of libtensorcache (tensorcache.h) as ctypes: constants, structures, functions.

Names are those of the header without ``tc_``, and the order of fields is the header's. Nothing here looks at values.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint64, c_void_p

OK, PENDING = 0, 1
ERROR_ARGUMENT, ERROR_CLOSED, ERROR_TABLE, ERROR_ROWS, ERROR_BUDGET, ERROR_OUT_OF_MEMORY, ERROR_FILE = range(2, 9)
ERROR_DEVICE, ERROR_CAPTURE, ERROR_CORRUPT, ERROR_POLICY, ERROR_CANCELLED, ERROR_FORKED, ERROR_INTERNAL, ERROR_OWNER = range(9, 17)

DTYPES = {
    "float16": 1, "bfloat16": 2, "float32": 3, "float64": 4, "int8": 5, "int16": 6, "int32": 7, "int64": 8,
    "uint8": 9, "uint16": 10, "uint32": 11, "uint64": 12, "bool": 13, "float8_e4m3fn": 14, "float8_e5m2": 15,
    "float8_e8m0fnu": 16,
}  # fmt: skip
INT32, INT64 = DTYPES["int32"], DTYPES["int64"]

BACKENDS = {"auto": 0, "host": 1, "cuda": 2}
BACKEND_CUDA = BACKENDS["cuda"]
MEMORY_COPY, MEMORY_ADOPT, MEMORY_CUDA = range(3)
LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR, LOG_OFF = range(1, 6)


class Training(Structure):
    _fields_ = [("table", c_int32), ("id_type", c_int32), ("ids", c_void_p), ("n", c_int64)]


class Config(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("gpu_memory", c_int64),
        ("codec", c_char_p),
        ("backend", c_int32),
        ("devices", c_int32),
        ("gpus", POINTER(c_int32)),
        ("policy", c_char_p),
        ("training", POINTER(Training)),
        ("training_batches", c_int64),
        ("cold", c_int32),
        ("host_packed", c_int32),
        ("restore", c_char_p),
        ("refresh_interval", c_double),
        ("refresh_churn", c_double),
        ("refresh_bytes", c_int64),
        ("refresh_accesses", c_double),
        ("workers", c_int32),
        ("host_threads", c_int32),
        ("overlay", c_int64),
        ("seed", c_uint64),
        ("name", c_char_p),
        ("log_level", c_int32),
        ("no_equal_rows", c_int32),
        ("host_memory", c_int64),
        ("shared", c_int32),
        ("reserved", c_int32),
    ]


class Table(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("path", c_char_p),
        ("data", c_void_p),
        ("rows", c_int64),
        ("row_bytes", c_int64),
        ("dtype", c_int32),
        ("memory", c_int32),
        ("gpu", c_int32),
        ("restore", c_int32),
        ("capacity", c_int64),
        ("codec", c_char_p),
        ("resident", c_int32),
        ("resident_target", c_int32),
        ("resident_overflow", c_double),
        ("resident_max_target", c_int32),
        ("resident_retarget", c_int32),
        ("resident_buddy", c_int32),
        ("reserved", c_int32),
        ("parts", c_char_p),
        ("cold", c_char_p),
        ("cold_cache", c_char_p),
        ("cold_cache_bytes", c_int64),
        ("log", c_char_p),
        ("durable", c_int32),
        ("reserved2", c_int32),
    ]


class AttachConfig(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("wait", c_double),
        ("lanes", c_int32),
        ("workers", c_int32),
        ("host_threads", c_int32),
        ("log_level", c_int32),
        ("scratch", c_int64),
        ("timeout", c_double),
    ]


class ListenConfig(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("max_clients", c_int32),
        ("max_lanes", c_int32),
        ("max_scratch", c_int64),
        ("stopped_after", c_double),
        ("evict_stopped", c_int32),
        ("reserved", c_int32),
    ]


class Progress(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("table", c_int32),
        ("tables", c_int32),
        ("rows", c_int64),
        ("of", c_int64),
        ("filled", c_int32),
        ("reserved", c_int32),
    ]


class TableInfo(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("rows", c_int64),
        ("capacity", c_int64),
        ("row_bytes", c_int64),
        ("columns", c_int64),
        ("dtype", c_int32),
        ("reserved", c_int32),
        ("name", c_char * 256),
        ("codec", c_char * 64),
    ]


class Pooled(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("table", c_int32),
        ("id_type", c_int32),
        ("ids", c_void_p),
        ("n", c_int64),
        ("mode", c_int32),
        ("output", c_int32),
        ("bag", c_int64),
        ("offsets", c_void_p),
        ("offset_count", c_int64),
        ("offset_type", c_int32),
        ("last_offset", c_int32),
        ("weights", c_void_p),
        ("padding", c_int64),
        ("has_padding", c_int32),
        ("reserved", c_int32),
        ("out", c_void_p),
        ("out_stride", c_int64),
        ("float8", c_int32),
        ("float8_scales", c_int32),
        ("float8_block", c_int64),
        ("float8_factor", c_float),
        ("reserved2", c_int32),
        ("first_bag", c_int64),
        ("bags", c_int64),
    ]


class DeviceInfo(Structure):
    _fields_ = [("size", c_size_t), ("backend", c_int32), ("gpu", c_int32), ("name", c_char * 256)]


_IDS = (c_int32, c_void_p, c_int32, c_int64)  # table, ids, id_type, n
_TEXT = POINTER(c_void_p)

# Functions that return a status, with their arguments.
STATUS = {
    "gpu_count": (POINTER(c_int32),),
    "logs_json": (_TEXT,),
    "open": (POINTER(Config), POINTER(Table), c_int32, POINTER(c_void_p)),
    "table_describe": (POINTER(Table), POINTER(TableInfo)),
    "attach": (c_char_p, POINTER(AttachConfig), POINTER(c_void_p)),
    "listen": (c_void_p, c_char_p, POINTER(ListenConfig)),
    "open_begin": (POINTER(Config), POINTER(Table), c_int32, POINTER(c_void_p)),
    "opening_wait": (c_void_p, c_double, POINTER(c_void_p)),
    "opening_progress": (c_void_p, POINTER(Progress)),
    "opening_cancel": (c_void_p,),
    "close": (c_void_p,),
    "table_count": (c_void_p, POINTER(c_int32)),
    "device_count": (c_void_p, POINTER(c_int32)),
    "table_get_info": (c_void_p, c_int32, POINTER(TableInfo)),
    "device_get_info": (c_void_p, c_int32, POINTER(DeviceInfo)),
    "gather": (c_void_p, c_int32, *_IDS, c_void_p, c_int64, c_void_p, c_void_p),
    "gather_host_ids": (c_void_p, c_int32, *_IDS, c_void_p, c_int64, c_void_p, c_void_p),
    "gather_host": (c_void_p, c_int32, *_IDS, c_void_p, c_int64),
    "gather_pooled": (c_void_p, c_int32, POINTER(Pooled), c_int32, c_void_p, c_void_p),
    "gather_pooled_host": (c_void_p, c_int32, POINTER(Pooled), c_int32),
    "check": (c_void_p, c_int32),
    "update": (c_void_p, *_IDS, c_void_p, c_int64),
    "invalidate": (c_void_p, *_IDS),
    "prefetch": (c_void_p, *_IDS),
    "refresh": (c_void_p,),
    "retarget": (c_void_p, c_int32, c_int64),
    "merge_updates": (c_void_p, c_int32),
    "set_gpu_memory": (c_void_p, c_int64),
    "snapshot": (c_void_p, c_char_p),
    "stats_json": (c_void_p, c_int32, _TEXT),
    "explain_json": (c_void_p, *_IDS, _TEXT),
    "plan_json": (c_char_p, _TEXT),
    "bench_json": (c_char_p, _TEXT),
}  # fmt: skip

# The others: result and arguments.
OTHERS = {
    "version": (c_char_p, ()),
    "last_error": (c_char_p, ()),
    "free": (None, (c_void_p,)),
    "opening_destroy": (None, (c_void_p,)),
}


def declare(library: ctypes.CDLL) -> None:
    """Sets argument and result types of all functions. Raises AttributeError for one that the library lacks."""
    for name, arguments in STATUS.items():
        function = getattr(library, "tc_" + name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    for name, (result, arguments) in OTHERS.items():
        function = getattr(library, "tc_" + name)
        function.argtypes, function.restype = arguments, result
