"""Generated graphs in the shape of papers100M, and a neighbour sampler, both on the device of their tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MEAN_DEGREE = 15  # papers100M has 14.5 edges a node
EXPONENT = 0.8  # of the law by which nodes are popular
HEAD = 300_000  # the most popular 1 in 300,000 nodes are about equally popular
TRAINING_NODES = 0.011  # share of papers100M's nodes that have a label to train on
CLASSES = 172

_PIECE = 1 << 25  # edges drawn at a time


@dataclass
class Graph:
    """A graph in CSR form: the neighbours of node v are indices[indptr[v]:indptr[v+1]]."""

    indptr: Tensor  # int64, nodes + 1
    indices: Tensor  # int32, one an edge
    training_nodes: Tensor  # int64, shuffled

    @property
    def nodes(self) -> int:
        return len(self.indptr) - 1


def power_law(nodes: int, device: torch.device, seed: int = 1) -> Graph:
    """Draws a graph whose nodes have weights ∝ (rank + head)^-0.8, rank being the place in a random order of the nodes.

    A node's degree, and the probability that an edge points to it, are proportional to its weight. The mean degree is 15. Self-loops and
    repeated edges occur.
    """
    random = torch.Generator(device).manual_seed(seed)
    order = torch.randperm(nodes, generator=random, device=device, dtype=torch.int32 if device.type == "cuda" else torch.int64)
    head = max(nodes / HEAD, 1.0)
    power = 1 - EXPONENT
    low, high = head**power, (nodes + head) ** power

    rank = torch.arange(nodes, device=device, dtype=torch.float64)
    expected = (rank + 0.5 + head).pow_(-EXPONENT).mul_(MEAN_DEGREE * nodes * power / (high - low))
    degree = expected.add_(torch.rand(nodes, generator=random, device=device, dtype=torch.float64)).long()
    del rank, expected
    indptr = torch.zeros(nodes + 1, dtype=torch.int64, device=device)
    indptr[1:][order.long()] = degree
    indptr = indptr.cumsum(0)
    del degree

    indices = torch.empty(int(indptr[-1]), dtype=torch.int32, device=device)
    for piece in indices.split(_PIECE):
        at = torch.rand(len(piece), generator=random, device=device, dtype=torch.float64)
        at = at.mul_(high - low).add_(low).pow_(1 / power).sub_(head)  # the inverse of the law's sum: a rank
        piece.copy_(order[at.long().clamp_(0, nodes - 1)])
    training = torch.randperm(nodes, generator=random, device=device)[: max(int(nodes * TRAINING_NODES), 1)]
    return Graph(indptr, indices, training.clone())


@dataclass
class Batch:
    """The neighbourhood of some seed nodes. Nodes have local numbers, which are their places in ids; edges go from src to dst.

    Hop h, counted from 1, added the nodes ids[nodes[h-1]:nodes[h]] and the edges src[edges[h-1]:edges[h]]. nodes[0] is the number of seeds
    and edges[0] is 0.
    """

    ids: Tensor  # int64: the different nodes, the seeds first
    src: Tensor  # int64, local number
    dst: Tensor  # int64, local number, ascending
    nodes: list[int]
    edges: list[int]


class Sampler:
    """Draws for each node up to fan-out different edges; each edge of a node is as likely as its others.

    As in PyG, the neighbours of a node are drawn once, in the hop after the one that found it. The order of ids is the one in which nodes
    were found, which has nothing to do with where their rows lie. A sampler is used by one thread at a time.
    """

    def __init__(self, graph: Graph, fanouts: list[int]):
        self.graph, self.fanouts = graph, fanouts
        device = graph.indptr.device
        self.local = torch.full((graph.nodes,), -1, dtype=torch.int32, device=device)  # a node's local number, or -1

    def sample(self, seeds: Tensor, seed: int) -> Batch:
        """Returns the neighbourhood of the seeds, int64 and all different. The same seed draws the same edges."""
        graph, local, device = self.graph, self.local, seeds.device
        local[seeds] = torch.arange(len(seeds), dtype=torch.int32, device=device)
        ids, src, dst = [seeds], [], []
        nodes, edges = [len(seeds)], [0]
        for fanout in self.fanouts:
            front = ids[-1]
            begin = graph.indptr[front]
            degree = graph.indptr[front + 1] - begin
            # Every (degree / fanout)-th edge from a random one on. A node of fewer edges than fan-out has a step of 1: all its edges.
            lane = torch.arange(fanout, device=device)
            shift = _fraction(front, seed)[:, None]
            place = ((lane + shift) * (degree[:, None] / fanout).clamp_(min=1)).long()
            place = torch.minimum(place, (degree - 1)[:, None]) + begin[:, None]
            drawn = (lane < degree[:, None]).view(-1).nonzero().view(-1)
            neighbours = graph.indices[place.view(-1)[drawn]].long()
            dst.append(drawn // fanout + (nodes[-1] - len(front)))

            # Of the entries that name a new node, the one whose number is in local afterwards adds the node.
            new = neighbours[local[neighbours] < 0]
            entry = torch.arange(len(new), dtype=torch.int32, device=device)
            local[new] = entry
            new = new[local[new] == entry]
            local[new] = torch.arange(nodes[-1], nodes[-1] + len(new), dtype=torch.int32, device=device)
            src.append(local[neighbours].long())
            ids.append(new)
            nodes.append(nodes[-1] + len(new))
            edges.append(edges[-1] + len(neighbours))
        batch = Batch(torch.cat(ids), torch.cat(src), torch.cat(dst), nodes, edges)
        local[batch.ids] = -1
        return batch


def _fraction(nodes: Tensor, seed: int) -> Tensor:
    """Returns a number in [0, 0.9999] for each node, a hash of the node and the seed."""
    bits = (nodes ^ (seed << 32)) * -7046029254386353131  # products of int64 wrap around
    bits = (bits ^ (bits >> 31)) * -4417276706812531889
    return ((bits >> 32) & 0xFFFFFF).float() * (0.9999 / (1 << 24))
