"""PyTorch Geometric: one epoch of GraphSAGE whose features come from a cache.

    python pyg_training.py

On a GPU only `gpu_memory` and the size of the graph would differ. Without pyg-lib, which PyG's own NeighborLoader needs, a sampler in
Python takes its place.
"""

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader, NodeLoader
from torch_geometric.nn import SAGEConv
from torch_geometric.sampler import BaseSampler, SamplerOutput
from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

import tensorcache
import tensorcache.pyg

torch.manual_seed(1)
nodes, edges, columns = 20_000, 200_000, 64
device = "cuda" if torch.cuda.is_available() else "cpu"
features = torch.randn(nodes, columns)
labels = torch.randint(0, 8, (nodes,))
source = (nodes * torch.rand(edges) ** 3).long()  # few nodes have most of the edges
data = Data(edge_index=torch.stack([source, torch.randint(0, nodes, (edges,))]), y=labels, num_nodes=nodes)  # no x


class Neighbours(BaseSampler):
    """Five neighbours of each seed, of one hop."""

    edge_permutation = None

    def __init__(self) -> None:
        order = data.edge_index[1].argsort()
        self.start = np.searchsorted(data.edge_index[1][order].numpy(), np.arange(nodes + 1))
        self.source = data.edge_index[0][order]

    def sample_from_nodes(self, index, **_):
        seeds, found, row, col = index.node, {int(n): i for i, n in enumerate(index.node)}, [], []
        for at, node in enumerate(seeds.tolist()):
            for other in self.source[self.start[node] : self.start[node + 1]][:5].tolist():
                row.append(found.setdefault(other, len(found)))
                col.append(at)
        return SamplerOutput(torch.tensor(list(found)), torch.tensor(row), torch.tensor(col), None, None, metadata=(index.input_id, index.time))

    def sample_from_edges(self, index, **_):
        raise NotImplementedError


def loader():
    if WITH_PYG_LIB or WITH_TORCH_SPARSE:
        return NeighborLoader(data, num_neighbors=[5], batch_size=512, shuffle=True)
    return NodeLoader(data, Neighbours(), batch_size=512, shuffle=True)


# The cache learns which rows an epoch reads from a first epoch of sampling, which needs no features.
x = tensorcache.open(features, gpu_memory="10%", train=loader())
batches = tensorcache.pyg.attach(loader(), x)

model = SAGEConv(columns, 8).to(device)
optimizer = torch.optim.Adam(model.parameters())
for batch in batches:
    batch = batch.to(device)  # batch.x is there already, on the cache's device
    assert torch.equal(batch.x.cpu(), features[batch.n_id.cpu()])
    loss = torch.nn.functional.cross_entropy(model(batch.x, batch.edge_index)[: batch.batch_size], batch.y[: batch.batch_size])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
print(x)
