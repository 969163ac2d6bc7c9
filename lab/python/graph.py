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
_SHIFTS = 1 << 20  # a power of 2, so that sums of shifts and numbers of edges, of which there may be 2^33, are exact


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
    dst: Tensor  # int64, local number; Sampler has it ascend
    nodes: list[int]
    edges: list[int]


class Sampler:
    """Draws for each node up to fan-out different edges; each edge of a node is as likely as its others.

    As in PyG, the neighbours of a node are drawn once, in the hop after the one that found it. The order of ids is the one in which nodes
    were found, which has nothing to do with where their rows lie. On a GPU that order may differ between calls, the set of nodes and edges does
    not. A sampler is used by one thread at a time.
    """

    name = "torch operations"

    def __init__(self, graph: Graph, fanouts: list[int]):
        self.graph, self.fanouts = graph, fanouts
        device = graph.indptr.device
        random = torch.Generator(device).manual_seed(3)
        shift = torch.randint(0, _SHIFTS, (graph.nodes,), generator=random, device=device)
        # A line a node: its first edge, its degree, its shift.
        self.lines = torch.stack((graph.indptr[:-1].double(), graph.indptr.diff().double(), shift.double() / _SHIFTS), 1)
        self.lanes = [torch.arange(fanout, dtype=torch.float64, device=device) for fanout in fanouts]
        self.local = torch.full((graph.nodes,), -1, dtype=torch.int64, device=device)  # a node's local number, or -1
        self.numbers = torch.arange(1 << 16, device=device)

    def sample(self, seeds: Tensor, seed: int) -> Batch:
        """Returns the neighbourhood of the seeds, int64 and all different. The same seed draws the same edges."""
        local = self.local
        local[seeds] = self.range(0, len(seeds))
        ids, src, dst = [seeds], [], []
        nodes, edges = [len(seeds)], [0]
        turn = seed * 648055 % _SHIFTS / _SHIFTS  # successive seeds shift by the golden ratio
        for fanout, lane in zip(self.fanouts, self.lanes):
            front = ids[-1]
            first, degree, shift = self.lines[front].split(1, 1)
            # Every (degree / fanout)-th edge from a shift on. A node of fewer edges than fan-out has a step of 1: all its edges.
            step = (degree / fanout).clamp_(min=1)
            place = torch.addcmul(first, (shift + turn).frac_() + lane, step).long()
            drawn = (degree > lane).view(-1).nonzero().view(-1)
            neighbours = self.graph.indices[place.view(-1)[drawn]].long()
            dst.append(drawn // fanout + (nodes[-1] - len(front)))

            # Of the entries that name a new node, the one whose number is in local afterwards adds the node.
            new = neighbours[local[neighbours] < 0]
            entries = self.range(0, len(new))
            local[new] = entries
            new = new[local[new] == entries]
            local[new] = self.range(nodes[-1], nodes[-1] + len(new))
            src.append(local[neighbours])
            ids.append(new)
            nodes.append(nodes[-1] + len(new))
            edges.append(edges[-1] + len(neighbours))
        batch = Batch(torch.cat(ids), torch.cat(src), torch.cat(dst), nodes, edges)
        local.index_fill_(0, batch.ids, -1)
        return batch

    def range(self, first: int, end: int) -> Tensor:
        """Returns the numbers from first to end - 1."""
        if end > len(self.numbers):
            self.numbers = torch.arange(2 * end, device=self.numbers.device)
        return self.numbers[first:end]
