"""``CachedEmbedding``: an embedding layer for inference whose table is cached.

The same module would be ``torch.nn.Embedding.from_pretrained(weight)`` if the table fitted in the GPU's memory.
"""

from __future__ import annotations

from typing import Any, Optional

import torch

from .errors import ArgumentError, GradientError
from .table import Table

__all__ = ["CachedEmbedding"]


class CachedEmbedding(torch.nn.Module):  # type: ignore[misc]
    """Looks rows up in a table of two axes: ``ids`` of any shape → the same shape × ``embedding_dim``.

    The table is a constant. The module has no parameters, its ``state_dict`` is empty, and ``to()``, ``half()`` and the like leave the table as
    it is; output has the table's dtype and device. Asking for a gradient is a ``GradientError``.
    """

    def __init__(self, table: Table, padding_idx: Optional[int] = None) -> None:
        super().__init__()
        if not isinstance(table, Table):
            raise TypeError(f"tensorcache: table ({type(table).__name__}) must be a table of tensorcache.open")
        if len(table.shape) != 2:
            raise ArgumentError(f"tensorcache: table (shape {tuple(table.shape)}) must have two axes to be an embedding")
        if padding_idx is not None and not -len(table) <= padding_idx < len(table):
            raise ArgumentError(f"tensorcache: padding_idx ({padding_idx}) must be a row of the table, -{len(table)} to {len(table) - 1}")
        self.table = table
        self.padding_idx = padding_idx

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, padding_idx: Optional[int] = None, **options: Any) -> CachedEmbedding:
        """Opens ``embeddings`` (a tensor, an array or a path) as a table. ``options`` are those of ``tensorcache.open``.

        ``freeze`` must be True, and is there because ``torch.nn.Embedding.from_pretrained`` has it.
        """
        from . import open as open_table

        if not freeze:
            raise GradientError("tensorcache: freeze (False) must be True: the rows of a cache cannot be trained")
        table = open_table(embeddings, **options)
        if not isinstance(table, Table):
            raise TypeError("tensorcache: embeddings (a dict) must be one table")
        return cls(table, padding_idx)

    @property
    def num_embeddings(self) -> int:
        """The number of rows."""
        return len(self.table)

    @property
    def embedding_dim(self) -> int:
        """The length of a row in elements."""
        return int(self.table.shape[1])

    @property
    def weight(self) -> Table:
        """The table."""
        return self.table

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns the rows of ``ids``, int32 or int64, on the CPU or on the table's device."""
        rows: torch.Tensor = self.table[ids]
        return rows

    def requires_grad_(self, requires_grad: bool = True) -> CachedEmbedding:
        """Raises ``GradientError`` unless ``requires_grad`` is False."""
        if requires_grad:
            raise GradientError("tensorcache: requires_grad (True) must be False: the rows of a cache cannot be trained")
        return self

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, {self.table!r}"
