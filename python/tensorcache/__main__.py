"""``python -m tensorcache plan`` and ``bench``: how much GPU memory a hit rate takes, and what a cache does for a table."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from typing import Any, Optional

from . import __version__
from ._plan import run
from ._sizes import format_size
from .errors import Error

_MORE = "All flags of cachebench {} are taken too (docs/cachebench.md), such as {}."


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs the command line and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tensorcache", description=__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="plan|bench")
    plan = commands.add_parser(
        "plan",
        allow_abbrev=False,
        help="how many bytes of GPU memory a hit rate takes",
        epilog=_MORE.format("plan", "--codec, --policy, --fanouts, --batch-size, --batches, --check"),
    )
    plan.add_argument("--target-hit", help="hit rate to reach: 90%% (default) or 0.9, or several: 50%%,90%%")
    plan.add_argument("--gpu-memory", help="memory of a GPU, such as 80GiB: says what fits")
    bench = commands.add_parser(
        "bench",
        allow_abbrev=False,
        help="runs a workload through a cache, and through an uncompressed one of the same budget",
        epilog=_MORE.format("run", "--codec, --policy, --fanouts, --batch-size, --batches, --refresh-batches, --device"),
    )
    bench.add_argument("--budget", help="memory of the cache: 5%% of the table (default), 64MiB or bytes")
    bench.add_argument("--verify", action="store_true", help="compare every row with its source")
    for command in (plan, bench):
        command.add_argument("features", nargs="?", help=".npy, .npz or .safetensors file; default: a generated table")
        command.add_argument("--graph", help=".npz with CSR arrays indptr and indices, from which batches are sampled")
        command.add_argument("--ids", help="row numbers to look up instead: a text file with one a line, an .npy file of integers, or a trace")
        command.add_argument("--json", action="store_true", help="print one JSON object")
    known, rest = parser.parse_known_args(arguments)
    config = {key: value for key, value in vars(known).items() if key not in ("command", "json") and value not in (None, False)}
    try:
        config.update(_flags(rest))
        found = run(known.command, config)
    except ValueError as e:
        parser.error(_with_flags(str(e), config))
    except Error as e:
        print(_with_flags(str(e), config), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if known.json:
        json.dump(found, sys.stdout, indent=1)
        print()
    elif known.command == "plan":
        _print_plan(found)
    else:
        _print_bench(found)
    return 0


def _flags(rest: Sequence[str]) -> dict[str, Any]:
    """Returns flags that argparse does not know, for the library to judge: ``--name value``, ``--name=value`` or ``--name``."""
    config: dict[str, Any] = {}
    at = 0
    while at < len(rest):
        name, equals, value = rest[at].partition("=")
        at += 1
        if not name.startswith("--") or len(name) < 3:
            raise ValueError(f"unknown argument {name}")
        if equals:
            found: Any = value
        elif at < len(rest) and not rest[at].startswith("--"):
            found, at = rest[at], at + 1
        else:
            found = True
        config[name[2:].replace("-", "_")] = _value(found)
    return config


def _with_flags(text: str, config: dict[str, Any]) -> str:
    """Returns an error of the library with the flags that were given in place of the keys that it names."""
    for key in config:
        text = re.sub(rf"\b{re.escape(key)} \(", f"--{key.replace('_', '-')} (", text)
    return text.removeprefix("tensorcache: ")


def _value(text: Any) -> Any:
    """Returns a number for a text that is one, as the library's configuration has numbers for numbers."""
    for kind in (int, float):
        try:
            return kind(text) if isinstance(text, str) else text
        except ValueError:
            continue
    return text


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _print_plan(found: dict[str, Any]) -> None:
    table, work = found["table"], found["workload"]
    print(found["verdict"] + "\n")
    print(f"table     {table['name']}: {table['rows']:,} rows of {table['row_bytes']:,} B, {format_size(table['rows'] * table['row_bytes'])}")
    print(f"lookups   {work['kind']}: learned from {work['training_lookups']:,}, judged by {work['lookups']:,} of {work['rows']:,} rows\n")
    head = ["policy", "codec", "target", "gpu_memory", "rows cached", "planned", "low", "high"]
    gpu, checked = bool(found.get("gpu_memory")), any("measured_hit_ratio" in plan for plan in found["plans"])
    rows = []
    for plan in found["plans"]:
        row = [
            plan["policy"], plan["chosen_codec"], ("" if plan["reached"] else "< ") + _percent(plan["target_hit"]), format_size(plan["budget_bytes"]),
            f"{plan['rows']:,}", _percent(plan["predicted_hit_ratio"]), _percent(plan["hit_low"]), _percent(plan["hit_high"]),
        ]  # fmt: skip
        if checked:
            row.append(_percent(plan["measured_hit_ratio"]))
        if gpu:
            row += ["yes" if plan["gpu"]["fits"] else "no", _percent(plan["gpu"]["hit_ratio"])]
        rows.append(row)
    _print_columns([head + ["seen"] * checked + ["fits", "all of it"] * gpu, *rows])
    print("\nlow, high: of the worst and the best eighth of the lookups judged by")
    for place in found.get("placements", ()):
        host = f", {format_size(place['host_memory'])} of host memory" if place.get("host_memory") else ""
        print(f"layout for {format_size(place['gpu_memory'])} of GPU memory{host}: {place['choice'] or 'none'}: {place['why']}")


def _print_bench(found: dict[str, Any]) -> None:
    if "tables" in found:  # several tables: a table of each
        head = ["table", "rows", "codec", "ratio", "rows cached", "hit rate", "hit rate uncompressed"]
        rows = [
            [t["name"], f"{t['rows']:,}", t["codec"], f"{t['compression_ratio']:.2f}", f"{t['rows_cached']:,}", _percent(t["hit_ratio"]),
             _percent(t["uncompressed"]["hit_ratio"])]
            for t in found["tables"]
        ]  # fmt: skip
        _print_columns([head, *rows])
        return
    table, cache, results, plain = found["table"], found["cache"], found["results"], found.get("uncompressed") or {}
    print(f"table     {table['name']}: {table['rows']:,} rows of {table['row_bytes']:,} B, {format_size(table['rows'] * table['row_bytes'])}")
    print(f"device    {found['device']['name']}")
    print(f"batches   {found['workload']['batches']:,} of {found['workload']['kind']}, {results['lookups']:,} lookups\n")

    def both(key: str, form: Any, mine: dict[str, Any]) -> list[str]:
        return [form(mine[key]), form(plain[key]) if key in plain else ""]

    count = "{:,}".format
    rows = [
        ["", "compressed", "uncompressed"],
        ["codec", f"{cache['codec']}, {cache['compression_ratio']:.2f}×", "none"],
        ["rows cached", *both("rows_cached", count, cache)],
        ["hit rate", *both("hit_ratio", _percent, results)],
        ["host bytes moved", *both("host_bytes_moved", format_size, results)],
    ]
    _print_columns(rows)
    print(f"\n{results['output_gb_per_second']:.2f} GB/s of rows on this machine")
    if found.get("verified_rows"):
        print(f"{found['verified_rows']:,} rows compared with their source, {found['mismatches']} differ")


def _print_columns(rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        first = [cell.ljust(width) for cell, width in zip(row[:2], widths)]
        print("  ".join([*first, *(cell.rjust(width) for cell, width in zip(row[2:], widths[2:]))]).rstrip())


if __name__ == "__main__":
    sys.exit(main())
