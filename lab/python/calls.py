"""What a read costs the Python thread, and what it keeps of the library's rate.

    python calls.py --device cuda --json calls.json

One line for each figure; the JSON has the same names. On a GPU it needs torch with CUDA; with --device host it measures the host backend.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any, Callable

import torch

import tensorcache

ROWS, COLUMNS = 1_000_000, 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "host"))
    parser.add_argument("--json", help="file for the figures")
    args = parser.parse_args()
    on = "cuda" if args.device == "cuda" else "cpu"
    table = torch.randn(ROWS, COLUMNS)
    found: dict[str, Any] = {"device": torch.cuda.get_device_name() if on == "cuda" else "host", "torch": torch.__version__}
    with tensorcache.open(table, "130%", device=args.device, codec="none") as x:  # with room for the hashmap: every row is cached
        found["rows_cached"] = x.stats()["rows_cached"]
        found.update(cost(x, on))
        found.update(rate(x, on))
    for name, value in found.items():
        print(f"{name:32}{value}", flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n")


def micros(call: Callable[[], object], on: str, n: int = 300) -> float:
    """The least mean time of a call on the Python thread, in microseconds. The GPU is idle when each series begins."""
    best = float("inf")
    for _ in range(15):
        synchronize(on)
        began = time.perf_counter()
        for _ in range(n):
            call()
        best = min(best, (time.perf_counter() - began) / n)
    synchronize(on)
    return round(best * 1e6, 2)


def cost(x: Any, on: str) -> dict[str, Any]:
    ids = torch.randint(0, ROWS, (64,), device=on)
    out = torch.empty(64, COLUMNS, device=on)
    x[ids]
    read = micros(lambda: x[ids], on)
    into = micros(lambda: x.gather(ids, out=out), on)
    plain = micros(lambda: (torch.empty(64, COLUMNS, device=on), out.add_(1)), on)
    operator = micros(lambda: torch.ops.tensorcache.gather(ids, x._reads().key), on)
    return {
        "read_us": read, "read_out_us": into, "empty_and_launch_us": plain, "beyond_us": round(read - plain, 2), "operator_us": operator,
    }  # fmt: skip


def rate(x: Any, on: str) -> dict[str, Any]:
    """Reads of 200,000 rows by x[ids], beside torch.empty and the library's call, in turns."""
    ids = torch.randint(0, ROWS, (200_000,), device=on)
    stream = torch.cuda.current_stream().cuda_stream if on == "cuda" else None
    library = tensorcache._library.library()

    def bare() -> torch.Tensor:
        out = torch.empty(200_000, COLUMNS, device=on)  # the same memory for both, as it is dropped at once
        arguments = (x._handle, 0, 0, ids.data_ptr(), 8, ids.numel(), out.data_ptr(), 0)
        status = library.tc_gather(*arguments, stream, None) if on == "cuda" else library.tc_gather_host(*arguments)
        assert status == 0
        return out

    times: dict[str, list[float]] = {"read": [], "bare": []}
    for name, call in (("read", lambda: x[ids]), ("bare", bare)) * 40:
        times[name].append(seconds(call, on))
    read, plain = statistics.median(times["read"][5:]), statistics.median(times["bare"][5:])
    assert torch.equal(x[ids], bare())
    return {
        "rows_200000_ms": round(1e3 * read, 4), "library_200000_ms": round(1e3 * plain, 4), "rate_ratio": round(plain / read, 4),
        "rows_200000_gb_per_second": round(ids.numel() * COLUMNS * 4 / read / 1e9, 1),
    }  # fmt: skip


def seconds(call: Callable[[], object], on: str) -> float:
    if on != "cuda":
        began = time.perf_counter()
        call()
        return time.perf_counter() - began
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(10):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e4


def synchronize(on: str) -> None:
    if on == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
