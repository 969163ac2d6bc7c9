"""Rows of parts of different types, which the library takes as a text: ``"float8_e4m3fn*256,float8_e8m0fnu*8"``."""

from __future__ import annotations

import math
from typing import Any, Optional

import numpy as np

from ._elements import Element, element
from .errors import ArgumentError


def structured(dtype: object) -> Optional[np.dtype[Any]]:
    """Returns a structured NumPy dtype, or None for what is none."""
    if isinstance(dtype, np.dtype):
        return dtype if dtype.fields else None
    names: Any = dtype
    return np.dtype(names) if isinstance(dtype, list) else None


def fields(dtype: np.dtype[Any]) -> tuple[str, Element, int]:
    """Returns the parts of a structured dtype, of bytes that follow each other without gaps. If all are of one type, the text is empty and the row is so
    many elements of it; else it is so many bytes."""
    found: list[tuple[Element, int]] = []
    described: Any = dtype.fields
    at = 0
    for name in dtype.names or ():
        of, offset = described[name][:2]
        if offset != at:
            raise ArgumentError(f"tensorcache: dtype ({dtype}) must be packed: field {name!r} begins at byte {offset} instead of {at}")
        base, shape = of.subdtype or (of, ())
        if base.fields:
            raise ArgumentError(f"tensorcache: dtype ({dtype}) must not be nested: field {name!r} is structured itself")
        if base.newbyteorder("<") != base:
            raise ArgumentError(f"tensorcache: dtype ({dtype}) must be little-endian: field {name!r} is not")
        found.append((element("uint8" if base == np.dtype("V1") else base), math.prod(shape)))
        at += of.itemsize
    if at != dtype.itemsize:
        raise ArgumentError(f"tensorcache: dtype ({dtype}) must be packed: {dtype.itemsize - at} bytes follow its last field")
    if len({of for of, _ in found}) == 1:
        return "", found[0][0], sum(count for _, count in found)
    return ",".join(f"{of.name}*{count}" if count != 1 else of.name for of, count in found), element("uint8"), at


def parts(dtype: object) -> str:
    """Returns the parts that a ``dtype=`` argument means, ``""`` if it is that of elements."""
    if isinstance(dtype, str) and ("*" in dtype or "," in dtype):
        return dtype
    record = structured(dtype)
    if record is None:
        return ""
    text = fields(record)[0]
    if not text:
        raise ArgumentError(f"tensorcache: dtype ({record}) must have fields of different types, or be the type of its fields")
    return text
