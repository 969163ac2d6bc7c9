"""``CachedEmbedding``: an embedding layer for inference whose table is cached.

The same module would be ``torch.nn.Embedding.from_pretrained(weight)`` if the table fitted in the GPU's memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional, Union

import torch

from .errors import ArgumentError, GradientError
from .table import Table

__all__ = ["CachedEmbedding", "CachedEmbeddingBagCollection"]


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


class CachedEmbeddingBagCollection(torch.nn.Module):  # type: ignore[misc]
    """Adds up rows of several tables, one bag of row numbers for each feature and sample, in one call of the library for each cache.

    ``tables`` is a dict from the name of a feature to its table, of two axes; features may share a table. ``mode`` is "sum" or "mean", for all or by
    feature. The input is a ``torchrec.KeyedJaggedTensor``, or a dict from feature to ``(ids, offsets)``, with one offset more than there
    are samples, or to ids of two axes. The output is a ``torchrec.KeyedTensor`` for the former, and a dict from feature to a
    tensor of shape ``(samples, columns)`` for the latter. ``dtype`` is the type of the output: float32, float16, bfloat16, or by default each
    table's.

    As with ``CachedEmbedding`` the tables are constants, and the module has no parameters.
    """

    def __init__(self, tables: Mapping[str, Table], mode: Union[str, Mapping[str, str]] = "sum", dtype: Any = None) -> None:
        super().__init__()
        if not isinstance(tables, Mapping) or not all(isinstance(table, Table) for table in tables.values()):
            raise TypeError("tensorcache: tables must be a dict from the name of a feature to a table of tensorcache.open")
        for feature, table in tables.items():
            if len(table.shape) != 2:
                raise ArgumentError(f"tensorcache: table of feature {feature!r} (shape {tuple(table.shape)}) must have two axes to be an embedding")
        modes = dict.fromkeys(tables, mode) if isinstance(mode, str) else dict(mode)
        if modes.keys() != tables.keys():
            raise ArgumentError("tensorcache: mode (a dict) must have the features of tables")
        for feature, of in modes.items():
            if of not in ("sum", "mean"):
                raise ArgumentError(f"tensorcache: mode ({of!r}) of feature {feature!r} must be 'sum' or 'mean'")
        self.tables, self.modes, self.dtype = dict(tables), modes, dtype

    def forward(self, features: Any) -> Any:
        """Returns the sums or means of each feature's bags."""
        if not hasattr(features, "offset_per_key"):
            if features.keys() != self.tables.keys():
                raise ArgumentError(f"tensorcache: features ({', '.join(features)}) must be {', '.join(self.tables)}")
            parts = {name: of if isinstance(of, (tuple, list)) else (of, None) for name, of in features.items()}
            return self._reduce({name: (of[0], of[1], of[2] if len(of) > 2 else None) for name, of in parts.items()})
        return self._keyed(features)

    def _keyed(self, features: Any) -> Any:
        """``forward`` of a KeyedJaggedTensor: the row numbers of all features one behind the other, and the offsets of all bags."""
        keys, samples = list(features.keys()), features.stride()
        missing = [name for name in self.tables if name not in keys]
        if missing:
            raise ArgumentError(f"tensorcache: features ({', '.join(keys)}) must have {', '.join(missing)}")
        bounds, values, offsets = features.offset_per_key(), features.values(), features.offsets()
        weights = features.weights_or_none()
        parts = {}
        for i, name in enumerate(keys):
            if name in self.tables:
                first, end = bounds[i], bounds[i + 1]
                of = offsets[i * samples : (i + 1) * samples + 1] - first
                parts[name] = values[first:end], of, None if weights is None else weights[first:end]
        found = self._reduce(parts)
        try:
            from torchrec import KeyedTensor
        except ImportError:
            return found
        names = list(self.tables)
        dims = [int(self.tables[name].shape[1]) for name in names]
        return KeyedTensor(names, dims, torch.cat([found[name] for name in names], dim=1))

    def _reduce(self, parts: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        from ._tensors import BagRequest, embedding_bags

        caches: dict[int, list[str]] = {}
        for name in parts:
            caches.setdefault(id(self.tables[name].cache), []).append(name)
        found: dict[str, torch.Tensor] = {}
        for names in caches.values():
            requests = []
            for name in names:
                ids, offsets, weights = parts[name]
                requests.append(BagRequest(
                    self.tables[name]._reads(), ids, offsets, self.modes[name], weights, offsets is not None, None, self.dtype
                ))  # fmt: skip
            found.update(zip(names, embedding_bags(requests)))
        return {name: found[name] for name in parts}

    def extra_repr(self) -> str:
        return "\n".join(f"{name}: {self.modes[name]} of {table!r}" for name, table in self.tables.items())
