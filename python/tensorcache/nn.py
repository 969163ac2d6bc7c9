"""``CachedEmbedding``: an embedding layer for inference whose table is cached.

The same module would be ``torch.nn.Embedding.from_pretrained(weight)`` if the table fitted in the GPU's memory.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NoReturn, Optional, Union

import torch

from ._bag_tensors import BagRequest, embedding_bags, factors, keyed_bags
from ._elements import element
from ._tensors import BITS, host_tensor, seen
from .errors import ArgumentError, GradientError, UnsupportedError
from .table import Table

__all__ = ["CachedEmbedding", "CachedEmbeddingBagCollection"]


class _OfTables(torch.nn.Module):  # type: ignore[misc]
    """A module that reads constant tables."""

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Raises ``GradientError`` unless ``requires_grad`` is False."""
        if requires_grad:
            raise GradientError("tensorcache: requires_grad (True) must be False: the rows of a cache cannot be trained")
        return self

    def __prepare_scriptable__(self) -> NoReturn:
        """Called by ``torch.jit.script``."""
        raise UnsupportedError(f"tensorcache: torch.jit.script cannot take {type(self).__name__}, whose table is an object of Python: take torch.export, torch.compile or torch.jit.trace")


class CachedEmbedding(_OfTables):
    """Looks rows up in a table of two axes: ``ids`` of any shape → the same shape × ``embedding_dim``.

    The table is a constant, and not copied: the module has no parameters, and ``to()``, ``half()`` and the like leave the table as it is. Output is on the
    table's device. Its dtype is the table's, or what ``half()``, ``bfloat16()``, ``float()``, ``to(dtype)`` asked for last: rows are rounded to it when they are
    read, and ``half().float()`` is the table's own again. Asking for a gradient is a ``GradientError``. Row numbers are 0 to ``num_embeddings - 1``.

    ``state_dict()`` has no ``weight``, which might be larger than host memory: save the rows by ``torch.from_numpy(numpy.asarray(module.table))``, or open them
    from their file again. A state dict with a ``weight`` of the table's shape, as an ``nn.Embedding`` writes it, is loaded: rows that differ are updated in the
    table, for all who read it.
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
        self._dtype: Any = None  # of the output, if it is not the table's

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
        rows: torch.Tensor
        if self._dtype is None:
            rows = self._rows(ids)
        elif self._dtype in _ROUNDED and self.table._element.torch() in (*_ROUNDED, torch.float8_e4m3fn, torch.float8_e5m2):
            rows = self.table._gather(ids, dtype=self._dtype)
        else:
            rows = self._rows(ids).to(self._dtype)
        return rows

    def _rows(self, ids: Any) -> Any:
        """The rows as they are. As in an ``nn.Embedding``, no row number is negative."""
        return self.table._reads().read(ids) if isinstance(ids, torch.Tensor) else self.table._gather(ids)

    def _apply(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        """What ``to()``, ``half()`` and the like do to tensors: the output takes their dtype."""
        of, asked = self.table._element.torch(), _dtype_of(fn)
        if asked is not None and of.is_floating_point:
            self._dtype = None if asked == of else asked
        return super()._apply(fn, *args, **kwargs)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: Any, unexpected: Any, errors: Any) -> None:
        state_dict = dict(state_dict)
        weight = state_dict.pop(f"{prefix}weight", None)
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, unexpected, errors)
        if weight is None:
            return
        of, shape = self.table._element.torch(), tuple(self.table.shape)
        if tuple(weight.shape) != shape:
            errors.append(f"tensorcache: {prefix}weight (shape {tuple(weight.shape)}) must have shape {shape}, as the table has")
            return
        step = max(1, _PART // max(1, shape[1] * self.table._element.size))
        for first in range(0, shape[0], step):
            self._replace(first, weight[first : first + step].detach().to("cpu", of).contiguous())

    def _replace(self, first: int, rows: torch.Tensor) -> None:
        """Updates those of some rows, from ``first`` on, that differ in a bit."""
        bits = BITS[rows.element_size()]
        held = self.table.gather(torch.arange(first, first + len(rows), device="cpu"), out=torch.empty_like(rows, device="cpu"))
        differ = (held.view(bits) != rows.view(bits)).any(1).nonzero().view(-1)
        if len(differ):
            self.table.update(differ + first, rows[differ])

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, {self.table!r}"


class CachedEmbeddingBagCollection(_OfTables):
    """Adds up rows of several tables, one bag of row numbers for each feature and sample, in one call of the library for each cache.

    ``tables`` is a dict from the name of a feature to its table, of two axes; features may share a table. ``mode`` is "sum" or "mean", for all or by
    feature. The input is a ``torchrec.KeyedJaggedTensor``, or a dict from feature to ``(ids, offsets)``, with one offset more than there
    are samples, or to ids of two axes; each may have weights behind them, float32 factors for "sum". The output is a ``torchrec.KeyedTensor`` for the former, in
    the type that holds the sums of all tables, and a dict from feature to a tensor of shape ``(samples, columns)`` for the latter, by default in each table's type.
    ``dtype`` is the type of the output: float32, float16 or bfloat16; others of floating-point numbers are converted from float32. All features of a
    KeyedJaggedTensor must have as many samples.

    Tensors on a GPU are read in the order of the current stream; the host does not wait. Captured graphs and ``torch.compile(fullgraph=True)`` take the module.

    As with ``CachedEmbedding`` the tables are constants, the module has no parameters, and ``half()``, ``to(dtype)`` and the like set ``dtype``.
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
        self.tables, self.modes, self.dtype = dict(tables), modes, None if dtype is None else element(dtype).torch()
        if self.dtype is not None and not self.dtype.is_floating_point:
            raise TypeError(f"tensorcache: dtype ({self.dtype}) must be a type of floating-point numbers")
        # What compiled programs may look at: the tables' columns, and the features of each cache.
        self._widths = {feature: table._reads().sums()[1][0] for feature, table in tables.items()}
        by_cache: dict[int, list[str]] = {}
        for feature, table in tables.items():
            by_cache.setdefault(id(table.cache), []).append(feature)
        self._groups = list(by_cache.values())
        self._keyed_tensor = _of_torchrec("KeyedTensor")

    def forward(self, features: Any) -> Any:
        """Returns the sums or means of each feature's bags: ``(samples, columns)`` for each, in a dict, or side by side in a ``KeyedTensor``."""
        if hasattr(features, "stride") and hasattr(features, "offsets"):
            return self._keyed(features)
        if features.keys() != self.tables.keys():
            raise ArgumentError(f"tensorcache: features ({', '.join(features)}) must be {', '.join(self.tables)}")
        parts = {name: of if isinstance(of, (tuple, list)) else (of, None) for name, of in features.items()}
        found: dict[str, torch.Tensor] = {}
        for names in self._groups:
            of = [parts[name] for name in names]
            ids, offsets, weights = [x[0] for x in of], [x[1] for x in of], [x[2] if len(x) > 2 else None for x in of]
            modes = [self.modes[name] for name in names]
            found.update(zip(names, self._bags(names, ids, offsets, modes, weights)))
        return {name: self._converted(found[name]) for name in features}

    def _apply(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        self.dtype = _dtype_of(fn) or self.dtype
        return super()._apply(fn, *args, **kwargs)

    def _read_dtype(self) -> Optional[str]:
        """The name of the type that the library gives the output."""
        return None if self.dtype is None else _ROUNDED.get(self.dtype, "float32")

    def _converted(self, found: torch.Tensor) -> torch.Tensor:
        return found if self.dtype is None or self.dtype in _ROUNDED else found.to(self.dtype)

    def _keys(self, names: list[str]) -> list[str]:
        """The operators' names of tables. They are not kept: in a process that a pickled module is sent to, they are others."""
        return [self.tables[name]._reads().key for name in names]

    def _as_tensors(self, name: str, ids: Any, offsets: Any, weights: Any) -> tuple[Any, Any, Any]:
        if not isinstance(ids, torch.Tensor):
            ids = host_tensor(ids, self.tables[name]._reads()._rows())
        if offsets is not None and not isinstance(offsets, torch.Tensor):
            offsets = host_tensor(offsets, ids.numel() + 1, "offsets")
        if weights is not None and not isinstance(weights, torch.Tensor):
            weights = factors(weights)
        return ids, offsets, weights

    def _bags(self, names: list[str], ids: list[Any], offsets: list[Any], modes: list[str], weights: list[Any]) -> list[torch.Tensor]:
        """Reduces the bags of some features, of one cache."""
        if seen(*ids, *offsets, *weights):
            keys, dtype = self._keys(names), self._read_dtype()
            for i, name in enumerate(names):  # operators take tensors only
                ids[i], offsets[i], weights[i] = self._as_tensors(name, ids[i], offsets[i], weights[i])
            if torch.jit.is_tracing():  # its programs have no lists of tensors that may be None
                return [torch.ops.tensorcache.embedding_bag(*of, at is not None, None, dtype) for of, at in zip(zip(ids, offsets, keys, modes, weights), offsets)]
            result: list[torch.Tensor] = torch.ops.tensorcache.embedding_bags(ids, offsets, keys, modes, weights, True, dtype)
            return result
        return embedding_bags([
            BagRequest(self.tables[name]._reads(), of, at, mode, factors, at is not None, None, self._read_dtype())
            for name, of, at, mode, factors in zip(names, ids, offsets, modes, weights)
        ])  # fmt: skip

    def _keyed(self, features: Any) -> Any:
        """``forward`` of a KeyedJaggedTensor: the row numbers of all features one behind the other, and the offsets of all bags. Nothing waits for a GPU that has
        them."""
        keys, samples = list(features.keys()), features.stride()
        missing = [name for name in self.tables if name not in keys]
        if missing:
            raise ArgumentError(f"tensorcache: features ({', '.join(keys)}) must have {', '.join(missing)}")
        if not torch.compiler.is_compiling():
            self._keyed_tensor = _of_torchrec("KeyedTensor")
        kind = self._keyed_tensor
        values, offsets, weights = features.values(), features.offsets(), features.weights_or_none()
        parts: dict[str, torch.Tensor] = {}
        for names in self._groups:
            first, modes = [keys.index(name) * samples for name in names], [self.modes[name] for name in names]
            if seen(values, offsets, weights):
                joined = torch.ops.tensorcache.keyed_bags(values, offsets, self._keys(names), first, samples, modes, weights, self._read_dtype())
            else:
                joined = keyed_bags([self.tables[name]._reads() for name in names], first, samples, modes, values, offsets, weights, self._read_dtype())
            joined = self._converted(joined)
            if len(self._groups) == 1 and kind is not None:
                return kind(names, [self._widths[name] for name in names], joined)
            parts.update(zip(names, joined.split([self._widths[name] for name in names], 1)))
        found = {name: parts[name] for name in self.tables}
        if kind is None:
            return found
        return kind(list(found), [self._widths[name] for name in found], torch.cat(list(found.values()), dim=1))

    def extra_repr(self) -> str:
        return "\n".join(f"{name}: {self.modes[name]} of {table!r}" for name, table in self.tables.items())


def _dtype_of(function: Any) -> Any:
    """Returns the dtype that a function of ``Module._apply`` gives to tensors of floats, None if it leaves theirs."""
    given = {function(torch.empty(0, dtype=of, device="cpu")).dtype for of in (torch.float32, torch.float64)}
    return given.pop() if len(given) == 1 else None


_ROUNDED = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}  # what Table.gather rounds to
_PART = 4 << 20  # bytes of a table that is loaded at a time


def _of_torchrec(name: str) -> Any:
    """Returns what torchrec calls so, None if the program has not imported torchrec: it takes seconds."""
    return getattr(sys.modules.get("torchrec"), name, None)
