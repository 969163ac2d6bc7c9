"""More of tables than a number says: the ``resident`` and ``pages`` arguments of ``open``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Optional, Union

from . import _abi
from ._checks import Size, choice, instance, integer, number, parse_size
from .errors import ArgumentError

Path = Union[str, "os.PathLike[str]"]
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
        # 0 means the default in the structure. No table has so many rows that the least positive share is one of them.
        structure.resident_overflow = number(self.max_overflow, "max_overflow", 0, 1) or 5e-324
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
    length = integer(value, what)
    if length % 16 or not 16 <= length <= MAX_TARGET:
        raise ArgumentError(f"tensorcache: {what} ({length}) must be a multiple of 16 between 16 and {MAX_TARGET}")
    return length


@dataclass(frozen=True)
class Pages:
    """More of a table of pages: ``open("features.tc", ..., pages=tensorcache.Pages(durable=True))``.

    durable
        Has ``Table.update`` return when the rows are on the drive. Otherwise a machine that fails may lose the latest updates; a process that ends does not.
    log
        The folder of updated rows. None: ``delta`` in the directory; for a table in a cluster, memory, from which they are gone when the cache is closed.
    cold
        The address of a cluster with the same pages as the directory, ``"redis://HOST:PORT/TABLE"`` or ``rediss``: pages that are missing or damaged
        in the directory are read there.
    cold_cache
        A folder of this machine in which pages read from the cluster are kept, also for the next process.
    cold_cache_size
        The most bytes of these pages, as ``gpu_memory``.
    """

    durable: bool = False
    log: Optional[Path] = None
    cold: Optional[str] = None
    cold_cache: Optional[Path] = None
    cold_cache_size: Size = "16GiB"

    def fill(self, structure: _abi.Table, name: str) -> None:
        """Writes the options to the structure of a table. Raises for those that are out of range."""
        if not structure.path:
            raise ArgumentError(f"tensorcache: pages must not be given for table {name}, which is in memory")
        structure.durable = instance(self.durable, "durable", bool)
        structure.cold = None if self.cold is None else instance(self.cold, "cold", str).encode()
        structure.log = None if self.log is None else os.fsencode(self.log)
        if self.cold_cache is not None:
            structure.cold_cache = os.fsencode(self.cold_cache)
            structure.cold_cache_bytes = parse_size(self.cold_cache_size, 0, "cold_cache_size")
