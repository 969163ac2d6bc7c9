"""PyTorch Geometric: one epoch of GraphSAGE whose features come from a cache.

    python pyg_training.py

On a GPU only `gpu_memory` and the size of the graph would differ. Without pyg-lib, which PyG's own NeighborLoader needs, batches of all
neighbours take its place.
"""

import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv
from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE
from torch_geometric.utils import k_hop_subgraph

import tensorcache
import tensorcache.pyg

torch.manual_seed(1)
nodes, edges, columns = 20_000, 200_000, 64
device = "cuda" if torch.cuda.is_available() else "cpu"
features = torch.randn(nodes, columns)
labels = torch.randint(0, 8, (nodes,))
source = (nodes * torch.rand(edges) ** 3).long()  # few nodes have most of the edges
data = Data(edge_index=torch.stack([source, torch.randint(0, nodes, (edges,))]), y=labels, num_nodes=nodes)  # no x


def neighbourhood(seeds: list[int]) -> Data:
    """Some nodes and all their neighbours, as a batch. seeds says where the nodes are in it."""
    found, edge_index, at, _ = k_hop_subgraph(torch.tensor(seeds), 1, data.edge_index, relabel_nodes=True)
    return Data(n_id=found, edge_index=edge_index, y=labels[found], seeds=at)


def loader() -> torch.utils.data.DataLoader:
    if WITH_PYG_LIB or WITH_TORCH_SPARSE:
        return NeighborLoader(data, num_neighbors=[5], batch_size=512, shuffle=True)
    return torch.utils.data.DataLoader(range(nodes), batch_size=512, shuffle=True, collate_fn=neighbourhood)


# The cache learns which rows an epoch reads from a first epoch of sampling, which needs no features.
x = tensorcache.open(features, gpu_memory="10%", train=loader())
batches = tensorcache.pyg.attach(loader(), x)

model = SAGEConv(columns, 8).to(device)
optimizer = torch.optim.Adam(model.parameters())
for batch in batches:
    batch = batch.to(device)  # batch.x is there already, on the cache's device
    assert torch.equal(batch.x.cpu(), features[batch.n_id.cpu()])
    seeds = batch.seeds if "seeds" in batch else slice(batch.batch_size)
    loss = torch.nn.functional.cross_entropy(model(batch.x, batch.edge_index)[seeds], batch.y[seeds])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
print(x)
