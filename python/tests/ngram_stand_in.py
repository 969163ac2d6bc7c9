"""What tests of n-gram embeddings compare with: an engine's module, and a model that has it."""

from __future__ import annotations

from typing import Any

import torch

from tensorcache.ngram import NgramHash, RowFormat


class StandIn(torch.nn.Module):  # type: ignore[misc]
    """An n-gram embedding as serving engines have it: the whole table in memory of its own, a buffer for a step's rows, and these calls."""

    def __init__(self, table: Any, row_format: RowFormat, max_tokens: int, heads: int) -> None:
        super().__init__()
        self.whole, self.format, self.heads = table, row_format, heads
        self.buffer = torch.zeros((max_tokens, heads, table.shape[1]), dtype=torch.uint8, device=table.device)

    def start_prefetch(self, hidden_states: Any, ngram_ids: Any) -> None:
        torch.index_select(self.whole, 0, ngram_ids.flatten(), out=self.buffer[: len(ngram_ids)].flatten(0, 1))

    def finalize_prefetch(self, output: Any) -> None:
        output.copy_(self.format.dequantise(self.buffer[: len(output)], output.dtype).flatten(-2))

    def forward(self, hidden_states: Any) -> Any:
        output = torch.empty((len(hidden_states), self.heads * self.format.elements), dtype=torch.bfloat16, device=hidden_states.device)
        self.finalize_prefetch(output)
        return output


class Model(torch.nn.Module):  # type: ignore[misc]
    """A model that knows an embedding by its calls only."""

    def __init__(self, ngrams: Any, width: int) -> None:
        super().__init__()
        self.hash = NgramHash((2, 3), heads=4, rows=5000)
        self.ngrams = ngrams
        torch.manual_seed(3)
        self.embed, self.out = torch.nn.Embedding(50, 32, dtype=torch.bfloat16), torch.nn.Linear(width, 32, bias=False, dtype=torch.bfloat16)

    def forward(self, windows: Any) -> Any:
        hidden = self.embed(windows[:, -1])
        self.ngrams.start_prefetch(hidden, self.hash(windows, last=1)[:, 0])
        hidden = torch.nn.functional.silu(hidden)
        return hidden + self.out(self.ngrams(hidden))
