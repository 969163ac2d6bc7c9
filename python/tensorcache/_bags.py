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
    from .ngram import RowFormat
    from .table import Table

Memory = tuple[int, int, int]  # of row numbers or offsets: address, type and number
_FLOATS = ("float32", "float16", "bfloat16")
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")  # their sums are float32
_SCALES = ("float8_e8m0fnu", "float32")


def summed(table: Table) -> tuple[Element, tuple[int, ...]]:
    """Returns the type of a table's sums, and their shape: of rows of float8 values and scales as parts, those of the values."""
    of = table._element
    if of.name in _FLOAT8:
        return element("float32"), table._row_shape
    columns = values_of(table._parts)
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
    to: _abi.Pooled, table: int, how: Pooling, size: int, ids: Memory, offsets: Optional[Memory], weights: Optional[int], out: int, stride: int,
    row: Optional[RowFormat] = None, first: int = 0, bags: int = 0,
) -> None:  # fmt: skip
    """Fills the library's structure. ``bags`` is how many of those that offsets describe are chosen, from ``first`` on; 0: all. ``row`` is what the bytes of rows are, if they
    are float8 values that the table's type does not say."""
    to.size, to.table, to.bag = ctypes.sizeof(_abi.Pooled), table, size
    to.ids, to.id_type, to.n = ids
    to.mode, to.output, to.last_offset = how.mode, how.output.code, offsets is not None and how.last
    to.offsets, to.offset_type, to.offset_count = offsets or (None, _abi.INT64, 0)
    to.weights, to.out, to.out_stride = weights, out, stride
    to.first_bag, to.bags = first, bags
    if how.padding is not None:
        to.has_padding, to.padding = 1, how.padding
    if row is not None:
        to.float8, to.float8_factor = _abi.DTYPE[row.values], row.scale
        if row.block:
            to.float8_scales, to.float8_block = _abi.FLOAT8_E8M0, row.block


def embedding_bag(
    table: Table, ids: Any, offsets: Any = None, mode: str = "sum", weights: Any = None, last: bool = False, padding: Optional[int] = None, dtype: Any = None,
    out: Any = None, each: bool = False,
) -> Any:  # fmt: skip
    """``Table.embedding_bag`` with NumPy arrays. With ``each``, every row is a bag of its own, for ids of any shape: ``Table.gather`` with elements of another type."""
    numbers = host_ids(ids, len(table))
    of, row_shape = summed(table)
    how = pooling(of, len(table), mode, last, padding, dtype, weights is not None)
    positions = None if offsets is None else host_ids(offsets, numbers.size + 1, "offsets")
    if positions is not None and positions.ndim != 1:
        raise ArgumentError(f"tensorcache: offsets (shape {positions.shape}) must have one axis")
    factors = None if weights is None else np.asarray(weights)
    if factors is not None:
        if factors.dtype.kind in "bcOSUMm":
            raise TypeError(f"tensorcache: per_sample_weights ({factors.dtype}) must be real numbers")
        factors = np.ascontiguousarray(factors, dtype=np.float32)
        if factors.shape != numbers.shape:
            raise ArgumentError(f"tensorcache: per_sample_weights (shape {factors.shape}) must have the shape of ids, {numbers.shape}")
    if each:
        shape, size = (*numbers.shape, *row_shape), 1
    else:
        bags, size = bags_of(numbers.shape, None if positions is None else positions.size, last)
        shape = (bags, *row_shape)
    stride = 0 if out is None else table._row_stride(out, shape, how.output, len(row_shape))
    out = np.empty(shape, how.output.numpy) if out is None else out
    if size == 0 and positions is None:  # bags without rows
        out[...] = 0
        return out
    batch = _abi.Pooled()
    structure(
        batch, table._index, how, size, in_memory(numbers), None if positions is None else in_memory(positions), None if factors is None else factors.ctypes.data,
        out.ctypes.data, stride,
    )  # fmt: skip
    check(library().tc_gather_pooled_host(table._handle, -1, ctypes.byref(batch), 1))
    return out
