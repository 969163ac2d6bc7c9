"""``NgramEmbedding``: the place of an n-gram embedding in a model, with the calls of those that serving engines have."""

from __future__ import annotations

from typing import Optional

import torch

from ._ngram_table import NgramTable
from ._tensors import Prefetch
from .errors import ArgumentError

__all__ = ["NgramEmbedding"]


class NgramEmbedding(torch.nn.Module):  # type: ignore[misc]
    """An n-gram embedding of a served model, whose rows a cache holds.

    Before the first layer the model calls ``start_prefetch(hidden_states, ngram_ids)``, and where it adds the embedding ``forward(hidden_states)``, which
    returns [tokens, heads × elements]: the values of the token's rows, one head after the other.

    max_tokens
        The most tokens of a step. A buffer of max_tokens × heads rows is on the table's device, at the same place for all steps: of values where
        ``table.converts(dtype)``, so that reading converts them, else of bytes. A captured graph can hold both calls, or only ``forward``, with
        ``start_prefetch`` and ``wait`` before its capture and before each replay.
    heads
        The rows of a token.
    dtype
        Of the result.

    The module has no parameters: the table is not in ``state_dict``.
    """

    def __init__(self, table: NgramTable, max_tokens: int, heads: int, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        if not isinstance(table, NgramTable):
            raise TypeError(f"tensorcache: table ({type(table).__name__}) must be an NgramTable")
        for name, value in (("max_tokens", max_tokens), ("heads", heads)):
            if value < 1:
                raise ArgumentError(f"tensorcache: {name} ({value}) must be at least 1")
        self.table, self.heads, self.dtype = table, heads, dtype
        # Not a buffer of the module: to() and half() must leave it as it is.
        self._converts = table.converts(dtype)
        width, kind = (table.format.elements, dtype) if self._converts else (table.format.row_bytes, torch.uint8)
        self._rows = [torch.zeros((max_tokens, heads, width), dtype=kind, device=table.table.device)]
        self._started: Optional[Prefetch] = None

    @property
    def max_tokens(self) -> int:
        """The most tokens of a step."""
        return len(self._rows[0])

    def start_prefetch(self, hidden_states: Optional[torch.Tensor], ngram_ids: torch.Tensor) -> None:
        """Begins to read the rows of a step: ``ngram_ids`` are row numbers, [tokens, heads].

        ``hidden_states`` is there because engines pass it, and is not used. Rows of a step that no ``forward`` has taken are given up.
        """
        if ngram_ids.ndim != 2 or ngram_ids.shape[1] != self.heads:
            raise ArgumentError(f"tensorcache: ngram_ids (shape {tuple(ngram_ids.shape)}) must be [tokens, {self.heads}]")
        tokens = len(ngram_ids)
        if tokens > self.max_tokens:
            raise ArgumentError(f"tensorcache: ngram_ids ({tokens} tokens) must be at most max_tokens ({self.max_tokens})")
        self.wait()  # the buffer is free when the read before this one has ended
        out = self._rows[0][:tokens]
        self._started = self.table.prefetch_values(ngram_ids, self.dtype, out) if self._converts else self.table.prefetch(ngram_ids, out)

    def wait(self) -> None:
        """Orders the current stream after the read that ``start_prefetch`` began. ``forward`` does."""
        if self._started is not None:
            self._started.wait()
            self._started = None

    def finalize_prefetch(self, output: torch.Tensor) -> None:
        """Waits as ``wait`` does, and writes the values of the first ``len(output)`` tokens to ``output``, [tokens, heads × elements] of ``dtype``."""
        width = self.heads * self.table.format.elements
        if output.ndim != 2 or output.shape[1] != width or len(output) > self.max_tokens:
            raise ArgumentError(f"tensorcache: output (shape {tuple(output.shape)}) must be [at most {self.max_tokens} tokens, {width}]")
        if output.dtype != self.dtype:
            raise TypeError(f"tensorcache: output ({output.dtype}) must be {self.dtype}, the module's dtype")
        self.wait()
        rows = self._rows[0][: len(output)]
        output.copy_((rows if self._converts else self.table.format.dequantise(rows, output.dtype)).flatten(-2))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Returns the embedding of the step's tokens, as many as ``hidden_states`` has: [tokens, heads × elements]."""
        output = torch.empty((len(hidden_states), self.heads * self.table.format.elements), dtype=self.dtype, device=self._rows[0].device)
        self.finalize_prefetch(output)
        return output

    def extra_repr(self) -> str:
        return f"max_tokens={self.max_tokens}, heads={self.heads}, dtype={self.dtype}, {self.table!r}"
