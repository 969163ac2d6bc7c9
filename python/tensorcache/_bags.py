"""Rows added up in bags, for row numbers in host memory: what ``Table.embedding_bag`` does with NumPy arrays, and what all callers check."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

import numpy as np

from . import _abi
from ._checks import integer
from ._elements import Element, element
from ._ids import host_ids, in_memory
from ._library import check, library
from .errors import ArgumentError

if TYPE_CHECKING:
    from ._ngram_table import RowFormat
    from .table import Table

_FLOATS = ("float32", "float16", "bfloat16")
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")  # their sums are float32
_SCALES = ("float8_e8m0fnu", "float32")


def summed(table: Table) -> tuple[Element, tuple[int, ...]]:
    """Returns the type of a table's sums, and their shape: of rows of float8 values and scales as parts, those of the values."""
    of = table._element
    if of.name in _FLOAT8:
        return element("float32"), table._row_shape
    columns = values_of(table._parts()) if of.name == "uint8" else 0
    return (element("float32"), (columns,)) if columns else (of, table._row_shape)


def values_of(parts: str) -> int:
    """Returns the number of float8 values of rows of these parts, 0 if they are something else than values and then a scale for each block of them."""
    found = [(part.partition("*")[0], int(part.partition("*")[2] or 1)) for part in parts.split(",")]
    if len(found) != 2 or found[0][0] not in _FLOAT8 or found[1][0] not in _SCALES or found[0][1] % found[1][1]:
        return 0
    return found[0][1]


@dataclass(frozen=True)
class Pooling:
    """How bags are reduced, checked. ``padding`` is None or a row number that counts from the front."""

    mode: int
    last: bool
    padding: Optional[int]
    output: Element


def pooling(of: Element, rows: int, mode: str, last: bool, padding: Optional[int], dtype: Any, weighted: bool) -> Pooling:
    """Returns what is asked of the bags of a table whose sums have that element type, and with that number of rows."""
    if of.name not in _FLOATS:
        raise TypeError(f"tensorcache: table ({of.name}) must have float32, float16, bfloat16 or float8 elements to be added up")
    if mode not in _abi.POOL_MODE:
        raise ArgumentError(f"tensorcache: mode ({mode!r}) must be 'sum', 'mean' or 'max'")
    if weighted and mode != "sum":
        raise ArgumentError(f"tensorcache: per_sample_weights must come with mode 'sum', not {mode!r}")
    output = of if dtype is None else element(dtype)
    if output.name not in _FLOATS:
        raise TypeError(f"tensorcache: dtype ({output.name}) must be float32, float16 or bfloat16")
    if padding is not None:
        if not -rows <= integer(padding, "padding_idx") < rows:
            raise ArgumentError(f"tensorcache: padding_idx ({padding}) must be a row of the table, -{rows} to {rows - 1}")
        padding += rows if padding < 0 else 0
    return Pooling(_abi.POOL_MODE[mode], last, padding, output)


def bags_of(ids_shape: Sequence[int], offsets: Optional[int], last: bool) -> tuple[int, int]:
    """Returns the number of bags, and the rows of each bag or 0 if offsets say. ``offsets`` is their number, None for none."""
    if len(ids_shape) == 2:
        if offsets is not None:
            raise ArgumentError("tensorcache: offsets must be None for ids of two axes, which are bags of one length")
        if last:
            raise ArgumentError("tensorcache: include_last_offset (True) must come with offsets")
        return ids_shape[0], ids_shape[1]
    if len(ids_shape) != 1:
        raise ArgumentError(f"tensorcache: ids (shape {tuple(ids_shape)}) must have one axis, with offsets, or two")
    if offsets is None:
        raise ArgumentError("tensorcache: offsets (None) must be positions of ids at which bags begin, or ids must have two axes")
    if last and offsets == 0:
        raise ArgumentError("tensorcache: offsets (none) must have the end of the last bag, as include_last_offset says")
    return offsets - int(last), 0


def structure(
    to: _abi.Pooled,
    table: int,
    how: Pooling,
    size: int,
    ids: tuple[int, int, int],
    offsets: Optional[tuple[int, int, int]],
    weights: Optional[int],
    out: int,
    stride: int,
    bags: tuple[int, int] = (0, 0),
) -> None:
    """Fills the library's structure. ``ids`` and ``offsets`` are address, type and number; ``bags``, if some of those that offsets describe are chosen, the first and
    how many."""
    to.size, to.table = ctypes.sizeof(_abi.Pooled), table
    to.ids, to.id_type, to.n = ids
    to.mode, to.output = how.mode, how.output.code
    to.bag = size
    if offsets is not None:
        to.offsets, to.offset_type, to.offset_count = offsets
        to.last_offset = int(how.last)
    else:
        to.offset_type = _abi.INT64
    to.weights = weights
    if how.padding is not None:
        to.has_padding, to.padding = 1, how.padding
    to.out, to.out_stride = out, stride
    to.first_bag, to.bags = bags


def row_of_float8(to: _abi.Pooled, row: RowFormat) -> None:
    """Fills in what the bytes of rows are."""
    to.float8, to.float8_factor = _abi.DTYPE[row.values], row.scale
    if row.block:
        to.float8_scales, to.float8_block = _abi.FLOAT8_E8M0, row.block


def embedding_bag(
    table: Table, ids: Any, offsets: Any, mode: str, weights: Any, last: bool, padding: Optional[int], dtype: Any, out: Any
) -> Any:
    """``Table.embedding_bag`` with NumPy arrays."""
    numbers = host_ids(ids, len(table))
    of, row_shape = summed(table)
    how = pooling(of, len(table), mode, last, padding, dtype, weights is not None)
    positions = None if offsets is None else host_ids(offsets, numbers.size + 1, "offsets")
    if positions is not None and positions.ndim != 1:
        raise ArgumentError(f"tensorcache: offsets (shape {positions.shape}) must have one axis")
    bags, size = bags_of(numbers.shape, None if positions is None else positions.size, last)
    factors = None
    if weights is not None:
        factors = np.asarray(weights)
        if factors.dtype.kind in "bcOSUMm":
            raise TypeError(f"tensorcache: per_sample_weights ({factors.dtype}) must be real numbers")
        factors = np.ascontiguousarray(factors, dtype=np.float32)
        if factors.shape != numbers.shape:
            raise ArgumentError(f"tensorcache: per_sample_weights (shape {factors.shape}) must have the shape of ids, {numbers.shape}")
    shape = (bags, *row_shape)
    stride = 0
    if out is None:
        out = np.zeros(shape, how.output.numpy) if size == 0 and numbers.ndim == 2 else np.empty(shape, how.output.numpy)
    else:
        stride = table._row_stride(out, shape, how.output, len(row_shape))
    if numbers.ndim == 2 and size == 0:  # bags without rows
        out[...] = 0
        return out
    offsets_at, factors_at = None if positions is None else in_memory(positions), None if factors is None else factors.ctypes.data
    return _reduced(table, how, size, numbers, offsets_at, factors_at, out, stride)


def _reduced(
    table: Table, how: Pooling, size: int, ids: np.ndarray[Any, Any], offsets: Optional[tuple[int, int, int]], weights: Optional[int], out: Any, stride: int
) -> Any:
    """Has the library reduce one batch, and returns ``out``."""
    batch = _abi.Pooled()
    structure(batch, table._index, how, size, in_memory(ids), offsets, weights, out.ctypes.data, stride)
    check(library().tc_gather_pooled_host(table._handle, -1, ctypes.byref(batch), 1))
    return out


def gather_as(table: Table, numbers: np.ndarray[Any, Any], dtype: Any, out: Any) -> Any:
    """``Table.gather`` with elements of another type, in NumPy arrays: each row is a bag of its own."""
    of, row_shape = summed(table)
    how = pooling(of, len(table), "sum", False, None, dtype, False)
    shape, stride = (*numbers.shape, *row_shape), 0
    if out is None:
        out = np.empty(shape, how.output.numpy)
    else:
        stride = table._row_stride(out, shape, how.output, len(row_shape))
    return _reduced(table, how, 1, numbers, None, None, out, stride)
