"""Row numbers in host memory, in the forms that Python programs have them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import _abi
from .errors import ArgumentError, RowError

Array = np.ndarray[Any, Any]


def id_type(ids: Array) -> int:
    """Returns the library's type of an array of ``host_ids``."""
    return _abi.INT32 if ids.dtype.itemsize == 4 else _abi.INT64


def in_memory(ids: Array) -> tuple[int, int, int]:
    """Returns an array of ``host_ids`` as the library's functions take it: address, type and number."""
    return ids.ctypes.data, id_type(ids), ids.size


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
        raise TypeError(f"tensorcache: {what} (a tuple) must be row numbers: a table is indexed by its first axis only")
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


class TrainingSet:
    """Batches of row numbers from which a cache learns, as the library takes them."""

    def __init__(self, train: object, names: list[str], rows: list[int]) -> None:
        self._names, self._rows = names, rows
        self.batches: list[tuple[int, Array]] = []
        if train is not None:
            self._add_all(train)

    def _add_all(self, train: object) -> None:
        if isinstance(train, Mapping):
            for name, of_table in train.items():
                if name not in self._names:
                    raise ArgumentError(f"tensorcache: train (table {name!r}) must name one of the tables {', '.join(self._names)}")
                self._add_table(self._names.index(name), of_table)
        else:
            self._add_table(0, train)

    def _add_table(self, table: int, train: object) -> None:
        if _is_array(train):
            self._add(table, train)
            return
        if not isinstance(train, Iterable):
            raise TypeError(f"tensorcache: train ({type(train).__name__}) must be row numbers, or batches of row numbers")
        if isinstance(train, (list, tuple)) and train and all(isinstance(i, (int, np.integer)) for i in train):
            self._add(table, train)
            return
        first = len(self.batches)
        for batch in train:
            self._add_batch(table, batch)
            if not isinstance(train, (list, tuple)):  # an iterator may yield one buffer again and again
                self.batches[first:] = [(of, ids.copy()) for of, ids in self.batches[first:]]
                first = len(self.batches)

    def _add_batch(self, table: int, batch: Any) -> None:
        """Adds a batch of row numbers, or of a PyG loader, which has them as ``n_id``, in a heterogeneous graph for each type of nodes."""
        kinds = getattr(batch, "node_types", None)
        if kinds is not None:
            for kind in kinds:
                if kind in self._names:
                    self._add(self._names.index(kind), batch[kind].n_id)
        elif isinstance(batch, Mapping):
            self._add_all(batch)
        else:
            self._add(table, getattr(batch, "n_id", batch))

    def _add(self, table: int, ids: object) -> None:
        found = host_ids(ids, self._rows[table])
        if found.size:
            self.batches.append((table, found))

    def structures(self) -> Any:
        """Returns an array of the library's structures. The set must stay alive until the opening has ended."""
        array = (_abi.Training * max(1, len(self.batches)))()
        for structure, (table, ids) in zip(array, self.batches):
            structure.table = table
            structure.ids, structure.id_type, structure.n = in_memory(ids)
        return array


def _is_array(train: object) -> bool:
    torch = sys.modules.get("torch")
    return isinstance(train, np.ndarray) or torch is not None and isinstance(train, torch.Tensor)
