"""Checks of arguments that several calls have."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from .errors import ArgumentError


def integer(value: Any, what: str, least: Optional[int] = None, most: Optional[int] = None) -> int:
    """Returns an int, of Python or NumPy, that lies in a range if there is one."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"tensorcache: {what} ({value!r}) must be an int")
    if least is not None and most is not None and not least <= value <= most:
        raise ArgumentError(f"tensorcache: {what} ({value}) must be between {least} and {most}")
    return int(value)


def seconds(value: Any, what: str, least: float) -> float:
    """Returns a time, at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < 1e9:
        raise ArgumentError(f"tensorcache: {what} ({value!r}) must be {least} to 1e9 seconds")
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
