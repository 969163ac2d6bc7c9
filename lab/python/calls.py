"""What x[ids] costs the Python thread beside torch.index_select, how long a read takes, and what a read keeps of the library's rate.

    python calls.py --device cuda --json calls.json

One line for each figure, and last all of them as one line of JSON. On a GPU it needs torch with CUDA; with --device host it measures the host backend. Ids and
output are on the device that is measured, and every row is cached. Times are in microseconds.

host_us is the time of the Python thread for a call, by number of rows: the least mean of series that begin with an idle GPU and are short enough for its queue.
latency_us is from the call to the end of its work on the device, of 4,096 rows. operator is x[ids] through the dispatcher, as in compiled programs; checks is what
asking for tracers costs. python_bytes is the most memory that Python's allocator held during a call, with the output's object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import tracemalloc
from pathlib import Path
from typing import Any, Callable

import torch

import tensorcache
from tensorcache import _extension, _tensors

ROWS, COLUMNS, LATENCY_ROWS, BAG = 1_000_000, 128, 4096, 16
BATCHES = (16, 64, 256, 1024, 4096, 16384)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "host"))
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the table")
    parser.add_argument("--json", help="file for the figures")
    args = parser.parse_args()
    on = "cuda" if args.device == "cuda" else "cpu"
    table = torch.randn(args.rows, COLUMNS)
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if on == "cuda" else "host", "torch": torch.__version__, "extension": _extension.extension is not None,
    }  # fmt: skip
    with tensorcache.open(table, "130%", device=args.device, codec="none") as x:  # with room for the hashmap: every row is cached
        found["rows_cached"] = x.stats()["rows_cached"]
        whole = table.to(on)
        found.update(cost(x, whole, on))
        found.update(latency(x, whole, on))
        found.update(rate(x, on))
    for name, value in found.items():
        print(f"{name:32}{value}", flush=True)
    print(json.dumps(found))
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n")


def micros(call: Callable[[], object], on: str, n: int = 200) -> float:
    """The least mean time of a call on the Python thread, in microseconds. The GPU is idle when each series begins."""
    best = float("inf")
    clock = time.perf_counter if on == "cuda" else time.thread_time
    for _ in range(15):
        synchronize(on)
        began = clock()
        for _ in range(n):
            call()
        best = min(best, (clock() - began) / n)
    synchronize(on)
    return round(best * 1e6, 2)


def reads(x: Any, whole: torch.Tensor, ids: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """The calls that are measured: of this library, and torch's own of the whole table."""
    offsets = torch.arange(0, len(ids), BAG, device=ids.device)
    embedding_bag = torch.nn.functional.embedding_bag
    return {
        "index_select": lambda: torch.index_select(whole, 0, ids), "read": lambda: x[ids],
        "torch_embedding_bag": lambda: embedding_bag(ids, whole, offsets, mode="sum"), "embedding_bag": lambda: x.embedding_bag(ids, offsets, "sum"),
        "torch_gather_as": lambda: torch.index_select(whole, 0, ids).bfloat16(), "gather_as": lambda: x.gather(ids, dtype=torch.bfloat16),
        "operator": lambda: torch.ops.tensorcache.gather(ids, x._reads().key),
    }  # fmt: skip


def cost(x: Any, whole: torch.Tensor, on: str) -> dict[str, Any]:
    host: dict[str, dict[int, float]] = {}
    for n in BATCHES:
        ids = torch.randint(0, len(whole), (n,), device=on)
        for name, call in reads(x, whole, ids).items():
            call()
            host.setdefault(name, {})[n] = micros(call, on, 200 if on == "cuda" else max(3, 3200 // n))
    ids, out = torch.randint(0, len(whole), (64,), device=on), torch.empty(64, COLUMNS, device=on)
    calls = reads(x, whole, ids)
    return {
        "host_us": host,
        "read_ratio": {n: round(host["read"][n] / host["index_select"][n], 2) for n in BATCHES},
        "embedding_bag_ratio": {n: round(host["embedding_bag"][n] / host["torch_embedding_bag"][n], 2) for n in BATCHES},
        "read_us": host["read"][64], "read_out_us": micros(lambda: x.gather(ids, out=out), on),
        "empty_and_launch_us": micros(lambda: (torch.empty(64, COLUMNS, device=on), out.add_(1)), on),
        "checks_us": checks(x, on), "python_bytes": {name: python_bytes(calls[name]) for name in ("index_select", "read", "embedding_bag")},
    }  # fmt: skip


def checks(x: Any, on: str) -> float:
    """What asking for tracers costs a read of one row: the extension's function with and without it. Without the extension the functions that are asked, by themselves."""
    if _extension.extension is None:
        return micros(_tensors.watched, on)
    of, ids = x._reads(), torch.zeros(1, dtype=torch.int64, device=on)
    return round(micros(lambda: of._read(ids), on, 1000) - micros(lambda: of._read_at_once(ids), on, 1000), 2)


def python_bytes(call: Callable[[], object]) -> int:
    """The most memory of Python's allocator that is held during a call, beyond what was held before it."""
    call()
    tracemalloc.start()
    least = 1 << 30
    for _ in range(20):
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        call()
        least = min(least, tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    return least


def latency(x: Any, whole: torch.Tensor, on: str) -> dict[str, Any]:
    """From the call to the end of its work, of 4,096 rows; and again while a captured graph that reads from the same cache is alive."""
    ids = torch.randint(0, len(whole), (LATENCY_ROWS,), device=on)
    calls = {name: call for name, call in reads(x, whole, ids).items() if name in ("index_select", "read", "torch_embedding_bag", "embedding_bag")}
    found: dict[str, Any] = {"latency_us": waited(calls, on)}
    if on == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = x[ids]
        graph.replay()
        found["latency_with_graph_us"] = waited(calls, on)
        assert torch.equal(kept, whole[ids])
        del graph
    found["latency_ratio"] = round(found["latency_us"]["read"] / found["latency_us"]["index_select"], 2)
    return found


def waited(calls: dict[str, Callable[[], Any]], on: str) -> dict[str, float]:
    """The median time of each call until its work has ended, in turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for name, call in list(calls.items()) * 200:
        began = time.perf_counter()
        call()
        synchronize(on)
        times[name].append(time.perf_counter() - began)
    return {name: round(1e6 * statistics.median(of[20:]), 2) for name, of in times.items()}


def rate(x: Any, on: str) -> dict[str, Any]:
    """Reads of 200,000 rows by x[ids], beside torch.empty and the library's call, in turns."""
    ids = torch.randint(0, len(x), (200_000,), device=on)
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
