"""GraphSAGE with mean aggregation, on the batches of graph.Sampler."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric import __version__ as _pyg
from torch_geometric.nn import SAGEConv

from graph import CLASSES, Batch

LAYER = f"SAGEConv of torch_geometric {_pyg}"


class SAGE(nn.Module):
    """A layer for each hop. Layer l leaves out the nodes and edges of the last l hops, which its output does not depend on."""

    def __init__(self, width: int, hops: int, hidden: int = 256):
        super().__init__()
        widths = [width] + [hidden] * (hops - 1) + [CLASSES]
        self.layers = nn.ModuleList(SAGEConv(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x: Tensor, batch: Batch, bounds: bool = False) -> Tensor:
        """Returns the classes' scores of the batch's seeds. x holds the features of batch.ids.

        With bounds, batch.nodes and batch.edges are larger than the batch's own numbers: see fits. Then edges beyond the batch's own ones lead to nodes
        beyond its own, many to each, and change no score of a seed.
        """
        hops = len(self.layers)
        x = x.float()
        for l, layer in enumerate(self.layers):
            nodes, edges = batch.nodes[hops - l - 1], batch.edges[hops - l]
            src, dst = batch.src[:edges], batch.dst[:edges]
            if bounds:
                number, own = torch.arange(edges, device=x.device), nodes - spare(nodes)
                src = torch.where(src < len(x), src, number % len(x))
                dst = torch.where(dst < own, dst, own + number % spare(nodes))
            x = layer((x, x[:nodes]), torch.stack((src, dst)))
            if l + 1 < hops:
                x = x.relu()
        return x


def spare(bound: int) -> int:
    """Returns how many of so many nodes are for edges beyond a batch's own. Sums into few nodes would wait for each other."""
    return bound // 40 + 1


def fits(batch: Batch, bounds: Batch) -> bool:
    """Says whether a batch is within the bounds."""
    return batch.edges[-1] <= bounds.edges[-1] and all(
        nodes <= n - spare(n) and edges <= e for nodes, n, edges, e in zip(batch.nodes, bounds.nodes, batch.edges, bounds.edges))


class Trainer:
    """Trains the model by one batch at a time. The labels are arbitrary: only time is measured."""

    def __init__(self, width: int, hops: int, device: torch.device):
        torch.manual_seed(1)
        self.model = SAGE(width, hops).to(device)
        cuda = device.type == "cuda"
        self.optimizer = torch.optim.Adam(self.model.parameters(), fused=cuda, capturable=cuda)

    def step(self, x: Tensor, batch: Batch) -> None:
        self._train(self.model(x, batch), batch.ids[: batch.nodes[0]])

    def _train(self, scores: Tensor, seeds: Tensor) -> None:
        loss = nn.functional.cross_entropy(scores[: len(seeds)], seeds % CLASSES)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class GraphTrainer(Trainer):
    """Trains by torch.compile and a CUDA graph, because Python takes longer to launch a step's kernels than a GPU takes to run them.

    The graph is of a batch that is larger than all of some batches; a step copies its batch to the graph's input. A batch that is larger still is
    trained without the graph.
    """

    name = ", compiled, in a CUDA graph"
    slack = 1.06

    def __init__(self, width: int, hops: int, device: torch.device, dtype: torch.dtype, some: list[Batch]):
        super().__init__(width, hops, device)

        def bound(numbers: list[list[int]]) -> list[int]:
            return [int(max(column) * self.slack) + 2 for column in zip(*numbers)]

        nodes, edges = bound([b.nodes for b in some]), bound([b.edges for b in some])
        whole = lambda count: torch.zeros(count, dtype=torch.int64, device=device)  # noqa: E731
        self.input = Batch(whole(some[0].nodes[0]), whole(edges[-1]), whole(edges[-1]), nodes, edges)
        self.x = torch.zeros(nodes[-1], width, dtype=dtype, device=device)
        compiled = torch.compile(self.model, dynamic=False)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):  # compiles, and allocates what the optimizer and the libraries keep
                self._train(compiled(self.x, self.input, bounds=True), self.input.ids)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self._train(compiled(self.x, self.input, bounds=True), self.input.ids)

    def step(self, x: Tensor, batch: Batch) -> None:
        to, edges = self.input, len(batch.src)
        if batch.nodes[0] != len(to.ids) or not fits(batch, to):
            super().step(x, batch)
            return
        self.x[: len(x)] = x
        to.ids.copy_(batch.ids[: len(to.ids)])
        to.src[:edges] = batch.src
        to.dst[:edges] = batch.dst
        to.src[edges:] = len(self.x)
        to.dst[edges:] = len(self.x)
        self.graph.replay()
