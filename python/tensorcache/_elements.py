"""Element types of tables, under their names in NumPy, torch and the library.

NumPy has no bfloat16 and no float8. Arrays of such elements are ``ml_dtypes`` arrays, or unsigned integers of the same bits with the
``dtype`` argument of ``tensorcache.open``; results are what ``ml_dtypes`` calls them if the program has imported it, else unsigned integers
of the same bits. Further types of ``ml_dtypes`` that take a byte each, int4 and float8_e4m3fnuz among them, are bytes to the library and in tensors: ``rows.view(dtype)``.

Rows of parts of different types are rows of bytes here. The library takes their parts as a text: ``"float8_e4m3fn*256,float8_e8m0fnu*8"``.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from . import _abi
from .errors import ArgumentError


@dataclass(frozen=True)
class Element:
    """An element type.

    ``name`` is what torch calls it, and NumPy, if that has it. ``bits`` is the unsigned integer of its length that NumPy has.
    """

    name: str
    size: int

    @property
    def bits(self) -> np.dtype[Any]:
        return np.dtype(f"uint{8 * self.size}")

    @property
    def numpy(self) -> np.dtype[Any]:
        """The dtype of NumPy arrays of such elements."""
        if self.name not in NOT_IN_NUMPY:
            return np.dtype(self.name)
        module = sys.modules.get("ml_dtypes")
        known = getattr(module, self.name, None)
        return self.bits if known is None else np.dtype(known)

    @property
    def served(self) -> str:
        """The library's name."""
        return self.name if self.name in _abi.DTYPE else "uint8"

    @property
    def code(self) -> int:
        """The library's number."""
        return _abi.DTYPE[self.served]

    def torch(self) -> Any:
        """The torch dtype."""
        import torch

        known = getattr(torch, self.served, None)
        if not isinstance(known, torch.dtype):
            raise ArgumentError(f"tensorcache: dtype ({self.name}) is not in torch {torch.__version__}")
        return known


# Types of ml_dtypes that the library has no name for.
_BYTES = (
    "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz", "float8_e4m3", "float8_e3m4", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn", "int4", "uint4", "int2", "uint2", "int1",
    "uint1",
)  # fmt: skip
NOT_IN_NUMPY = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", *_BYTES)

_ALL = {name: Element(name, size) for name, size in (*_abi.ELEMENT_BYTES.items(), *dict.fromkeys(_BYTES, 1).items())}
_OF_CODE = {code: _ALL[name] for name, code in _abi.DTYPE.items()}


def described(info: _abi.TableInfo) -> tuple[Element, tuple[int, ...]]:
    """Returns the element type and the shape of a table."""
    return _OF_CODE[info.dtype], tuple(info.shape[: info.axes])


def element(dtype: object) -> Element:
    """Returns the element type of a name, a NumPy dtype or a torch dtype."""
    name = dtype if isinstance(dtype, str) else None
    torch = sys.modules.get("torch")
    if name is None and torch is not None and isinstance(dtype, torch.dtype):
        name = str(dtype).removeprefix("torch.")
    if name is None or name not in _ALL:
        try:
            name = np.dtype(dtype).name  # type: ignore[call-overload]
        except TypeError:
            pass
    found = _ALL.get(name or "")
    if found is None:
        raise TypeError(f"tensorcache: dtype ({dtype}) must be one of {', '.join(_ALL)}")
    return found


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
