"""Sizes of memory as people write them."""

from __future__ import annotations

import re
from typing import Union

import numpy as np

from .errors import ArgumentError

Size = Union[int, float, str]

_UNITS = {
    "": 1, "b": 1,
    "k": 10**3, "kb": 10**3, "kib": 2**10,
    "m": 10**6, "mb": 10**6, "mib": 2**20,
    "g": 10**9, "gb": 10**9, "gib": 2**30,
    "t": 10**12, "tb": 10**12, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*|%)\s*", re.IGNORECASE)


def parse_size(size: Size, whole: int, name: str = "gpu_memory") -> int:
    """Returns the bytes of ``size``: a number of bytes, or a text such as ``"10GB"`` (10¹⁰), ``"10GiB"`` (10 × 2³⁰) or ``"25%"`` of ``whole``."""
    if isinstance(size, bool) or not isinstance(size, (int, float, str, np.integer, np.floating)):
        raise TypeError(f"tensorcache: {name} ({size!r}) must be bytes or a text such as '10GB'")
    if not isinstance(size, str):
        number = float(size) if isinstance(size, (float, np.floating)) else int(size)
    else:
        match = _SIZE.fullmatch(size)
        unit = match[2].lower() if match else "?"
        if match is None or unit not in _UNITS and unit != "%":
            raise ArgumentError(f"tensorcache: {name} ({size!r}) must be a size such as '10GB', '512MiB' or '25%'")
        number = float(match[1]) * (whole / 100 if unit == "%" else _UNITS[unit])
    if not 1 <= number <= 2**59:
        raise ArgumentError(f"tensorcache: {name} ({size!r}) must be between 1 byte and 2^59 bytes")
    return int(number)


def format_size(size: float) -> str:
    """Returns a size with three digits and a unit: ``1.54 GB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 999.5 or unit == "TB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    raise AssertionError
