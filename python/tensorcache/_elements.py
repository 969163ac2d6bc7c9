"""Element types of tables, under their names in NumPy, torch and the library.

NumPy has no bfloat16 and no float8. Arrays of such elements are ``ml_dtypes`` arrays, or unsigned integers of the same bits with the
``dtype`` argument of ``tensorcache.open``; results are what ``ml_dtypes`` calls them if the program has imported it, else unsigned integers
of the same bits.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

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

    def torch(self) -> Any:
        """The torch dtype."""
        import torch

        known = getattr(torch, self.name, None)
        if not isinstance(known, torch.dtype):
            raise ArgumentError(f"tensorcache: dtype ({self.name}) is not in torch {torch.__version__}")
        return known


NOT_IN_NUMPY = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")

_ALL = {
    name: Element(name, size)
    for name, size in {
        "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e8m0fnu": 1,
        "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1,
    }.items()
}  # fmt: skip


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
