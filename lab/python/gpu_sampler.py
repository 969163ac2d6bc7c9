"""graph.Sampler in a few CUDA kernels, as GPU samplers of graph libraries are.

Of the time of Sampler on a GPU, most is that of launching its operations and of waiting for their numbers.
"""

from __future__ import annotations

import cupy
import torch
from torch import Tensor

from graph import _SHIFTS, Batch, Graph, Sampler

THREADS = 256

KERNELS = r"""
typedef long long Long;

// How many nodes each hop has added, the seeds being hop 0, then how many edges.
struct Counts {
  const int* of;
  int hops;
  __device__ Long nodes(int end) const { Long n = 0; for (int h = 0; h < end; h++) n += of[h]; return n; }          // of hops 0 to end - 1
  __device__ Long edges(int end) const { Long n = 0; for (int h = 1; h < end; h++) n += of[hops + h]; return n; }   // of hops 1 to end - 1
};

extern "C" __global__ void begin(const Long* seeds, Long n, Long* ids, int* local, int* counts) {
  for (Long i = blockIdx.x * (Long)blockDim.x + threadIdx.x; i < n; i += (Long)gridDim.x * blockDim.x) {
    ids[i] = seeds[i];
    local[seeds[i]] = i;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) counts[0] = n;
}

// A thread for each node of the hop before and each edge that it may have. A line is a node's first edge, its degree and its shift. src gets
// the nodes' numbers in the graph. The thread that changes a node's entry in local from -1 adds the node.
extern "C" __global__ void draw(const double* lines, const int* indices, Long* ids, Long* src, Long* dst, int* local, int* counts,
                                int hops, int hop, int fanout, double turn) {
  __shared__ int sums[THREADS / 32], added;
  __shared__ Long firstEdge, firstNode;
  const Counts c = {counts, hops};
  const Long front = c.nodes(hop - 1), tasks = counts[hop - 1] * (Long)fanout, edges = c.edges(hop), nodes = c.nodes(hop);
  const int warp = threadIdx.x / 32;
  for (Long base = blockIdx.x * (Long)THREADS; base < tasks; base += (Long)gridDim.x * THREADS) {
    const Long task = base + threadIdx.x, node = front + task / fanout;
    const int lane = task % fanout;
    bool drawn = false, isNew = false;
    Long neighbour = 0;
    if (threadIdx.x == 0) added = 0;
    if (task < tasks) {
      const double* line = lines + 3 * ids[node];
      drawn = line[1] > lane;
      if (drawn) {
        double step = line[1] / fanout, shift = line[2] + turn;
        step = step < 1 ? 1 : step;
        shift -= floor(shift);
        neighbour = indices[(Long)(line[0] + (shift + lane) * step)];
        isNew = local[neighbour] == -1 && atomicCAS(&local[neighbour], -1, -2) == -1;
      }
    }
    const unsigned mask = __ballot_sync(~0u, drawn);
    if (threadIdx.x % 32 == 0) sums[warp] = __popc(mask);
    __syncthreads();
    const int number = isNew ? atomicAdd(&added, 1) : 0;
    int place = __popc(mask & ((1u << threadIdx.x % 32) - 1)), all = 0;
    for (int w = 0; w < THREADS / 32; w++) {
      place += w < warp ? sums[w] : 0;
      all += sums[w];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      firstEdge = edges + atomicAdd(&counts[hops + hop], all);
      firstNode = nodes + atomicAdd(&counts[hop], added);
    }
    __syncthreads();
    if (drawn) {
      src[firstEdge + place] = neighbour;
      dst[firstEdge + place] = node;
    }
    if (isNew) {
      ids[firstNode + number] = neighbour;
      local[neighbour] = firstNode + number;
    }
  }
}

extern "C" __global__ void number(Long* src, const int* local, const int* counts, int hops) {
  const Long n = Counts{counts, hops}.edges(hops + 1);
  for (Long i = blockIdx.x * (Long)blockDim.x + threadIdx.x; i < n; i += (Long)gridDim.x * blockDim.x) src[i] = local[src[i]];
}

extern "C" __global__ void end(const Long* ids, int* local, const int* counts, int hops) {
  const Long n = Counts{counts, hops}.nodes(hops + 1);
  for (Long i = blockIdx.x * (Long)blockDim.x + threadIdx.x; i < n; i += (Long)gridDim.x * blockDim.x) local[ids[i]] = -1;
}
"""


class GPUSampler(Sampler):
    """Draws the edges that Sampler draws, in an order that differs between calls: dst does not ascend.

    It waits for the device once a batch, for the numbers of nodes and edges.
    """

    name = "CUDA kernels"

    def __init__(self, graph: Graph, fanouts: list[int]):
        super().__init__(graph, fanouts)
        self.local = self.local.int()
        module = cupy.RawModule(code=KERNELS, options=(f"-DTHREADS={THREADS}",))
        self.kernels = {name: module.get_function(name) for name in ("begin", "draw", "number", "end")}
        self.most_blocks = 8 * torch.cuda.get_device_properties(graph.indptr.device).multi_processor_count

    def sample(self, seeds: Tensor, seed: int) -> Batch:
        hops, device = len(self.fanouts), seeds.device
        most = [len(seeds)]  # nodes that a hop can add, which is also the edges that it can draw
        for fanout in self.fanouts:
            most.append(most[-1] * fanout)
        ids = torch.empty(sum(most), dtype=torch.int64, device=device)
        src, dst = (torch.empty(sum(most[1:]), dtype=torch.int64, device=device) for _ in range(2))
        counts = torch.zeros(2 * hops + 1, dtype=torch.int32, device=device)
        turn = seed * 648055 % _SHIFTS / _SHIFTS
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            self.launch("begin", len(seeds), seeds, cupy.int64(len(seeds)), ids, self.local, counts)
            for hop, fanout in enumerate(self.fanouts, 1):
                self.launch("draw", most[hop], self.lines, self.graph.indices, ids, src, dst, self.local, counts,
                            cupy.int32(hops), cupy.int32(hop), cupy.int32(fanout), cupy.float64(turn))
            self.launch("number", len(src), src, self.local, counts, cupy.int32(hops))
            self.launch("end", len(ids), ids, self.local, counts, cupy.int32(hops))
        found = counts.tolist()
        nodes, edges = [found[0]], [0]
        for hop in range(1, hops + 1):
            nodes.append(nodes[-1] + found[hop])
            edges.append(edges[-1] + found[hops + hop])
        return Batch(ids[: nodes[-1]], src[: edges[-1]], dst[: edges[-1]], nodes, edges)

    def launch(self, name: str, tasks: int, *arguments: object) -> None:
        """Launches a kernel with a thread for each task, or fewer that take several."""
        blocks = min(-(-tasks // THREADS), self.most_blocks)
        self.kernels[name]((blocks,), (THREADS,), tuple(cupy.uint64(a.data_ptr()) if isinstance(a, Tensor) else a for a in arguments))
