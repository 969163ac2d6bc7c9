"""Element types of tables, under their names in NumPy, torch and the library.

NumPy has no bfloat16 and no float8. Arrays of such elements are ``ml_dtypes`` arrays, or unsigned integers of the same bits with the
``dtype`` argument of ``tensorcache.open``; results are what ``ml_dtypes`` calls them if the program has imported it, else unsigned integers
of the same bits.
"""

from __future__ import annotations

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
    def code(self) -> int:
        """The library's number."""
        return _abi.DTYPE[self.name]

    def torch(self) -> Any:
        """The torch dtype."""
        import torch

        known = getattr(torch, self.name, None)
        if not isinstance(known, torch.dtype):
            raise ArgumentError(f"tensorcache: dtype ({self.name}) is not in torch {torch.__version__}")
        return known


NOT_IN_NUMPY = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")

_ALL = {name: Element(name, size) for name, size in _abi.ELEMENT_BYTES.items()}
_OF_CODE = {code: _ALL[name] for name, code in _abi.DTYPE.items()}


def of_code(code: int) -> Optional[Element]:
    """Returns the element type of a number of tc_dtype, which files of pages have too. None for other numbers."""
    return _OF_CODE.get(code)


def described(info: _abi.TableInfo) -> tuple[Element, tuple[int, ...]]:
    """Returns the element type and the shape of a table."""
    return _OF_CODE[info.dtype], (info.rows, info.columns)


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
