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
from .errors import Error


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs the command line and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tensorcache", description=__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="plan|bench")
    plan, bench = (
        commands.add_parser(name, allow_abbrev=False, help=says, epilog=f"All flags of cachebench {of} are taken too (docs/cachebench.md), such as {flags}.")
        for name, of, says, flags in (
            ("plan", "plan", "how many bytes of GPU memory a hit rate takes", "--codec, --policy, --fanouts, --batch-size, --batches, --check"),
            ("bench", "run", "runs a workload through a cache, and through an uncompressed one of the same budget", "--codec, --policy, --batches, --refresh-batches, --device"),
        )
    )
    plan.add_argument("--target-hit", help="hit rate to reach: 90%% (default) or 0.9, or several: 50%%,90%%")
    plan.add_argument("--device-memory", help="memory of a GPU, such as 80GiB: says what fits")
    bench.add_argument("--gpu-memory", help="memory of the cache: 5%% of the table (default), 64MiB or bytes")
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
        found = run(known.command, {**config, "report": not known.json})
    except ValueError as e:
        parser.error(_with_flags(str(e), config))
    except Error as e:
        print(_with_flags(str(e), config), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(json.dumps(found, indent=1) if known.json else found["report"].rstrip())
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


if __name__ == "__main__":
    sys.exit(main())
