"""Plans and measurements by the library: what the commands ``plan`` and ``run`` of cachebench do."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from ._elements import NOT_IN_NUMPY
from ._ids import host_ids
from ._library import library, take_json
from ._settings import Resident
from .errors import ArgumentError, RowError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._sources import Description
    from .table import Table

# Names of flags until this release, which are still taken.
_RENAMED = {"budget": "gpu_memory", "warmup_batches": "train_batches", "layout": "resident", "target": "resident", "overflow": "max_overflow"}


def _renamed(options: dict[str, Any]) -> dict[str, Any]:
    """Returns options with the flags' names of now, and warns of earlier ones."""
    found = {}
    names = {**_RENAMED, "gpu_memory": "device_memory"} if "target_hit" in options else _RENAMED
    for name, value in options.items():
        if name in names:
            warnings.warn(f"tensorcache: {name} is {names[name]} now; the old name goes with the next release", FutureWarning, stacklevel=5)
        if name != "layout" or value not in ("buddy", "cached"):
            found[names.get(name, name) if name != "layout" else name] = value
    if options.get("layout") in ("buddy", "cached") and found.get("resident") is None:
        found["resident"] = "auto" if options["layout"] == "buddy" else None
    return found


_PIECE = 64 << 20  # bytes of a table that are written to a temporary file at a time


def run(command: str, config: dict[str, Any]) -> dict[str, Any]:
    """Runs ``"plan"`` or ``"bench"`` with the flags of the command, underscores for dashes, and returns what it finds.

    The library works in a thread of its own, so that Ctrl-C ends the wait for it. The work itself then goes on to its end.
    """
    config = _renamed(config)
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


def opening(tables: list[Description], arguments: dict[str, Any], residents: dict[str, Any], batches: list[tuple[int, Any]]) -> dict[str, dict[str, Any]]:
    """Returns, for each table, the arguments of ``open`` as a plan takes them: so it opens its caches in the same way."""
    refresh = arguments["refresh"]
    common: dict[str, Any] = {
        "policy": arguments["policy"] or None,
        "host_tier": arguments["host_tier"],
        "no_equal_rows": not arguments["equal_rows"] or None,
        "seed": arguments["seed"],
        "cold": arguments["cold"] or None,
        "workers": arguments["workers"] or None,
    }
    if refresh is not None:
        settings = refresh if isinstance(refresh, dict) else {}
        common["refresh_batches"] = _CYCLE
        common.update({key: settings.get(of) for key, of in (("refresh_churn", "churn"), ("sample_rate", "accesses")) if settings.get(of)})
        if settings.get("bytes"):
            common["refresh_bytes"] = str(int(settings["bytes"]))
    codec = arguments["codec"]
    found = {}
    for index, name in enumerate(table.name for table in tables):
        trained = sum(numbers.size for table, numbers in batches if table == index)
        own = {**common, "codec": codec if isinstance(codec, str) else codec.get(name, "auto"), "learn": trained or None}
        if arguments["dtype"] is not None and tables[index].path:
            own["dtype"] = tables[index].parts or tables[index].element.served
        if refresh is not None and not trained:
            own["serve"] = True
        if (resident := residents[name]) is not None and resident is not False:
            own = {key: own.get(key) for key in ("codec", "dtype", "policy", "seed", "host_tier", "workers", "learn")}
            if not isinstance(resident, Resident):
                resident = Resident() if resident is True else Resident(int(resident))
            own["resident"], own["max_overflow"] = str(resident.target), resident.max_overflow
        found[name] = own
    return found


# Batches between the refresh cycles of a planned cache, where the cache's own go by seconds.
_CYCLE = 5


def plan_table(table: Table, ids: Any, target_hit: Any, device_memory: Any, **options: Any) -> dict[str, Any]:
    """``Table.plan``."""
    return plan_tables([table], {table.name: ids}, target_hit, device_memory, **options)


def plan_tables(tables: list[Table], ids: Mapping[str, Any], target_hit: Any, device_memory: Any, **options: Any) -> dict[str, Any]:
    """``Table.plan`` and ``Cache.plan``: a plan of tables that share their memory."""
    cache = tables[0].cache
    openings = [cache._opening.get(table.name, {}) for table in tables]
    if len({(str(own.get("codec")), own.get("resident") is not None) for own in openings}) > 1:
        raise ArgumentError("tensorcache: a plan of several tables needs one codec, and all resident or none")
    if len({bool(own.get("serve")) for own in openings}) > 1:
        raise ArgumentError("tensorcache: a plan of several tables needs training batches of all of them, or of none")
    devices = len(cache.device_names)
    config: dict[str, Any] = {"devices": devices if devices > 1 else None, "device": cache.backend, **openings[0]}
    config["target_hit"] = [str(target) for target in target_hit] if isinstance(target_hit, (list, tuple)) else str(target_hit)
    options = _renamed(options)
    config.update(options)
    if device_memory is not None:
        config["device_memory"] = str(device_memory)
    learn, files, lists, lookups, longest = config.get("learn"), [], [], 0, 0
    with tempfile.TemporaryDirectory(prefix="tensorcache-") as folder:
        for index, table in enumerate(tables):
            files.append(table._source or _save(table, os.path.join(folder, f"{index}_{_file_name(table.name)}.npy")))
            given = ids[table.name]
            if isinstance(given, (str, os.PathLike)):
                lists.append(os.fspath(given))
                learn = options.get("learn")
                continue
            parts = given if isinstance(given, (list, tuple)) and given and np.ndim(given[0]) > 0 else [given]
            lists.append(os.path.join(folder, f"{index}_ids.txt"))
            lookups = _save_ids(parts, len(table), lists[-1])
            if len(parts) > 1 and "batch_size" not in options and lookups > longest:
                # The lookups of the table with the most are divided into batches, those of the others into as many.
                longest, config["batch_size"] = lookups, max(1, lookups // len(parts))
        if len(tables) > 1 or (learn and "learn" not in options and 10 * lookups < 11 * learn):
            learn = None  # hardly any would be left to judge by: of such lookups the library takes three quarters
        return run("plan", {**config, "learn": learn, "features": ",".join(files), "ids": ",".join(lists)})


def _save(table: Table, path: str) -> str:
    """Writes the rows of a table, each as one axis, to an .npy file."""
    of = table._element
    if of.name in NOT_IN_NUMPY and of.name != "bfloat16":
        raise ArgumentError(f"tensorcache: plan needs a file for elements of type {of.name}, which .npy files do not have")
    row = table.nbytes // max(1, len(table))
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype("V2") if of.name == "bfloat16" else of.numpy, shape=(len(table), row // of.size))
    step = max(1, _PIECE // row)
    for first in range(0, len(table), step):
        numbers = np.arange(first, min(first + step, len(table)))
        array[first : first + step] = table.gather(numbers).reshape(len(numbers), -1).view(array.dtype)
    array.flush()
    return path


def _save_ids(parts: Any, rows: int, path: str) -> int:
    """Writes row numbers to a file, and returns how many there are."""
    lookups = 0
    with open(path, "w") as f:
        for part in parts:
            numbers = host_ids(part, rows).reshape(-1)
            wrong = numbers[(numbers < 0) | (numbers >= rows)]
            if wrong.size:
                raise RowError(f"tensorcache: ids ({wrong[0]}) must be 0 to {rows - 1}; {wrong.size} of {numbers.size} are out of range")
            f.write("\n".join(map(str, numbers.tolist())) + "\n" if numbers.size else "")
            lookups += numbers.size
    return lookups


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name) or "table"
