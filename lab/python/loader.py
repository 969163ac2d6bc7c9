"""The training loop with PyG's loader, whose worker processes sample on the CPU: with its own fetching, and with tensorcache's."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric import typing
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader, NodeLoader
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput

from features import COLUMNS, Features
from graph import Batch, Graph, Sampler, power_law
from model import Trainer

BUDGET = 0.1  # GPU memory for rows ÷ bytes of the table


class TorchSampler(BaseSampler):
    """graph.Sampler as a sampler of PyG."""

    edge_permutation = None

    def __init__(self, graph: Graph, fanouts: list[int]):
        self.sampler = Sampler(graph, fanouts)

    def sample_from_nodes(self, index: NodeSamplerInput, **_: Any) -> SamplerOutput:
        b = self.sampler.sample(index.node, int(index.node[0]))
        counts = [b.nodes[0]] + [after - before for before, after in itertools.pairwise(b.nodes)]
        edges = [after - before for before, after in itertools.pairwise(b.edges)]
        return SamplerOutput(b.ids, b.src, b.dst, None, None, counts, edges, metadata=(index.input_id, index.time))

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> SamplerOutput:
        raise NotImplementedError


def measure_loader(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Returns the mean ms of an iteration by method, or why there are none."""
    try:
        return _measure(options, device)
    except RuntimeError as e:  # of DataLoader, when a worker process ends or is late
        if "DataLoader" not in str(e):
            raise
        return {"skipped": str(e)}


def _measure(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    import tensorcache

    nodes, on_gpu = options.loader_nodes, device.type == "cuda"
    made = power_law(nodes, device)
    graph = Graph(made.indptr.cpu(), made.indices.cpu(), made.training_nodes.cpu())
    seeds = graph.training_nodes
    own = typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE
    sources = graph.indices.long() if own else torch.empty(0, dtype=torch.int64)
    edges = torch.stack((sources, torch.arange(nodes).repeat_interleave(graph.indptr.diff())[: len(sources)]))
    features = Features(nodes, COLUMNS, torch.float32, device, lock=False)  # worker processes read it
    trainer = Trainer(COLUMNS, len(options.fanouts), device)
    workers = options.workers

    def loader(x: Tensor | None) -> Any:
        data = Data(edge_index=edges, num_nodes=nodes, x=x)
        common = dict(input_nodes=seeds, batch_size=options.batch, num_workers=workers, persistent_workers=True, pin_memory=on_gpu, filter_per_worker=True, timeout=30 if workers else 0)
        if own:
            return NeighborLoader(data, options.fanouts, is_sorted=True, **common)
        return NodeLoader(data, TorchSampler(graph, options.fanouts), **common)

    def run(method: str, x: Tensor | None, fetch: Callable[[Any], Tensor]) -> dict[str, Any]:
        warm_up = 2 * workers + 4  # workers sample two batches ahead each
        batches = itertools.chain.from_iterable(itertools.repeat(loader(x)))
        for i in range(warm_up + options.iterations):
            if i == warm_up:
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
            sys.exit(f"training_loop: the rows of the loader with {method} must be the table's rows, bit for bit: they are not")
        return {"method": method, "iteration_ms": round(ms, 4), "verified": True}

    results = [run("the loader's own features", features.rows, lambda found: found.x.to(device, non_blocking=True))]
    training = [found.n_id for found in itertools.islice(loader(None), options.training_batches)]
    with tensorcache.open(features.rows, gpu_memory=int(BUDGET * features.rows.nbytes), train=training, device="cuda" if on_gpu else "host") as cache:
        results.append(run("tensorcache auto", None, lambda found: cache[found.n_id.to(device, non_blocking=True)]))
    sampler = "NeighborLoader" if own else "NodeLoader with a sampler of torch operations, as neither pyg-lib nor torch-sparse is installed"
    return {"sampler": sampler, "table_rows": nodes, "row_bytes": features.row_bytes, "dtype": "float32", "budget": BUDGET, "workers": workers, "results": results}
