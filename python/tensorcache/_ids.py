"""Row numbers in host memory, in the forms that Python programs have them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Optional

import numpy as np

from . import _abi
from .errors import ArgumentError, RowError

Array = np.ndarray[Any, Any]


def in_memory(ids: Array) -> tuple[int, int, int]:
    """Returns an array of ``host_ids`` as the library's functions take it: address, type and number."""
    return ids.ctypes.data, _abi.INT32 if ids.dtype.itemsize == 4 else _abi.INT64, ids.size


def host_ids(ids: object, rows: int, what: str = "ids") -> Array:
    """Returns row numbers as a contiguous array of int32 or int64, of any shape.

    ``ids`` is an array, tensor or sequence of integers of any type, an array of ``rows`` booleans that selects rows, a slice, whose bounds count from the
    end if negative, or an int. ``rows`` is the length of the table. ``what`` names the argument in errors; booleans select rows only as "ids". The library
    checks the numbers.
    """
    if isinstance(ids, slice):
        return np.arange(*ids.indices(rows), dtype=np.int64)
    if isinstance(ids, (int, np.integer)) and not isinstance(ids, (bool, np.bool_)):
        number = int(ids)
        if not -(2**63) <= number < 2**63:
            raise RowError(f"tensorcache: {what} ({number}) must be 0 to {rows - 1}")
        return np.array(number, dtype=np.int64)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(ids, torch.Tensor):
        ids = ids.detach().cpu().numpy()
    if isinstance(ids, tuple):
        raise TypeError(f"tensorcache: {what} (a tuple) must be row numbers")
    array = np.asarray(ids)
    if array.dtype == np.int64 or array.dtype == np.int32:
        pass
    elif array.dtype == np.bool_ and what == "ids":
        if array.shape != (rows,):
            raise ArgumentError(f"tensorcache: ids (booleans of shape {array.shape}) must have shape ({rows},) to select rows")
        array = np.flatnonzero(array)
    elif array.dtype.kind in "iu":
        if array.dtype == np.uint64 and array.size and array.max() >= 2**63:
            raise RowError(f"tensorcache: {what} ({array.max()}) must be less than {rows}")
        array = array.astype(np.int64)
    elif array.size == 0 and not isinstance(ids, np.ndarray):
        array = array.astype(np.int64)  # an empty list
    else:
        given = array.dtype if array.dtype.kind in "fc" or isinstance(ids, np.ndarray) else type(ids).__name__
        raise TypeError(f"tensorcache: {what} ({given}) must be integers")
    # ascontiguousarray would make an axis of a single number.
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def from_end(ids: Any, rows: int) -> Optional[Any]:
    """Returns row numbers in host memory with negative ones counted from the end of ``rows``; None if there are none to be counted, or they are on a GPU."""
    if hasattr(type(ids), "__torch_function__"):
        if getattr(ids, "is_cuda", False) or not ids.dtype.is_signed:
            return None
        return ids + (ids < 0) * rows
    if hasattr(ids, "__cuda_array_interface__"):
        return None
    numbers = host_ids(ids, rows)
    if not numbers.size or numbers.min() >= 0:
        return None
    return np.where(numbers < 0, numbers.astype(np.int64) + rows, numbers)


def training_batches(train: object, names: list[str], rows: list[int]) -> list[tuple[int, Array]]:
    """Returns batches of row numbers from which a cache learns, each with the index of its table. ``rows`` are the tables' numbers of rows."""
    batches: list[tuple[int, Array]] = []

    def add(table: int, ids: object) -> None:
        found = host_ids(ids, rows[table])
        if found.size:
            batches.append((table, found))

    def add_all(train: object) -> None:
        if not isinstance(train, Mapping):
            add_table(0, train)
            return
        for name, of_table in train.items():
            if name not in names:
                raise ArgumentError(f"tensorcache: train (table {name!r}) must name one of the tables {', '.join(names)}")
            add_table(names.index(name), of_table)

    def add_table(table: int, train: object) -> None:
        torch = sys.modules.get("torch")
        listed = isinstance(train, (list, tuple))
        if isinstance(train, np.ndarray) or torch is not None and isinstance(train, torch.Tensor):
            add(table, train)
        elif not isinstance(train, Iterable):
            raise TypeError(f"tensorcache: train ({type(train).__name__}) must be row numbers, or batches of row numbers")
        elif listed and train and all(isinstance(i, (int, np.integer)) for i in train):
            add(table, train)
        else:
            for batch in train:
                first = len(batches)
                add_batch(table, batch)
                if not listed:  # an iterator may yield one buffer again and again
                    batches[first:] = [(of, ids.copy()) for of, ids in batches[first:]]

    def add_batch(table: int, batch: Any) -> None:
        """Adds a batch of row numbers, or of a PyG loader, which has them as ``n_id``, in a heterogeneous graph for each type of nodes."""
        if (kinds := getattr(batch, "node_types", None)) is not None:
            for kind in (kind for kind in kinds if kind in names):
                add(names.index(kind), batch[kind].n_id)
        elif isinstance(batch, Mapping):
            add_all(batch)
        else:
            add(table, getattr(batch, "n_id", batch))

    if train is not None:
        add_all(train)
    return batches
