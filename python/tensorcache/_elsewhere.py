"""Tables and caches in another process than the one that opened them.

Pickled, a cache is a reference, and a table is one with a name. In the process that opened the cache a reference becomes the cache itself. In another one, such as a
worker of a loader that was started by spawn or forkserver, it attaches at its first use if the cache listens (``open(..., listen=)``) or is attached itself
(``open("unix:PATH")``). If not, it can be carried about, so that loaders can start workers, and any use of it is an ``Error``.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import weakref
from typing import Any, Optional

from ._checks import text
from ._elements import Element
from ._library import library
from ._opening import tables_of
from .cache import Cache, _close, _devices, caches
from .errors import ArgumentError, Error
from .table import Table

_lock = threading.RLock()  # of an object that becomes an attached one
_making = threading.Lock()  # of references in caches
# What attached objects have, and others do not yet.
_OF_CACHE = ("_handle", "_finalizer", "_devices")
_OF_TABLE = ("_handle", "_parts", "_paged", "_gather_host", "_tensors")

Described = dict[str, tuple[Element, tuple[int, ...]]]


def cache_of(key: tuple[int, bytes], address: Optional[tuple[str, dict[str, Any]]], described: Described) -> Cache:
    """Returns the cache of a key. In another process than its own, all references to it are one object, until that is closed."""
    with _making:
        found = caches.get(key)
        if found is None or type(found) is Cache and key[0] != os.getpid() and found.closed:
            found = caches[key] = CacheElsewhere(key, address, described)
        return found


def table_of(cache: Cache, name: str, rows: int, in_graph: bool) -> Table:
    """Returns a table of a cache, of which so many rows are known. ``in_graph`` is whether it is data of a PyG graph."""
    table = cache[name]
    if isinstance(table, TableElsewhere):
        table._rows = max(table._rows, rows)
    if in_graph:
        from ._graph_data import admitted

        admitted(table)
    return table


class CacheElsewhere(Cache):
    """The cache of another process, to which this one has not attached."""

    def __init__(self, key: tuple[int, bytes], address: Optional[tuple[str, dict[str, Any]]], described: Described) -> None:
        self._key, self._address, self._described = key, address, described
        self._sources, self._opening, self._lock = {}, {}, threading.RLock()
        self._tables = weakref.WeakValueDictionary()

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_CACHE:
            raise AttributeError(name)
        self.attach(f"the cache of {', '.join(map(repr, self._described))}")
        return getattr(self, name)

    def __getitem__(self, name: str) -> Table:
        with self._lock:
            found = self._tables.get(name)
            if found is None:
                found = self._tables[name] = TableElsewhere(self, name, self._described[name][1][0])
            return found

    def attach(self, what: str) -> None:
        """Becomes an attached cache, or raises an ``Error`` that ``what`` cannot be read here."""
        from ._open import attach

        if self._address is None:
            raise Error(
                f'tensorcache: {what} is open in process {self._key[0]} and cannot be read in another: open it there with listen="unix:PATH", or here, or read it in '
                "the process that opened it (PyG loaders: filter_per_worker=False)"
            )
        library()  # raises in a child of fork, where another thread of the parent may have held the lock
        with _lock:
            if type(self) is Cache:  # by another thread
                return
            address, options = self._address
            handle = attach(address, **options)
            try:
                there = tables_of(handle)
                if _layout(there) != _layout(self._described):
                    raise ArgumentError(f"tensorcache: {what} cannot be read at {address}: it serves {_said(there)} now, and the reference is to {_said(self._described)}")
                self._devices = _devices(handle)
            except BaseException:
                library().tc_close(handle)
                raise
            self._finalizer = weakref.finalize(self, _close, handle, [])
            self._handle = handle
            self.__class__ = Cache  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<tensorcache.Cache of {', '.join(self._described)}, of process {self._key[0]}>"


class TableElsewhere(Table):
    """A table of a cache of another process, not attached."""

    def __init__(self, cache: Cache, name: str, rows: int) -> None:
        of, shape = cache._described[name]
        self._cache, self._index, self._name = cache, list(cache._described).index(name), name
        self._element, self._row_shape, self._rows, self._source = of, shape[1:], rows, ""
        self._uses_torch = "torch" in sys.modules

    def __getattr__(self, name: str) -> Any:
        if name not in _OF_TABLE:
            raise AttributeError(name)
        cache = self._cache
        if isinstance(cache, CacheElsewhere):
            cache.attach(f"table {self._name!r}")
        with _lock:
            if isinstance(self, TableElsewhere):
                Table.__init__(self, cache, self._index, self._name, self._element, (self._rows, *self._row_shape), "")
                self._become(Table)
        return getattr(self, name)

    def _facts(self) -> list[str]:
        return [self._what(), f"of process {self._cache._key[0]}"]


def _layout(tables: Described) -> list[tuple[Optional[bytes], str, int]]:
    """Returns what reads rely on: the order of the tables, and the name, element type and bytes of a row of each, as the library has them."""
    return [(text(name), of.served, math.prod(shape[1:]) * of.size) for name, (of, shape) in tables.items()]


def _said(tables: Described) -> str:
    return ", ".join(f"{name} {of.name}{list(shape)}" for name, (of, shape) in tables.items())
