"""Opens a cache in the library, or attaches to that of another process, in a way that Ctrl-C can interrupt and that shows how far it is."""

from __future__ import annotations

import ctypes
import logging
import sys
import time
from collections.abc import Callable
from typing import Any, Optional, Union

from . import _abi
from ._elements import Element, described
from ._library import check, forward_logs, library

log = logging.getLogger("tensorcache")

# Told the table's index, the rows read and all its rows.
Progress = Callable[[int, int, int], object]

_POLL = 0.05  # seconds between looks at progress and at Ctrl-C
_SLICE = 0.5  # seconds for which the library tries to reach an owner, before it is looked at Ctrl-C
_PATIENCE = 2.0  # seconds before a bar appears


def open_cache(config: Any, tables: Any, names: list[str], progress: Union[bool, Progress, None], meanwhile: Callable[[], None]) -> int:
    """Opens a cache and returns its handle. ``meanwhile`` is called now and then until it is open.

    ``progress`` is a function that is told how far loading is; True for a bar; None for a bar if it takes long and stderr is a terminal; False for
    none. KeyboardInterrupt, and exceptions of the function, cancel the opening and wait until its memory is freed.
    """
    lib = library()
    opening, cache = ctypes.c_void_p(), ctypes.c_void_p()
    watch = _Watch(names, progress)
    try:
        try:
            check(lib.tc_open_begin(config, tables, len(names), ctypes.byref(opening)))
            while (status := lib.tc_opening_wait(opening, _POLL, ctypes.byref(cache))) == _abi.PENDING:
                watch.look(lib, opening)
                meanwhile()
            meanwhile()
            check(status)
            watch.look(lib, opening, last=True)
        finally:
            lib.tc_opening_destroy(opening)
            watch.end()
            forward_logs()
        return cache.value or 0
    except BaseException:
        lib.tc_close(cache)  # of no cache: nothing
        raise


def attach_cache(address: str, wait: float, config: _abi.AttachConfig) -> int:
    """Attaches to an owner, which it tries to reach for so many seconds, and returns the handle."""
    lib = library()
    handle = ctypes.c_void_p()
    until = time.monotonic() + wait
    try:
        while True:
            config.wait = min(_SLICE, max(0.0, until - time.monotonic()))
            status = lib.tc_attach(address.encode(), ctypes.byref(config), ctypes.byref(handle))
            unreachable = status == _abi.ERROR_OWNER and b"connect: " in lib.tc_last_error()  # else it refuses
            if not unreachable or time.monotonic() >= until:
                break
        check(status)
    finally:
        forward_logs()
    return handle.value or 0


def tables_of(handle: int) -> dict[str, tuple[Element, tuple[int, ...]]]:
    """Returns the element type and shape of each table of a cache."""
    count = ctypes.c_int32()
    check(library().tc_table_count(handle, ctypes.byref(count)))
    tables: dict[str, tuple[Element, tuple[int, ...]]] = {}
    for i in range(count.value):
        info = _abi.TableInfo()
        check(library().tc_table_get_info(handle, i, ctypes.byref(info)))
        name = info.name.decode(errors="replace")
        tables[f"{name} ({i})" if name in tables else name] = described(info)
    return tables


class _Watch:
    """Reports the progress of an opening."""

    def __init__(self, names: list[str], progress: Union[bool, Progress, None]) -> None:
        self._names = names
        self._call = progress if callable(progress) else None
        self._bar: Any = None
        self._after: Optional[float] = None
        if progress is True:
            self._after = time.monotonic()
        elif progress is None and sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty():
            self._after = time.monotonic() + _PATIENCE
        self._state = _abi.Progress()
        self._told = (-1, -1)
        self._what = ""

    def look(self, lib: Any, opening: Any, last: bool = False) -> None:
        state = self._state
        if self._call is None and self._after is None:
            return
        check(lib.tc_opening_progress(opening, ctypes.byref(state)))
        seen = (state.table, state.rows)
        if self._call is not None and seen != self._told and state.of:
            self._told = seen
            self._call(*seen, state.of)
        if self._bar is None and self._after is not None and not last and time.monotonic() >= self._after:
            self._bar = _bar()
        if self._bar is not None:
            what = "filling the cache" if state.filled else f"loading {self._names[state.table]}"
            if what != self._what:
                self._what = what
                self._bar.reset(total=state.of)
                self._bar.set_description(what)
            self._bar.total = state.of
            self._bar.update(state.rows - self._bar.n)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.close()


class _Line:
    """A line on stderr that says how far loading is, with those methods of a bar of tqdm that are used."""

    def __init__(self) -> None:
        self.n = self.total = 0
        self._what = self._shown = ""

    def reset(self, total: int) -> None:
        self.n = 0

    def set_description(self, what: str) -> None:
        self._what = what

    def update(self, rows: int) -> None:
        self.n += rows
        line = f"{self._what}: {100 * self.n // max(1, self.total)} %"
        if line != self._shown:
            sys.stderr.write("\r" + line.ljust(len(self._shown)))
            sys.stderr.flush()
            self._shown = line

    def close(self) -> None:
        sys.stderr.write("\n")


def _bar() -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Line()
    return tqdm(unit="row", unit_scale=True)
