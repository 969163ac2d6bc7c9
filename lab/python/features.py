"""A generated table of features in host memory, page-locked where there is a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

COLUMNS = 128  # elements of a row
_PIECE = 1 << 28  # bytes generated at a time


class Features:
    """Rows of normally distributed numbers. rows is a CPU tensor, page-locked for the GPU to read if lock is set."""

    def __init__(self, count: int, columns: int, dtype: torch.dtype, device: torch.device, lock: bool = True, seed: int = 2):
        self.locked = lock and device.type == "cuda"
        # Pages that exist are page-locked ten times as fast, and zero_ makes them on all processors.
        self.rows = torch.empty(count, columns, dtype=dtype).zero_()
        if self.locked:
            _check(torch.cuda.cudart().cudaHostRegister(self.rows.data_ptr(), self.rows.nbytes, 0), "cudaHostRegister")
        random = torch.Generator(device).manual_seed(seed)
        for piece in self.rows.split(max(_PIECE // self.row_bytes, 1)):
            piece.copy_(torch.randn(piece.shape, generator=random, device=device, dtype=dtype), non_blocking=True)
        if device.type == "cuda":
            torch.cuda.synchronize()

    @property
    def row_bytes(self) -> int:
        return self.rows.shape[1] * self.rows.element_size()

    def equal(self, ids: Tensor, found: Tensor) -> bool:
        """Says whether found, on any device, is bit for bit the rows of these row numbers."""
        bits = {2: torch.int16, 4: torch.int32}[self.rows.element_size()]
        want = self.rows.index_select(0, ids.cpu()).to(found.device)
        return want.shape == found.shape and want.dtype == found.dtype and torch.equal(want.view(bits), found.view(bits))

    def close(self) -> None:
        """Gives the memory back. Nothing may read rows any more."""
        if self.locked:
            torch.cuda.synchronize()
            _check(torch.cuda.cudart().cudaHostUnregister(self.rows.data_ptr()), "cudaHostUnregister")
        self.rows = self.rows[:0].clone()


def _check(status: object, call: str) -> None:
    if int(status) != 0:  # type: ignore[call-overload]
        raise RuntimeError(f"features: {call} ({status}) must succeed")
