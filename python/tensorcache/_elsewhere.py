"""Tables and caches in another process than the one that opened them.

Pickled, a cache is a reference, and a table is one with a name. In the process that opened the cache a reference becomes the cache itself. In another one, such as a
worker of a loader that was started by spawn or forkserver, it attaches at its first use if the cache listens (``open(..., listen=)``) or is attached itself
(``open("unix:PATH")``). If not, it can be carried about, so that loaders can start workers, and any use of it is an ``Error``.
"""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any, Optional

from ._elements import Element
from ._library import library
from .cache import Cache, caches
from .errors import Error
from .table import Table

_lock = threading.RLock()  # of an object that becomes an attached one
# What attached objects have, and others do not yet.
_OF_CACHE = ("_handle", "_finalizer", "_devices")
_OF_TABLE = ("_handle", "_parts", "_paged", "_gather_host", "_tensors")

Described = dict[str, tuple[Element, tuple[int, ...]]]


def cache_of(key: tuple[int, int], address: Optional[tuple[str, dict[str, Any]]], described: Described) -> Cache:
    """Returns the cache of a key: a process and a number in it."""
    return caches.get(key) or CacheElsewhere(key, address, described)


def table_of(cache: Cache, name: str, rows: int, in_graph: bool) -> Table:
    """Returns a table of a cache, of which so many rows are known. ``in_graph`` is whether it is data of a PyG graph."""
    table = TableElsewhere(cache, name, rows) if isinstance(cache, CacheElsewhere) else cache[name]
    if in_graph:
        from ._graph_data import admitted

        admitted(table)
    return table


class CacheElsewhere(Cache):
    """The cache of another process, to which this one has not attached."""

    def __init__(self, key: tuple[int, int], address: Optional[tuple[str, dict[str, Any]]], described: Described) -> None:
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
            key, tables = self._key, self._tables
            Cache.__init__(self, attach(address, **options), self._described, [], {}, self._address)
            self._key, self._tables = key, tables
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
