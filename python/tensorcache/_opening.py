"""Opens a cache in the library, in a way that Ctrl-C can interrupt and that shows how far it is."""

from __future__ import annotations

import ctypes
import logging
import sys
import time
from collections.abc import Callable
from typing import Any, Optional, Union

from . import _abi
from ._library import check, forward_logs, library

log = logging.getLogger("tensorcache")

# Told the table's index, the rows read and all its rows.
Progress = Callable[[int, int, int], object]

_POLL = 0.05  # seconds between looks at progress and at Ctrl-C
_PATIENCE = 2.0  # seconds before a bar appears


def open_cache(config: Any, tables: Any, names: list[str], progress: Union[bool, Progress, None]) -> int:
    """Opens a cache and returns its handle.

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


class _Watch:
    """Reports the progress of an opening."""

    def __init__(self, names: list[str], progress: Union[bool, Progress, None]) -> None:
        self._names = names
        self._call = progress if callable(progress) else None
        self._bar: Optional[_Bar] = None
        self._after: Optional[float] = None
        if progress is True:
            self._after = time.monotonic()
        elif progress is None and sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty():
            self._after = time.monotonic() + _PATIENCE
        self._state = _abi.Progress()
        self._told = (-1, -1)

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
            self._bar.show(what, state.rows, state.of)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.close()


class _Bar:
    """A line on stderr that says how far loading is."""

    def __init__(self) -> None:
        self._shown = ""

    def show(self, what: str, rows: int, of: int) -> None:
        line = f"{what}: {100 * rows // of if of else 0} %"
        if line != self._shown:
            sys.stderr.write("\r" + line.ljust(len(self._shown)))
            sys.stderr.flush()
            self._shown = line

    def close(self) -> None:
        sys.stderr.write("\n")


class _TqdmBar(_Bar):
    def __init__(self, bar: Any) -> None:
        super().__init__()
        self._tqdm = bar

    def show(self, what: str, rows: int, of: int) -> None:
        bar = self._tqdm
        if what != self._shown:
            bar.reset(total=of)
            bar.set_description(what)
            self._shown = what
        bar.total = of
        bar.update(rows - bar.n)

    def close(self) -> None:
        self._tqdm.close()


def _bar() -> _Bar:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Bar()
    return _TqdmBar(tqdm(unit="row", unit_scale=True))
