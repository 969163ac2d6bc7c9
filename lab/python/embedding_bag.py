"""The speed of summed bags of random rows: torch's embedding_bag with the whole table, uncompressed, and this library's with every row cached.

    python lab/python/embedding_bag.py --json docs/results/embedding-bag.json     # two minutes, on a GPU
    python lab/python/embedding_bag.py --device host --bytes 1048576 --batches 2000     # seconds, on any machine

`make gpu-docs` then renews docs/performance.md. Each codec's sums are compared with torch's; if they differ, the exit status is 1 and no results are
written.

gb_per_second is of the rows read, uncompressed size: of each batch the median of ten runs, on batches that take turns. On a GPU the time is that
between two events behind other work: the GPU is still busy when the host has enqueued the call, so the time is of kernels and not of Python, and
what that work writes replaces what the GPU's cache has of the rows.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable, Optional

import torch

import tensorcache
from reporting import commit, lines, machine

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
COLUMNS = 128
BATCHES = (200_000, 1_048_000)  # row numbers: multiples of all bags
BAGS = (1, 10, 40, 200)
TURNS, WARM_UPS, RUNS = 4, 4, 10
BUSY_BYTES = 1 << 30  # to write them takes an H200 0.3 ms, and Python less to enqueue a call

Call = Callable[[Any], torch.Tensor]


class Bags:
    """Random row numbers in bags of one size, and where each bag begins."""

    def __init__(self, rows: int, n: int, bag: int, device: torch.device) -> None:
        self.ids = torch.randint(0, rows, (n // bag, bag), device=device)
        self.offsets = torch.arange(0, n, bag, device=device)


class Clock:
    """Times calls on a device."""

    def __init__(self, device: torch.device) -> None:
        self._busy = torch.empty(BUSY_BYTES, dtype=torch.uint8, device=device) if device.type == "cuda" else None

    def seconds(self, call: Call, bags: Bags) -> float:
        if self._busy is None:
            began = time.perf_counter()
            call(bags)
            return time.perf_counter() - began
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        self._busy.zero_()
        begin.record()
        call(bags)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3


def measure(options: argparse.Namespace, device: torch.device) -> list[dict[str, Any]]:
    """Returns a result for each method, type of rows, batch and bag."""
    clock, results = Clock(device), []
    for name, dtype in DTYPES.items():
        whole = torch.randn(options.bytes // (COLUMNS * dtype.itemsize), COLUMNS, dtype=dtype, device=device)
        table = whole.cpu()

        def plain(bags: Bags) -> torch.Tensor:
            return torch.nn.functional.embedding_bag(bags.ids.view(-1), whole, bags.offsets, mode="sum")

        def all_bags(method: str, call: Call) -> None:
            for batch in options.batches:
                for bag in BAGS:
                    turns = [Bags(len(table), batch, bag, device) for _ in range(TURNS)]
                    times = [clock.seconds(call, turns[i % TURNS]) for i in range(WARM_UPS + RUNS)][WARM_UPS:]
                    speed = batch * COLUMNS * dtype.itemsize / statistics.median(times) / 1e9
                    results.append({
                        "method": method, "dtype": name, "row_bytes": COLUMNS * dtype.itemsize, "batch": batch, "bag": bag, "gb_per_second": round(speed, 4),
                    })  # fmt: skip
                    print(f"{method:20}{name:10}{batch:10} rows, bags of {bag:<5}{speed:10.1f} GB/s", flush=True)

        all_bags("torch", plain)
        few = [Bags(len(table), 2000, bag, device) for bag in BAGS]
        expected = [plain(bags) for bags in few]
        del whole
        for codec in options.codecs:
            with tensorcache.open(table, "130%", device="host" if device.type == "cpu" else "cuda", codec=codec) as x:  # with room for the hashmap
                if x.stats()["rows_cached"] != len(table):
                    sys.exit(f"tensorcache {codec}, {name}: all rows must be cached: {x.stats()['rows_cached']} of {len(table)} are")

                def ours(bags: Bags) -> torch.Tensor:
                    return x.embedding_bag(bags.ids, mode="sum")

                for bags, want in zip(few, expected):
                    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
                    if not torch.allclose(ours(bags).float(), want.float(), rtol=tolerance, atol=10 * tolerance):
                        sys.exit(f"tensorcache {codec}, {name}, bags of {bags.ids.shape[1]}: sums must be torch's")
                all_bags(f"tensorcache {codec}", ours)
                x.cache.check()
    return results


def parse(arguments: Optional[list[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "host"))
    parser.add_argument("--bytes", type=int, default=2 << 30, help="size of each table")
    parser.add_argument("--batches", type=lambda text: [int(n) for n in text.split(",")], default=list(BATCHES), help="row numbers of a batch")
    parser.add_argument("--codecs", type=lambda text: text.split(","), default=["none", "ibp4", "rank"], help="of this library")
    parser.add_argument("--commit", default=commit(), help="the commit that is measured")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args(arguments)
    for n in options.batches:
        if n < 1 or any(n % bag for bag in BAGS):
            parser.error(f"--batches ({n}) must be multiples of {max(BAGS)}")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device (cuda) must be a GPU that torch can use")
    if options.bytes < 1 << 16:
        parser.error(f"--bytes ({options.bytes}) must be at least {1 << 16}")
    return options


def main(arguments: Optional[list[str]] = None) -> None:
    options, began = parse(arguments), time.perf_counter()
    device = torch.device("cuda", torch.cuda.current_device()) if options.device == "cuda" else torch.device("cpu")
    results = measure(options, device)
    name, driver = machine(device)
    report = {
        "device": name, "driver": driver, "commit": options.commit, "torch": torch.__version__, "table_bytes": options.bytes,
        "seconds": round(time.perf_counter() - began, 1), "results": results,
    }  # fmt: skip
    if options.json:
        options.json.write_text(lines(report))


if __name__ == "__main__":
    main()
