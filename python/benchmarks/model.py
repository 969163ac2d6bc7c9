"""GraphSAGE with mean aggregation, on the batches of graph.Sampler."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graph import CLASSES, Batch

try:
    from torch_geometric import __version__ as _pyg
    from torch_geometric.nn import SAGEConv

    LAYER = f"SAGEConv of torch_geometric {_pyg}"
except ImportError:
    SAGEConv = None
    LAYER = "mean by index_add"


class Mean(nn.Module):
    """The layer W1 · mean of neighbours + W2 · own, which SAGEConv is, for machines without torch_geometric."""

    def __init__(self, width: int, out: int):
        super().__init__()
        self.neighbours, self.own = nn.Linear(width, out), nn.Linear(width, out, bias=False)

    def forward(self, x: tuple[Tensor, Tensor], edges: Tensor) -> Tensor:
        source, target = x
        total = torch.zeros_like(target).index_add_(0, edges[1], source[edges[0]])
        count = torch.zeros(len(target), device=target.device).index_add_(0, edges[1], torch.ones_like(edges[1], dtype=torch.float32))
        out: Tensor = self.neighbours(total / count.clamp_(min=1)[:, None]) + self.own(target)
        return out


class SAGE(nn.Module):
    """A layer for each hop. Layer l leaves out the nodes and edges of the last l hops, which its output does not depend on."""

    def __init__(self, width: int, hops: int, hidden: int = 256):
        super().__init__()
        widths = [width] + [hidden] * (hops - 1) + [CLASSES]
        self.layers = nn.ModuleList((SAGEConv or Mean)(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        """Returns the classes' scores of the batch's seeds. x holds the features of batch.ids."""
        edges = torch.stack((batch.src, batch.dst))
        hops = len(self.layers)
        x = x.float()
        for l, layer in enumerate(self.layers):
            kept = hops - l
            x = layer((x, x[: batch.nodes[kept - 1]]), edges[:, : batch.edges[kept]])
            if l + 1 < hops:
                x = x.relu()
        return x


class Trainer:
    """Trains the model by one batch at a time. The labels are arbitrary: only time is measured."""

    def __init__(self, width: int, hops: int, device: torch.device):
        torch.manual_seed(1)
        self.model = SAGE(width, hops).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), fused=device.type == "cuda")

    def step(self, x: Tensor, batch: Batch) -> None:
        scores = self.model(x, batch)
        loss = nn.functional.cross_entropy(scores, batch.ids[: batch.nodes[0]] % CLASSES)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
