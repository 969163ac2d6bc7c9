"""Attaches to the cache of another process."""

from __future__ import annotations

import ctypes
import time
from typing import Optional, Union

from . import _abi
from ._elements import Element, described
from ._library import check, forward_logs, library, log_level
from .cache import Cache
from .table import Table

_SLICE = 0.5  # seconds for which the library tries to reach an owner, before it is looked at Ctrl-C


def attach(address: str, name: Optional[bytes], workers: int, host_threads: int, wait: float, scratch: int, timeout: float) -> Union[Table, Cache]:
    """Attaches to an owner: see ``open``."""
    lib = library()
    config = _abi.AttachConfig(name=name, workers=workers, host_threads=host_threads, log_level=log_level(), scratch=scratch, timeout=timeout)
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
    try:
        tables = _describe(handle.value or 0)
        cache = Cache(handle.value or 0, tables, [], {})
    except BaseException:
        lib.tc_close(handle)
        raise
    return cache[next(iter(tables))] if len(tables) == 1 else cache


def _describe(handle: int) -> dict[str, tuple[Element, tuple[int, ...]]]:
    """Returns the element type and shape of each table."""
    count = ctypes.c_int32()
    check(library().tc_table_count(handle, ctypes.byref(count)))
    tables: dict[str, tuple[Element, tuple[int, ...]]] = {}
    for i in range(count.value):
        info = _abi.TableInfo()
        check(library().tc_table_get_info(handle, i, ctypes.byref(info)))
        name = info.name.decode(errors="replace")
        tables[f"{name} ({i})" if name in tables else name] = described(info)
    return tables
