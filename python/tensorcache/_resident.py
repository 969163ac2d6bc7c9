"""How a table is resident: the ``resident`` argument of ``open``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from . import _abi
from ._checks import choice, instance, integer
from .errors import ArgumentError

MAX_TARGET = 2**20  # no row is longer


@dataclass(frozen=True)
class Resident:
    """How a table is resident: ``open(..., resident=tensorcache.Resident(max_target=512, retarget=True))``.

    target
        The bytes of each row's slot in GPU memory, a multiple of 16. ``"auto"`` takes the length with the least expected time of a row within
        ``gpu_memory``.
    max_target
        The bytes of the longest slots that ``Table.retarget`` can give the rows, a multiple of 16: GPU memory is taken for these. None: the length at first.
    max_overflow
        The largest share of rows, 0 to 1, that may be longer than slots whose length is chosen.
    retarget
        Has the table move by itself to slots of another length when more rows than ``max_overflow`` have become longer.
    buddy
        Where what is longer than the slots lies: ``"host"``, page-locked host memory; ``"peer"``, memory of the other GPUs, within ``gpu_memory``; or ``"auto"``,
        the other GPUs if there are any, no table is cached, and they have room, else the host.
    """

    target: Union[int, str] = "auto"
    max_target: Union[int, None] = None
    max_overflow: float = 0.3
    retarget: bool = False
    buddy: str = "host"

    def fill(self, structure: _abi.Table) -> None:
        """Writes the options to a structure. Raises for those that are out of range."""
        structure.resident = 1
        structure.resident_target = target_bytes(self.target)
        if self.max_target is not None:
            structure.resident_max_target = _multiple(self.max_target, "max_target")
        share = self.max_overflow
        if isinstance(share, bool) or not isinstance(share, (int, float, np.integer, np.floating)):
            raise TypeError(f"tensorcache: max_overflow ({share!r}) must be a float")
        if not 0 <= share <= 1:
            raise ArgumentError(f"tensorcache: max_overflow ({share!r}) must be 0 to 1")
        # 0 means the default in the structure. No table has so many rows that the least positive share is one of them.
        structure.resident_overflow = float(share) or 5e-324
        structure.resident_retarget = instance(self.retarget, "retarget", bool)
        structure.resident_buddy = _abi.BUDDY[choice(instance(self.buddy, "buddy", str), "buddy", _abi.BUDDY)]


def target_bytes(target: Any) -> int:
    """Returns the bytes of a slot, 0 for "auto"."""
    if isinstance(target, str):
        if target != "auto":
            raise ArgumentError(f"tensorcache: target ({target!r}) must be 'auto', or bytes: a multiple of 16 between 16 and {MAX_TARGET}")
        return 0
    return _multiple(target, "target")


def _multiple(value: Any, what: str) -> int:
    number = integer(value, what)
    if number % 16 or not 16 <= number <= MAX_TARGET:
        raise ArgumentError(f"tensorcache: {what} ({number}) must be a multiple of 16 between 16 and {MAX_TARGET}")
    return number
