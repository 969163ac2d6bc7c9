"""Loads libtensorcache at its first use, and turns its statuses into exceptions.

The library starts threads when it is loaded, and a child of fork has none of them. So nothing loads it before a cache is opened: a program
may fork before. In a child of a process that had loaded it every call raises ``ForkedError``, without entering the library.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import threading
from typing import Any, NoReturn, Optional

from . import _abi, errors

log = logging.getLogger("tensorcache")

_EXCEPTIONS: dict[int, type[errors.Error]] = {
    _abi.ERROR_ARGUMENT: errors.ArgumentError,
    _abi.ERROR_CLOSED: errors.ClosedError,
    _abi.ERROR_TABLE: errors.ArgumentError,
    _abi.ERROR_ROWS: errors.RowError,
    _abi.ERROR_BUDGET: errors.ArgumentError,
    _abi.ERROR_OUT_OF_MEMORY: errors.OutOfMemoryError,
    _abi.ERROR_FILE: errors.FileError,
    _abi.ERROR_DEVICE: errors.DeviceError,
    _abi.ERROR_CAPTURE: errors.UnsupportedError,
    _abi.ERROR_CORRUPT: errors.CorruptError,
    _abi.ERROR_CANCELLED: errors.CancelledError,
    _abi.ERROR_FORKED: errors.ForkedError,
    _abi.ERROR_OWNER: errors.OwnerError,
}
_LEVELS = {
    _abi.LOG_DEBUG: logging.DEBUG,
    _abi.LOG_INFO: logging.INFO,
    _abi.LOG_WARNING: logging.WARNING,
    _abi.LOG_ERROR: logging.ERROR,
}

_lock = threading.Lock()
_loaded: Optional[Any] = None
_forked = False

_FORKED = (
    "tensorcache: this process (%d) was forked from one that had loaded the library, whose threads did not come along: "
    "open the cache in this process before anything else loads the library, or start workers by spawn"
)


def _mark_fork() -> None:
    global _lock, _forked
    _lock = threading.Lock()  # another thread of the parent may have held it
    _forked = _loaded is not None


os.register_at_fork(after_in_child=_mark_fork)


def forked() -> bool:
    """Says whether this process is a child of one that had loaded the library."""
    return _forked


def library() -> Any:
    """Returns the library with its functions' types declared, and loads it if nothing has yet."""
    if _forked:
        raise errors.ForkedError(_FORKED % os.getpid())
    return _loaded or _load()


def library_path() -> str:
    """The file that is loaded: what the environment variable TENSORCACHE_LIBRARY names, else the one in the package."""
    return os.environ.get("TENSORCACHE_LIBRARY") or os.path.join(os.path.dirname(__file__), "libtensorcache.so")


def _load() -> Any:
    global _loaded
    with _lock:
        if _loaded is None:
            path = library_path()
            try:
                found = ctypes.CDLL(path)
                found.tc_version.restype = ctypes.c_char_p
                version = found.tc_version().decode()
            except (OSError, AttributeError) as e:
                raise errors.LibraryError(f"tensorcache: library ({path}) cannot be loaded: {e}") from e
            if version != _abi.VERSION:
                raise errors.LibraryError(
                    f"tensorcache: library ({path}) is version {version}, and the package is version {_abi.VERSION}: they must be the same. "
                    "Install the package again, or unset TENSORCACHE_LIBRARY"
                )
            try:
                _abi.declare(found)
            except AttributeError as e:
                raise errors.LibraryError(f"tensorcache: library ({path}) lacks a function: {e}") from e
            _loaded = found
    return _loaded


def fail(status: int, text: Optional[str] = None) -> NoReturn:
    """Raises the exception of a status, by default with the text of this thread's last failure."""
    if _forked:
        raise errors.ForkedError(_FORKED % os.getpid())
    text = library().tc_last_error().decode(errors="replace") if text is None else text
    raise _EXCEPTIONS.get(status, errors.Error)(text or f"tensorcache: status {status}")


def check(status: int) -> None:
    """Raises unless the status is TC_OK."""
    if status:
        fail(status)


def take_json(function: Any, *arguments: Any) -> Any:
    """Calls a function whose last argument is a char **, and returns what the text says."""
    text = ctypes.c_void_p()
    check(function(*arguments, ctypes.byref(text)))
    try:
        return json.loads(ctypes.string_at(text.value or 0))
    finally:
        library().tc_free(text)


def log_level() -> int:
    """The level from which the library should keep messages: that of the logger."""
    level = log.getEffectiveLevel()
    return next((ours for ours, theirs in _LEVELS.items() if theirs >= level), _abi.LOG_OFF)


def forward_logs() -> None:
    """Hands the library's messages since the last call to ``logging.getLogger("tensorcache")``."""
    try:
        messages = take_json(library().tc_logs_json)
    except errors.Error:
        return
    for message in messages:
        extra = " ".join(f"{key}={value}" for key, value in (message.get("attributes") or {}).items())
        level = _LEVELS.get(message["level"], logging.INFO)
        if message["message"] == "not loaded":
            level = logging.INFO  # open raises the same
        record = logging.LogRecord(
            log.name, level, library_path(), 0, "tensorcache: %s", (f"{message['message']} {extra}".strip(),), None
        )
        record.created = message["time"]
        if log.isEnabledFor(record.levelno):
            log.handle(record)
