#!/usr/bin/env python3
"""Measures a training loop of a graph network with tensorcache, and with the usual other ways to fetch features, in one run.

An iteration samples the neighbourhood of 1,024 nodes on the GPU (fan-outs 15, 10, 5), fetches the features of its nodes, and trains a
3-layer GraphSAGE on them. Graphs and features are generated; they have the shape of papers100M, scaled to the machine. Only the way of
fetching differs between methods; they take turns batch by batch. Each method's rows are compared with the table's, bit for bit; if any
differ, the exit status is 1 and no results are written.

    python lab/python/training_loop.py --out docs/results/training-loop.json     # minutes, on a GPU
    python lab/python/training_loop.py --quick                                   # seconds, on any machine with torch and torch-geometric

On a GPU the neighbours are sampled by a few kernels, and a training step is a CUDA graph: launched one by one from Python, their kernels took
3 to 5 ms an iteration with every method, which hid what fetching costs.

The first takes over 62 GB of host memory (a table of 15.4 GB, and as much for each of three codecs) and over 25 GB of GPU memory; --nodes
scales both. `make gpu-docs` then renews the document and the plot.

Times are medians. iteration_ms is sequential: sample, fetch, train. pipelined_ms is the mean of a row of iterations in which the fetch of
the next batch runs on a second stream beside the training of this one, and the median of three such rows. Epochs are estimated: an
iteration's time × the batches of an epoch.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import methods as ways
from features import COLUMNS, Features
from graph import Batch, Sampler, power_law
from loader import measure_loader
from methods import Method
from model import LAYER, GraphTrainer, Trainer
from reporting import commit, lines, machine

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ROWS = 3  # of pipelined iterations


class Loop:
    """The loop over one table: graph, sampler, model, and the batches that every method is measured with."""

    def __init__(self, options: argparse.Namespace, nodes: int, dtype: torch.dtype, device: torch.device):
        self.options, self.device = options, device
        self.graph = power_law(nodes, device)
        self.sampler = self.gpu_sampler() if device.type == "cuda" and ways.cupy is not None else Sampler(self.graph, options.fanouts)
        self.features = Features(nodes, COLUMNS, dtype, device)
        self.epoch = -(-len(self.graph.training_nodes) // options.batch)
        if device.type == "cuda":
            some = [self.sample(i) for i in range(options.training_batches)]
            self.trainer: Trainer = GraphTrainer(COLUMNS, len(options.fanouts), device, dtype, some)
        else:
            self.trainer = Trainer(COLUMNS, len(options.fanouts), device)
        self.side = torch.cuda.Stream() if device.type == "cuda" else None
        self.ahead = ThreadPoolExecutor(1)  # fetches for methods that block

    def gpu_sampler(self) -> Sampler:
        from gpu_sampler import GPUSampler

        return GPUSampler(self.graph, self.options.fanouts)

    def sample(self, number: int) -> Batch:
        """Returns batch `number` of the epoch. The first batches are those that caches are trained with."""
        first = number % self.epoch * self.options.batch
        return self.sampler.sample(self.graph.training_nodes[first : first + self.options.batch], number)

    def batch(self, i: int) -> Batch:
        """Returns measured batch i."""
        return self.sample(self.options.training_batches + i)

    def sequential(self, method: Method, i: int) -> list[float]:
        """Runs one iteration and returns the ms of sampling, fetching, training and the whole."""
        self.synchronize()
        marks = [self.mark()]
        begin = time.perf_counter()
        batch = self.batch(i)
        marks.append(self.mark())
        x = method.fetch(batch.ids)
        marks.append(self.mark())
        self.trainer.step(x, batch)
        marks.append(self.mark())
        self.synchronize()
        return [self.between(a, b) for a, b in zip(marks, marks[1:])] + [1000 * (time.perf_counter() - begin)]

    def pipelined(self, method: Method, first: int, count: int) -> tuple[float, Batch, Tensor]:
        """Runs a row of iterations and returns the mean ms of one, without the first two, and the last batch with its rows.

        The next batch's rows are fetched on a second stream while this batch is trained on and the one after the next is sampled.
        """
        self.synchronize()
        batch = self.batch(first)
        rows, following = self.begin(method, batch), self.batch(first + 1)
        for i in range(count):
            last, arriving = batch, rows
            if i + 1 < count:
                batch, rows = following, self.begin(method, following)
            x, arrived = arriving.result()
            if arrived is not None:
                torch.cuda.current_stream().wait_event(arrived)
                x.record_stream(torch.cuda.current_stream())
            self.trainer.step(x, last)
            if i + 2 < count:
                following = self.batch(first + i + 2)
            if i == 1:
                start = self.mark()
        end = self.mark()
        self.synchronize()
        return self.between(start, end) / (count - 2), last, x

    def begin(self, method: Method, batch: Batch) -> Future[tuple[Tensor, torch.cuda.Event | None]]:
        """Begins to fetch a batch's rows. The future has the rows, and the event after which they have arrived."""
        sampled = self.mark()

        def fetch() -> tuple[Tensor, torch.cuda.Event | None]:
            if self.side is None:
                return method.fetch(batch.ids), None
            with torch.cuda.stream(self.side):
                self.side.wait_event(sampled)
                batch.ids.record_stream(self.side)
                x = method.fetch(batch.ids)
                arrived = torch.cuda.Event()
                arrived.record()
                return x, arrived

        if method.blocks and self.side is not None:
            return self.ahead.submit(fetch)
        done: Future[tuple[Tensor, torch.cuda.Event | None]] = Future()
        done.set_result(fetch())
        return done

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def mark(self) -> Any:
        """Returns this moment of the current stream."""
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, a: Any, b: Any) -> float:
        """Returns the ms from a to b; both have passed."""
        return float(a.elapsed_time(b)) if self.device.type == "cuda" else 1000 * (b - a)

    def measure(self, chosen: list[Method], budget: float, opened: dict[str, float]) -> list[dict[str, Any]]:
        """Measures the methods in turns, checks their rows, and returns a result for each."""
        count = self.options.iterations
        turns = random.Random(1)
        shift = max(count // len(chosen), 1)  # no method fetches the rows that the one before it has just left in the processor's cache
        for method in chosen:
            for i in range(self.options.warm_up):
                self.sequential(method, i)
        times: list[list[list[float]]] = [[] for _ in chosen]
        for i in range(count):
            # In an order drawn anew. The CPU gather's OpenMP threads keep all processors busy for some milliseconds after it, and whatever always came next was slower.
            for k in turns.sample(range(len(chosen)), len(chosen)):
                times[k].append(self.sequential(chosen[k], (i + k * shift) % count))
        length = max(count // ROWS, 3)
        rows: list[list[float]] = [[] for _ in chosen]
        for r in range(ROWS):
            for k, method in enumerate(chosen):
                ms, batch, x = self.pipelined(method, r * length, length)
                rows[k].append(ms)
                self.check(method, batch, x)
        asked = 0
        reads = [[0, 0] for _ in chosen]  # misses and bytes
        for i in range(count):
            batch = self.batch(i)
            asked += len(batch.ids)
            for k, method in enumerate(chosen):
                reads[k] = [a + b for a, b in zip(reads[k], method.reads(batch.ids))]
                if i % 20 == 0:
                    self.check(method, batch, method.fetch(batch.ids))
        results = []
        for k, method in enumerate(chosen):
            sample, fetch, train, iteration = (statistics.median(column) for column in zip(*times[k]))
            pipelined = statistics.median(rows[k])
            results.append({
                "table_rows": len(self.features.rows), "row_bytes": self.features.row_bytes, "dtype": str(self.features.rows.dtype).removeprefix("torch."),
                "budget": budget, "method": method.name, "fetch_ms": round(fetch, 4), "iteration_ms": round(iteration, 4),
                "hit_ratio": round(1 - reads[k][0] / asked, 4), "verified": True, "sample_ms": round(sample, 4), "train_ms": round(train, 4),
                "pipelined_ms": round(pipelined, 4), "estimated_epoch_s": round(iteration * self.epoch / 1000, 3),
                "estimated_pipelined_epoch_s": round(pipelined * self.epoch / 1000, 3), "batch_rows": round(asked / count),
                "host_bytes": reads[k][1] // count, "open_s": round(opened.get(method.name, 0), 2), **method.details(),
            })
            say(f"  {100 * budget:g} % {method.name:24} fetch {fetch:8.3f} ms, iteration {iteration:8.3f}, pipelined {pipelined:8.3f}, "
                f"hits {results[-1]['hit_ratio']:.3f}, opened in {opened.get(method.name, 0):.1f} s")
        return results

    def check(self, method: Method, batch: Batch, x: Tensor) -> None:
        if not self.features.equal(batch.ids, x):
            sys.exit(f"training_loop: the output of {method.name} must be the table's rows, bit for bit: it is not")

    def close(self) -> None:
        self.ahead.shutdown()
        self.features.close()


def measure_table(options: argparse.Namespace, nodes: int, dtype: torch.dtype, device: torch.device) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Measures all methods over one table at all budgets."""
    begin = time.perf_counter()
    loop = Loop(options, nodes, dtype, device)
    say(f"{nodes} rows × {loop.features.row_bytes} B {dtype}, {len(loop.graph.indices)} edges: made in {time.perf_counter() - begin:.1f} s")
    results = []
    try:
        training = [loop.sample(i).ids for i in range(options.training_batches)]
        counts = torch.bincount(torch.cat(training), minlength=nodes).int()
        training = [ids.cpu() for ids in training]
        for cell, budget in enumerate(options.budgets):
            memory = int(budget * loop.features.rows.nbytes)
            with ExitStack() as opened:
                chosen: list[Method] = []
                seconds: dict[str, float] = {}

                def add(make: Any, *arguments: Any) -> None:
                    begin = time.perf_counter()
                    chosen.append(make(loop.features, device, *arguments))
                    seconds[chosen[-1].name] = time.perf_counter() - begin
                    opened.callback(chosen[-1].close)

                # Caches take turns in who is opened first, while the processors may still be busy with compiling.
                first = cell % max(len(options.codecs), 1)
                for codec in options.codecs[first:] + options.codecs[:first]:
                    add(ways.Cache, memory, codec, training)
                chosen[:] = chosen[-first:] + chosen[:-first]
                if device.type == "cuda" and ways.cupy is not None:
                    for sort in (False, True):
                        add(ways.ZeroCopy, sort, memory, counts)
                    for sort in (False, True):
                        add(ways.ZeroCopy, sort)
                add(ways.CPUGather)
                for method in chosen:
                    if isinstance(method, ways.ZeroCopy):
                        method.tune(training[0].to(device))
                results += loop.measure(chosen, budget, seconds)
        about = {"sampler": loop.sampler.name, "table_rows": nodes, "dtype": results[0]["dtype"], "edges": len(loop.graph.indices), "batches_per_epoch": loop.epoch}
    finally:
        loop.close()
    return about, results


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = lambda of: lambda text: [of(part) for part in text.split(",") if part]  # noqa: E731
    parser.add_argument("--out", type=Path, help="where the results go as JSON; default: standard output")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--nodes", type=int, default=30_000_000, help="rows of the float32 table, 512 B each; bfloat16 tables have twice as many")
    parser.add_argument("--dtypes", type=listed(str), default=list(DTYPES), help="tables, of float32 and bfloat16")
    parser.add_argument("--budgets", type=listed(float), default=[0.05, 0.1, 0.25], help="GPU memory for rows ÷ bytes of the table")
    parser.add_argument("--codecs", type=listed(str), default=["auto", "none", "ibp4"], help="codecs of tensorcache")
    parser.add_argument("--fanouts", type=listed(int), default=[15, 10, 5])
    parser.add_argument("--batch", type=int, default=1024, help="training nodes of a batch")
    parser.add_argument("--iterations", type=int, default=40, help="timed iterations of each method")
    parser.add_argument("--warm-up", type=int, default=5, help="iterations of each method before its first timed one")
    parser.add_argument("--training-batches", type=int, default=40, help="batches that caches learn from before they are timed")
    parser.add_argument("--loader-nodes", type=int, default=2_000_000, help="rows of the table for PyG's loader; 0: do not measure it")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 1) * 3 // 4), help="worker processes of the loader")
    parser.add_argument("--commit", default=commit(), help="the commit that is measured")
    parser.add_argument("--quick", action="store_true", help="small tables and few iterations: shows that everything works")
    options = parser.parse_args(arguments)
    if options.quick:
        options.nodes, options.batch, options.warm_up, options.iterations, options.training_batches = 20_000, 32, 1, 4, 4
        options.budgets, options.loader_nodes = [0.1], min(options.loader_nodes, 20_000)
    if unknown := set(options.dtypes) - set(DTYPES):
        parser.error(f"dtypes ({', '.join(sorted(unknown))}) must be of {', '.join(DTYPES)}")
    if min(options.nodes, options.batch, options.training_batches) < 1 or options.iterations < 3:
        parser.error("nodes, batch and training-batches must be at least 1, iterations at least 3")
    if not all(0 < b < 1 for b in options.budgets):
        parser.error("budgets must be between 0 and 1")
    return options


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    begin = time.perf_counter()
    device = torch.device("cuda" if options.device != "cpu" and torch.cuda.is_available() else "cpu")
    if options.device == "cuda" and device.type != "cuda":
        sys.exit("training_loop: device (cuda) must be there: torch finds no GPU")
    torch.backends.cuda.matmul.allow_tf32 = True
    if device.type == "cpu" and options.quick:
        torch.set_num_threads(1)  # threads that wait for each other are slow on a busy machine
    name, driver = machine(device)
    part = Path(f"{options.out}.part")  # the tables that are done, for runs that are cut off
    report: dict[str, Any] = {
        "device": name, "driver": driver, "commit": options.commit, "torch": torch.__version__, "layer": LAYER + (GraphTrainer.name if device.type == "cuda" else ""), "fanouts": options.fanouts,
        "batch": options.batch, "iterations": options.iterations, "training_batches": options.training_batches, "quick": options.quick,
        "tables": [], "results": [], "skipped": [],
    }
    if device.type != "cuda" or ways.cupy is None:
        report["skipped"].append({"method": "UVA", "reason": "needs a GPU and CuPy"})
    for dtype in options.dtypes:
        about, results = measure_table(options, options.nodes * 4 // DTYPES[dtype].itemsize, DTYPES[dtype], device)
        report["tables"].append(about)
        report["results"] += results
        if options.out:
            part.write_text(lines(report))
    if options.loader_nodes:
        report["loader"] = measure_loader(options, device)
        say(f"loader: {report['loader']}")
    report["seconds"] = round(time.perf_counter() - begin, 1)
    if options.out:
        options.out.write_text(lines(report))
        part.unlink()
    else:
        print(lines(report), end="")


if __name__ == "__main__":
    main()
