"""Which outputs the library can write: rows that are contiguous, at one distance from each other."""

from __future__ import annotations

from .errors import ArgumentError


def row_stride(shape: tuple[int, ...], strides: tuple[int, ...], row_axes: int, size: int) -> int:
    """Returns the distance of rows in bytes.

    ``shape`` and ``strides`` (in bytes) are of an array whose last ``row_axes`` axes are a row of elements of ``size`` bytes. Raises
    ``ArgumentError`` for other layouts than the library writes.
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
