"""``Cache``: the tables that one budget of GPU memory serves."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional

from . import _abi
from ._elements import Element
from ._library import check, forked, forward_logs, library, take_json
from ._checks import Size, format_size, html, parse_size
from ._plan import plan_tables
from .errors import ArgumentError, ClosedError

if TYPE_CHECKING:
    from .table import Table

# The caches of this process, by the process that opened them and random bytes: what pickled references refer to. Containers use process numbers again.
caches: weakref.WeakValueDictionary[tuple[int, bytes], Cache] = weakref.WeakValueDictionary()


class Cache(Mapping[str, "Table"]):
    """The tables of one ``tensorcache.open``, by name. ``cache["paper"][ids]`` returns rows.

    It is safe for use by any number of threads. ``close()``, or leaving a ``with`` block, frees its memory; so does the garbage collector once
    nobody holds the cache or a table of it.
    """

    def __init__(
        self, handle: int, tables: dict[str, tuple[Element, tuple[int, ...]]], adopted: list[object], sources: dict[str, str], address: Optional[tuple[str, dict[str, Any]]] = None
    ) -> None:
        self._handle = handle
        # Where other processes can attach, and the options that they do it with.
        self._address = address
        self._key = os.getpid(), os.urandom(8)
        caches[self._key] = self
        self._described = tables
        self._sources = sources
        self._opening: dict[str, dict[str, Any]] = {}  # how open was called, for plans of each table; empty for the cache of another process
        self._lock = threading.RLock()  # of _tables, and of the tables' numbers of rows
        self._tables: weakref.WeakValueDictionary[str, Table] = weakref.WeakValueDictionary()
        # adopted keeps the memory of adopted tables alive until the library has given it back.
        self._finalizer = weakref.finalize(self, _close, handle, adopted)
        self._devices = _devices(handle)

    # ---- the tables

    def __getitem__(self, name: str) -> Table:
        from .table import Table

        found = self._tables.get(name)
        if found is not None:
            return found
        library()  # raises in a child of fork, where another thread of the parent may have held the lock
        with self._lock:
            found = self._tables.get(name)
            if found is None:
                of, shape = self._described[name]
                found = self._tables[name] = Table(self, list(self._described).index(name), name, of, shape, self._sources.get(name, ""))
            return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._described)

    def __len__(self) -> int:
        return len(self._described)

    # ---- devices

    @property
    def backend(self) -> str:
        """``"cuda"``, or ``"host"`` if the processors serve the rows."""
        return "cuda" if self._devices[0][0] == _abi.BACKEND_CUDA else "host"

    @property
    def gpus(self) -> list[int]:
        """The ordinals of the GPUs, empty on the host backend. -1 is a GPU of the owner of an attached cache that this process does not see."""
        return [gpu for backend, gpu, _ in self._devices if backend == _abi.BACKEND_CUDA]

    @property
    def device_names(self) -> list[str]:
        """The names of the devices."""
        return [name for _, _, name in self._devices]

    # ---- planning

    def plan(self, ids: Mapping[str, Any], target_hit: "float | str | list[float | str]" = "90%", **options: Any) -> dict[str, Any]:
        """Returns how much GPU memory a hit rate of all tables together takes, as ``Table.plan`` does for one.

        ``ids`` has for each table its row numbers, or the path of a file with them. The first three quarters of each train the caches.
        """
        if set(ids) != set(self):
            raise ArgumentError(f"tensorcache: ids ({', '.join(map(str, ids))}) must be of the tables {', '.join(self)}")
        return plan_tables(list(self.values()), ids, target_hit, None, **options)

    # ---- changing

    def refresh(self) -> None:
        """Replaces cached rows by rows that are used more, in one cycle, and returns when those are served. Reads go on meanwhile."""
        check(library().tc_refresh(self._handle))
        forward_logs()

    def set_gpu_memory(self, size: Size) -> None:
        """Changes the budget of each device: ``size`` is bytes or a text, ``"10GB"``. A percentage is of the tables' bytes. Rows beyond a smaller budget are withdrawn."""
        stats = self.stats()
        whole = sum(int(table.get("raw_bytes", 0)) for table in stats.get("tables", []))
        check(library().tc_set_gpu_memory(self._handle, parse_size(size, whole)))

    def snapshot(self, path: "str | os.PathLike[str]") -> None:
        """Writes which rows are cached to a file, for ``open(..., restore=path)``."""
        check(library().tc_snapshot(self._handle, os.fsencode(path)))

    def close(self) -> None:
        """Waits for reads under way, then frees all memory. Later calls raise ``ClosedError``. CUDA graphs with reads of it must not be replayed."""
        close = self._finalizer.detach()
        if close is not None:
            _, function, arguments, _ = close
            function(*arguments)
        forward_logs()

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return not self._finalizer.alive

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], e: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    # ---- knowing

    def check(self, wait: bool = True) -> None:
        """Raises ``RowError`` if a read since the last check had row numbers on a GPU that lie outside its table; their rows are zeros.

        Row numbers in host memory are checked at once. Those on a GPU are checked there, and a later read, at the latest this call, reports them.
        ``wait`` waits for reads under way, without it only finished ones count, and what was wrong with a replay of a CUDA graph is raised some milliseconds after
        its end. With it, an attached cache raises ``OwnerError`` if since the last check a
        CUDA graph was replayed that had captured a read before the cache attached to another owner: it has read the rows of the one before.
        """
        check(library().tc_check(self._handle, int(wait)))

    def stats(self) -> dict[str, Any]:
        """Returns counters since the opening, and what is cached: of all tables together, and of each under ``"tables"``. Keys that end in ``_bytes`` are bytes."""
        found: dict[str, Any] = take_json(library().tc_stats_json, self._handle, -1)
        forward_logs()
        return found

    def _repr_html_(self) -> str:
        """What notebooks show: a line for each table."""
        return html([table._facts() for table in self.values()], "tensorcache.Cache")

    def __repr__(self) -> str:
        if self.closed:
            return f"<tensorcache.Cache of {', '.join(self._described)}, closed>"
        if forked():
            return f"<tensorcache.Cache of {', '.join(self._described)}, of another process>"
        try:
            stats = self.stats()
        except ClosedError:
            return f"<tensorcache.Cache of {', '.join(self._described)}, closed>"
        tables = ", ".join(f"{name} {list(shape)}" for name, (_, shape) in self._described.items())
        return f"<tensorcache.Cache of {tables} on {', '.join(self.device_names)}: {stats['rows_cached']:,} rows cached, {format_size(stats['host_taken_bytes'])} of host memory>"

    # ---- copies and other processes

    def __copy__(self) -> Cache:
        return self

    def __deepcopy__(self, memo: Any) -> Cache:
        return self

    def __reduce__(self) -> Any:
        from ._elsewhere import cache_of

        return cache_of, (self._key, self._address, self._described)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def _close(handle: int, adopted: list[object]) -> None:
    if not forked():
        library().tc_close(handle)
    adopted.clear()


def _devices(handle: int) -> list[tuple[int, int, str]]:
    count = ctypes.c_int32()
    check(library().tc_device_count(handle, ctypes.byref(count)))
    found = []
    for i in range(count.value):
        info = _abi.DeviceInfo()
        check(library().tc_device_get_info(handle, i, ctypes.byref(info)))
        found.append((info.backend, info.gpu, info.name.decode(errors="replace")))
    return found
