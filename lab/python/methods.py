"""The ways to fetch rows that the benchmark compares. Each returns the rows of a batch as a new tensor, in the order of the current stream."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

from features import Features

try:
    import cupy
except ImportError:
    cupy = None


class Method:
    """A way to fetch rows. ids are int64 row numbers on the device of the output."""

    name = ""
    row_bytes = 0
    blocks = False  # whether fetch waits for the device, so that only another thread can fetch ahead

    def fetch(self, ids: Tensor) -> Tensor:
        raise NotImplementedError

    def reads(self, ids: Tensor) -> tuple[int, int]:
        """Returns how many rows of ids are misses, and the bytes that are read from host memory for them."""
        return len(ids), len(ids) * self.row_bytes

    def details(self) -> dict[str, Any]:
        """What else the results say of the method."""
        return {}

    def close(self) -> None:
        pass


class Cache(Method):
    """tensorcache: `x = tensorcache.open(…)`, then `x[ids]`."""

    def __init__(self, features: Features, device: torch.device, budget: int, codec: str, training: list[Tensor]):
        import tensorcache

        self.name, self.row_bytes = f"tensorcache {codec}", features.row_bytes
        self.x = tensorcache.open(features.rows, gpu_memory=budget, codec=codec, train=training,
                                  device="cuda" if device.type == "cuda" else "host")

    def fetch(self, ids: Tensor) -> Tensor:
        rows: Tensor = self.x[ids]
        return rows

    def reads(self, ids: Tensor) -> tuple[int, int]:
        before = self.x.stats()
        self.x[ids]
        if ids.is_cuda:
            torch.cuda.synchronize()
        after = self.x.stats()
        return after["misses"] - before["misses"], after["host_bytes_moved"] - before["host_bytes_moved"]

    def details(self) -> dict[str, Any]:
        s = self.x.stats()
        return {"codec": s["codec"], "compression_ratio": round(s["compression_ratio"], 4), "rows_cached": s["rows_cached"], "miss_strategy": s.get("miss_strategy", [])}

    def close(self) -> None:
        self.x.close()


class CPUGather(Method):
    """What PyG's loaders do: processors gather the rows into page-locked memory, which is copied to the GPU."""

    name = "CPU gather, copy"
    blocks = True

    def __init__(self, features: Features, device: torch.device):
        self.table, self.row_bytes, self.device = features.rows, features.row_bytes, device
        if device.type == "cuda":
            torch.set_num_threads(os.cpu_count() or 1)
        self.turn = 0
        self.stage = [self.table[:0], self.table[:0]]
        self.copied: list[torch.cuda.Event | None] = [None, None]

    def fetch(self, ids: Tensor) -> Tensor:
        if self.device.type != "cuda":
            return self.table.index_select(0, ids)
        self.turn ^= 1
        if len(self.stage[self.turn]) < len(ids):
            self.stage[self.turn] = torch.empty(len(ids) * 5 // 4, self.table.shape[1], dtype=self.table.dtype, pin_memory=True)
        rows, event = self.stage[self.turn][: len(ids)], self.copied[self.turn]
        if event is not None:
            event.synchronize()
        torch.index_select(self.table, 0, ids.cpu(), out=rows)
        out = rows.to(self.device, non_blocking=True)
        event = self.copied[self.turn] = torch.cuda.Event()
        event.record()
        return out


KERNEL = r"""
// Copies row ids[i] to row (order ? order[i] : i) of out. Rows are PIECES pieces of 16 bytes; neighbouring threads copy neighbouring
// pieces, so that a row is read as a whole. With slots, row slots[id] of hot is read instead of row id of table if slots[id] >= 0.
extern "C" __global__ void gather(const uint4* table, const uint4* hot, const int* slots, const long long* ids,
                                  const long long* order, uint4* out, long long n) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n * PIECES; i += (long long)gridDim.x * blockDim.x) {
    long long row = i / PIECES, piece = i % PIECES, id = ids[row];
    int slot = slots ? slots[id] : -1;
    uint4 value = slot >= 0 ? hot[slot * (long long)PIECES + piece] : table[id * PIECES + piece];
    out[(order ? order[row] : row) * PIECES + piece] = value;
  }
}
"""


class ZeroCopy(Method):
    """The GPU reads rows from page-locked memory itself (UVA). The table's hottest rows may lie in GPU memory, uncompressed.

    Sorted: the row numbers are sorted first, by torch.sort, which is part of the time. Sorted rows need fewer address translations.
    budget: bytes of hot rows, the most frequent ones of the training batches; 0 for none. The map from row number to hot row, 4 bytes a
    row, comes on top of the budget. tune picks the number of blocks: fewer leave more of the GPU to what runs beside the kernel.
    """

    blocks_of_512 = 528

    def __init__(self, features: Features, device: torch.device, sort: bool, budget: int = 0, counts: Tensor | None = None):
        if features.row_bytes % 16 != 0:
            raise ValueError(f"methods: row ({features.row_bytes} bytes) must be a multiple of 16 bytes")
        self.name = ("hot rows, UVA" if budget else "UVA") + (", sorted" if sort else "")
        self.table, self.row_bytes, self.sort = features.rows, features.row_bytes, sort
        self.kernel = cupy.RawKernel(KERNEL, "gather", options=(f"-DPIECES={features.row_bytes // 16}",))
        self.hot = self.slots = None
        if budget and counts is not None:
            chosen = counts.argsort(descending=True)[: budget // features.row_bytes]
            self.hot = torch.empty(len(chosen), features.rows.shape[1], dtype=features.rows.dtype, device=device)
            for rows, out in zip(chosen.split(1 << 20), self.hot.split(1 << 20)):
                out.copy_(features.rows.index_select(0, rows.cpu()))
            self.slots = torch.full((len(features.rows),), -1, dtype=torch.int32, device=device)
            self.slots[chosen] = torch.arange(len(chosen), dtype=torch.int32, device=device)

    def fetch(self, ids: Tensor) -> Tensor:
        out = torch.empty(len(ids), self.table.shape[1], dtype=self.table.dtype, device=ids.device)
        order = None
        if self.sort:
            ids, order = ids.sort()
        stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
        address = [cupy.uint64(t.data_ptr() if t is not None else 0) for t in (self.table, self.hot, self.slots, ids, order, out)]
        with stream:
            self.kernel((self.blocks_of_512,), (512,), (*address, cupy.int64(len(ids))))
        return out

    def tune(self, ids: Tensor) -> None:
        """Takes the smallest number of blocks whose time for these row numbers is within 3 % of the shortest."""
        times = {}
        for blocks in (33, 66, 132, 264, 528):
            self.blocks_of_512 = blocks
            runs = []
            for _ in range(4):
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                self.fetch(ids)
                end.record()
                end.synchronize()
                runs.append(begin.elapsed_time(end))
            times[blocks] = min(runs)
        self.blocks_of_512 = next(blocks for blocks, ms in times.items() if ms <= 1.03 * min(times.values()))

    def reads(self, ids: Tensor) -> tuple[int, int]:
        misses = len(ids) if self.slots is None else int((self.slots[ids] < 0).sum())
        return misses, misses * self.row_bytes

    def details(self) -> dict[str, Any]:
        return {"blocks": self.blocks_of_512, **({} if self.hot is None else {"rows_cached": len(self.hot)})}
