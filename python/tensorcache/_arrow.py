"""Tables in Parquet files and of Arrow data: columns of numbers, or of lists of numbers that all have one length. pyarrow is imported when there is one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, Optional

import numpy as np

from .errors import ArgumentError, Error, FileError

Array = np.ndarray[Any, Any]

_END = re.compile(r"\.parquet(?=:|$)", re.IGNORECASE)
_BATCH = 1 << 16  # rows of a Parquet file that are decoded at a time


def is_parquet(path: str) -> bool:
    """Says whether a path is that of a Parquet file, perhaps with names of columns behind a colon."""
    return _END.search(path) is not None


def read_parquet(path: str) -> tuple[Array, str]:
    """Returns the columns of a Parquet file side by side, and what they are called: the file, or the column if it is given. ``"f.parquet:a,b"`` names columns."""
    pq = _pyarrow("pyarrow.parquet")
    end = _END.search(path)
    at = end.end() if end else len(path)
    names = path[at + 1 :].split(",") if path[at:] else None
    try:
        file = pq.ParquetFile(path[:at])
    except FileNotFoundError:
        raise FileNotFoundError(f"tensorcache: source cannot be read: {path[:at]}: no such file") from None
    except Exception as e:
        raise FileError(f"tensorcache: source cannot be read: {path[:at]}: {e}") from e
    with file:
        known = file.schema_arrow.names
        for name in names or ():
            if name not in known:
                raise ArgumentError(f"tensorcache: source ({path}): column {name!r} must be one of {', '.join(map(repr, known))}")
        batches = (list(zip(batch.schema.names, batch.columns)) for batch in file.iter_batches(_BATCH, columns=names))
        rows = _side_by_side(batches, file.metadata.num_rows, path)
    stem = os.path.splitext(os.path.basename(path[:at]))[0]
    return rows, names[0] if names and len(names) == 1 else stem


def is_arrow(source: object) -> bool:
    """Says whether an object has Arrow data: by the Arrow PyCapsule interface, as those of pyarrow and polars."""
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__")


def read_arrow(source: Any) -> Array:
    """Returns the columns of an Arrow table side by side, or an array: without a copy if there is one column in one piece."""
    pa, kind = _pyarrow("pyarrow"), type(source).__name__
    if not isinstance(source, (pa.Table, pa.RecordBatch)):
        if isinstance(source, (pa.Array, pa.ChunkedArray)):
            source = pa.table({"features": source})
        elif hasattr(source, "__arrow_c_stream__"):
            source = pa.table(source)
        else:
            source = pa.table({"features": pa.array(source)})
    batches = [source] if isinstance(source, pa.RecordBatch) else source.to_batches()
    return _side_by_side(([*zip(batch.schema.names, batch.columns)] for batch in batches), source.num_rows, kind)


def _pyarrow(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as e:
        raise Error("tensorcache: source (Parquet or Arrow) needs pyarrow: pip install tensorcache[arrow]") from e


def _side_by_side(batches: Iterable[list[tuple[str, Any]]], rows: int, source: str) -> Array:
    """Returns the columns of all batches as an array of ``rows`` rows: of one axis for a column of numbers, else of more."""
    out: Optional[Array] = None
    at = 0
    for columns in batches:
        pieces = [_numbers(column, f"tensorcache: source ({source}): column {name!r}", at) for name, column in columns]
        if len(pieces) > 1:
            kinds = {str(piece.dtype) for piece in pieces}
            if len(kinds) > 1:
                raise ArgumentError(f"tensorcache: source ({source}): columns ({', '.join(sorted(kinds))}) must have one type: choose some, as in FILE.parquet:a,b")
            pieces = [np.concatenate([piece.reshape(len(piece), -1) for piece in pieces], axis=1)]
        if not pieces:
            raise ArgumentError(f"tensorcache: source ({source}) must have at least one column")
        (piece,) = pieces
        if len(piece) == rows:
            return piece
        if out is None:
            out = np.empty((rows, *piece.shape[1:]), piece.dtype)
        if piece.shape[1:] != out.shape[1:]:
            raise ArgumentError(f"tensorcache: source ({source}): lists ({piece.shape[1:]} elements) from row {at} on must have the length of those before, {out.shape[1:]}")
        out[at : at + len(piece)] = piece
        at += len(piece)
    return np.empty((0, 0), np.float32) if out is None else out


def _numbers(column: Any, what: str, first: int) -> Array:
    """Returns the numbers of a column: of lists as further axes. ``first`` is the number of its first row, for errors."""
    types = _pyarrow("pyarrow.types")
    shape = [len(column)]
    tensors: list[int] = []  # the axes of tensors of a fixed shape, which are stored as lists
    if isinstance(column, _pyarrow("pyarrow").ExtensionArray):
        tensors = list(getattr(column.type, "shape", None) or ())
        column = column.storage
    while True:
        if column.null_count:
            raise ArgumentError(f"{what} ({column.null_count} nulls from row {first} on) must have none")
        of = column.type
        if types.is_fixed_size_list(of):
            length = of.list_size
        elif types.is_list(of) or types.is_large_list(of):
            lengths = np.diff(column.offsets.to_numpy())
            length = int(lengths[0]) if len(lengths) else 0
            if (lengths != length).any():
                row = first + int((lengths != length).argmax())
                raise ArgumentError(f"{what} must have lists of one length: that of row {row} has {lengths[row - first]} elements, those before {length}")
        else:
            break
        column = column.flatten()
        shape.append(length)
    if not (types.is_integer(of) or types.is_floating(of) or types.is_boolean(of)):
        raise ArgumentError(f"{what} ({of}) must have numbers, or lists of numbers")
    values: Array = column.to_numpy(zero_copy_only=False)
    return values.reshape([shape[0], *(tensors or shape[1:])])
