"""Checks of arguments that several calls have, and sizes of memory as people write them."""

from __future__ import annotations

import re
from html import escape
from typing import Any, Optional, Union

import numpy as np

from .errors import ArgumentError

Size = Union[int, float, str]

_UNITS = {"": 1, "k": 10**3, "ki": 2**10, "m": 10**6, "mi": 2**20, "g": 10**9, "gi": 2**30, "t": 10**12, "ti": 2**40}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%|(?:[kmgt]i?)?b|[kmgt]?)\s*", re.IGNORECASE)


def integer(value: Any, what: str, least: Optional[int] = None, most: Optional[int] = None) -> int:
    """Returns an int, of Python or NumPy, that lies in a range if there is one."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"tensorcache: {what} ({value!r}) must be an int")
    if least is not None and most is not None and not least <= value <= most:
        raise ArgumentError(f"tensorcache: {what} ({value}) must be between {least} and {most}")
    return int(value)


def number(value: Any, what: str, least: float, most: float, unit: str = "") -> float:
    """Returns a number that lies in a range."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"tensorcache: {what} ({value!r}) must be a number")
    if not least <= value <= most:
        raise ArgumentError(f"tensorcache: {what} ({value!r}) must be {least} to {f'{most:g}'.replace('e+0', 'e')}{unit}")
    return float(value)


def instance(value: Any, what: str, kind: type) -> Any:
    """Returns a value of a type."""
    if not isinstance(value, kind):
        raise TypeError(f"tensorcache: {what} ({value!r}) must be a {kind.__name__}")
    return value


def choice(value: Any, what: str, choices: Any) -> Any:
    """Returns one of some texts."""
    if value not in choices:
        raise ArgumentError(f"tensorcache: {what} ({value!r}) must be one of {', '.join(map(repr, choices))}")
    return value


def text(value: Any) -> Optional[bytes]:
    """Returns a text as C has it, None for None."""
    if value is None:
        return None
    if not isinstance(value, str) or "\0" in value:
        raise TypeError(f"tensorcache: text ({value!r}) must be a str without zero bytes")
    return value.encode(errors="replace")  # names of files need not be UTF-8


def parse_size(size: Size, whole: int, name: str = "gpu_memory") -> int:
    """Returns the bytes of ``size``: a number of bytes, or a text such as ``"10GB"`` (10¹⁰), ``"10GiB"`` (10 × 2³⁰) or ``"25%"`` of ``whole``."""
    if isinstance(size, bool) or not isinstance(size, (int, float, str, np.integer, np.floating)):
        raise TypeError(f"tensorcache: {name} ({size!r}) must be bytes or a text such as '10GB'")
    number: float = size if not isinstance(size, str) else 0
    if isinstance(size, str):
        match = _SIZE.fullmatch(size)
        if match is None:
            raise ArgumentError(f"tensorcache: {name} ({size!r}) must be a size such as '10GB', '512MiB' or '25%'")
        number = float(match[1]) * (whole / 100 if match[2] == "%" else _UNITS[match[2].lower().rstrip("b")])
    if not 1 <= number <= 2**59:
        raise ArgumentError(f"tensorcache: {name} ({size!r}) must be between 1 byte and 2^59 bytes; a share of the table is '10%'")
    return int(number)


def format_size(size: float) -> str:
    """Returns a size with three digits and a unit: ``1.54 GB``."""
    if size < 999.5:
        return f"{size:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        size /= 1000
        if size < 999.5:
            break
    return f"{size:.3g} {unit}"


def html(rows: list[list[str]], caption: str) -> str:
    """Returns a table for notebooks: a line of cells for each row."""
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    return f"<table><caption>{escape(caption)}</caption>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def row_stride(shape: tuple[int, ...], strides: tuple[int, ...], row_axes: int, size: int) -> int:
    """Returns the distance of rows in bytes.

    ``shape`` and ``strides`` (in bytes) are of an array whose last ``row_axes`` axes are a row of elements of ``size`` bytes. Raises ``ArgumentError`` for layouts
    that the library does not write: its rows are contiguous, at one distance from each other.
    """
    lead = len(shape) - row_axes
    row_bytes = size
    for length, stride in zip(reversed(shape[lead:]), reversed(strides[lead:])):
        if length != 1 and stride != row_bytes:
            raise ArgumentError(f"tensorcache: out (strides {strides} in bytes) must have contiguous rows")
        row_bytes *= length
    axes = [(length, stride) for length, stride in zip(shape[:lead], strides[:lead]) if length != 1]
    if not axes or 0 in shape:
        return row_bytes
    distance = expected = axes[-1][1]
    for length, stride in reversed(axes):
        if stride != expected:
            raise ArgumentError(f"tensorcache: out (strides {strides} in bytes) must have all rows at one distance")
        expected *= length
    if distance < row_bytes:
        raise ArgumentError(f"tensorcache: out (strides {strides} in bytes) must have rows that do not overlap")
    return distance
