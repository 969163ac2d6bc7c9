"""Where the pages and updates of a table are: the ``pages`` argument of ``open``."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any, Optional, Union

from . import _abi
from ._checks import instance
from ._elements import described
from ._headers import Header
from ._library import check, library
from ._sizes import Size, parse_size
from .errors import ArgumentError

Path = Union[str, "os.PathLike[str]"]


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


def is_cluster(path: str) -> bool:
    """Says whether a path is the address of a cluster."""
    return path.startswith(("redis://", "rediss://"))


def cluster_header(path: str) -> Header:
    """Asks a cluster for the shape and the type of a table."""
    structure, info = _abi.Table(path=path.encode()), _abi.TableInfo()
    check(library().tc_table_describe(ctypes.byref(structure), ctypes.byref(info)))
    of, shape = described(info)
    return Header(path, info.name.decode(errors="replace"), shape, of, -1, as_file=True)

