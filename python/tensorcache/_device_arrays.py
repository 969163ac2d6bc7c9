"""Reads with GPU arrays of other frameworks than torch, by the CUDA array interface: CuPy, Numba and others."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _abi
from ._bags import pooling, structure, summed
from ._checks import row_stride
from ._library import check, library
from .errors import ArgumentError

if TYPE_CHECKING:
    from .table import Table


def gather(table: Table, ids: Any, out: Any, of: Any = None) -> Any:
    """Returns the rows ``ids``, which are on a GPU, in a CuPy array or in ``out``, with elements of type ``of``, by default the table's.

    Reads run in the order of CuPy's current stream if ``ids`` are a CuPy array, else in the order of the stream that the interface of ``ids``
    names, or of the legacy default stream.
    """
    if table.backend != "cuda":
        raise ArgumentError("tensorcache: ids (on a GPU) must be in host memory, as the cache is on the host backend")
    numbers = _view(ids, "ids")
    dtype = np.dtype(numbers["typestr"])
    if dtype not in (np.int64, np.int32):
        raise TypeError(f"tensorcache: ids ({dtype}) must be int64 or int32")
    shape = tuple(numbers["shape"])
    if row_stride(shape, _strides(numbers, dtype.itemsize), 0, dtype.itemsize) != dtype.itemsize:
        raise ArgumentError("tensorcache: ids must be contiguous")
    cupy = sys.modules.get("cupy")
    ours = cupy is not None and isinstance(ids, cupy.ndarray)
    how, kind, row_shape = None, table._element, table._row_shape
    if of is not None:
        kind, row_shape = summed(table)
        how = pooling(kind, len(table), "sum", False, None, of, False)
        kind = how.output
    wanted = (*shape, *row_shape)
    if out is None:
        if cupy is None or not ours:
            raise ArgumentError(f"tensorcache: out (None) must be given for ids of type {type(ids).__name__}")
        with ids.device:
            out = cupy.empty(wanted, kind.numpy)
    view = _view(out, "out")
    if tuple(view["shape"]) != wanted:
        raise ArgumentError(f"tensorcache: out (shape {tuple(view['shape'])}) must have shape {wanted}")
    if np.dtype(view["typestr"]) not in (kind.numpy, kind.bits):
        raise TypeError(f"tensorcache: out ({np.dtype(view['typestr'])}) must have dtype {kind.name}")
    size = kind.size
    stride = row_stride(wanted, _strides(view, size), len(row_shape), size)
    if cupy is not None and ours:
        with ids.device:
            stream = cupy.cuda.get_current_stream().ptr
    else:
        stream = numbers.get("stream") or 0
    slot = _slot(table.cache.gpus, ids)
    lib = library()
    check(lib.tc_check(table._handle, 0))
    rows = numbers["data"][0], _abi.INT64 if dtype.itemsize == 8 else _abi.INT32, int(np.prod(shape))
    if how is None:
        check(lib.tc_gather(table._handle, slot, table._index, *rows, view["data"][0], stride, stream, None))
        return out
    batch = _abi.Pooled()
    structure(batch, table._index, how, 1, rows, None, None, view["data"][0], stride)
    check(lib.tc_gather_pooled(table._handle, slot, ctypes.byref(batch), 1, stream, None))
    return out


def _slot(gpus: list[int], ids: Any) -> int:
    """Returns the cache's index of the GPU that has the array. Arrays say where they are by DLPack; others must be on the cache's only GPU."""
    if hasattr(ids, "__dlpack_device__"):
        gpu = int(ids.__dlpack_device__()[1])
        if gpu not in gpus:
            raise ArgumentError(f"tensorcache: ids (on GPU {gpu}) must be on a GPU of the cache: {', '.join(str(g) for g in gpus if g >= 0)}")
        return gpus.index(gpu)
    seen = [i for i, gpu in enumerate(gpus) if gpu >= 0]
    if len(seen) > 1:
        raise ArgumentError(f"tensorcache: ids ({type(ids).__name__}) must have __dlpack_device__, as the cache is on several GPUs")
    return seen[0]


def _view(array: Any, name: str) -> dict[str, Any]:
    interface = getattr(array, "__cuda_array_interface__", None)
    if not isinstance(interface, dict):
        raise TypeError(f"tensorcache: {name} ({type(array).__name__}) must be an array on a GPU, as ids are")
    return interface


def _strides(interface: dict[str, Any], size: int) -> tuple[int, ...]:
    strides = interface.get("strides")
    if strides is not None:
        return tuple(strides)
    found: list[int] = []
    for length in reversed(interface["shape"]):
        found.insert(0, size)
        size *= length
    return tuple(found)
