"""The training loop with PyG's NeighborLoader, whose worker processes sample on the CPU: with its own fetching, and with tensorcache's."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from features import COLUMNS, Features
from graph import Batch, power_law
from model import Trainer

BUDGET = 0.1  # GPU memory for rows ÷ bytes of the table
WARM_UP = 8  # batches before the timed ones: workers fetch two ahead


def measure_loader(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Returns the mean ms of an iteration by method, or why there are none."""
    try:
        from torch_geometric import typing
        from torch_geometric.data import Data
        from torch_geometric.loader import NeighborLoader
    except ImportError:
        return {"skipped": "torch_geometric is not installed"}
    if not (typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE):
        return {"skipped": "torch_geometric has no sampler: neither pyg-lib nor torch-sparse is installed"}
    import tensorcache

    nodes, on_gpu = options.loader_nodes, device.type == "cuda"
    graph = power_law(nodes, device)
    edges = torch.stack((graph.indices.long(), torch.arange(nodes, device=device).repeat_interleave(graph.indptr.diff()))).cpu()
    seeds = graph.training_nodes.cpu()
    features = Features(nodes, COLUMNS, torch.float32, device, lock=False)  # worker processes read it
    trainer = Trainer(COLUMNS, len(options.fanouts), device)
    workers = min(8, torch.get_num_threads())

    def run(method: str, x: Tensor | None, fetch: Callable[[Any], Tensor]) -> dict[str, Any]:
        data = Data(edge_index=edges, num_nodes=nodes, x=x)
        loader = NeighborLoader(data, options.fanouts, input_nodes=seeds, batch_size=options.batch, num_workers=workers, is_sorted=True,
                                persistent_workers=True, pin_memory=on_gpu, filter_per_worker=True)
        batches = itertools.chain.from_iterable(itertools.repeat(loader))
        begin = 0.0
        for i in range(WARM_UP + options.iterations):
            if i == WARM_UP:
                if on_gpu:
                    torch.cuda.synchronize()
                begin = time.perf_counter()
            found = next(batches)
            rows = fetch(found)
            src, dst = found.edge_index.to(device, non_blocking=True)
            trainer.step(rows, Batch(found.n_id.to(device, non_blocking=True), src, dst, list(itertools.accumulate(found.num_sampled_nodes)),
                                     [0, *itertools.accumulate(found.num_sampled_edges)]))
        if on_gpu:
            torch.cuda.synchronize()
        ms = 1000 * (time.perf_counter() - begin) / options.iterations
        if not features.equal(found.n_id, rows):
            sys.exit(f"training_loop: the rows of NeighborLoader with {method} must be the table's rows, bit for bit: they are not")
        return {"method": method, "iteration_ms": round(ms, 4), "verified": True}

    results = [run("its own features", features.rows, lambda found: found.x.to(device, non_blocking=True))]
    training = [found.n_id for found in itertools.islice(NeighborLoader(
        Data(edge_index=edges, num_nodes=nodes), options.fanouts, input_nodes=seeds, batch_size=options.batch, is_sorted=True), options.training_batches)]
    with tensorcache.open(features.rows, gpu_memory=int(BUDGET * features.rows.nbytes), train=training, device="cuda" if on_gpu else "host") as cache:
        results.append(run("tensorcache auto", None, lambda found: cache[found.n_id.to(device, non_blocking=True)]))
    return {"table_rows": nodes, "row_bytes": features.row_bytes, "dtype": "float32", "budget": BUDGET, "workers": workers, "results": results}
