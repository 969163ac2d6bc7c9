"""The speed of summed bags of random rows: torch's embedding_bag with the whole table in the GPU's memory, and this library's with every row cached.

    python embedding_bag.py --json embedding_bag.json

GB/s of rows read, uncompressed size: of each batch the median of ten runs, on batches that take turns, so that none finds its rows in the GPU's cache.
One line for each figure; the JSON has the same names. Needs torch with CUDA.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any, Callable

import torch

import tensorcache

COLUMNS = 128
BATCHES = (200_000, 1_048_000)  # row numbers: multiples of all bags
BAGS = (1, 10, 40, 200)
TURNS, WARMUPS, RUNS = 4, 4, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=2 << 30, help="size of the table")
    parser.add_argument("--codecs", default="none,ibp4,rank", help="of this library")
    parser.add_argument("--json", help="file for the figures")
    args = parser.parse_args()
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "table_bytes": args.bytes}
    for kind in (torch.float32, torch.bfloat16):
        table = torch.randn(args.bytes // (COLUMNS * kind.itemsize), COLUMNS, dtype=kind)
        whole = table.cuda()

        def plain(bags: Bags) -> torch.Tensor:
            return torch.nn.functional.embedding_bag(bags.ids.view(-1), whole, bags.offsets, mode="sum")

        measure(found, "torch", kind, plain, len(table))
        few = Bags(len(table), 1000, 10)
        expected = plain(few)
        del whole
        for codec in args.codecs.split(","):
            with tensorcache.open(table, "130%", device="cuda", codec=codec) as x:  # with room for the hashmap: every row is cached
                assert x.stats()["rows_cached"] == len(table)
                torch.testing.assert_close(x.embedding_bag(few.ids, None), expected, rtol=2e-2, atol=2e-2)
                measure(found, codec, kind, lambda bags: x.embedding_bag(bags.ids, None), len(table))
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n")


class Bags:
    """Random row numbers in bags of one size, and where each bag begins."""

    def __init__(self, rows: int, n: int, bag: int) -> None:
        self.ids = torch.randint(0, rows, (n // bag, bag), device="cuda")
        self.offsets = torch.arange(0, n, bag, device="cuda")


def measure(found: dict[str, Any], name: str, kind: torch.dtype, call: Callable[[Bags], torch.Tensor], rows: int) -> None:
    for batch in BATCHES:
        for bag in BAGS:
            turns = [Bags(rows, batch, bag) for _ in range(TURNS)]
            times = [seconds(call, turns[i % TURNS]) for i in range(WARMUPS + RUNS)][WARMUPS:]
            key = f"{name}_{str(kind).removeprefix('torch.')}_batch{batch}_bag{bag}_gb_per_second"
            found[key] = round(batch * COLUMNS * kind.itemsize / statistics.median(times) / 1e9, 1)
            print(f"{key:60}{found[key]}", flush=True)


def seconds(call: Callable[[Bags], torch.Tensor], bags: Bags) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    call(bags)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


if __name__ == "__main__":
    main()
