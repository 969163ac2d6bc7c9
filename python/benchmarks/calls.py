"""What a read costs the Python thread, what it keeps of the library's rate, and what many reads, opens and closes leave behind.

    python calls.py --device cuda --json calls.json

One line for each figure; the JSON has the same names. On a GPU it needs torch with CUDA; with --device host it measures the host backend.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import threading
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np
import torch

import tensorcache

ROWS, COLUMNS = 1_000_000, 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "host"))
    parser.add_argument("--calls", type=int, default=1_000_000, help="reads from 8 threads together")
    parser.add_argument("--opens", type=int, default=1000, help="opens and closes")
    parser.add_argument("--json", help="file for the figures")
    args = parser.parse_args()
    on = "cuda" if args.device == "cuda" else "cpu"
    table = torch.randn(ROWS, COLUMNS)
    found: dict[str, Any] = {"device": torch.cuda.get_device_name() if on == "cuda" else "host", "torch": torch.__version__}
    with tensorcache.open(table, "100%", device=args.device, codec="none") as x:
        found.update(cost(x, on))
        found.update(rate(x, on))
        found.update(growth_of_calls(x, on, args.calls))
    found.update(growth_of_opens(args.device, args.opens))
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
    """Reads of 200,000 rows by x[ids], beside the library's call into memory that is there already, in turns."""
    ids = torch.randint(0, ROWS, (200_000,), device=on)
    out = torch.empty(200_000, COLUMNS, device=on)
    reads = x._reads()
    stream = torch.cuda.current_stream().cuda_stream if on == "cuda" else None
    library = tensorcache._library.library()

    def bare() -> None:
        arguments = (x._handle, 0, 0, ids.data_ptr(), 8, ids.numel(), out.data_ptr(), 0)
        status = library.tc_gather(*arguments, stream, None) if on == "cuda" else library.tc_gather_host(*arguments)
        assert status == 0

    times: dict[str, list[float]] = {"read": [], "bare": []}
    for name, call in (("read", lambda: x[ids]), ("bare", bare)) * 40:
        times[name].append(seconds(call, on))
    read, plain = statistics.median(times["read"][5:]), statistics.median(times["bare"][5:])
    assert torch.equal(x[ids], out) and reads is not None
    return {
        "rows_200000_ms": round(1e3 * read, 4), "library_200000_ms": round(1e3 * plain, 4), "rate_ratio": round(plain / read, 4),
        "rows_200000_gb_per_second": round(out.nbytes / read / 1e9, 1),
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


def growth_of_calls(x: Any, on: str, calls: int) -> dict[str, Any]:
    """Eight threads read a few rows at a time, each on a stream of its own."""
    failed: list[BaseException] = []

    def read(n: int) -> None:
        ids = torch.randint(0, ROWS, (32,), device=on)
        stream = torch.cuda.Stream() if on == "cuda" else None
        try:
            with torch.cuda.stream(stream):
                for _ in range(n):
                    x[ids]
                synchronize(on)
        except BaseException as e:
            failed.append(e)

    def run(n: int) -> float:
        threads = [threading.Thread(target=read, args=(n // 8,)) for _ in range(8)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - began

    run(min(calls, 80_000))
    before = held(on)
    took = run(calls)
    after = held(on)
    if failed:
        raise failed[0]
    return {"calls": calls, "calls_per_second": round(calls / took), **grown("calls", before, after)}


def growth_of_opens(device: str, opens: int) -> dict[str, Any]:
    """Opens and closes a small cache again and again."""
    on = "cuda" if device == "cuda" else "cpu"
    rows = np.random.default_rng(1).standard_normal((1000, 32)).astype(np.float32)

    def cycle() -> None:
        with tensorcache.open(rows, "50%", device=device, codec="none") as x:
            x[torch.arange(100, device=on)]

    for _ in range(30):
        cycle()
    before = held(on)
    began = time.perf_counter()
    for _ in range(opens):
        cycle()
    took = time.perf_counter() - began
    return {"opens": opens, "open_ms": round(1e3 * took / max(1, opens), 3), **grown("opens", before, held(on))}


def held(on: str) -> dict[str, int]:
    """Bytes of the process in host memory, bytes taken on the GPU, and threads of the process."""
    gc.collect()
    taken = 0
    if on == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        taken = total - free
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    return {"host_bytes": resident, "gpu_bytes": taken, "threads": len(os.listdir("/proc/self/task"))}


def grown(what: str, before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {f"{what}_grew_{name}": after[name] - before[name] for name in before}


def synchronize(on: str) -> None:
    if on == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
