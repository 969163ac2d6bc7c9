"""Plans and measurements by the library: what the commands ``plan`` and ``run`` of cachebench do."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ._elements import NOT_IN_NUMPY
from ._ids import host_ids
from ._library import library, take_json
from .errors import ArgumentError, RowError

if TYPE_CHECKING:
    from .table import Table

_PIECE = 64 << 20  # bytes of a table that are written to a temporary file at a time


def run(command: str, config: dict[str, Any]) -> dict[str, Any]:
    """Runs ``"plan"`` or ``"bench"`` with the flags of the command, underscores for dashes, and returns what it finds.

    The library works in a thread of its own, so that Ctrl-C ends the wait for it. The work itself then goes on to its end.
    """
    lib = library()
    function = {"plan": lib.tc_plan_json, "bench": lib.tc_bench_json}[command]
    given = json.dumps({key: value for key, value in config.items() if value is not None}).encode()
    found: list[dict[str, Any]] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            found.append(take_json(function, given))
        except BaseException as e:  # handed to the caller's thread
            failed.append(e)

    thread = threading.Thread(target=work, name=f"tensorcache {command}", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    if failed:
        raise failed[0]
    return found[0]


def plan_table(table: Table, ids: Any, target_hit: Any, gpu_memory: Any, **options: Any) -> dict[str, Any]:
    """``Table.plan``."""
    config: dict[str, Any] = {"target_hit": str(target_hit), **options}
    if gpu_memory is not None:
        config["gpu_memory"] = str(gpu_memory)
    with tempfile.TemporaryDirectory(prefix="tensorcache-") as folder:
        config["features"] = table._source or _save(table, os.path.join(folder, f"{_file_name(table.name)}.npy"))
        config["ids"] = os.fspath(ids) if isinstance(ids, (str, os.PathLike)) else _save_ids(ids, len(table), os.path.join(folder, "ids.txt"))
        return run("plan", config)


def _save(table: Table, path: str) -> str:
    """Writes the rows of a table, each as one axis, to an .npy file."""
    of = table._element
    if of.name in NOT_IN_NUMPY:
        raise ArgumentError(f"tensorcache: plan needs a file for elements of type {of.name}, which .npy files do not have")
    row = table.nbytes // max(1, len(table))
    array = np.lib.format.open_memmap(path, mode="w+", dtype=of.numpy, shape=(len(table), row // of.size))
    step = max(1, _PIECE // row)
    for first in range(0, len(table), step):
        numbers = np.arange(first, min(first + step, len(table)))
        array[first : first + step] = table.gather(numbers).reshape(len(numbers), -1)
    array.flush()
    return path


def _save_ids(ids: Any, rows: int, path: str) -> str:
    parts = ids if isinstance(ids, (list, tuple)) and ids and np.ndim(ids[0]) > 0 else [ids]
    with open(path, "w") as f:
        for part in parts:
            numbers = host_ids(part, rows).reshape(-1)
            wrong = numbers[(numbers < 0) | (numbers >= rows)]
            if wrong.size:
                raise RowError(f"tensorcache: ids ({wrong[0]}) must be 0 to {rows - 1}; {wrong.size} of {numbers.size} are out of range")
            f.write("\n".join(map(str, numbers.tolist())) + "\n" if numbers.size else "")
    return path


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name) or "table"
